#!/usr/bin/env bash
# With cache=preserve, pages that other processes had in memory stay there, and
# no other pages do.  The test copies out, reads at random and writes.
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

# both BEFORE AFTER: pages that are resident in both maps. new: only after.
both ()
{
  paste -d '' <(fold -w 1 "$1") <(fold -w 1 "$2") | grep -c 11 || :
}

new ()
{
  paste -d '' <(fold -w 1 "$1") <(fold -w 1 "$2") | grep -c 01 || :
}

# preserved WHAT COMMAND...; served with "${ring[@]}".
preserved ()
{
  local kept control added

  warm "$tmp/control"
  warm "$tmp/disk"
  for f in disk control; do "$builddir/lib/residency" -m "$tmp/$f" >"$tmp/$f.1"; done
  [ "$(both "$tmp/disk.1" "$tmp/disk.1")" -gt $((pages / 16)) ] ||
    fail 'too little was in the cache to see anything'

  start_nbdkit file "$tmp/disk" cache=preserve "${ring[@]}"
  limited "${@:2}" >"$tmp/out" 2>&1 || fail "$1: $(<"$tmp/out")"
  stop_nbdkit

  for f in disk control; do "$builddir/lib/residency" -m "$tmp/$f" >"$tmp/$f.2"; done
  kept=$(both "$tmp/disk.1" "$tmp/disk.2")
  control=$(both "$tmp/control.1" "$tmp/control.2")
  added=$(new "$tmp/disk.1" "$tmp/disk.2")
  [ $((kept * 100)) -ge $((control * 95)) ] ||
    fail "$1: $kept pages stayed; of the control file, $control"
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
start_nbdkit file "$tmp/disk" cache=preserve
client_start "$uri"
for i in {1..20}; do
  ask zero $((i * 1048576 + 1000)) 100000 nohole
  ask zero $((i * 1048576 + 301000)) 1000
done
ask flush
client_stop
stop_nbdkit
left=$("$builddir/lib/residency" "$tmp/disk")
[ "$left" = 0 ] || fail "after zeroes that are not aligned: $left pages"

# Folios that are larger than a window go, too: a FUA write is one write.
drop "$tmp/disk"
start_nbdkit file "$tmp/disk" cache=preserve cache-windows=2 \
  cache-window-size=64K
client_start "$uri"
for i in {0..7}; do ask write $((i * 1048576)) 1048576 fua; done
client_stop
stop_nbdkit
left=$("$builddir/lib/residency" "$tmp/disk")
[ "$left" = 0 ] || fail "after FUA writes larger than a window: $left pages"
