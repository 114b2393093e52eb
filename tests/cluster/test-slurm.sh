#!/usr/bin/env bash
# The example for Slurm converts its disk and leaves nothing in the page cache.
# It runs here as a task of an array job would.  When it fails it leaves nothing
# of the disk, and is requeued twice if that may help.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdcopy qemu-img qemu-nbd cmp pgrep

# Unchanged, except for the PATH of an installed nbdkit.
example=$tmp/convert.sbatch
sed '/^PATH=/d' "$srcdir/../examples/slurm/convert.sbatch" >"$example"
[[ $NBDKIT != */* ]] || export PATH=${NBDKIT%/*}:$PATH
mkdir "$tmp/in" "$tmp/out" "$tmp/bin"
printf '#!/bin/sh\necho "$*" >>"%s"\n' "$tmp/scontrol" >"$tmp/bin/scontrol"
chmod +x "$tmp/bin/scontrol"
export PATH=$tmp/bin:$PATH

# convert TASK [RESTARTS]
convert ()
{
  rm -f "$tmp/scontrol"
  SLURM_ARRAY_TASK_ID=$1 SLURM_JOB_ID=100$1 SLURM_RESTART_COUNT=${2:-} \
    limited bash "$example" "$tmp/list" "$tmp/in" "$tmp/out" >"$tmp/log" 2>&1
}

# fails STATUS REQUEUED TASK [RESTARTS]
fails ()
{
  local status=0

  convert "${@:3}" || status=$?
  [ "$status" = "$1" ] || fail "task $3 ended with $status, not $1"
  [ "$(cat "$tmp/scontrol" 2>/dev/null)" = "$2" ] ||
    fail "task $3: scontrol $(cat "$tmp/scontrol" 2>/dev/null)"
  nothing_left
}

nothing_left ()
{
  ! compgen -G "$tmp/out/*.part" >&2 || fail 'an unfinished disk is left'
}

printf '%s\n' a.qcow2 -b.img missing.img cut.qcow2 >"$tmp/list"
random_file "$tmp/raw" 1048576
qemu-img convert -f raw -O qcow2 "$tmp/raw" "$tmp/in/a.qcow2"
cp "$tmp/raw" "$tmp/in/-b.img"
head -c 600K "$tmp/in/a.qcow2" >"$tmp/in/cut.qcow2"
touch "$tmp/out/a.raw.killed.part"
for i in 0 1; do
  convert $i || fail "task $i"
  [ ! -e "$tmp/scontrol" ] || fail "task $i is requeued"
done
for i in a -b; do
  empty_now "$tmp/out/$i.raw" 'after converting'
  same "$tmp/raw" "$tmp/out/$i.raw"
done
nothing_left

fails 66 '' 2
grep -qF "missing.img: there is no image $tmp/in/missing.img" "$tmp/log" ||
  fail 'does not say which is missing'
fails 66 '' 3
grep -qF "cut.qcow2: $tmp/in/cut.qcow2 is damaged" "$tmp/log" ||
  fail 'does not say which is damaged'
# What an image names is not read.
printf '%s\n' backed.qcow2 data.qcow2 >>"$tmp/list"
qemu-img create -q -f qcow2 -F raw -b "$tmp/raw" "$tmp/in/backed.qcow2"
qemu-img create -q -f qcow2 -o "data_file=$tmp/data" "$tmp/in/data.qcow2" 1M
for i in 4 5; do
  fails 66 '' $i
  grep -q "in/.*\.qcow2 needs another file" "$tmp/log" ||
    fail 'does not say that the image needs another file'
done
fails 66 '' 6
grep -qF 'line 7: is not in' "$tmp/log" || fail 'does not say what is too long'

echo a.img >>"$tmp/list"
fails 66 '' 0
grep -qF "a.qcow2: another line of $tmp/list becomes $tmp/out/a.raw" \
  "$tmp/log" || fail 'does not say that two have one name'
sed -i '$d' "$tmp/list"

# A server that is killed as it starts.
printf '#!/bin/sh\nkill -KILL $$\n' >"$tmp/bin/nbdkit"
chmod +x "$tmp/bin/nbdkit"
rm "$tmp/out/a.raw"
fails 1 'requeue 1000' 0
fails 1 'requeue 1000' 0 1
fails 1 '' 0 2
[ ! -e "$tmp/out/a.raw" ] || fail 'a disk without content'

# A slow conversion, whose task is cancelled.
printf '#!/bin/sh\nexec "%s" --filter=delay "$@" wdelay=1\n' "$NBDKIT" \
  >"$tmp/bin/nbdkit"
SLURM_ARRAY_TASK_ID=1 SLURM_JOB_ID=1 bash "$example" "$tmp/list" "$tmp/in" \
  "$tmp/out" >"$tmp/log" 2>&1 &
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
[ "$status" = 143 ] || fail "it was cancelled, and ended with $status"
eventually 5 gone "$(<"$tmp/copy")" || fail 'nbdcopy goes on'
[ ! -e "$tmp/scontrol" ] || fail 'it was cancelled, and is requeued'
nothing_left
