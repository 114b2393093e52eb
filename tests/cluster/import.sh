# Imports into block volumes: the Job of examples/kubernetes/import-job.yaml, and
# qemu-img in its place, each with a slow disk of its own.
# Sourced by the cases of Kubernetes, after disks.sh and kubernetes.sh, and by
# scripts/test-cluster, which takes down what they leave.
#
#   loop device ─▶ nbdfuse ─▶ nbdkit --filter=rate ─▶ memory
#
#   $work/slow/NAME/        of the disk NAME: its device, its rate, a socket
#   $built/results/imports.tsv  a line for each import of the case "imports"
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2034,SC2154

import_example=$top/examples/kubernetes/import-job.yaml
import_mib=720 import_data_mib=680

# The memory that pods of two times four imports may have.
import_pods_mib=4096

# Each importer's limit of memory.
declare -A import_limits=([ours]=128Mi [qemu-img]=600Mi)

# ---- disks ----

# slow_rate NAME MB: a second, from now on.
slow_rate ()
{
  echo $(($2 * 8000000)) >"$work/slow/$1/rate.part"
  mv "$work/slow/$1/rate.part" "$work/slow/$1/rate"
}

# slow_disk NAME MB: zeroes, on a disk that takes MB megabytes a second.
slow_disk ()
{
  local folder=$work/slow/$1

  mkdir -p "$folder/fuse"
  slow_rate "$1" "$2"
  started "slow-$1" nbdkit -f -U "$folder/sock" --filter=rate memory \
    ${import_mib}M rate=8000000 rate-file="$folder/rate" burstiness=0.1
  within 20 test -S "$folder/sock" || die "see $run/slow-$1.log"
  started "fuse-$1" nbdfuse "$folder/fuse/disk" \
    "nbd+unix:///?socket=$folder/sock"
  within 20 test -e "$folder/fuse/disk" || die "see $run/fuse-$1.log"
  losetup -f --show "$folder/fuse/disk" >"$folder/device"
}

device_of ()
{
  cat "$work/slow/$1/device"
}

# imported NAME: the disk has the content of the image.
imported ()
{
  dd if="$(device_of "$1")" bs=1M iflag=direct status=none | sha256sum |
    cmp -s - "$work/sums/import"
}

remove_slow_disk ()
{
  local folder=$work/slow/$1

  losetup -d "$(device_of "$1")"
  within 20 umount "$folder/fuse" 2>/dev/null || umount --lazy "$folder/fuse"
  kill "$(<"$run/slow-$1.pid")"
  rm -rf --one-file-system "$folder"
}

# detach_slow_disks: from outside, when all that was in the namespaces has ended.
# The kubelet has put a loop device on each, as a lock.
detach_slow_disks ()
{
  local file device

  for file in "$work"/slow/*/device; do
    [ -s "$file" ] || continue
    device=$(<"$file")
    losetup -nlO NAME,BACK-FILE |
      awk -v device="$device" '$2 == device { print $1 }' |
      xargs -r losetup -d
    losetup -d "$device"
  done
}

# ---- jobs ----

# block_volume NAME: for the claim of the same name.
block_volume ()
{
  kubectl apply -f - >/dev/null <<END
apiVersion: v1
kind: PersistentVolume
metadata: {name: import-$1}
spec:
  capacity: {storage: 1Gi}
  volumeMode: Block
  accessModes: [ReadWriteOnce]
  storageClassName: local
  claimRef: {namespace: default, name: import-$1}
  local: {path: $(device_of "$1")}
  nodeAffinity:
    required:
      nodeSelectorTerms:
        - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node1]}]
END
}

# import_job NAME ours|qemu-img: the example, filled in, which tries only once.
# qemu-img reads the image past the page cache, as if it downloaded it.
import_job ()
{
  awk -v who="$2" '
    who == "qemu-img" && /nbdcopy --flush/ {
      print "    qemu-img convert -t writeback -T none -f qcow2 -O raw" \
        " \"$in\" \"$out\" &"
      skipping = 1
    }
    !skipping
    skipping && /&$/ { skipping = 0 }' "$import_example" |
    sed "s/import-disk/import-$1/
      s/storageClassName: .*/storageClassName: local/
      s/storage: 20Gi/storage: 1Gi/
      s/value: web-1.qcow2/value: import.qcow2/
      s/backoffLimit: .*/backoffLimit: 0/
      s/memory: 128Mi/memory: ${import_limits[$2]}/"
}

imports_ended ()
{
  [ "$(kubectl get jobs -o json | jq '[.items[] | select(any(
    .status.conditions[]?; .type == "Complete" or .type == "Failed"))] |
    length')" = ${#names[@]} ]
}

# told NAME FILTER: of its pod, in which $ended is how its container has.
told ()
{
  kubectl get pods -l "job-name=import-$1" -o json |
    jq -r ".items[0] | .status.containerStatuses[0].state.terminated as \$ended
      | $2"
}

# record NAME WHO MB: a line of the table.
record ()
{
  local ended right=wrong uid

  [ "$2" = qemu-img ] || kubectl logs "job/import-$1" --tail=20 >"$run/logs-$1"

  slow_rate "$1" 2000
  ! imported "$1" || right=right
  # shellcheck disable=SC2016
  uid=$(told "$1" .metadata.uid) ended=$(told "$1" '[
    ($ended.finishedAt | fromdate) - ($ended.startedAt | fromdate),
    $ended.exitCode, $ended.reason] | @tsv')
  jq -r --arg begin "$3"$'\t'"$2"$'\t'"$ended" --arg right "$right" \
    --arg group "pod$uid" --arg device "$(device_of "$1")" '
    .groups[$group] as $pod | .devices[$device] as $cache | $begin + "\t" +
    ([$pod.max, $pod.full, $pod.killed, $cache.cached, $cache.dirty,
      $cache.left, $right] | @tsv)' "$seen" >>"$imports"
}

