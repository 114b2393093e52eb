# The cases: the Jobs of examples/kubernetes, changed only where a user must fill
# something in, and the state of the disks after something fails in the middle.
# Sourced after kubernetes.sh.
#
#   $work/volumes/NAME      a file system of its own: in, out and small
#   $work/sums/DISK         the checksum of a disk's content
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2034,SC2154

examples=$top/examples/kubernetes
volumes=$work/volumes
limit=$((128 * 1048576))        # of the examples' pods

declare -A about=(
  [job]='the example as it is, with its three disks'
  [killed]='the server of a disk is killed in the middle'
  [evict]='a pod is evicted in the middle'
  [broken]='images that are missing, not readable, broken, or too large'
  [import]='an import into a block volume, on slow storage'
)
order=(job killed evict broken import)

# ---- results ----

tell ()
{
  echo "$*" | tee -a "$work/counts"
}

# check WHAT COMMAND...: passes if the command does.
check ()
{
  if "${@:2}"; then tell "PASS: $case: $1"; else tell "FAIL: $case: $1"; fi
}

# equal EXPECTED GOT
equal ()
{
  [ "$1" = "$2" ] || {
    echo "    expected: $1; got: $2"
    return 1
  }
}

# within SECONDS COMMAND...: try it five times a second until it succeeds.  The
# number of tries counts, because the whole machine may stop for a while.
within ()
{
  local i

  for ((i = 0; i < $1 * 5; i++)); do
    ! "${@:2}" || return 0
    sleep 0.2
  done
  return 1
}

# ---- disks ----

# make_volumes: and the images on them, which anybody may read.
make_volumes ()
{
  local name size

  step 'making disks'
  while read -r name size; do
    mkdir -p "$volumes/$name"
    truncate -s "$size" "$work/$name.img"
    mkfs.ext4 -q "$work/$name.img"
    mount -o loop "$work/$name.img" "$volumes/$name"
  done <<<$'in 3G\nout 3G\nsmall 500M'
  mkdir "$work/sums"
  make_disk web-1.qcow2 256
  make_disk web-2.qcow2 128
  make_disk db-1.qcow2 128
  make_disk middle.raw 512
  make_disk import.qcow2 400
}

# make_disk NAME MIB: three quarters of it are data.
make_disk ()
{
  local raw=$work/raw

  head -c $(($2 * 3 / 4))M /dev/urandom >"$raw"
  truncate -s "$2M" "$raw"
  sha256sum <"$raw" >"$work/sums/${1%.*}"
  qemu-img convert -S 0 -f raw -O "${1##*.}" "$raw" "$volumes/in/$1"
  rm "$raw"
  chmod 644 "$volumes/in/$1"
  sync "$volumes/in/$1"
}

# nothing_cached: of the disks in the volume.
nothing_cached ()
{
  equal 0 "$(fincore --bytes --noheadings --output RES "$volumes/$to"/*.raw |
    awk '{ sum += $1 } END { print sum + 0 }')"
}

# right DISK...: each has its final name and the right content, and the volume
# has no other file.
right ()
{
  local disk

  for disk; do
    sha256sum <"$volumes/$to/$disk.raw" | cmp - "$work/sums/$disk" || return 1
  done
  equal $# "$(find "$volumes/$to" -type f | wc -l)"
}

# written MIB: as much of the first disk, or more.
written ()
{
  local blocks

  # There may be no such file, or it may be renamed at this moment.
  blocks=$(stat -c %b "$volumes/out"/middle.raw.*part 2>/dev/null | head -n 1)
  [ "${blocks:-0}" -gt $(($1 * 2048)) ]
}

# ---- the Job that converts ----

# forget_wishes: what a case fills in.
forget_wishes ()
{
  disks=(web-1.qcow2 web-2.qcow2 db-1.qcow2) parallelism=2 to=out slow=''
}

