#!/usr/bin/env bash
# A connection that closes as the last one waits for nothing: its threads end
# while the writeback of its data hangs, and nbdkit, also where it serializes all
# requests, opens the disk for another client.
#
# And a close(2) of the file that hangs keeps only the thread that makes it.
#
# The disk is an ext4 on a loop device on FUSE, whose server answers no write
# until the test lets it.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_root

# at_once REQUEST...: is answered although the disk hangs.
at_once ()
{
  local status=0

  ask_for 50 "$@" || status=$?
  if [ $status != 0 ] || [[ $answer != ok* ]]; then
    touch "$tmp/gate"
    fail "$*: ${answer:-no answer}"
  fi
}

touch "$tmp/gate"
fuse_file "gate=$tmp/gate"
under_pids+=("$fuse_server")
mount_ext4 "$tmp/disk"
disk=$tmp/mounted/file
random_file "$disk" 16M # its blocks are allocated: a write changes no metadata
drop "$disk"
for cache in none preserve; do
  for filter in '' --filter=noparallel; do
    arguments=(file "$disk" "cache=$cache")
    [ -z "$filter" ] ||
      arguments=("$filter" "${arguments[@]}" serialize=all-requests)
    start_nbdkit "${arguments[@]}"
    none=$(entries task)
    client_start --names "$uri"
    ask a open
    rm "$tmp/gate"
    # Within the credit that there is before a rate is known.
    at_once a write 0 64K
    at_once a close
    # The disk's thread is still there.
    soon_at_most task $((none + 1)) 'after the close'
    at_once b open
    at_once b write 8M 4K
    at_once b close
    [ "$(resident "$disk")" -gt 0 ] || fail 'the disk does not hang'
    touch "$tmp/gate"
    client_stop
    empty_soon "$disk" "cache=$cache $filter"
    stop_nbdkit
  done
done

need_strace
mkdir "$tmp/dir"
for i in {0..9}; do random_file "$tmp/dir/$i" 64K; done
start_nbdkit file "dir=$tmp/dir" cache=none
none=$(entries task)
client_start --names "$tmp/sock"
ask 0 open, 0 read 0 4096
thread=$(grep -lx evictor "/proc/$server/task"/*/comm)
thread=$(basename "$(dirname "$thread")")
strace -qq -o /dev/null -p "$thread" -e trace=close \
  -e inject=close:delay_enter=200000000 &
pids+=($!)
eventually 5 grep -qE '^TracerPid:\s+[1-9]' "/proc/$server/task/$thread/status" ||
  fail 'strace does not begin'
ask 0 close
for i in {1..9}; do ask "$i" open, "$i" read 0 4096, "$i" close; done
soon_at_most task $((none + 1)) 'while a close hangs'
[ -e "/proc/$server/task/$thread" ] || fail 'the close does not hang'
kill "${pids[-1]}"
stop_nbdkit
