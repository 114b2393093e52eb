#!/usr/bin/env bash
# The plugin opens a file once for each client and once for each thing that it
# does with it, whatever the number of requests: a virus scanner may read the
# file at each open, and each open for writing triggers udev.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdcopy
need_strace

disk=$tmp/disk
random_file "$disk" 8M
random_file "$tmp/src" 8M
under=(strace -f -qq -e "trace=open,openat" -e signal=none -o "$tmp/trace")

# A call that another thread interrupts in the trace has no result on its line.
opens ()
{
  grep -E "openat?\\(.*\"($disk|/proc/self/fd/[0-9]+)\"" "$tmp/trace" |
    grep -vE 'O_PATH|= -1 '
}

# check MOST CLIENT ARGUMENT...: the client causes MOST opens at most.
check ()
{
  start_nbdkit "${@:3}"
  "$2" >&2 || fail "$2 failed: ${*:3}"
  stop_nbdkit
  opens >"$tmp/opens" || fail "$2: no open: ${*:3}"
  say "$2: $(wc -l <"$tmp/opens") opens"
  [ "$(wc -l <"$tmp/opens")" -le "$1" ] ||
    fail "$2: $(wc -l <"$tmp/opens") opens, not $1: ${*:3}"
}

copies_in ()
{
  limited nbdcopy --flush --connections=1 "$tmp/src" "$uri"
}

copies_in_pieces ()
{
  limited nbdcopy --connections=4 --threads=4 --requests=16 --request-size=4096 \
    "$tmp/src" "$uri"
}

copies_out ()
{
  limited nbdcopy --connections=16 --threads=16 "$uri" null:
}

# Besides the clients: the disk; its evictor, which looks for errors, too; and the
# one for direct reads.  The first writer may open the first two again.
# Only the client's own is for writing, so that a program that watches the image
# sees one close of a writer.
check 4 copies_in file "$disk" cache=none
[ "$(grep -c O_RDWR "$tmp/opens")" = 1 ] || fail "writers: $(<"$tmp/opens")"
check 19 copies_out file "$disk" cache=none
check 7 copies_in_pieces file "$disk" cache=preserve
check 7 copies_in_pieces --filter=fua file "$disk" cache=none fuamode=force
check 5 copies_in_pieces --filter=fua file "$disk" cache=default fuamode=force

# Nothing is open for writing that no client may write to.
check 19 copies_out -r file "$disk" cache=none
! grep -E 'O_RDWR|O_WRONLY' "$tmp/opens" >&2 || fail 'read-only: see above'
