# A job of the lab: the Job of examples/kubernetes on volumes of some place: its
# script, as its user, in a cgroup with its limit of memory.
#
#   volumes PLACE
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154

# shellcheck source=../lib/lib.sh
. "$srcdir/lib/lib.sh" || exit
# shellcheck source=../cluster/volumes.sh
. "$srcdir/cluster/volumes.sh"
# shellcheck source=places.sh
. "$srcdir/lab/places.sh"
# shellcheck source=group.sh
. "$srcdir/lab/group.sh"
# shellcheck source=measure.sh
. "$srcdir/lab/measure.sh"

place=$1
user=65532
size=$((160 * MiB))             # more than the limit
memory_controller
result nbdkit "$("$stock" --version)"
"place_$1"

# Three images: qcow2, raw, and raw with a hole of 448 MiB before its data.
make_images ()
{
  local in=$folder/in

  make_volumes "$folder"
  printf '%s\n' qcow2.qcow2 raw.img sparse.img >"$folder/list"
  make_source
  qemu-img convert -O qcow2 "$source" "$in/qcow2.qcow2"
  head -c 128M "$source" >"$in/raw.img"
  truncate -s 448M "$in/sparse.img"
  head -c 32M "$source" >>"$in/sparse.img"
  rm "$source"
  chown "$user:$user" "$folder/out"
  chmod a+rx "$tmp" "$folder"
  sync
}

# as_pod INDEX SERVER: in a group of its own.
as_pod ()
{
  new_group 128M
  status=0
  in_group env "PATH=$(dirname "$2"):$PATH" JOB_COMPLETION_INDEX="$1" TMPDIR=/tmp \
    timeout 600 setpriv --reuid=$user --regid=$user --clear-groups \
    sh "$folder/convert" >"$tmp/out" 2>&1 || status=$?
  end_group
}

# is_right NAME
is_right ()
{
  case $1 in
    qcow2) qemu-img compare -q "$folder/in/qcow2.qcow2" "$folder/out/qcow2.raw" ;;
    *) cmp "$folder/in/$1.img" "$folder/out/$1.raw" ;;
  esac
}

# fleet SERVER: all three, one after the other.
fleet ()
{
  local index=0 name right=0 left=0 most=0

  NBDKIT=$1
  kept=yes
  value=
  for name in qcow2 raw sparse; do
    drop "$folder/in/$name".*
    as_pod $((index++)) "$1"
    target=$folder/out/$name.raw
    [ "$status" = 0 ] || { failed; value+=" ($name, $killed killed)"; return; }
    left=$((left + $(settled)))
    ! is_right "$name" || right=$((right + 1))
    most=$((peak > most ? peak : most))
    drop "$target"
    rm "$target"
  done
  value="$right of 3 right, $left pages left, $most MiB"
  as_promised [ "$right-$left" = 3-0 ]
}

make_images
fleet "$stock"
of_stock=$value
fleet "$ours"
result row "$place" volumes "$value" "$of_stock" "$kept"
