# The machines of the lab: kernels of Debian's, each with the root file system of a
# release, in qemu without KVM, so that they run anywhere.  Any kernel goes with
# any root.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2034,SC2154

kernels=(5.10 6.1 6.12 newest)

# Those that run only if they are named: with pages of 16 KiB.
other_kernels=(arm64-16k)

# The release that has this kernel.
declare -A kernel_suite=(
  [5.10]=bullseye [6.1]=bookworm [6.12]=trixie [newest]=sid [arm64-16k]=trixie
)

# The root that runs on it.  nbdkit of bullseye is too old for the plugin.
declare -A root_of=(
  [5.10]=bookworm [6.1]=bookworm [6.12]=trixie [newest]=sid
  [arm64-16k]=trixie-arm64
)

# architecture NAME: of a kernel or a root.
architecture ()
{
  case $1 in
    *arm64*) echo arm64 ;;
    *) echo amd64 ;;
  esac
}

# disk NAME FILE OPTION...: the next /dev/vdX.
disk ()
{
  qemu+=(-drive "if=virtio,format=raw,cache=unsafe,file=$1,$2")
}

# A CPU of 2008 is cheaper to emulate.  With all that qemu has ("max"), libc and
# the kernel choose the instructions that are fastest on a real CPU, and qemu
# emulates each byte of these by itself: 60 s instead of 34 until the first copies
# have ended, on Linux 6.1.  With a second CPU it is 46 s.
emulate_amd64 ()
{
  qemu=(qemu-system-x86_64 -cpu Nehalem -serial "file:$console"
    -serial "file:$results")
  console_port=ttyS0 results_port=ttyS1
}

# This CPU has pages of 16 KiB, and no signed pointers, which are slow to emulate.
emulate_arm64 ()
{
  qemu=(qemu-system-aarch64 -machine virt -cpu neoverse-n1
    -serial "file:$console" -chardev "file,id=results,path=$results"
    -device 'pci-serial,chardev=results')
  console_port=ttyAMA0 results_port=ttyS0
}

# norandmaps: qemu finds translated code by its address in the process.  Libraries
# at other addresses in each process would be translated for each again, which is a
# quarter of the time.  The last three: on a busy machine Linux measures the TSC
# wrong, and takes the timer for broken.
parameters='quiet panic=-1 mitigations=off audit=0 norandmaps tsc=unstable'
parameters+=' clocksource=hpet no_timer_check'

# machine KERNEL JOB SECONDS RESULTS CONSOLE: until it powers off, or the time has
# passed.  Its images are not written to: the changes go to files in TMPDIR, which
# qemu removes as soon as they are open.
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
  scratch=$work/disks-$1-$2
  mkdir "$scratch"
  for i in 1 2 3; do
    truncate -s 1G "$scratch/$i"
    disk "$scratch/$i" discard=unmap
  done
  timeout --foreground -k 5 "$3" "${qemu[@]}" </dev/null || :
  rm -rf "$scratch"
}
