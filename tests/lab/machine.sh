# Starts a machine of the lab: qemu without KVM, so that it runs anywhere.
# Sourced after machines.sh.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154

# disk NAME FILE OPTION...: the next /dev/vdX.
disk ()
{
  qemu+=(-drive "if=virtio,format=raw,cache=unsafe,file=$1,$2")
}

# What makes emulation cheaper: a CPU of 2008.  With all that qemu knows ("max")
# libc and the kernel choose the instructions that are fastest on a real CPU, of
# which qemu emulates each byte for itself: 60 s instead of 34 until the first
# copies have ended, on Linux 6.1.  A second CPU makes it 46: two threads of
# qemu's wait for each other.
emulate_amd64 ()
{
  qemu=(qemu-system-x86_64 -cpu Nehalem -serial "file:$console"
    -serial "file:$results")
  console_port=ttyS0 results_port=ttyS1
}

# It knows pages of 16 KiB, and no signed pointers, which are dear to emulate.
emulate_arm64 ()
{
  qemu=(qemu-system-aarch64 -machine virt -cpu neoverse-n1
    -serial "file:$console" -chardev "file,id=results,path=$results"
    -device 'pci-serial,chardev=results')
  console_port=ttyAMA0 results_port=ttyS0
}

parameters='quiet panic=-1 mitigations=off audit=0'

# qemu keeps what it translated by its address in the process: with libraries
# elsewhere in each process it translates them for each anew, a quarter of all
# its time.
parameters+=' norandmaps'

# On a busy machine Linux measures the TSC wrong, then time flies, and it may
# seem that the timer does not work: neither is to be tried.
parameters+=' tsc=unstable clocksource=hpet no_timer_check'

# machine KERNEL JOB SECONDS RESULTS CONSOLE: until it powers off, or the time
# is over.  Its disks are not written to: the changes go to files in TMPDIR,
# which qemu has removed as soon as they were open.
machine ()
{
  local folder=$lab/kernel-$1 root=${root_of[$1]} results=$4 console=$5
  local i qemu scratch console_port results_port

  "emulate_$(architecture "$1")"
  qemu+=(-accel 'tcg,thread=multi' -smp "$cpus" -m 2G -nodefaults
    -no-user-config -no-reboot -display none -device virtio-rng-pci
    -kernel "$folder/vmlinuz" -initrd "$folder/initrd" -append
    "$parameters console=$console_port lab.results=$results_port lab.job=$2")
  disk "$lab/root-$root.ext4" snapshot=on
  disk "$folder/modules.ext4" readonly=on
  disk "$lab/build-$root.ext4" snapshot=on
  scratch=${keep:+$lab/disks-$1-$2}
  scratch=${scratch:-$work/disks-$1-$2}
  rm -rf "$scratch"
  mkdir "$scratch"
  for i in 1 2 3; do
    truncate -s 1G "$scratch/$i"
    disk "$scratch/$i" discard=unmap
  done
  timeout --foreground -k 5 "$3" "${qemu[@]}" </dev/null || :
  [ -n "$keep" ] || rm -rf "$scratch"
}
