# A job of the lab: a copy in and out in a cgroup that may use little memory,
# beside a neighbour's file that is in memory, and should stay there.
#
#   cgroup MEMORY.MAX
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154

# shellcheck source=../lib/lib.sh
. "$srcdir/lib/lib.sh" || exit
# shellcheck source=places.sh
. "$srcdir/lab/places.sh"
# shellcheck source=group.sh
. "$srcdir/lab/group.sh"
# shellcheck source=measure.sh
. "$srcdir/lab/measure.sh"

place=cgroup
memory_controller
result nbdkit "$("$stock" --version)"
place_ext4
make_source
hot=$folder/hot
cp "$source" "$hot"

# The neighbour's file has half the group's memory; the copy, the group's
# processes, the rest.
copy_within ()
{
  NBDKIT=$2
  new_group "$1"
  fresh
  drop "$hot"
  in_group dd if="$hot" of=/dev/null bs=1M count=64 status=none
  in_group dd if="$hot" of=/dev/null bs=1M count=64 status=none
  hot_before=$(kept_of_hot)
  watched in_group timeout 240 nbdcopy --flush --connections=$connections -- \
    "$source" [ "$2" --exit-with-parent file "$target" cache=none ]
  in_status=$status
  watched in_group timeout 240 nbdcopy --connections=$connections -- \
    [ "$2" --exit-with-parent file "$target" cache=none ] null:
  hot_after=$(kept_of_hot)
  end_group
  ended="$in_status and $status"
}

kept_of_hot ()
{
  "$builddir/lib/residency" "$hot"
}

neighbour ()
{
  echo "$((100 * hot_after / hot_before)) % stay"
}

copy_within "$1" "$stock"
stock_kept=$(neighbour) stock_ended=$ended stock_left=$(settled)
copy_within "$1" "$ours"
as_promised [ "$ended, $killed killed" = '0 and 0, 0 killed' ]
result row "$place" copy "status $ended" "status $stock_ended" "$kept"
left=$(settled)
as_promised [ "$left" = 0 ]
result row "$place" left "$left" "$stock_left" "$kept"
as_promised [ $((hot_after * 100)) -ge $((hot_before * 95)) ]
result row "$place" neighbour "$(neighbour)" "$stock_kept" "$kept"
