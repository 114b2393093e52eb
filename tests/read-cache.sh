# What the test-reads-*.sh tests have in common: with cache=none, reading and
# mixed loads leave no page cached, and few while they run.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash

# shellcheck source=lib.sh
. "${srcdir:-.}/lib.sh"
need fio nbdcopy cmp cachestats

size=$((128 * 1048576))
page=$(getconf PAGESIZE)

# read_ahead FILE: bytes that the kernel reads ahead in it.  btrfs hides its
# device; 4 MiB is what it uses at least.
read_ahead ()
{
  local kb=4096 device

  device=$(stat -c '%Hd:%Ld' "$1")
  [ ! -e "/sys/class/bdi/$device/read_ahead_kb" ] ||
    kb=$(<"/sys/class/bdi/$device/read_ahead_kb")
  echo $((kb * 1024))
}

# load FILE CONNECTIONS REQUEST-SIZE FIO-OPTION...: for two seconds, watching
# from the first on, so that a warm cache has been emptied by then.
load ()
{
  local file=$1 jobs=$2 bytes limit most watcher depth=4

  bytes=$(numfmt --from=iec "${3^^}")
  limit=$(((32 * 1048576 + jobs * depth * bytes +
            jobs * 2 * $(read_ahead "$file")) / page))
  { sleep 1; exec "$builddir/residency" -w "$file"; } >"$tmp/most" &
  watcher=$!
  pids+=("$watcher")
  limited fio --name=load --ioengine=nbd --uri="$uri" --bs="$3" \
    --numjobs="$jobs" --iodepth=$depth --size=$size --time_based --runtime=2 \
    --group_reporting --norandommap "${@:4}" >"$tmp/fio" 2>&1 ||
    fail "fio: $(<"$tmp/fio")"
  kill "$watcher"
  wait "$watcher" || :
  most=$(<"$tmp/most")
  [ "$most" -le "$limit" ] ||
    fail "$*: $most pages were cached, not $limit at most"
  empty_soon "$file" "after $*"
}

# reads_leave_nothing FILE
reads_leave_nothing ()
{
  local file=$1 bytes

  random_file "$file" $size
  start_nbdkit file "$file" cache=none

  for bytes in 4096 65536 262144; do
    drop "$file"
    limited nbdcopy --request-size=$bytes "$uri" "$tmp/copy"
    empty_soon "$file" "after nbdcopy, requests of $bytes, cold"
    same "$file" "$tmp/copy"
    cat "$file" >/dev/null
    limited nbdcopy --request-size=$bytes "$uri" null:
    empty_soon "$file" "after nbdcopy, requests of $bytes, warm"
  done

  drop "$file"
  load "$file" 1 4k --rw=read
  load "$file" 8 256k --rw=read
  load "$file" 2 32m --rw=read
  load "$file" 1 64k --rw=read --zonemode=strided --zonesize=64k \
    --zonerange=128k
  cat "$file" >/dev/null
  load "$file" 4 512 --rw=randread
  cat "$file" >/dev/null
  load "$file" 4 64k --rw=read
  load "$file" 4 4k --rw=randrw
  load "$file" 4 256k --rw=randrw

  # A connection left open, reading and then idle.
  random_file "$file" $size
  stop_nbdkit
  start_nbdkit file "$file" cache=none
  client_start "$uri"
  ask cache 0 8M
  ask zero 16M 1M
  ask read 16M 1M
  empty_soon "$file" 'two seconds after the last read, connection open'
  client_stop
  stop_nbdkit
}