# fill_in: print the example, with that.
fill_in ()
{
  awk -v list="${disks[*]}" '
    /^  convert: / { listing = 0 }
    !listing
    /^  list: / {
      listing = 1
      n = split(list, disk, " ")
      for (i = 1; i <= n; i++) print "    " disk[i]
    }' "$examples/convert-job.yaml" |
    sed "s/completions: .*/completions: ${#disks[@]}/
      s/parallelism: .*/parallelism: $parallelism/
      s/claimName: images-out/claimName: images-$to/
      ${slow:+s/ file \"\$part\" cache=none/ --filter=rate& rate=$slow/}"
}

# watch_begin GROUPS; watch_end: what was seen in between is in $seen.
watch_begin ()
{
  seen=$work/seen.json
  "$here/watch" "$seen" "$volumes/$to" '/sys/fs/cgroup/memory/kubepods/*/pod*' &
  watcher=$!
}

watch_end ()
{
  kill "$watcher"
  wait "$watcher"
}

begin_job ()
{
  kubectl delete job convert-disks --ignore-not-found --wait >/dev/null
  find "$volumes/$to" -type f -delete
  watch_begin
  fill_in | kubectl apply -f - >/dev/null
}

# end_job NAME: it has ended, well or not.
end_job ()
{
  within 300 job_has_ended "$1" || {
    kubectl describe pods
    tell "FAIL: $case: the Job does not end"
  }
  watch_end
}

# As examples/kubernetes/README.md shows.
job_has_ended ()
{
  kubectl get job "$1" -o jsonpath='{.status.conditions[*].type}' |
    grep -qwE 'Complete|Failed'
}

# job_is STATUS: which disks are done and have failed, and how many tries failed.
job_is ()
{
  equal "$1" "$(kubectl get job convert-disks -o json | jq -r '.status |
    "done: \(.completedIndexes) failed: \(.failedIndexes) tries: \(.failed // 0)"')"
}

# explained INDEX TEXT: "kubectl describe" shows it of the pod.
explained ()
{
  kubectl describe pods >"$run/pods" \
    -l "batch.kubernetes.io/job-completion-index=$1"
  grep -qF -- "$2" "$run/pods"
}

# all_is_well DISK...: what must hold however the Job went.
all_is_well ()
{
  check 'a disk has one writer at any time' \
    equal 1 "$(jq '[.disks[].writers] | max' "$seen")"
  check 'no disk with its final name changes' \
    equal false "$(jq '[.disks[].changed] | any' "$seen")"
  fits
  # Before they are read to be compared.
  check 'no page of the disks is cached' nothing_cached
  check 'these disks are whole, and nothing else is left' right "$@"
}

# fits: no pod reached its limit of memory.
fits ()
{
  jq -r '.pods[] | "    a pod of \(.max / 1048576 | round) MiB"' "$seen"
  check 'no pod reaches its limit' equal "$limit 0 0" "$(jq -r '.pods |
    "\(map(.limit) | max) \(map(.full) | add) \(map(.killed) | add)"' "$seen")"
}

# begin_in_the_middle: a large disk is converted slowly, and 100 MiB are written.
begin_in_the_middle ()
{
  slow=400M             # bits a second
  disks=(middle.raw web-1.qcow2)
  begin_job
  within 60 written 100 || tell "FAIL: $case: the conversion does not begin"
}

# ---- the cases ----

case_job ()
{
  begin_job
  end_job convert-disks
  check 'all are done' job_is 'done: 0-2 failed:  tries: 0'
  check 'its user is not root' \
    equal 65532 "$(stat -c %u "$volumes/out/web-1.raw")"
  all_is_well web-1 web-2 db-1
}

case_killed ()
{
  local server

  begin_in_the_middle
  server=$(pgrep -f '^[^ ]*nbdkit .*/middle[.]') || server=
  kill -KILL "$server" || tell "FAIL: $case: no server"
  end_job convert-disks
  check 'all are done, and one was tried again' \
    job_is 'done: 0,1 failed:  tries: 1'
  all_is_well middle web-1
}

# As "kubectl drain" does.
case_evict ()
{
  local pod

  begin_in_the_middle
  pod=$(kubectl get pods -o jsonpath='{.items[0].metadata.name}' \
    -l batch.kubernetes.io/job-completion-index=0)
  kubectl create -f - >/dev/null \
    --raw "/api/v1/namespaces/default/pods/$pod/eviction" <<END
{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "$pod"}}
END
  end_job convert-disks
  check 'all are done, and it does not count as a try' \
    job_is 'done: 0,1 failed:  tries: 0'
  check 'the pod was replaced' equal 3 "$(jq '.pods | length' "$seen")"
  all_is_well middle web-1
}

