# The fault rig's disk, for the scripts here: a loop device on a file that
# nbdfuse shows of a disk in memory that refuses writes on demand (see
# disk-plugin.c), with a file system on it.
#
#   file system ─▶ loop device ─▶ nbdfuse ─▶ nbdkit ─▶ disk-plugin
#
# The loop device uses direct I/O: there is no page cache below the file
# system's own, so what the file system wrote was written.
#
# xfstests and blktests make such disks with scsi_debug, null_blk or dm-flakey,
# modules of the kernel that not every machine has.
#
# It is taken down from the top, and the disk accepts writes again before, so
# that nothing waits for a layer that is gone.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
srcdir=${srcdir:-$here/../..}
builddir=${builddir:-$srcdir/../build/tests}
NBDKIT=${NBDKIT:-$builddir/../nbdkit}

# shellcheck source=tests/lib/lib.sh
. "$srcdir/lib/lib.sh" || exit

# shellcheck disable=SC2034 # run uses it
history="$here/history.py"
disk_plugin="$builddir/errors/rig/.libs/nbdkit-disk-plugin.so"
control="$tmp/control"
mnt="$tmp/mnt"          # where the file system is mounted
below="$tmp/below"      # what is below it, if it is an overlay
real=$mnt               # where the files really are
mount_options=()        # of the file system that is on the disk
ours=$NBDKIT            # the nbdkit that has the plugin
stock=${NBDKIT_SYSTEM:-nbdkit} # the first one in the PATH
mkdir "$mnt" "$below"

# disk_says LETTER: which writes the disk refuses, see disk-plugin.c.
disk_says ()
{
  [ -e "$control" ] || return 0 # a disk of another kind
  printf '%s\0' "$1" | dd of="$control" conv=notrunc status=none
}

# disk_up SIZE: afterwards $device is the disk.
disk_up ()
{
  truncate -s 5M "$control"
  disk_says -
  plugin_up "size=$1" "control=$control"
}

# plugin_up ARGUMENT...: afterwards $device is the disk that the plugin with these
# arguments serves.
plugin_up ()
{
  local disk

  need_root
  need nbdfuse losetup
  [ -e /dev/fuse ] || lacks "needs FUSE"
  [ -e "$disk_plugin" ] ||
    lacks "needs $disk_plugin: set builddir, make check TESTS="

  mkdir "$tmp/fuse"
  # In a session of its own: Ctrl-C is for this script, which takes it down
  # after the file system.  The system's nbdkit, as this is not what is tested.
  setsid nbdkit -f --exit-with-parent -P "$tmp/disk.pid" -U "$tmp/disk.sock" \
    "$disk_plugin" "$@" 2>"$tmp/disk.log" &
  disk=$!
  eventually 10 test -s "$tmp/disk.pid" || fail "$(<"$tmp/disk.log")"
  fuse_client "nbd+unix:///?socket=$tmp/disk.sock" -C 2
  under_pids+=("$disk")
  mounts+=("$below" "$mnt")
  attach "$tmp/fuse/disk" --direct-io=on
}

# Take the mount of a folder away, whatever it takes.  mountpoint(1) does not see
# a file system that has shut itself down.
unmount ()
{
  grep -qF " $1 " /proc/self/mounts || return 0
  eventually 1 umount "$1" 2>/dev/null || umount -l "$1"
}

# fresh_disk DATA ARGUMENT...: serves a file of 256 MiB with these arguments.  Its
# first DATA bytes are written and on the disk.
fresh_disk ()
{
  rm -f "$mnt/disk"
  truncate -s 256M "$mnt/disk"
  start_nbdkit file "$mnt/disk" "${@:2}"
  client_start "$uri"
  ask write 0 "$1"
  ask flush
}

# fails REQUEST...: with EIO.
fails ()
{
  ask_error EIO "$@"
}

