# A cgroup of version 2 that may use little memory, and what became of it.
# Sourced after places.sh.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2034,SC2154

group=/sys/fs/cgroup/lab

# memory_controller: there are such groups here.
memory_controller ()
{
  only_in_a_machine
  echo +memory >/sys/fs/cgroup/cgroup.subtree_control ||
    absent "no memory controller"
}

# new_group MEMORY.MAX
new_group ()
{
  mkdir $group
  echo "$1" >$group/memory.max
}

# in_group COMMAND...
in_group ()
{
  (
    echo "$BASHPID" >$group/cgroup.procs
    exec "$@"
  )
}

# end_group: when what was started in it has ended.  Sets $reached and $killed,
# how often the limit was reached and a process killed; $peak, the most MiB that
# were used (Linux 5.19); and $stalled, for how many milliseconds nothing there
# went on for want of memory.
end_group ()
{
  eventually 20 group_is_empty || fail "what was in the cgroup does not end"
  reached=$(event max)
  killed=$(event oom_kill)
  peak=
  [ ! -e $group/memory.peak ] || peak=$(($(<$group/memory.peak) / 1048576))
  stalled=$(sed -n 's/^full .*total=//p' $group/memory.pressure | awk '{
    printf "%.0f", $1 / 1000 }')
  rmdir $group
}

group_is_empty ()
{
  [ -z "$(<$group/cgroup.procs)" ]
}

# event NAME: how often it happened in the group.
event ()
{
  awk -v name="$1" '$1 == name { print $2 }' $group/memory.events
}
