# Control groups of the test's own: a tree in each hierarchy of cgroup v1, below
# the group that it was started in, that looks like all there is from inside, and
# goes away with what was made in it.
# Sourced after packaging/chroot.sh, for its $work.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154

# hierarchies: where each is mounted, and with which options.
hierarchies ()
{
  awk '{ for (i = 7; $i != "-"; i++); if ($(i + 1) == "cgroup") print $5, $NF }' \
    /proc/self/mountinfo | sed 's/ rw,/ /'
}

# own_trees: the folder for it in each.
own_trees ()
{
  local at options

  hierarchies | while read -r at options; do
    echo "$at$(sed -n "s/^[0-9]*:$options:\/*/\//p" /proc/self/cgroup)/${work##*/}"
  done
}

check_cgroups ()
{
  hierarchies | grep -q '/memory ' ||
    die "needs the memory controller of cgroup v1, in /sys/fs/cgroup/memory"
}

# enter_cgroups: this process, and all that it starts.
enter_cgroups ()
{
  local trees tree file

  # All at first: once it is in one, that is its own group there.
  mapfile -t trees < <(own_trees)
  for tree in "${trees[@]}"; do
    mkdir -p "$tree"
    # Without these nothing may enter.
    for file in cpuset.cpus cpuset.mems; do
      [ ! -e "$tree/$file" ] || cat "$tree/../$file" >"$tree/$file"
    done
    echo 0 >"$tree/cgroup.procs"
  done
}

# mount_cgroups: see them alone, in a mount and a cgroup namespace of one's own.
mount_cgroups ()
{
  local at options

  hierarchies >"$work/hierarchies"
  umount --recursive --lazy /sys/fs/cgroup
  mount -t tmpfs none /sys/fs/cgroup
  while read -r at options; do
    [[ $options != *name=* ]] || options=none,$options
    mkdir -p "$at"
    mount -t cgroup -o "$options" none "$at"
  done <"$work/hierarchies"
}

# remove_cgroups: from outside, when all that was in them has ended.
remove_cgroups ()
{
  local tree

  for tree in $(own_trees); do
    [ ! -d "$tree" ] || find "$tree" -depth -type d -exec rmdir {} +
  done
}
