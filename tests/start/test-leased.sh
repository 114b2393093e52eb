#!/usr/bin/env bash
# A client of a file that another process holds a lease of gets an answer:
# the file is served as soon as the lease is given up, and refused with the reason
# if it is not.  Other files are served.
#
# The kernel would let an open wait for 45 seconds, and then take the lease away.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdinfo

mkdir "$tmp/dir"
truncate -s 1M "$tmp/dir/free"

# lease TYPE [yields]: hold it, on a new file.
lease ()
{
  rm -f "$tmp/dir/leased"
  truncate -s 1M "$tmp/dir/leased"
  hold_pages "$1" "$tmp/dir/leased" "${@:2}"
}

is_served ()
{
  [ "$(size_of leased)" = 1048576 ] || fail "$1: it is not served"
}

# refused WHAT: and the lease is still there.
refused ()
{
  ! size_of leased >/dev/null || fail "$1: it is served"
  grep -q 'leased: another process has a lease' "$tmp/log" ||
    fail "$1: the log does not give the reason"
  alive "$holder" || fail "$1: the lease has gone"
  [ "$(size_of free)" = 1048576 ] || fail "$1: another file is not served"
}

is_writable ()
{
  client_start "nbd+unix:///leased?socket=$tmp/sock"
  ask write 0 64K, flush
  client_stop
}

for mode in "dir=$tmp/dir" "dir=$tmp/dir symlinks=refuse"; do
  # shellcheck disable=SC2086
  set -- $mode cache=none

  start_nbdkit file "$@"
  for type in F_RDLCK F_WRLCK; do
    lease $type
    refused "$type, $mode"
    let_pages_go
    is_served "$type, $mode, after it has ended"

    lease $type yields
    is_served "$type, $mode, given up"
    is_writable
  done
  stop_nbdkit

  # Those who only read share a lease for reading.
  start_nbdkit -r file "$@"
  lease F_RDLCK
  is_served "F_RDLCK, -r $mode"
  alive "$holder" || fail "F_RDLCK, -r $mode: the lease has gone"
  let_pages_go
  lease F_WRLCK
  refused "F_WRLCK, -r $mode"
  let_pages_go
  stop_nbdkit
done
