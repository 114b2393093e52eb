#!/usr/bin/env bash
# cache-limit= bounds the page cache of all disks of a server together.  16
# disks that are read and written at once have no more than that, 256 KiB each,
# and their requests in flight; with a larger limit they have more.  Writes that
# are larger than a disk's share do not get more.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need fio cachestats

disks=16
page=$(getconf PAGESIZE)
mkdir "$tmp/dir"
for ((i = 0; i < disks; i++)); do
  random_file "$tmp/dir/$i" $((32 * 1048576))
  drop "$tmp/dir/$i"
done

# Each disk's own job, since the engine takes one address a job.
jobs ()
{
  local i

  printf '[global]\nioengine=nbd\n%s\ntime_based\nruntime=4\n' "$load"
  printf 'size=32m\n'
  for ((i = 0; i < disks; i++)); do
    printf '[%s]\nuri=nbd+unix:///%s?socket=%s/sock\n' "$i" "$i" "$tmp"
  done
}

all_resident ()
{
  local i sum=0

  for ((i = 0; i < disks; i++)); do
    sum=$((sum + $(residency "$tmp/dir/$i")))
  done
  echo $((sum * page))
}

# most LIMIT SETTING...: the most that was seen in the page cache, once all were
# busy, with these settings of fio.  Without readahead, which is the kernel's to
# bound.
most ()
{
  local fio load most=0 now

  load=$(printf '%s\n' "${@:2}")
  start_nbdkit --threads 2 file "dir=$tmp/dir" cache=none fadvise=random \
    "cache-limit=$1"
  jobs >"$tmp/jobs"
  fio "$tmp/jobs" >"$tmp/fio" 2>&1 &
  fio=$!
  pids+=("$fio")
  sleep 1
  while kill -0 "$fio" 2>/dev/null; do
    now=$(all_resident)
    [ "$now" -le "$most" ] || most=$now
  done
  wait "$fio" || fail "fio: $(<"$tmp/fio")"
  stop_nbdkit
  echo "$most" >"$tmp/most"
}

most 8M bs=64k iodepth=2 rw=rw
least=$(<"$tmp/most")
allowed=$((8 * 1048576 + disks * (262144 + 2 * 65536)))
[ "$least" -gt 0 ] || fail 'nothing was seen in the page cache'
[ "$least" -le "$allowed" ] ||
  fail "cache-limit=8M: $least bytes were cached, not $allowed at most"
most 8M bs=2m iodepth=1 rw=write
[ "$(<"$tmp/most")" -le $((8 * 1048576 / 2 + disks * 65536)) ] ||
  fail "cache-limit=8M: writes of 2 MiB: $(<"$tmp/most") bytes were cached"
most 1G bs=64k iodepth=2 rw=rw
[ "$(<"$tmp/most")" -gt "$allowed" ] ||
  fail "cache-limit=1G: only $(<"$tmp/most") bytes were cached: this is no test"
