# A job of the lab: copies in a cgroup of version 2 with little memory, alone and
# beside a neighbour's file that is in memory.
#
#   limits MEMORY.MAX
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2034,SC2154

group=/sys/fs/cgroup/lab

# in_group COMMAND...
in_group ()
{
  (
    echo "$BASHPID" >$group/cgroup.procs
    exec "$@"
  )
}

new_group ()
{
  mkdir $group
  echo "$limit" >$group/memory.max
}

# end_group: when what was started in it has ended.  Sets $reached and $killed, how
# often the limit was reached and a process killed.
end_group ()
{
  eventually 20 grep -qx 'populated 0' $group/cgroup.events ||
    fail "what was in the cgroup does not end"
  reached=$(awk '$1 == "max" { print $2 }' $group/memory.events)
  killed=$(awk '$1 == "oom_kill" { print $2 }' $group/memory.events)
  [ ! -e $group/memory.peak ] ||        # since Linux 5.19
    say "$(($(<$group/memory.peak) / MiB)) MiB"
  rmdir $group
}

# copy FROM TO: in the group.  Sets $status.
copy ()
{
  status=0
  in_group timeout 600 nbdcopy --flush --connections="$connections" -- "$@" ||
    status=$?
}

place=limits
only_in_a_machine
echo +memory >/sys/fs/cgroup/cgroup.subtree_control ||
  absent "no memory controller"
make_place ext4
place=limits limit=$1 hot=$folder/hot
# Unquoted, a [ may begin the subscript of an array.
server=('[' "$NBDKIT" --exit-with-parent file "$target" cache=none ']')

size=$((192 * MiB))
make_source
fresh
new_group
copy "$source" "${server[@]}"
end_group
row copy "status $status, limit reached $reached times, $killed killed" \
  [ "$status-$reached-$killed" = 0-0-0 ]

# The neighbour's file has half of the group's memory.
head -c 64M "$source" >"$hot"
sync "$hot"
fresh
drop "$hot"
new_group
in_group cat "$hot" "$hot" >/dev/null
before=$("$builddir/lib/residency" "$hot")
copy "$source" "${server[@]}"
in_status=$status
copy "${server[@]}" null:
after=$("$builddir/lib/residency" "$hot")
end_group
row copy "status $in_status and $status, $killed killed" \
  [ "$in_status-$status-$killed" = 0-0-0 ]
left "$(settled)"
row neighbour "$((100 * after / before)) % stay" \
  [ $((after * 100)) -ge $((before * 95)) ]
