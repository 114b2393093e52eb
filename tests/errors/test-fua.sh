#!/usr/bin/env bash
# FUA writes and zeroes, and flushes, sync the file, and an ordinary write does
# not.  FUA requests sync a description of their own, which is opened once and
# which no flush syncs: each report of an error there is of their writes.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit

truncate -s 16M "$tmp/disk"
need_strace
# shellcheck disable=SC2054
under=(strace -f -qq -o "$tmp/trace" -e
  trace=openat,open,pwrite64,pwritev,pwritev2,fsync,fdatasync,sync,syncfs)

# traced REQUEST...: the system calls that it led to are in $tmp/calls.
traced ()
{
  local lines

  lines=$(wc -l <"$tmp/trace")
  ask "$@"
  tail -n "+$((lines + 1))" "$tmp/trace" | whole_lines >"$tmp/calls"
}

saw ()
{
  grep -qE "$1" "$tmp/calls"
}

# opened: the descriptor that was opened.
opened ()
{
  sed -n 's/.*open.*"\/proc\/self\/fd\/.* = \([0-9]*\)$/\1/p' "$tmp/calls"
}

# synced_alone WHAT: the descriptor was synced that the first such request has
# opened.
synced_alone ()
{
  : "${fd:=$(opened)}"
  [ -n "$fd" ] || fail "$cache, $1: opened no descriptor"
  saw "fdatasync\\(${fd}[) ]" || fail "$cache, $1: did not sync $fd"
}

for cache in default none; do
  fd=
  start_and_connect file "$tmp/disk" "cache=$cache"

  ask write 0 1M
  for request in '0 4096' '8192 512' '100001 70003' '4M 1M'; do
    # shellcheck disable=SC2086
    traced write $request fua
    synced_alone 'write with FUA'
    [ "$request" = '0 4096' ] || [ -z "$(opened)" ] ||
      fail "$cache: opened another descriptor"

    # shellcheck disable=SC2086
    traced write $request
    saw 'pwrite' || fail "$cache: no write"
    ! saw 'fsync|fdatasync|sync\(|syncfs' || fail "$cache: synced"
  done

  traced flush
  saw 'fdatasync|fsync' || fail "$cache, flush: did not sync"
  ! saw "fdatasync\\(${fd}[) ]" || fail "$cache, flush: synced $fd"

  traced zero 1M 1M fua
  synced_alone 'zero with FUA'

  stop_nbdkit
done
