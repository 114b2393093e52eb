# A job of the lab: an import onto a slow block device in a cgroup of version 2,
# with memory.max or memory.high: by the commands of
# examples/kubernetes/import-job.yaml, and by qemu-img convert as importers run it.
#
#   import MB...            megabytes a second
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2034,SC2154

# shellcheck source=../lib/lib.sh
. "$srcdir/lib/lib.sh" || exit
# shellcheck source=places.sh
. "$srcdir/lab/places.sh"
# shellcheck source=group.sh
. "$srcdir/lab/group.sh"
# shellcheck source=measure.sh
. "$srcdir/lab/measure.sh"

place=import
image_mib=720
memory_controller
result nbdkit "$("$stock" --version)"
place_ext4

# rate MB
rate ()
{
  echo $(($1 * 8000000)) >"$tmp/rate.part"
  mv "$tmp/rate.part" "$tmp/rate"
}

# slow_disk: sets $target.
slow_disk ()
{
  new_disk
  rate 1000
  "$stock" -f -U "$tmp/slow.sock" --filter=rate file "$disk" cache=none \
    rate=8000000 rate-file="$tmp/rate" burstiness=0.1 &
  under_pids+=($!)
  eventually 20 test -S "$tmp/slow.sock" || fail 'no slow server'
  mkdir "$tmp/fuse"
  mounts+=("$tmp/fuse")
  nbdfuse "$tmp/fuse/disk" "nbd+unix:///?socket=$tmp/slow.sock" &
  under_pids+=($!)
  eventually 20 test -e "$tmp/fuse/disk" || fail 'no nbdfuse'
  attach "$tmp/fuse/disk"
  undo losetup -d "$device"
  target=$device
}

image=$folder/image.qcow2
"$stock" -U - pattern ${image_mib}M \
  --run "qemu-img convert -f raw -O qcow2 -t none \"\$uri\" $image" ||
  fail 'no image'
slow_disk

# Unquoted, a [ would begin the subscript of an array.
importer_ours=(nbdcopy --flush --
  '[' qemu-nbd --read-only --format=qcow2 --cache=none "$image" ']'
  '[' "$ours" --exit-with-parent file "$target" cache=none ']')
importer_qemu=(qemu-img convert -t writeback -T none -f qcow2 -O raw
  "$image" "$target")

# import_within MB FILE LIMIT IMPORTER: sets $value and $status.
import_within ()
{
  local began
  local -n importer=importer_$4

  rate 1000
  sync
  blkdiscard -f "$disk" || fail 'the disk cannot be discarded'
  drop "$target"
  rate "$1"
  status=0
  new_group max
  echo "$3" >"$group/$2"
  began=$SECONDS
  in_group timeout 900 "${importer[@]}" || status=$?
  value="status $status, $((SECONDS - began)) s"
  slowed=$(event high)
  end_group
  value+=", $peak MiB, memory.max reached $reached times, memory.high $slowed"
  value+=" times, killed $killed, $stalled ms stalled"
  rate 1000
  drop "$target"
  patient qemu-img compare -q -f qcow2 -F raw "$image" "$target" ||
    value+=', the disk is not whole'
}

for mb; do
  for file in memory.max memory.high; do
    import_within "$mb" $file 600M qemu
    result row "import-$mb" "$file qemu-img 600M" "$value" - ''
    import_within "$mb" $file 128M ours
    as_promised [ "$status-$reached-$slowed-$killed" = 0-0-0-0 ]
    result row "import-$mb" "$file ours 128M" "$value" - "$kept"
  done
done