# import_round MB NUMBER [COMMAND...]: NUMBER imports by each importer, all at
# once.  The command runs beside them.
import_round ()
{
  local name i devices=()

  kubectl delete job --all --wait >/dev/null
  names=()
  for ((i = 1; i <= $2; i++)); do names+=("ours-$i" "qemu-img-$i"); done
  for name in "${names[@]}"; do
    slow_disk "$name" "$1"
    block_volume "$name"
    devices+=("$(device_of "$name")")
  done
  watch_begin in "$pods" "${devices[@]}"
  for name in "${names[@]}"; do
    import_job "$name" "${name%-*}" | kubectl apply -f - >/dev/null
  done
  "${@:3}"
  within 1200 imports_ended || {
    kubectl get pods
    tell "FAIL: $kind $case: the imports do not end"
  }
  sleep 2       # the plugin may need as long to drop the last pages
  watch_end
  for name in "${names[@]}"; do record "$name" "${name%-*}" "$1"; done
  for name in "${names[@]}"; do forget_import "$name"; done
}

forget_import ()
{
  kubectl delete "job/import-$1" "pvc/import-$1" "pv/import-$1" \
    "configmap/import-$1" --now --wait >/dev/null 2>&1
  within 60 detached "$(device_of "$1")" ||
    tell "FAIL: $kind $case: the kubelet keeps $(device_of "$1")"
  remove_slow_disk "$1"
}

# detached DEVICE: the kubelet has put a loop device on it, as a lock.
detached ()
{
  ! losetup -nlO BACK-FILE | grep -qxF "$1"
}

# ---- what came of it ----

# import_summary MB WHO: medians of one importer, smallest to largest.
import_summary ()
{
  jq -Rrn --arg rate "$1" --arg who "$2" '
    def mib: . / 1048576 * 10 | round / 10;
    def range: sort | "\(.[length / 2 | floor]) (\(first)–\(last))";
    [inputs | split("\t") | select(.[0] == $rate and .[1] == $who)] |
    [.[] | select(.[3] == "0")] as $done |
    "\($rate) MB/s, \($who): \($done | length) of \(length) complete, " +
    "killed in \([.[] | select(.[7] != "0")] | length), " +
    "\(if $done == [] then "–" else [$done[][2] | tonumber] | range end) s, " +
    "pods of \([.[][5] | tonumber | mib] | range) MiB, limit reached " +
    "\([.[][6] | tonumber] | range) times, of the disk cached at most " +
    "\([.[][8] | tonumber | mib] | max) MiB, dirty at most " +
    "\([.[][9] | tonumber | mib] | max) MiB, " +
    "\([.[] | select(.[11] != "right")] | length) disks not whole"' "$imports"
}

# imports_of WHO MB COLUMN: its different values.
imports_of ()
{
  awk -F '\t' -v who="$1" -v rate="$2" -v column="$3" \
    '$2 == who && $1 == rate { print $column }' "$imports" | sort -u |
    paste -sd' '
}

# judge_imports MB: what must be so of ours.
judge_imports ()
{
  figure "$(import_summary "$1" ours)"
  figure "$(import_summary "$1" qemu-img)"
  [ "$(imports_of ours "$1" 4)" = 0 ] || tail -n 20 "$run"/logs-ours-*
  check "$1 MB/s: all imports complete" equal 0 "$(imports_of ours "$1" 4)"
  check "$1 MB/s: no limit is reached" equal 0 "$(imports_of ours "$1" 7)"
  check "$1 MB/s: nothing is killed" equal 0 "$(imports_of ours "$1" 8)"
  check "$1 MB/s: no page is left" equal 0 "$(imports_of ours "$1" 11)"
  check "$1 MB/s: the disks are whole" equal right "$(imports_of ours "$1" 12)"
}

make_import_image ()
{
  make_disk in import.qcow2 qcow2 $import_mib $import_data_mib
}

# shows_cache: the pod says what of the page cache it is charged for, as
# docs/scaling.md has it: more than nothing, and not more than the windows.
shows_cache ()
{
  local bytes

  bytes=$(kubectl exec job/import-ours-1 -- \
    grep -w cache /sys/fs/cgroup/memory/memory.stat 2>/dev/null) || return
  bytes=${bytes#cache }
  [ "$bytes" -gt 1048576 ] && [ "$bytes" -lt $((64 * 1048576)) ]
}

says_which_plugin ()
{
  [ "$(head -n 1 "$run/logs-ours-1")" = file_windowed=yes ] &&
    grep -q '"evicted_bytes": ' "$run/logs-ours-1"
}

case_import ()
{
  imports=$work/imports.tsv
  make_import_image
  import_round 20 1 \
    check 'the pod shows its page cache' within 60 shows_cache
  judge_imports 20
  check 'the log says which plugin it was' says_which_plugin
}

# As many at a time as two processors can serve disks of that rate.
case_imports ()
{
  local mb i

  imports=$built/results/imports.tsv
  : >"$imports"
  make_import_image
  for ((i = 0; i < 20; i++)); do import_round 100 1; done
  judge_imports 100
  for mb in 20 5; do
    for ((i = 0; i < 5; i++)); do import_round $mb 4; done
    judge_imports $mb
  done
}
