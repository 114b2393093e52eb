#!/usr/bin/env bash
# On a disk of 50 MB/s, the full ring holds writers back: the page cache stays
# within the bound, no request hangs, and the data is right.  No client waits
# for the disk itself.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need fio nbdcopy jq mkfs.ext4 mkfs.xfs

page=$(getconf PAGESIZE)
size=$((96 * 1048576))

# held_back JOBS REQUEST-SIZE RW: for three seconds.
held_back ()
{
  local most bytes limit

  bytes=$(numfmt --from=iec "${2^^}")
  limit=$(((32 * 1048576 + $1 * 8 * bytes) / page))
  watch_start "$disk"
  limited fio --name=slow --ioengine=nbd --uri="$uri" --rw="$3" --bs="$2" \
    --numjobs="$1" --iodepth=8 --size=$size --time_based --runtime=3 \
    --norandommap --group_reporting --output-format=json \
    --output="$tmp/fio.json" >"$tmp/fio" 2>&1 || fail "fio: $(<"$tmp/fio")"
  watch_end || :
  [ "$most" -gt 0 ] || fail 'nothing was seen in the cache'
  [ "$most" -le "$limit" ] ||
    fail "$*: $most pages were cached, not $limit at most"

  # Not a matter of speed: without back-pressure a writer waits until all
  # that was cached has gone to the disk, instead of a few times the limit at
  # the speed that the disk had.
  sed -n '/^{/,$p' "$tmp/fio.json" |
    jq -e ".jobs[0].write | .clat_ns.max / 1e9 <
      ([10, 4 * $limit * $page / .bw_bytes] | max)" >/dev/null ||
    fail "$*: a request took $(sed -n '/^{/,$p' "$tmp/fio.json" |
      jq -c '.jobs[0].write | [.clat_ns.max, .bw_bytes]') ns, at bytes a second"
}

# on_slow_disk MKFS...: a file system on it, and a file there, $disk.
on_slow_disk ()
{
  local mounted=$tmp/$1

  disk=$mounted/disk
  mkdir "$mounted"
  "$@" "$tmp/fuse/disk" >"$tmp/out" 2>&1 || fail "$1: $(<"$tmp/out")"
  mounts+=("$mounted")
  mount -o loop "$tmp/fuse/disk" "$mounted" || fail 'mount'
  truncate -s $size "$disk"

  start_nbdkit file "$disk" cache=none
  held_back 4 4k randwrite
  held_back 2 1m write
  empty_soon "$disk" 'after the last connection'

  limited nbdcopy --flush "$tmp/src" "$uri"
  empty_soon "$disk" 'after a copy'
  stop_nbdkit
  same "$tmp/src" "$disk"
  umount "$mounted"
}

random_file "$tmp/src" $size
slow_disk 512M rate=400M
on_slow_disk mkfs.ext4 -q -E nodiscard,lazy_itable_init=1
on_slow_disk mkfs.xfs -q -f -K
