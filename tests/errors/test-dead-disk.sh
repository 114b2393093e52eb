#!/usr/bin/env bash
# A disk that refuses all writes costs little: the pages in memory, the lines
# of the log, the server's memory and threads are bounded, SIGTERM ends the
# server, and what is lost leaves an error for the fsync of another program,
# although the disk has recovered.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_root
need /usr/bin/python3 losetup

# A thin volume that is full after 4 MiB: a loop device over a tmpfs.
mkdir "$tmp/full"
mounts+=("$tmp/full")
mount -t tmpfs -o size=4M,huge=never tmpfs "$tmp/full" || lacks 'needs tmpfs'
truncate -s 64G "$tmp/full/back"
attach "$tmp/full/back"

# bounded WHEN: 32 MiB, a request, and the readahead.
bounded ()
{
  local pages

  pages=$(resident "$device")
  ((pages <= 8192 + 256 + 2 * $(read_ahead "$device") / 4096)) ||
    fail "$1: $pages pages are in memory"
}

# quiet WHEN MOST: lines in the log.
quiet ()
{
  local lines

  lines=$(wc -l <"$tmp/log")
  ((lines <= $2)) || fail "$1: $lines lines in the log"
}

# Whether the disk has no thread.
no_thread ()
{
  ! grep -qsx evictor "/proc/$server/task"/*/comm
}

flush_succeeds ()
{
  ask_any a flush
  [[ $answer = ok* ]]
}

# in_sequence WHEN: 200 MiB, and the flush afterwards fails; so may the next one,
# if writeback was still in progress.
in_sequence ()
{
  local i

  start_nbdkit file "$device" cache=none
  client_start --names "$uri" # without a model of 64 GiB
  ask a open
  for i in {0..199}; do
    ask a write "${i}M" 1M
  done
  bounded "200 MiB in sequence$1"
  quiet "200 MiB in sequence$1" 5
  ask_error EIO a flush
  eventually 1 flush_succeeds || fail "200 MiB in sequence$1: $answer"
}

under=("$builddir/lib/without-cachestat")
in_sequence ', without cachestat'
stop_nbdkit
under=()
in_sequence ''

# A cell of the page map for each page.
for i in {0..19999}; do
  ask a write "$((i * 3))M" 512
done
bounded '20,000 writes far apart'
(($(memory VmHWM) < 65536)) ||
  fail "20,000 writes far apart take $(memory VmHWM) KiB"
! no_thread || fail 'the disk has no thread'
eventually 10 no_thread || fail 'the thread does not end when idle'
# Half of the share may stay.
pages=$(resident "$device")
((pages <= 2048 + 2 * $(read_ahead "$device") / 4096)) ||
  fail "idle: $pages pages are in memory"
ask_error EIO a flush
quiet 'all of them' 12

# A client that tries again and again.
for i in {0..249}; do
  ask_error EIO a write "$((300 + i))M" 4K fua
done
quiet 'failed requests' 120
grep -q 'next failure of this disk' "$tmp/log" || fail 'no line says that'

# The last client leaves without a flush, and the disk has recovered.
for i in {200..299}; do
  ask a write "${i}M" 1M
done
mount -o remount,size=1G "$tmp/full"
stop_nbdkit
status=$(/usr/bin/python3 - "$device" <<'END'
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
try:
    os.fsync(fd)
    print("success")
except OSError as e:
    print(e.strerror)
END
)
[ "$status" = 'Input/output error' ] ||
  fail "fsync of another program after a loss: $status"
grep -q 'the server does not keep all of them' "$tmp/log" ||
  fail 'the log does not say what is given up'
