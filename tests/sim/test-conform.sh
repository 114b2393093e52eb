#!/usr/bin/env bash
# The simulator's page cache does what the kernel's does: short histories of
# calls return the same errors and the same data, and leave the same pages clean,
# dirty and absent and the same data on the disk, on ext4, XFS, overlayfs and a
# block device, also while the disk refuses writes.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit

histories=20

# The numbers of the model: EXT4, BLOCK_DEVICE and OVERLAYFS in world.h.
ext4=0 block_device=1 overlayfs=2

# Where the kernel is not as the model.
differ=()

# compare FILE FILE-BELOW NAME=NUMBER...: conform.h has the names.  Fails if a
# history differs.
compare ()
{
  local seed wait

  for ((seed = 1; seed <= histories; seed++)); do
    "$builddir/sim/sim" -c seed=$seed "${@:3}" >"$tmp/model" ||
      fail 'the model fails'
    # The kernel may write back and reclaim pages at any time, and a busy machine
    # ends writeback late.
    for wait in 1 1 4 16 64; do
      "$builddir/sim/conform-real" "$1" "$2" "$tmp/refuse" seed=$seed \
        wait=$wait "${@:3}" >"$tmp/real" ||
        fail "$1, seed $seed: the history fails"
      [ -b "$1" ] || rm -f "$1"
      ! cmp -s "$tmp/real" "$tmp/model" || break
      [ "$wait" = 64 ] || continue
      say "$1, seed $seed, ${*:3}:"
      diff -U3 "$tmp/real" "$tmp/model" | head -n 20 >&2 || :
      return 1
    done
  done
}

# compare_on WHAT FILE NAME=NUMBER...: ext4, xfs, overlay-ext4, overlay-xfs, or a
# block device.
compare_on ()
{
  local has folios below='' more=()

  has=$("$builddir/sim/conform-real" "$2" '' '')
  [ -b "$2" ] || rm -f "$2"
  folios=${has#folios=} folios=${folios%% *}
  case $1 in
    ext4) more=("fs=$ext4" ranges=1 punch=1) ;;
    xfs) more=("fs=$ext4" ranges=1 punch=1 punch_writes=1) ;;
    overlay-ext4) more=("fs=$overlayfs" punch=1) ;;
    overlay-xfs) more=("fs=$overlayfs" punch=1 punch_writes=1) ;;
    device) more=("fs=$block_device" ranges=1) ;;
  esac
  case $1:$folios in
    # A folio of XFS ends where an extent does (iomap_write_iter), and punches
    # cut extents, which the model does not have.
    *xfs:2) more+=(punch=0) ;;
  esac
  [[ $1 != overlay-* ]] || below=$upper/${2##*/}
  # shellcheck disable=SC2086
  if compare "$2" "$below" "${more[@]}" $has "${@:3}"; then
    say "$1: as the model, ${more[*]} $has ${*:3}"
  else
    differ+=("$1${3:+ ($3)}")
  fi
}

# much_readahead FOLDER-OR-DEVICE: as the model has it.
much_readahead ()
{
  local bdi format=%Hd:%Ld

  [ ! -b "$1" ] || format=%Hr:%Lr
  bdi=/sys/class/bdi/$(stat -L -c "$format" "$1")
  tune "$bdi/read_ahead_kb" 1024
}

need_root
need nbdfuse mkfs.ext4 mkfs.xfs
[ "$(getconf PAGESIZE)" = 4096 ] || skip 'the model has pages of 4 KiB'

without_errors ()
{
  local name=${1##*/}

  much_readahead "$1"
  compare_on "${name%-*}" "$1/file"
}
on_each 512M without_errors ext4 xfs overlay-ext4 overlay-xfs

# A disk that refuses writes while a file exists, and another one for metadata.
mkdir "$tmp/fuse" "$tmp/refusing" "$tmp/overlay"
nbdkit -f -U "$tmp/disk.sock" --filter=error memory 512M error-pwrite=EIO \
  error-pwrite-rate=1 error-pwrite-file="$tmp/refuse" 2>"$tmp/disk.log" &
under_pids+=($!)
eventually 20 test -S "$tmp/disk.sock" || fail 'no server of the disk'
fuse_client "nbd+unix:///?socket=$tmp/disk.sock" 2>"$tmp/fuse.log"
truncate -s 192M "$tmp/metadata"
attach "$tmp/metadata"
metadata=$device
attach "$tmp/fuse/disk" --direct-io=on
much_readahead "$device"
compare_on device "$device" refuse=1

# with_errors TYPE "MKFS-OPTIONS" "MOUNT-OPTIONS"
with_errors ()
{
  # shellcheck disable=SC2086
  mkfs.$1 -q $2 "$device" >"$tmp/mkfs.log" 2>&1 ||
    fail "mkfs.$1: $(<"$tmp/mkfs.log")"
  mounts+=("$tmp/refusing")
  mount -o "$3" "$device" "$tmp/refusing"
  much_readahead "$tmp/refusing"
  compare_on "$1" "$tmp/refusing/file" refuse=1 punch=0
  upper=$tmp/refusing/upper
  mount_overlay "$tmp/refusing" "$tmp/overlay"
  compare_on "overlay-$1" "$tmp/overlay/file" refuse=1 punch=0
  umount "$tmp/overlay"
  umount "$tmp/refusing"
}
with_errors ext4 '-F -b 4096 -O ^has_journal' noatime
with_errors xfs "-f -l logdev=$metadata" "noatime,logdev=$metadata"
[ ${#differ[@]} = 0 ] || fail "other than the model: ${differ[*]}"
