#!/usr/bin/env bash
# The script of examples/kubernetes/convert-job.yaml converts every disk of its
# list, and leaves nothing in the page cache.  It runs here on folders in place of
# volumes.  It gives up where another try would not help, and leaves no unfinished
# disk when it fails.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdcopy qemu-img qemu-nbd cmp

# text_of NAME: in the ConfigMap of the manifest.
text_of ()
{
  awk -v name="$1" '
    /^---/ { exit }
    inside && /^  [^ ]/ { exit }
    inside { print substr($0, 5) }
    $0 == "  " name ": |" { inside = 1 }' \
    "$srcdir/../examples/kubernetes/convert-job.yaml"
}

# Folders in place of the volumes.
mkdir "$tmp/in" "$tmp/out"
text_of list >"$tmp/list"
text_of convert | sed "s|/etc/convert/|$tmp/|; s|/in/|$tmp&|
  s|/out/|$tmp&|; s|/out\$|$tmp&|" >"$tmp/convert"
[[ $NBDKIT != */* ]] || export PATH=${NBDKIT%/*}:$PATH

# convert INDEX: as pod number INDEX does.
convert ()
{
  JOB_COMPLETION_INDEX=$1 limited sh "$tmp/convert" >"$tmp/log" 2>&1
}

nothing_left ()
{
  ! compgen -G "$tmp/out/*.part" >&2 || fail 'an unfinished disk is left'
}

# gives_up INDEX MESSAGE [COMMAND...]: with status 66, which means that another try
# would fail, too.
gives_up ()
{
  local status=0

  JOB_COMPLETION_INDEX=$1 limited "${@:3}" sh "$tmp/convert" \
    >"$tmp/log" 2>&1 || status=$?
  [ "$status" = 66 ] || fail "$2: status $status"
  grep -qF -- "$2" "$tmp/log" || fail "does not say: $2"
  nothing_left
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

# A second try removes what a killed try left, but not another disk with nearly
# the same name.  The umask decides who may read the disk.
first=${disks[0]}
out=$tmp/out/${first%.*}.raw
touch "$out."{killed,x.raw.writes}.part
(umask 027; convert 0) || fail 'converting a second time'
[ "$(stat -c %a "$out")" = 640 ] || fail 'the mode'
rm "$out.x.raw.writes.part"
nothing_left

# On SIGTERM in the middle it ends and leaves nothing, and the disk that had the
# name before stays.
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
[ "$status" = 143 ] || fail "status $status after SIGTERM"
eventually 5 gone "$(<"$tmp/copy")" || fail 'nbdcopy does not end'
nothing_left
same "$tmp/raw.2" "$tmp/out/${disks[2]%.*}.raw"
# A qemu-nbd that starts after nbdcopy has ended waits for a client forever.  In
# a pod it ends with the pod.
mapfile -t left < <(pgrep -f -- "$tmp/in/")
[ ${#left[@]} = 0 ] || kill "${left[@]}" 2>/dev/null || :

# What cannot be converted, now or later.
in=$tmp/in/$first
gives_up ${#disks[@]} "line $((${#disks[@]} + 1)): is not in the list"
echo "${first%.*}.img" >>"$tmp/list"
gives_up 0 "$first: another line of the list becomes"
gives_up ${#disks[@]} "${first%.*}.img: another line of the list becomes"
sed -i '$d' "$tmp/list"
mv "$in" "$tmp/image"
# A file that an image names is not read.
qemu-img create -q -f qcow2 -F raw -b "$tmp/raw.0" "$in"
gives_up 0 "$first: $in needs another file"
qemu-img create -q -f qcow2 -o "data_file=$tmp/data" "$in" 1M
gives_up 0 "$first: $in needs another file"
rm "$in"
gives_up 0 "$first: there is no image $in"
random_file "$in" 65536
gives_up 0 "$first: $in is not a qcow2 image, or is broken"
truncate -s 600K "$tmp/image"
mv "$tmp/image" "$in"
gives_up 0 "$first: $in is damaged"
if [ "$(id -u)" = 0 ]; then
  chmod 600 "$in"
  chmod 711 "$tmp"
  chmod a+r "$tmp/list" "$tmp/convert"
  gives_up 0 "user 65532 may not read $in: it is user 0's," \
    setpriv --reuid=65532 --regid=65532 --clear-groups
fi
