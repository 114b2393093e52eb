# A job of the lab: the same copy in cgroups of version 2 that may use less and
# less memory: what it takes, how often it reaches the limit, and how long all
# that is in the group waits for memory (pressure stall information).
#
#   limits MEMORY.MAX...
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

place=limits
size=$((192 * MiB))
memory_controller
result nbdkit "$("$stock" --version)"
place_ext4
make_source

# copy_within LIMIT SERVER CACHE: sets $value and $status.
copy_within ()
{
  status=0
  new_group "$1"
  fresh
  in_group timeout 600 nbdcopy --flush --connections=$connections -- "$source" \
    [ "$2" --exit-with-parent file "$target" "cache=$3" ] || status=$?
  end_group
  value="$peak MiB, limit reached $reached times, $stalled ms stalled"
  [ $status = 0 ] || value="status $status, $killed killed"
}

for limit; do
  for cache in none default; do
    copy_within "$limit" "$stock" $cache
    of_stock=$value
    copy_within "$limit" "$ours" $cache
    kept=''
    [ "$cache-$limit" != none-128M ] ||
      as_promised [ "$status-$reached-$killed" = 0-0-0 ]
    result row "limit-$limit" "copy-$cache" "$value" "$of_stock" "$kept"
  done
done
