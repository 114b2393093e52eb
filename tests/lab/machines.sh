# Which machines the lab has: kernels of Debian's, each with the root file
# system of a release that it goes with.  Any kernel goes with any root.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2034

kernels=(5.10 6.1 6.12 newest)

# Those that run only if they are asked for: with pages of 16 KiB.
other_kernels=(arm64-16k)

# The release that has this kernel.
declare -A kernel_suite=(
  [5.10]=bullseye [6.1]=bookworm [6.12]=trixie [newest]=sid [arm64-16k]=trixie
)
declare -A kernel_package=([arm64-16k]=linux-image-arm64-16k)

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

# What a root needs: to build the plugin and its tests, and to run the jobs.
root_packages=(
  autoconf automake gcc libc6-dev libcmocka-dev libnbd-dev libtool make nbdkit
  nbdkit-plugin-dev perl pkgconf
  apparmor attr btrfs-progs busybox-static dmsetup dosfstools e2fsprogs exfatprogs
  f2fs-tools fio fuse3 iproute2 kmod libnbd-bin lvm2 mdadm mount nbd-client
  nbdfuse nfs-common nfs-kernel-server nocache ntfs-3g procps python3-libnbd
  qemu-utils rpcbind strace thin-provisioning-tools util-linux xfsprogs
)

# Modules of no use to a machine that has neither screen nor wires.
useless_modules=(
  kernel/drivers/{accel,bluetooth,gpu,hid,hwmon,iio,infiniband,input,isdn,leds}
  kernel/drivers/{media,mmc,mtd,net,platform,power,scsi,staging,thunderbolt,usb}
  kernel/sound
)
