#!/usr/bin/env bash
# A write with FUA makes itself durable by RWF_DSYNC and syncs nothing else,
# an ordinary write syncs nothing, and zero with FUA and flush do sync.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=lib.sh
. "${srcdir:-.}/lib.sh" || exit
need strace

truncate -s 16M "$tmp/disk"
strace -o /dev/null true 2>/dev/null || lacks 'needs ptrace'
# LeakSanitizer is a debugger too, and there can only be one.
export ASAN_OPTIONS=detect_leaks=0
# shellcheck disable=SC2054
under=(strace -f -qq -o "$tmp/trace" -e
  trace=pwrite64,pwritev,pwritev2,fsync,fdatasync,sync,syncfs)

# traced REQUEST...: the system calls that it led to are in $tmp/calls.
traced ()
{
  local lines

  lines=$(wc -l <"$tmp/trace")
  ask "$@"
  tail -n "+$((lines + 1))" "$tmp/trace" >"$tmp/calls"
}

saw ()
{
  grep -qE "$1" "$tmp/calls"
}

for cache in default none; do
  start_nbdkit file "$tmp/disk" "cache=$cache"
  client_start "$uri"

  ask write 0 1M
  for request in '0 4096' '8192 512' '100001 70003' '4M 1M'; do
    # shellcheck disable=SC2086
    traced write $request fua
    saw 'pwritev2\(.*RWF_DSYNC' || fail "$cache, FUA: no RWF_DSYNC"
    ! saw 'fsync|fdatasync|sync\(|syncfs' || fail "$cache, FUA: synced it all"

    # shellcheck disable=SC2086
    traced write $request
    saw 'pwrite' || fail "$cache: no write"
    ! saw 'DSYNC|fsync|fdatasync|sync\(|syncfs' || fail "$cache: synced"
  done

  traced flush
  saw 'fdatasync|fsync' || fail "$cache, flush: did not sync"

  traced zero 1M 1M fua
  saw 'fdatasync|fsync|DSYNC' || fail "$cache, zero with FUA: did not sync"

  client_stop
  stop_nbdkit
done
