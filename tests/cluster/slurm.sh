# A Slurm of one node, from Debian's packages, that are unpacked and not
# installed.  To be started in mount, network, PID and cgroup namespaces of its
# own, which take it with them when they end.
# Sourced after outcome.sh and disks.sh.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154

node=10.244.1.1

# Slurm looks for addresses that are not loopback's, and slurmstepd for its
# configuration in /etc/slurm, whatever it is told.
make_network ()
{
  hostname node1
  ip link set lo up
  ip link add node0 type bridge
  ip addr add $node/24 dev node0
  ip link set node0 up
  mkdir -p "$run/etc/upper" "$run/etc/work"
  mount -t overlay none /etc \
    -o "lowerdir=/etc,upperdir=$run/etc/upper,workdir=$run/etc/work"
  printf '127.0.0.1 localhost\n%s node1\n' $node >/etc/hosts
  mkdir -p /etc/slurm
  mount -t tmpfs none /run
}

configure ()
{
  local modules=$slurm/lib/x86_64-linux-gnu/slurm-wlm

  cat >/etc/slurm/slurm.conf <<END
ClusterName=test
SlurmctldHost=node1($node)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$run/munge/socket
PluginDir=$modules
StateSaveLocation=$run/state
SlurmdSpoolDir=$run/spool
SlurmctldPidFile=$run/slurmctld.pid
SlurmdPidFile=$run/slurmd.pid
MailProg=/bin/true
MpiDefault=none
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
JobRequeue=1
MinJobAge=3600
ReturnToService=2
NodeName=node1 NodeAddr=$node CPUs=2 RealMemory=2000
PartitionName=all Nodes=node1 Default=YES MaxTime=INFINITE State=UP
END
  cat >/etc/slurm/cgroup.conf <<END
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
ConstrainRAMSpace=yes
AllowedRAMSpace=100
END
}

start_munge ()
{
  mkdir -p "$run/munge"
  chmod 700 "$run/munge"
  head -c 128 /dev/urandom >"$run/munge/key"
  chmod 600 "$run/munge/key"
  "$slurm/sbin/munged" --force --key-file="$run/munge/key" \
    --socket="$run/munge/socket" --pid-file="$run/munge/pid" \
    --log-file="$run/munged.log" --seed-file="$run/munge/seed"
}

start_slurm ()
{
  local program

  run=$work/slurm
  slurm=$run/usr
  mkdir -p "$run/state" "$run/spool"
  cp -r "$built/slurm/usr" "$run/"
  export LD_LIBRARY_PATH=$slurm/lib/x86_64-linux-gnu/slurm-wlm:$slurm/lib/x86_64-linux-gnu
  export SLURM_CONF=/etc/slurm/slurm.conf
  PATH=$slurm/bin:$slurm/sbin:$PATH
  make_network
  configure
  start_munge
  # By these names, which Debian's alternatives give them: under any other they
  # leave out the control groups, without a word.
  for program in slurmctld slurmd slurmstepd; do
    ln -sfn $program-wlm "$slurm/sbin/$program"
  done
  slurmctld -D >"$run/slurmctld.log" 2>&1 &
  slurmd -D -N node1 -d "$slurm/sbin/slurmstepd" >"$run/slurmd.log" 2>&1 &
  within 60 node_is_idle ||
    die "the node does not become idle, see $run/slurmctld.log"
}

node_is_idle ()
{
  sinfo -h 2>/dev/null | grep -q idle
}
