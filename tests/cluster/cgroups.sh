# Control groups of the test's own: a tree in each hierarchy of cgroup v1 that
# looks like all there is from inside, and goes away with what was made in it.
# Sourced after scripts/chroot.sh, for its $work.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154

# hierarchies: where each is mounted.
hierarchies ()
{
  awk '{ for (i = 7; $i != "-"; i++); if ($(i + 1) == "cgroup") print $5 }' \
    /proc/self/mountinfo
}

# enter_cgroups: this process, and all that it starts.
enter_cgroups ()
{
  local at tree file

  hierarchies | grep -q '/memory$' ||
    die "needs the memory controller of cgroup v1, in /sys/fs/cgroup/memory"
  for at in $(hierarchies); do
    tree=$at/${work##*/}
    mkdir -p "$tree"
    # Without these nothing may enter.
    for file in cpuset.cpus cpuset.mems; do
      [ ! -e "$tree/$file" ] || cat "$at/$file" >"$tree/$file"
    done
    echo 0 >"$tree/cgroup.procs"
  done
}

# mount_cgroups: see them alone, in a mount and a cgroup namespace of one's own.
mount_cgroups ()
{
  local at options

  for at in $(hierarchies); do
    options=$(awk -v at="$at" '$5 == at { print $NF; exit }' /proc/self/mountinfo)
    echo "$at ${options#rw,}"
  done >"$work/hierarchies"
  umount --recursive --lazy /sys/fs/cgroup
  mount -t tmpfs none /sys/fs/cgroup
  while read -r at options; do
    [[ $options != *name=* ]] || options=none,$options
    mkdir -p "$at"
    mount -t cgroup -o "$options" none "$at"
  done <"$work/hierarchies"
}

# remove_cgroups: when all that was in them has ended.
remove_cgroups ()
{
  local at

  for at in $(hierarchies); do
    [ ! -d "$at/${work##*/}" ] || find "$at/${work##*/}" -depth -type d \
      -exec rmdir {} +
  done
}
