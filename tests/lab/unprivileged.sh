# A job of the lab: a server that is nobody, of a file that it may only read.
# There, cachestat(2) and mincore(2) do not tell it what is in memory.
#
#   unprivileged
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154

# shellcheck source=../lib/lib.sh
. "$srcdir/lib/lib.sh" || exit
# shellcheck source=places.sh
. "$srcdir/lab/places.sh"
# shellcheck source=measure.sh
. "$srcdir/lab/measure.sh"

place=unprivileged
need_root
result nbdkit "$("$stock" --version)"
place_ext4
make_source
filled
chmod a+rx "$folder"
chmod 1777 "$tmp"             # for the socket
chmod 644 "$target"

# serve_as_nobody CACHE
serve_as_nobody ()
{
  start_nbdkit -u nobody -g nogroup -r file "$target" "cache=$1"
}

# read_in REQUEST-SIZE
read_in ()
{
  watched patient nbdcopy --connections=$connections --request-size="$1" \
    "$uri" null:
}

# reads SERVER: sets $worst, pages left, and $highest, pages at once.
reads ()
{
  local bytes left

  NBDKIT=$1
  worst=0 highest=0
  serve_as_nobody none
  for bytes in 4096 262144; do
    drop "$target"
    read_in $bytes
    [ "$status" = 0 ] || fail "$(<"$tmp/out")"
    left=$(settled)
    worst=$((left > worst ? left : worst))
    highest=$((most > highest ? most : highest))
  done
  stop_nbdkit
}

reads "$stock"
stock_left=$worst stock_peak=$(mebibytes "$highest")
reads "$ours"
as_promised [ "$worst" = 0 ]
result row "$place" left "$worst read" "$stock_left read" "$kept"
as_promised [ $((highest * page)) -le \
  $((32 * MiB + in_flight + connections * 2 * $(read_ahead_below))) ]
result row "$place" peak-reading "$(mebibytes "$highest")" "$stock_peak" "$kept"

# Half of it is in memory: it stays, or the server says that it cannot tell.
half_resident
serve_as_nobody preserve
read_in 262144
stop_nbdkit
compare_maps "$target" "$tmp/before"
value="kept $stayed of $resident, added $added"
if [ "$status" != 0 ] && grep -q cache=preserve "$tmp/log"; then
  value="refuses, $value"
  kept=yes
else
  as_promised preserved
fi
result row "$place" preserve "$value" - "$kept"
