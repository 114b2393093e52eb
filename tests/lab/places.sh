# Where a disk image can lie.  make_place sets
#
#   $place      its name
#   $target     what is to be served: a file that is not there yet, or a device
#   $folder     where files can be made, or nothing
#   read_ahead_of   a file or device of the block device that is read ahead
#
# Sourced after tests/lib/lib.sh, whose $tmp and cleaning up it uses.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2034,SC2154

read -ra disks_left <<<"${LAB_DISKS:-}"
disks_made=0
target='' folder='' read_ahead_of=''

# make_place NAME [SIZE]: a size is for the file system or pool below.
make_place ()
{
  place=$1
  case $1 in
    overlay-*) overlay "${1#overlay-}" ;;
    nfs3) nfs vers=3,nolock "${@:2}" ;;
    nfs4) nfs vers=4.2 "${@:2}" ;;
    tmpfs | thin | raid5 | loop-4k) "place_$1" "${@:2}" ;;
    *) file_system "$@" ;;
  esac
}

# The place cannot be made on this kernel, or not by a user's own machine.
absent ()
{
  say "absent: $*"
  result absent "$place" "$*"
  exit 0
}

only_in_a_machine ()
{
  [ -n "${LAB_DISKS:-}" ] || absent "only in a machine of the lab"
}

# module NAME
module ()
{
  modprobe -q "$1" 2>/dev/null || [ -e "/sys/module/$1" ] ||
    grep -qw "$1" /proc/filesystems || absent "this kernel has no $1"
}

# undo COMMAND...: when the job ends, the latest first.
undone=()
undo ()
{
  undone=("$(printf '%q ' "$@")" "${undone[@]}")
}

undo_all ()
{
  local status=$? i

  only_the_script "$status"
  trap '' INT TERM
  set +e
  exec 7>&-
  for i in "${undone[@]}"; do eval "$i" >/dev/null 2>&1; done
  (exit "$status")
  cleanup
}
trap undo_all EXIT

# new_disk: $disk, of 1 GiB, with nothing on it.
new_disk ()
{
  if [ ${#disks_left[@]} -gt 0 ]; then
    disk=${disks_left[0]}
    disks_left=("${disks_left[@]:1}")
    return
  fi
  need_root
  truncate -s 1G "$tmp/disk-$((++disks_made))"
  attach "$tmp/disk-$disks_made" --direct-io=on
  disk=$device
  undo losetup -d "$disk"
}

# file_system TYPE [SIZE]: a new one at $folder.  A size is for ext4 only.
file_system ()
{
  new_disk
  file_system_on "$disk" "$@"
}

# file_system_on DEVICE TYPE [SIZE]
file_system_on ()
{
  local type=$2 mkfs=(mkfs."$2") options=defaults

  case $type in
    ext?) mkfs+=(-q -F -E lazy_itable_init=1) ;;
    btrfs | f2fs | xfs) mkfs+=(-q -f) ;;
    vfat) mkfs+=(-F 32) ;;
    ntfs*) mkfs=(mkfs.ntfs -q -f -F) ;;
  esac
  [ "$type" = ntfs-3g ] || module "$type"
  "${mkfs[@]}" "$1" "${@:3}" >/dev/null || fail "${mkfs[*]}"
  folder=$tmp/$place
  mkdir -p "$folder"
  mounts+=("$folder")
  # Otherwise each page is a request of FUSE.
  [ "$type" != ntfs-3g ] || options=big_writes
  mount -t "$type" -o "$options" "$1" "$folder" || fail "cannot mount $type"
  target=$folder/disk
  read_ahead_of=$folder
}

place_tmpfs ()
{
  folder=$tmp/tmpfs
  mkdir "$folder"
  mounts+=("$folder")
  mount -t tmpfs -o size=700M none "$folder"
  target=$folder/disk
}

# overlay TYPE: over a lower and an upper folder of that type.
overlay ()
{
  local below

  module overlay
  file_system "$1"
  below=$folder
  folder=$tmp/merged
  mount_overlay "$below" "$folder"
  target=$folder/disk
}

# nfs VERSION-OPTIONS [SIZE-OF-BELOW]: server and client are this machine.
nfs ()
{
  local below

  only_in_a_machine
  module nfsd
  module nfs
  file_system ext4 "${@:2}"
  below=$folder
  mkdir -p /var/lib/nfs/{sm,rpc_pipefs,v4recovery} "$tmp/nfs"
  mount -t nfsd nfsd /proc/fs/nfsd
  mount -t rpc_pipefs rpc_pipefs /var/lib/nfs/rpc_pipefs
  rpcbind -w
  chmod a+rx "$tmp"
  echo "$below *(rw,sync,no_root_squash,no_subtree_check,fsid=1)" >/etc/exports
  exportfs -ra
  rpc.nfsd 4
  rpc.mountd
  folder=$tmp/nfs
  mounts+=("$folder")
  eventually 20 mount -t nfs -o "$1" "127.0.0.1:$below" "$folder" 2>/dev/null ||
    absent "NFS cannot be mounted with $1"
  undo umount "$folder"
  target=$folder/disk
  read_ahead_of=$folder
}

# device_target PATH: is the target.  It stays open, because the last close drops
# its pages.
device_target ()
{
  target=$1
  read_ahead_of=$1
  exec 7<"$1"
}

# A write takes space, and a discard gives it back.
place_thin ()
{
  only_in_a_machine
  module dm_thin_pool
  new_disk
  pvcreate -qq -y -ff "$disk"
  vgcreate -qq lab "$disk"
  lvcreate -qq -y -W n -Z n -L "${1:-700M}" --errorwhenfull y -T lab/pool
  lvcreate -qq -y -W n -V 600M -T lab/pool -n thin
  device_target /dev/lab/thin
}

# Three disks of 160 MiB.  One may fail.
place_raid5 ()
{
  local disks=() i

  only_in_a_machine
  module raid456
  for i in 1 2 3; do
    new_disk
    disks+=("$disk")
  done
  mdadm --quiet --create /dev/md0 --run --assume-clean --metadata=1.2 \
    --level=5 --raid-devices=3 --size=80M "${disks[@]}" </dev/null ||
    fail "mdadm"
  device_target /dev/md0
}

# Like a disk with sectors of 4 KiB.
place_loop-4k ()
{
  need_root
  backing=$tmp/backing
  truncate -s 160M "$backing"
  attach "$backing" --sector-size 4096
  undo losetup -d "$device"
  device_target "$device"
}

# used: MiB that the target takes of what lies below, or nothing if unknown.
used ()
{
  sync
  case $place in
    thin) lvs --noheadings --units m --nosuffix -o lv_size,data_percent \
      lab/thin | awk '{ printf "%d\n", $1 * $2 / 100 }' ;;
    loop-4k) du -m "$backing" | cut -f 1 ;;
    raid5 | tmpfs) ;;
    *) du -m "$target" | cut -f 1 ;;
  esac
}

# can_give_back: whether the space of a range can be given back.
can_give_back ()
{
  local status=0

  case $place in
    loop-4k) return 0 ;;
    thin | raid5) return 1 ;;
  esac
  head -c 1M /dev/zero >"$folder/probe"
  fallocate -p -o 0 -l 64K "$folder/probe" 2>/dev/null || status=1
  rm -f "$folder/probe"
  return $status
}
