#!/usr/bin/env bash
# A disk that refuses all writes costs little: the next write is refused, so the
# pages in memory, the server's memory and its time are bounded, the log has one
# line, and SIGTERM ends the server.  When the disk has recovered, the client is
# still refused, and the next one is not.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_root
need blkdiscard losetup

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

# writes STEP COUNT MOST: requests, STEP apart, until one is refused, which the
# MOSTth is.  The bytes that are accepted before that are bounded.
writes ()
{
  local i

  for ((i = 0; i <= $3; i++)); do
    ask_any a write $((i * $1))K "$2"
    [[ $answer = ok* ]] || break
  done
  [[ $answer = 'error EIO '* ]] || fail "${*:1:2}: $i writes, then: $answer"
}

# refuses: every request that changes anything, now and later.
refuses ()
{
  local i

  for i in {0..249}; do
    ask_error EIO a write "$((300 + i))M" 4K
    ask_error EIO a write "$((300 + i))M" 4K fua
  done
  for i in flush 'zero 900M 1M' 'zero 900M 1M nohole' 'trim 900M 1M' flush; do
    # shellcheck disable=SC2086
    ask_error EIO a $i
  done
}

# Of processor time, in ticks.
used ()
{
  awk '{ print $14 + $15 }' "/proc/$server/stat"
}

# full_disk STEP COUNT MOST: writes, on a new disk.
full_disk ()
{
  blkdiscard "$device"
  mount -o remount,size=4M "$tmp/full"
  start_nbdkit file "$device" cache=none
  client_start --names "$uri" # without a model of 64 GiB
  ask a open
  writes "$@"
}

# dies STEP COUNT MOST WHEN
dies ()
{
  local before

  full_disk "${@:1:3}"
  bounded "$4"
  refuses
  (($(memory VmHWM) < 65536)) || fail "$4: $(memory VmHWM) KiB of memory"
  sleep 2
  bounded "$4, idle"
  before=$(used)
  sleep 2
  (($(used) - before <= 5)) || fail "$4: idle for 2 s: $(($(used) - before)) ticks"
  lines "$4" 1
  # The disk has room again: too late for this client.
  mount -o remount,size=1G "$tmp/full"
  refuses
  lines "$4, room again" 1
}

# leaves WHEN: then the next client works.
leaves ()
{
  ask a close
  eventually 5 works || fail "$1: a new client: $answer"
  lines "$1, a new client" 1
  stop_nbdkit
}

works ()
{
  sleep 0.3
  ask a open
  ask_any a write 0 1M
  [[ $answer != ok* ]] || ask_any a flush
  [[ $answer = ok* ]] || { reason=$answer; ask a close; answer=$reason; return 1; }
}

# lines WHEN MOST: in the log.
lines ()
{
  [ "$(wc -l <"$tmp/log")" -le "$2" ] ||
    fail "$1: $(wc -l <"$tmp/log") lines in the log"
}

# 4 MiB are there, the windows have 16 MiB, and their pieces are as large.
under=("$builddir/lib/without-cachestat")
dies 1024 1M 40 '1 MiB writes, without cachestat'
leaves 'without cachestat'
under=()
dies 1024 1M 40 '1 MiB writes'
leaves '1 MiB writes'

# A cell of the page map for each page.
dies 3072 512 20000 'writes far apart'
leaves 'writes far apart'

# SIGTERM ends the server although nothing can be written.
full_disk 1024 1M 40
refuses
stop_nbdkit