case_broken ()
{
  local in=$volumes/in

  disks=(web-1.qcow2 missing.qcow2 secret.qcow2 damaged.qcow2 middle.raw)
  to=small parallelism=1
  cp "$in/web-1.qcow2" "$in/secret.qcow2"
  chmod 600 "$in/secret.qcow2"
  # As from a download that was interrupted.
  head -c 50M "$in/web-1.qcow2" >"$in/damaged.qcow2"
  sync -f "$in"
  begin_job
  end_job convert-disks
  check 'the whole one is done, and only the full volume is tried again' \
    job_is 'done: 0 failed: 1-4 tries: 6'
  check 'a pod reports what is missing' \
    explained 1 'missing.qcow2: there is no image /in/missing.qcow2'
  check 'a pod reports what it may not read' \
    explained 2 "user 65532 may not read /in/secret.qcow2: it is user 0's"
  check 'a pod reports what is damaged' \
    explained 3 'damaged.qcow2: /in/damaged.qcow2 is damaged'
  check 'a pod reports that there is no room' \
    explained 4 'No space left on device'
  all_is_well web-1
}

# loop device -> nbdfuse -> nbdkit --filter=rate -> memory: 20 MB/s.  The last
# close of a block device empties its page cache, so it stays open.
case_import ()
{
  local device held folder=$work/slow

  mkdir -p "$folder/fuse"
  started slow nbdkit -f -U "$folder/sock" --filter=rate memory 400M rate=160M \
    burstiness=0.1
  within 20 test -S "$folder/sock" || die "see $run/slow.log"
  started fuse nbdfuse "$folder/fuse/disk" "nbd+unix:///?socket=$folder/sock"
  within 20 test -e "$folder/fuse/disk" || die "see $run/fuse.log"
  device=$(losetup -f --show "$folder/fuse/disk")
  echo "$device" >"$work/device"
  exec {held}<"$device"
  volume import-disk Block "$device"
  watch_begin
  sed 's/storageClassName: .*/storageClassName: local/; s/storage: 20Gi/storage: 1Gi/
    s/value: web-1.qcow2/value: import.qcow2/' "$examples/import-job.yaml" |
    kubectl apply -f - >/dev/null
  end_job import-disk
  kubectl logs job/import-disk --tail=-1 >"$run/import.log" || :
  check 'the import is complete' equal Complete "$(kubectl get job import-disk \
    -o jsonpath='{.status.conditions[-1:].type}')"
  check 'the log names the plugin' grep -qx file_windowed=yes "$run/import.log"
  check 'the log has statistics' grep -q '"evicted_bytes": ' "$run/import.log"
  fits
  check 'no page of the volume is cached' equal 0 "$("$top/tools/cachewatch" \
    --once --json "$device" | jq '.files[0].resident')"
  check 'the volume has the data of the image' cmp "$work/sums/import" <(
    dd if="$device" bs=1M iflag=direct status=none | sha256sum)
  exec {held}<&-
}

# detach_locks: from outside, when all processes have ended.  The kubelet puts a
# loop device on each block volume, as a lock.
detach_locks ()
{
  local device

  [ -s "$work/device" ] || return 0
  device=$(<"$work/device")
  losetup -nlO NAME,BACK-FILE |
    awk -v device="$device" '$2 == device { print $1 }' | xargs -r losetup -d
  losetup -d "$device" || :
}
