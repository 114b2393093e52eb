# A job of the lab: a server that is nobody, of a file that it may only read.
# There, cachestat(2) and mincore(2) do not tell it what is in memory.
#
#   unprivileged
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154

# shellcheck source=../lib.sh
. "$srcdir/lib.sh" || exit
# shellcheck source=places.sh
. "$srcdir/lab/places.sh"
# shellcheck source=measure.sh
. "$srcdir/lab/measure.sh"

place=unprivileged
need_root
need setpriv
result nbdkit "$("$stock" --version)"
place_ext4
make_source
filled
chmod a+rx "$tmp" "$folder"
chmod 644 "$target"

# read_by SERVER CACHE REQUEST-SIZE: as nobody, who writes no file of ours.
read_by ()
{
  watched patient setpriv --reuid=65534 --regid=65534 --clear-groups \
    nbdcopy --connections=$connections --request-size="$3" -- \
    [ "$1" --exit-with-parent -r file "$target" "cache=$2" ] null:
}

# reads SERVER: sets $worst, pages left, and $highest, pages at once.
reads ()
{
  local bytes left

  NBDKIT=$1
  worst=0 highest=0
  for bytes in 4096 262144; do
    drop "$target"
    read_by "$1" none $bytes
    [ "$status" = 0 ] || fail "$(<"$tmp/out")"
    left=$(settled)
    worst=$((left > worst ? left : worst))
    highest=$((most > highest ? most : highest))
  done
}

reads "$stock"
stock_left=$worst stock_peak=$(mebibytes "$highest")
reads "$ours"
as_promised [ "$worst" = 0 ]
result row "$place" left "$worst read" "$stock_left read" "$kept"
as_promised [ $((highest * page)) -le \
  $((32 * MiB + in_flight + connections * 2 * $(read_ahead))) ]
result row "$place" peak-reading "$(mebibytes "$highest")" "$stock_peak" "$kept"

# Half of it is in memory: it stays, or the server says that it cannot tell.
half_resident
read_by "$ours" preserve 262144
compare_maps
value="kept $stayed of $resident, added $added"
if [ "$status" != 0 ] && grep -q preserve "$tmp/out"; then
  value="refuses, $value"
  kept=yes
else
  as_promised [ "$value" = "kept $resident of $resident, added 0" ]
fi
result row "$place" preserve "$value" - "$kept"
