#!/usr/bin/env bash
# With cache=preserve, pages that other processes had in memory stay there, and
# no other pages do.  The test copies out, reads at random and writes, also to a
# device whose sectors are larger than a page.
#
# The kernel may take back pages at any time, and some machines are set up to
# do so early.  So what has stayed is compared with a control file, which has
# the same pages in memory and is not served.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need fio nbdcopy

size=$((128 * 1048576))
pages=$((size / $(getconf PAGESIZE)))

# warm FILE: 64K in every 512K.
warm ()
{
  drop "$1"
  fio --name=warm --filename="$1" --rw=read --bs=64k --size=$size \
    --zonemode=strided --zonesize=64k --zonerange=512k \
    --io_size=$((size / 8)) \
    --ioengine=psync --fadvise_hint=random >"$tmp/fio" 2>&1 ||
    fail "fio: $(<"$tmp/fio")"
}

# preserved WHAT COMMAND...; served with "${ring[@]}".
preserved ()
{
  local control

  for f in control disk; do
    warm "$tmp/$f"
    residency -m "$tmp/$f" >"$tmp/$f.1"
  done
  start_nbdkit file "$tmp/disk" cache=preserve "${ring[@]}"
  limited "${@:2}" >"$tmp/out" 2>&1 || fail "$1: $(<"$tmp/out")"
  stop_nbdkit

  compare_maps "$tmp/control" "$tmp/control.1"
  control=$stayed
  compare_maps "$tmp/disk" "$tmp/disk.1"
  [ "$resident" -gt $((pages / 16)) ] ||
    fail 'too little was in the cache to see anything'
  [ $((stayed * 100)) -ge $((control * 95)) ] ||
    fail "$1: $stayed pages stayed; of the control file, $control"
  [ $((added * 1000)) -le $((pages)) ] ||
    fail "$1: $added pages more than before are cached"
}

ring=()
random_file "$tmp/disk" $size
cp "$tmp/disk" "$tmp/control"
nbd=(fio --name=load --ioengine=nbd --uri="nbd+unix:///?socket=$tmp/sock"
  --iodepth=8 --size="$size" --norandommap --group_reporting)

preserved 'copying out' nbdcopy "nbd+unix:///?socket=$tmp/sock" "$tmp/copy"
same "$tmp/disk" "$tmp/copy"
preserved 'random reads' "${nbd[@]}" --rw=randread --bs=4k --io_size=64m
preserved 'random writes' "${nbd[@]}" --rw=randwrite --bs=4k --io_size=64m
preserved 'writing it all' "${nbd[@]}" --rw=write --bs=256k
preserved 'mixed, odd sizes' "${nbd[@]}" --rw=randrw --bs=10752 --io_size=64m

# So small that requests find all windows being dropped.
ring=(cache-windows=2 cache-window-size=64K)
preserved 'random reads, small ring' "${nbd[@]}" --rw=randread --bs=4k \
  --io_size=64m

# The partial pages at the ends of what is zeroed or trimmed are read by the
# kernel, for us.  On ext4 mincore(2), and so cachestats, does not see them.
drop "$tmp/disk"
start_and_connect file "$tmp/disk" cache=preserve
for i in {1..20}; do
  ask zero $((i * 1048576 + 1000)) 100000 nohole
  ask zero $((i * 1048576 + 301000)) 1000
done
ask flush
stop_nbdkit
[ "$(residency "$tmp/disk")" = 0 ] || fail 'zeroes that are not aligned'

# Folios that are larger than a window go, too: a FUA write is one write.
drop "$tmp/disk"
start_and_connect file "$tmp/disk" cache=preserve cache-windows=2 \
  cache-window-size=64K
for i in {0..7}; do ask write $((i * 1048576)) 1048576 fua; done
stop_nbdkit
[ "$(residency "$tmp/disk")" = 0 ] || fail 'FUA writes larger than a window'

# There the kernel caches whole sectors (Linux 6.15).
[ "$(id -u)" = 0 ] || exit 0
device=$(losetup -f --show -b 16384 "$tmp/copy") || exit 0
drop "$device"
exec 8<"$device" # or the kernel drops all pages with the last close
start_and_connect file "$device" cache=preserve
for i in {0..199}; do ask write $((i * 7919 % 16384 * 4096)) 4096; done
ask flush
stop_nbdkit
empty_now "$device" 'small writes to large sectors'
exec 8<&-
