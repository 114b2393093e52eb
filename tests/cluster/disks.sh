# The disks that are converted, the volumes that they are on, and what is said
# of them afterwards; the same for each kind of cluster.
# Sourced by what runs cases, after outcome.sh.
#
#   $volumes/NAME           a file system of its own, on a loop device
#   $volumes/NAME.device    which
#   $work/sums/DISK         the checksum of a disk's content
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154

volumes=$work/volumes

# make_volume NAME TYPE SIZE
make_volume ()
{
  local device

  mkdir -p "$volumes/$1"
  truncate -s "$3" "$work/$1.img"
  "mkfs.$2" -q "$work/$1.img"
  device=$(losetup -f --show --direct-io=on "$work/$1.img")
  echo "$device" >"$volumes/$1.device"
  mount -t "$2" "$device" "$volumes/$1"
}

# make_disk VOLUME NAME FORMAT MIB [DATA]: if it is not there yet; DATA MiB of it
# are data, or three quarters.  FORMAT may be sparse: raw, with holes.
make_disk ()
{
  local raw=$work/memory/raw file=$volumes/$1/$2

  [ ! -e "$file" ] || return 0
  mountpoint -q "$work/memory" || {
    mkdir -p "$work/memory"
    mount -t tmpfs none "$work/memory"
  }
  head -c $((${5:-$4 * 3 / 4}))M /dev/urandom >"$raw"
  truncate -s "$4M" "$raw"
  mkdir -p "$work/sums"
  sha256sum <"$raw" >"$work/sums/${2%.*}"
  case $3 in
    qcow2) qemu-img convert -T none -t none -f raw -O qcow2 "$raw" "$file" ;;
    raw) qemu-img convert -T none -t none -S 0 -f raw -O raw "$raw" "$file" ;;
    sparse) qemu-img convert -T none -t none -f raw -O raw "$raw" "$file" ;;
  esac
  rm "$raw"
  chmod 644 "$file"
  sync "$file"
}

# empty_volume NAME: of disks, whole and unfinished.
empty_volume ()
{
  find "$volumes/$1" -maxdepth 1 -type f -delete
  sync -f "$volumes/$1"
}

# right VOLUME DISK...: each has its final name, and the content it should.
right ()
{
  local disk

  for disk in "${@:2}"; do
    sha256sum <"$volumes/$1/$disk.raw" | cmp - "$work/sums/$disk" || return 1
  done
}

# no_disk VOLUME DISK...: none has its final name, and nothing else is left.
no_disk ()
{
  local disk

  for disk in "${@:2}"; do
    ! compgen -G "$volumes/$1/$disk.*" >&2 || return 1
  done
}

no_parts ()
{
  ! compgen -G "$volumes/$1/*part" >&2
}

# resident FILE...: bytes of them in the page cache.
resident ()
{
  fincore --bytes --noheadings --output RES "$@" |
    awk '{ sum += $1 } END { print sum + 0 }'
}

# cached VOLUME: the same of all its files.
cached ()
{
  local files

  mapfile -t files < <(find "$volumes/$1" -maxdepth 1 -type f)
  if [ ${#files[@]} = 0 ]; then echo 0; else resident "${files[@]}"; fi
}

nothing_cached ()
{
  equal 0 "$(cached "$1")" || {
    fincore "$volumes/$1"/*
    return 1
  }
}

# ---- while it runs ----

# watch_begin VOLUME CGROUPS [DEVICE...]; watch_end: then it is in $seen.
watch_begin ()
{
  seen=$work/seen.json
  rm -f "$seen"
  "$here/watch" "$seen" "$volumes/$1" "${@:2}" &
  watcher=$!
}

watch_end ()
{
  kill "$watcher"
  wait "$watcher"
}

# one_writer: of any disk at any time.
one_writer ()
{
  equal 1 "$(jq '[.disks[].writers] | max' "$seen")"
}

# never_changed: what had its final name.
never_changed ()
{
  equal false "$(jq '[.disks[].changed] | any' "$seen")"
}

# figures: a line for each pod, and the most that was cached.
figures ()
{
  jq -r '
    def mib: . / 1048576 * 10 | round / 10;
    (.disks as $disks | .pods[] | $disks[.disk] as $disk |
      "\(.disk): \(($disk.end - $disk.begin) * 10 | round / 10) s, " +
      "\(.max | mib) of \(if .limit < 1e15 then .limit | mib else "any" end)" +
      " MiB, limit reached \(.full) times, killed \(.killed)"),
    "cached at most \(.cached | mib) MiB of all disks"' "$seen" |
    while read -r line; do figure "$line"; done
}

# ---- slow enough to do something in the middle ----

# slow_reads DEVICE BYTES-A-SECOND CONTAINERS: for each control group that the
# pattern matches in blkio/, which conversions are in, until they end.
slow_reads ()
{
  local number group

  number=$(lsblk -ndo MAJ:MIN "$1" | tr -d ' ')
  while sleep 0.05; do
    for group in /sys/fs/cgroup/blkio/$3; do
      [ ! -s "$group/blkio.throttle.read_bps_device" ] || continue
      { echo "$number $2" >"$group/blkio.throttle.read_bps_device"
      } 2>/dev/null || :
    done
  done
}

# written VOLUME DISK MIB: at least MIB MiB of the disk have been written.
written ()
{
  local blocks

  # There may be none, or it may just have been renamed.
  blocks=$(stat -c %b "$volumes/$1/$2".raw.*part 2>/dev/null | sort -n | tail -n 1)
  [ "${blocks:-0}" -gt $(($3 * 2048)) ]
}

# processes NAME DISK: of the conversion of a disk.
processes ()
{
  local pid

  for pid in /proc/[0-9]*; do
    [ "$(cat "$pid/comm" 2>/dev/null)" = "$1" ] || continue
    ! tr '\0' ' ' <"$pid/cmdline" | grep -qF "/$2." || echo "${pid#/proc/}"
  done
}
