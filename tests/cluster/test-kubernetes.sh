#!/usr/bin/env bash
# The manifests for Kubernetes match the schemas of several versions, and the
# script of convert-job.yaml converts every disk of its list.  No manifest has a
# field that the schemas do not have.  The job has its limit of memory.  The
# script, run here on folders in place of volumes, leaves nothing in the page
# cache.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
# shellcheck source=volumes.sh
. "$srcdir/cluster/volumes.sh"
need python3 nbdcopy qemu-img qemu-nbd cmp

# The validator, with the schemas in it, from PyPI; kept for the next time.
validator=kubernetes-validate==1.37.0
versions=(1.29 1.33 1.37)

venv=$builddir/venv-$validator
if [ ! -e "$venv/complete" ]; then
  rm -rf "$venv"
  { python3 -m venv "$venv" &&
    timeout 300 "$venv/bin/pip" install --quiet --disable-pip-version-check \
      --only-binary=:all: "$validator" && touch "$venv/complete"
  } >"$tmp/log" 2>&1 || { cat "$tmp/log" >&2
    lacks "needs python3-venv, and $validator from PyPI"; }
fi

# valid FILE VERSION
valid ()
{
  "$venv/bin/kubernetes-validate" --strict -k "$2" "$1" >"$tmp/log" 2>&1
}

for version in "${versions[@]}"; do
  for example in "${manifest%/*}"/*.yaml; do
    valid "$example" "$version" ||
      fail "$example is not valid for Kubernetes $version"
  done
done

# invalid SED-COMMAND: the manifest so changed, which must be refused.
invalid ()
{
  sed "$1" "$manifest" >"$tmp/bad.yaml"
  ! cmp -s "$manifest" "$tmp/bad.yaml" || fail "$1: changes nothing"
  ! valid "$tmp/bad.yaml" "${versions[-1]}" || fail "$1: nobody minds"
}

invalid s/backoffLimitPerIndex/backofLimitPerIndex/
invalid s/readOnlyRootFilesystem/readonlyRootFilesystem/
invalid 's/completions: .*/completions: three/'
invalid s/restartPolicy:/restartPolicies:/

# What no schema knows.
"$venv/bin/python" - "$manifest" <<'END' ||
import sys
import yaml
config, job = yaml.safe_load_all(open(sys.argv[1], encoding="utf-8"))
pod = job["spec"]["template"]["spec"]
resources = pod["containers"][0]["resources"]
assert job["spec"]["completions"] == len(config["data"]["list"].split())
assert resources["limits"]["memory"] == resources["requests"]["memory"]
END
  fail 'completions or the limit of memory are not what they should be'

