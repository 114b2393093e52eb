#!/usr/bin/env bash
# Where the machine gives less than usual, the server works more slowly or
# reports what it cannot do, and its data is right.
#
# What a sandbox refuses is in field/test-sandbox.sh.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_root
need nbdinfo cmp setpriv prlimit

size=$((40 * 1048576))

# new_disk: of nobody in particular.
new_disk ()
{
  rm -f "$tmp/disk"
  truncate -s $size "$tmp/disk"
}

# Out of descriptors: a client is refused with the reason, others are served
# on, and it is let in when there are some again.
under=(prlimit --nofile=40)
mkdir "$tmp/dir"
for i in {1..24}; do truncate -s 1M "$tmp/dir/$i"; done
start_nbdkit file "dir=$tmp/dir" cache=none
client_start "nbd+unix:///1?socket=$tmp/sock"
ask write 0 64K
# What never says anything, and never ends.
mkfifo "$tmp/silence"
exec {silence}<>"$tmp/silence"
held=()
for i in {2..24}; do
  "$srcdir/lib/client.py" "nbd+unix:///$i?socket=$tmp/sock" \
    <&"$silence" >"$tmp/out.$i" 2>&1 &
  held+=($!)
  pids+=($!)
done
eventually 20 grep -q 'Too many open files' "$tmp/log" ||
  fail 'out of descriptors: the log does not say so'
ask write 64K 64K fua, flush, read 0 128K
for i in "${held[@]}"; do send TERM "$i"; done
pids=("$job" "$server")
eventually 60 size_of 24 || fail 'descriptors are free, but no client is served'
stop_nbdkit

# The server itself, not the script that starts it, which needs /proc.
binary=$("$NBDKIT" --dump-config | sed -n 's/^binary=//p')
plugin=$("$NBDKIT" file --dump-plugin | sed -n 's/^path=//p')
[ -x "$binary" ] || fail 'no nbdkit to run'
[ -f "$plugin" ] || fail 'no plugin to run'
NBDKIT=$binary

# Where sanitizers do not work at all.
libraries=$(ldd "$plugin")
[[ $libraries != *lib[at]san* ]] || exit 0

# No thread can be started: the client is refused with the reason.
new_disk
nobody=4242424
chown $nobody "$tmp" "$tmp/disk"
under=(prlimit --nproc=2 setpriv "--reuid=$nobody" --clear-groups)
start_nbdkit -v -t 1 "$plugin" "$tmp/disk" cache=none cache-windows=3
! nbdinfo "$uri" >"$tmp/out" 2>&1 || fail 'without a thread: served'
grep -q "cannot start the disk's thread" "$tmp/log" ||
  fail 'without a thread: the log does not say why'
stop_nbdkit
chown 0 "$tmp"

# Little memory: whatever fails says so, and what was flushed is there.
new_disk
under=(prlimit "--as=$((400 * 1048576))")
start_and_connect -t 4 "$plugin" "$tmp/disk" cache=none
ask write 0 1M, flush, save "$tmp/model"
client_stop # nbdkit may close a connection for whose request it has no memory
held=()
for i in {1..40}; do
  "$srcdir/lib/client.py" "$uri" < <(echo write 8M 32M; sleep 5) \
    >"$tmp/out.$i" 2>&1 &
  held+=($!)
  pids+=($!)
done
wait "${held[@]}" || :
# nbdkit ends with status 1 if it has no memory for what it keeps of a thread
# (threadlocal.c), with any plugin.
nbdkit_has_ended ()
{
  gone "$job" && grep -qx 'malloc: Cannot allocate memory' "$tmp/log"
}
# Their threads may not be gone yet.
reads_again ()
{
  nbdkit_has_ended || timeout --foreground 20 nbdcopy "$uri" "$tmp/out" \
    2>"$tmp/said"
}
eventually 60 reads_again || fail "little memory: $(<"$tmp/said")"
if nbdkit_has_ended; then
  status=0
  wait "$job" || status=$?
  [ "$status" = 1 ] || fail "little memory: the server's status is $status"
  pids=()
  cp "$tmp/disk" "$tmp/out"
else
  stop_nbdkit
fi
cmp -n 1048576 "$tmp/model" "$tmp/out" >&2 || fail 'little memory: data is gone'
