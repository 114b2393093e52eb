#!/usr/bin/env bash
# With cache=preserve, reading leaves the page cache exactly as it was.  That
# holds with much readahead and the kernel's readahead marks all over the file,
# after random reads that end at once, and for a server that may only read the
# file.  Where it cannot promise that, it reports so and refuses.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_root
need fio nbdcopy qemu-io

size=$((256 * 1048576))

# half_read FILE: by somebody else, in sequence, so that the kernel reads ahead.
half_read ()
{
  drop "$1"
  dd if="$1" of=/dev/null bs=1M count=$((size / 2097152)) status=none
  map_at_rest "$1" "$tmp/map"
}

# read_all FILE WHEN NBDKIT-OPTION...
read_all ()
{
  read_once "$@" && return
  for _ in 1 2; do
    half_read "$1"
    read_once "$@" && return
  done
  fail "$taken"
}

read_once ()
{
  local connections

  start_nbdkit "${@:3}" file "$1" cache=preserve
  for connections in 1 4; do
    limited nbdcopy --connections=$connections "$uri" null: ||
      fail "$2: cannot copy"
  done
  limited fio --name=load --ioengine=nbd --uri="$uri" --iodepth=16 --bs=4k \
    --rw=randread --size=$size --time_based --runtime=1 >"$tmp/out" 2>&1 ||
    fail "$2: $(<"$tmp/out")"
  limited fio --name=load --ioengine=nbd --uri="$uri" --iodepth=4 --bs=10752 \
    --rw=randread --size=$size --norandommap --io_size=16m >"$tmp/out" 2>&1 ||
    fail "$2: $(<"$tmp/out")"
  stop_nbdkit
  as_before "$1" "$tmp/map" "$2"
}

for type in ext4 btrfs; do
  mounted $type 1G
  # Of the loop device below.  btrfs does not use its device's, and has much.
  device=$(losetup -nO NAME -j "$mounted.img")
  tune "/sys/block/${device##*/}/queue/read_ahead_kb" 8192
  random_file "$mounted/disk" $size
  half_read "$mounted/disk"
  read_all "$mounted/disk" "$type, 8 MiB readahead"
  untune
  umount "$mounted"
done

# btrfs reads compressed data through the page cache in spite of O_DIRECT.  The
# plugin drops these pages; the kernel may read ahead (none on Linux 6.18).
mounted btrfs 1000M compress-force=zstd
compressed=$mounted/disk
head -c 64M < <(seq 1 60000000) >"$compressed"
drop "$compressed"
start_nbdkit file "$compressed" cache=preserve
limited nbdcopy "$uri" null: || fail 'compressed: cannot copy'
left=$(resident "$compressed")
[ "$left" -le 8192 ] || fail "compressed by btrfs: $left pages of 16384 are left"
stop_nbdkit

# At more places than the plugin lists, which are apart from each other.
far=$mounted/far
truncate -s 10G "$far"
for ((at = 0; at < 10240; at += 4)); do
  echo "write -q -P 0 ${at}M 8K"
done | limited qemu-io -f raw "$far" >"$tmp/answers" || fail 'cannot write'
drop "$far"
start_nbdkit file "$far" cache=preserve
for ((at = 0; at < 10240; at += 4)); do
  echo "read ${at}M 4K"
done | limited "$srcdir/lib/client.py" "$uri" >"$tmp/answers"
! grep -v '^ok' "$tmp/answers" || fail 'compressed, far: cannot read'
stop_nbdkit
left=$(resident "$far")
[ "$left" = 0 ] || fail "compressed by btrfs, read far apart: $left pages stay"

# The kernel does not report pages of a file that the server neither owns nor may
# write.
random_file "$tmp/disk" $size
chmod 755 "$tmp"
mkdir -m 777 "$tmp/open"
half_read "$tmp/disk"
here=$tmp
tmp=$here/open                  # where nobody may make a socket
cp "$here/map" "$tmp/map"
read_all "$here/disk" 'unprivileged' -r -u nobody -g nogroup
tmp=$here

# refused MESSAGE ARGUMENT...: a client is, with this in the log.
refused ()
{
  start_nbdkit "${@:2}"
  ! limited nbdinfo --size "$uri" >/dev/null 2>&1 || fail "taken: ${*:2}"
  grep -qF -- "$1" "$tmp/log" || fail "${*:2}: $(<"$tmp/log")"
  stop_nbdkit
}

under=("$builddir/lib/without-direct")
refused 'cache=preserve needs O_DIRECT, which is not available' \
  file "$tmp/disk" cache=preserve
under=()

# Nor can it know which pages such reads bring in.
tmp=$tmp/open
refused 'does not report to this server which pages are resident: run the' \
  -r -u nobody -g nogroup file "$compressed" cache=preserve
tmp=$here
umount "$mounted"