# The script, with our nbdkit first in PATH and these folders as volumes.
make_volumes "$tmp"
[[ $NBDKIT != */* ]] || export PATH=${NBDKIT%/*}:$PATH

# convert INDEX: as pod number INDEX would.
convert ()
{
  JOB_COMPLETION_INDEX=$1 limited sh "$tmp/convert" >"$tmp/log" 2>&1
}

# gives_up INDEX MESSAGE: it ends with status 66, which is not retried, and the
# message.
gives_up ()
{
  local status=0

  convert "$1" || status=$?
  [ "$status" = 66 ] || fail "$2: status $status"
  grep -qF -- "$2" "$tmp/log" || fail "does not say: $2"
  nothing_left
}

nothing_left ()
{
  ! compgen -G "$tmp/out/*.part" >&2 || fail 'an unfinished disk is left'
}

# Raw images, too, and whatever their names.
printf '%s\n' data.img -x.qcow2 >>"$tmp/list"
mapfile -t disks <"$tmp/list"
for i in "${!disks[@]}"; do
  format=qcow2
  [[ ${disks[i]} = *.qcow2 ]] || format=raw
  random_file "$tmp/raw.$i" $(((i + 1) * 1048576))
  qemu-img convert -f raw -O $format "$tmp/raw.$i" "$tmp/in/${disks[i]}"
  convert "$i" || fail "converting ${disks[i]}"
  out=$tmp/out/${disks[i]%.*}.raw
  empty_now "$out" 'after converting'
  same "$tmp/raw.$i" "$out"
done
nothing_left

# Tried again, where a try that was killed has left something, and another disk
# with nearly the same name is being written.  Who may read it is the umask's to
# say.
touch "$tmp/out/${disks[0]%.*}.raw."{killed,x.raw.writes}.part
(umask 027; convert 0) || fail 'converting a second time'
[ "$(stat -c %a "$tmp/out/${disks[0]%.*}.raw")" = 640 ] || fail 'the mode'
rm "$tmp/out/${disks[0]%.*}.raw.x.raw.writes.part"
nothing_left

# Told to end in the middle it does, nothing of it is left, and what had the
# disk's name before still has.
mkdir "$tmp/bin"
printf '#!/bin/sh\nexec "%s" --filter=delay "$@" wdelay=1\n' "$NBDKIT" \
  >"$tmp/bin/nbdkit"
chmod +x "$tmp/bin/nbdkit"
PATH=$tmp/bin:$PATH JOB_COMPLETION_INDEX=2 sh "$tmp/convert" >"$tmp/log" 2>&1 &
pid=$!
pids+=("$pid")
writing ()
{
  [ -s "$(echo "$tmp"/out/*.part)" ] && pgrep -P "$pid" -x nbdcopy >"$tmp/copy"
}
eventually 20 writing || fail 'it does not begin'
kill "$pid"
eventually 5 gone "$pid" || fail 'it does not end'
status=0
wait "$pid" || status=$?
[ "$status" = 143 ] || fail "it was told to end, and ended with $status"
eventually 5 gone "$(<"$tmp/copy")" || fail 'nbdcopy goes on'
nothing_left
same "$tmp/raw.2" "$tmp/out/${disks[2]%.*}.raw"

# When it fails, with a server that is killed as it starts, too.  The one before
# may be starting just now, and may not be written to then.
printf '#!/bin/sh\nkill -KILL $$\n' >"$tmp/killed"
chmod +x "$tmp/killed"
mv "$tmp/killed" "$tmp/bin/nbdkit"
! PATH=$tmp/bin:$PATH convert 2 || fail 'it succeeds without a server'
nothing_left
# A qemu-nbd that comes up when nbdcopy has gone waits for a client for ever.
# In a pod it ends with the pod.
mapfile -t left < <(pgrep -f -- "$tmp/in/")
[ ${#left[@]} = 0 ] || kill "${left[@]}" 2>/dev/null || :
same "$tmp/raw.2" "$tmp/out/${disks[2]%.*}.raw"

# What cannot be converted, now or later.
cp "$tmp/list" "$tmp/whole"
echo "${disks[0]%.*}.img" >>"$tmp/list"
gives_up 0 "${disks[0]}: another line of the list becomes"
gives_up ${#disks[@]} "${disks[0]%.*}.img: another line of the list becomes"
mv "$tmp/whole" "$tmp/list"
gives_up ${#disks[@]} "line $((${#disks[@]} + 1)): is not in the list"
mv "$tmp/in/${disks[0]}" "$tmp/image"
# What an image names is not read.
qemu-img create -q -f qcow2 -F raw -b "$tmp/raw.0" "$tmp/in/${disks[0]}"
gives_up 0 "${disks[0]}: $tmp/in/${disks[0]} needs another file"
qemu-img create -q -f qcow2 -o "data_file=$tmp/data" "$tmp/in/${disks[0]}" 1M
gives_up 0 "${disks[0]}: $tmp/in/${disks[0]} needs another file"
rm "$tmp/in/${disks[0]}"
gives_up 0 "${disks[0]}: there is no image $tmp/in/${disks[0]}"
random_file "$tmp/in/${disks[0]}" 65536
gives_up 0 "${disks[0]}: $tmp/in/${disks[0]} is not a qcow2 image, or is broken"
truncate -s 600K "$tmp/image"
mv "$tmp/image" "$tmp/in/${disks[0]}"
gives_up 0 "${disks[0]}: $tmp/in/${disks[0]} is damaged"
if [ "$(id -u)" = 0 ]; then
  chmod 600 "$tmp/in/${disks[0]}"
  chmod 711 "$tmp"
  chmod a+r "$tmp/list" "$tmp/convert"
  convert_as_nobody ()
  {
    JOB_COMPLETION_INDEX=0 setpriv --reuid=65532 --regid=65532 --clear-groups \
      sh "$tmp/convert" >"$tmp/log" 2>&1
  }
  status=0
  convert_as_nobody || status=$?
  [ "$status" = 66 ] || fail "an image that may not be read: status $status"
  grep -qF "user 65532 may not read $tmp/in/${disks[0]}: it is user 0's," \
    "$tmp/log" || fail 'does not say that the image may not be read'
fi