# The disk accepts writes again before the file system on it is unmounted.
faults_cleanup ()
{
  local status=$?

  only_the_script "$status"
  set +e
  disk_says -
  # The disk has its record open there, and ends last.
  detach "$tmp/memory"
  umount -l "$tmp/memory" 2>/dev/null
  (exit "$status")
  cleanup
}

trap faults_cleanup EXIT

# make_fs TYPE [MKFS-OPTION...]: a new file system on the disk, mounted on $mnt.
# overlay-TYPE is overlayfs over one.
make_fs ()
{
  local type=${1#overlay-}

  need "mkfs.$type"
  eventually 60 make_fs_once "$type" "${@:2}" || fail "mkfs.$type: $(<"$tmp/mkfs.log")"
  mount_fs "$1"
}

# The disk may still be in use by whoever has a copy of its last mount: a
# program that was given name spaces of its own at that moment.  A kernel thread
# that makes inode tables after the mount would flush the disk, and if the disk
# refuses this flush, no program gets the report (ext4lazyinit, Linux 6.18).
make_fs_once ()
{
  case $1 in
    ext4) mkfs.ext4 -q -F -E lazy_itable_init=0 "${@:2}" "$device" ;;
    xfs | btrfs) "mkfs.$1" -q -f "${@:2}" "$device" ;;
    *) fail "no such file system: $1" ;;
  esac >"$tmp/mkfs.log" 2>&1
}

mount_fs ()
{
  case $1 in
    overlay-*) mount_overlay_fs "${1#overlay-}" ;;
    *)
      eventually 60 mount -t "$1" "${mount_options[@]}" "$device" "$mnt" ||
        fail "cannot mount $1"
      ;;
  esac
}

mount_overlay_fs ()
{
  eventually 60 mount -t "$1" "${mount_options[@]}" "$device" "$below" ||
    fail "cannot mount $1"
  real=$below/upper
  mount_overlay "$below" "$mnt" ||
    skip "the kernel cannot mount overlayfs over $1"
}

unmount_fs ()
{
  unmount "$mnt"
  unmount "$below"
  # shellcheck disable=SC2034 # run uses it
  real=$mnt
}

# choose_plugin CONTESTANT CACHE SEED: afterwards $NBDKIT is the nbdkit that has
# the plugin $plugin, which gets the $arguments: for ours small rings, so that
# windows are evicted in a history of few megabytes.
choose_plugin ()
{
  NBDKIT=$stock
  plugin='file'
  arguments=("cache=$2")
  case $1 in
    *:*) NBDKIT=${1%%:*} plugin=${1#*:} ;;
    ours)
      NBDKIT=$ours
      [ "$2" = default ] ||
        arguments+=("cache-windows=$((2 + $3 % 7))"
          "cache-window-size=$((64 << $3 % 5))K")
      ;;
  esac
}

# label CONTESTANT: its name in the table; others than ours with their version.
label ()
{
  choose_plugin "$1" none 1
  case $1 in
    ours) echo ours ;;
    *) echo "stock-$("$NBDKIT" "$plugin" --version | sed -n '$s/.* //p')" ;;
  esac
}

# each_row FUNCTION WAY...: call it with each combination of contestant, file
# system, cache mode and way that there is.  Only ours has preserve, and can serve
# a file that it cannot open again, except with preserve.
each_row ()
{
  local contestant type cache way

  # shellcheck disable=SC2154 # run sets them
  for contestant in ${plugins//,/ }; do
    for type in ${systems//,/ }; do
      for cache in ${caches//,/ }; do
        for way in "${@:2}"; do
          case $contestant-$cache-$way in
            ours-preserve-inherited) ;;
            ours-* | *-none-name | *-default-name)
              "$1" "$contestant" "$type" "$cache" "$way" ;;
          esac
        done
      done
    done
  done
}

# number NAME WORDS: of "a=1 b=2 ...".
number ()
{
  [[ " $2 " =~ \ $1=([0-9]+)\  ]] || fail "no $1 in: $2"
  echo "${BASH_REMATCH[1]}"
}
