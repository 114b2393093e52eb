#!/usr/bin/env bash
# In a sandbox that refuses the system calls of the page cache, a copy succeeds,
# and the log or a refused client shows when pages cannot be dropped.
#
# Each call is refused with the errno of a missing call, of a seccomp profile
# and of a security module.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdcopy nbdinfo cmp strace
strace -o /dev/null true 2>/dev/null || lacks 'needs ptrace'

disk=$tmp/disk
random_file "$tmp/src" 16M

new_disk ()
{
  rm -f "$disk"
  truncate -s 16M "$disk"
}

# refuse CALL ERRNO: from now on, by strace.
refuse ()
{
  under=(strace -f -qq -o /dev/null -e "trace=$1" -e "inject=$1:error=$2"
    -e signal=none)
}

# copies WHAT: with a flush.
copies ()
{
  limited nbdcopy --flush "$tmp/src" "$uri" 2>"$tmp/said" ||
    fail "$1: a copy failed: $(<"$tmp/said")"
}

is_stored ()
{
  cmp "$tmp/src" "$disk" >&2 || fail "$1: the data is not stored"
}

# one_line WHAT WHEN
one_line ()
{
  local lines

  lines=$(wc -l <"$tmp/log")
  [ "$lines" = 1 ] || fail "$1: $lines lines in the log $2, not 1"
}

# Pages cannot be dropped at all.
for err in ENOSYS EPERM EACCES; do
  what="posix_fadvise: $err"
  refuse fadvise64 $err
  new_disk
  start_nbdkit file "$disk" cache=none
  limited nbdinfo --size "$uri" >/dev/null || fail "$what: it is not served"
  one_line "$what" 'after the first client'
  grep -q fadvise "$tmp/log" || fail "$what: the log does not name the call"
  copies "$what"
  one_line "$what" 'after a copy'
  stop_nbdkit
  is_stored "$what"

  new_disk
  start_nbdkit file "$disk" cache=preserve
  ! limited nbdinfo --size "$uri" >/dev/null 2>&1 ||
    fail "$what: cache=preserve is served"
  grep -q cache=preserve "$tmp/log" || fail "$what: the log gives no reason"
  stop_nbdkit
done

# quiet_and_empty WHAT: nothing is worse for clients.
quiet_and_empty ()
{
  new_disk
  start_nbdkit file "$disk" cache=none
  copies "$1"
  empty_soon "$disk" "$1, after a copy"
  stop_nbdkit
  is_stored "$1"
  [ ! -s "$tmp/log" ] || fail "$1: there is a log"
}

for err in ENOSYS EPERM EACCES EINVAL; do
  refuse sync_file_range $err
  quiet_and_empty "sync_file_range: $err"
done

under=("$builddir/lib/without-cachestat")
quiet_and_empty 'cachestat: ENOSYS'

# Without /proc a descriptor cannot be opened again.  The wrapper would look for
# the system's nbdkit through it.
if [ "$(id -u)" = 0 ]; then
  start_nbdkit null
  NBDKIT_SYSTEM=$(readlink "/proc/$server/exe")
  export NBDKIT_SYSTEM
  stop_nbdkit
  # shellcheck disable=SC2016
  under=(unshare --mount sh -c 'mount -t tmpfs none /proc && exec "$@"' sh)
  quiet_and_empty 'no /proc'
fi
