# Makes what a machine of the lab is started from: a root file system, a kernel
# with its modules, and the plugin built in that root.  Each is a disk image in
# the lab's folder, and made once; the plugin, whenever the sources changed.
# Sourced after scripts/common.sh, packaging/chroot.sh and machine.sh.
#
#   $lab/root-ROOT/         the root as a folder, in which the plugin is built
#   $lab/root-ROOT.ext4     the same as a disk
#   $lab/build-ROOT/        sources and build, /lab in the root
#   $lab/build-ROOT.ext4    the same as a disk
#   $lab/kernel-NAME/       vmlinuz, initrd, modules.ext4, version
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154

# What a root needs: to build the plugin and its tests, and to run the jobs.
root_packages=(
  autoconf automake gcc libc6-dev libcmocka-dev libtool make nbdkit
  nbdkit-plugin-dev perl pkgconf
  apparmor attr btrfs-progs busybox-static dmsetup dosfstools e2fsprogs exfatprogs
  f2fs-tools fio fuse3 iproute2 kmod libnbd-bin lvm2 mdadm mount nbd-client
  nbdfuse nfs-common nfs-kernel-server nocache ntfs-3g procps python3-libnbd
  qemu-utils rpcbind
  strace thin-provisioning-tools util-linux xfsprogs
)

# image FOLDER FILE MIB: a disk with the files of the folder, and MIB MiB free.
image ()
{
  rm -f "$2"
  mke2fs -q -t ext4 -E root_owner=0:0 -d "$1" "$2-part" \
    $(($(du -sm "$1" | cut -f 1) * 5 / 4 + $3))M  >/dev/null
  mv "$2-part" "$2"
}

# of_packages SUITE ARCHITECTURE FOLDER PACKAGES OPTION...: make the folder of
# these packages.  Those that would ask questions are not listed first, which
# takes minutes if it is emulated.
of_packages ()
{
  rm -rf --one-file-system "$3"
  debian "$1" "$3" --quiet --architectures="$2" --include="$4" \
    --aptopt='APT::Install-Recommends "false"' \
    --aptopt='#clear DPkg::Pre-Install-Pkgs' "${@:5}"
}

# make_root ROOT: of a release, for an architecture (bookworm, trixie-arm64).
make_root ()
{
  local root=$lab/root-$1

  [ ! -s "$root.ext4" ] || return 0
  step "making a root of $1"
  of_packages "${1%-arm64}" "$(architecture "$1")" "$root" "${root_packages[*]}" \
    --variant=apt --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/man/*'
  rm -rf "$root"/var/lib/apt/lists/*
  mkdir -p "$root/lib/modules" "$root/lab"
  image "$root" "$root.ext4" 1500
}

# make_plugin ROOT: only what changed is compiled again.  The mounts go with the
# namespace that the script runs in.
make_plugin ()
{
  local root=$lab/root-$1 folder=$lab/build-$1 id

  # Another id if any source file is another.
  copy_tree "$work/sources" "$lab"
  id=$(cd "$work/sources" && find . -type f -print0 | sort -z |
    xargs -0 sha256sum | sha256sum)
  rm -rf "$work/sources"
  [ ! "$folder.ext4" -nt "$root.ext4" ] ||
    [ "$(cat "$folder.sources" 2>/dev/null)" != "$id" ] || return 0
  step "building the plugin in $1"
  rm -f "$folder.sources"
  copy_tree "$folder/src" "$lab"
  mkdir -p "$folder/build"
  mount_chroot "$root"
  mount --bind "$folder" "$root/lab"
  # shellcheck disable=SC2016
  logged "$folder.log" in_chroot "$root" sh -euc '
    cd /lab/src
    [ -x configure ] || autoreconf -i
    cd /lab/build
    [ -e config.status ] || /lab/src/configure
    make -j"$(nproc)"
    make -j"$(nproc)" check TESTS='
  [ "$status" = 0 ] || {
    tail -n 30 "$folder.log" >&2
    die "the plugin does not build in $1, see $folder.log"
  }
  image "$folder" "$folder.ext4" 16
  echo "$id" >"$folder.sources"
}

# make_kernel NAME: its package is unpacked, and not installed.
make_kernel ()
{
  local out=$lab/kernel-$1 tree=$work/kernel package=linux-image-amd64 version file

  [ ! -s "$out/modules.ext4" ] || return 0
  step "fetching the kernel $1"
  mkdir -p "$out"
  [ "$1" != arm64-16k ] || package=linux-image-arm64-16k
  of_packages "${kernel_suite[$1]}" "$(architecture "$1")" "$tree" $package \
    --variant=extract
  [ -e "$tree/lib/modules" ] || {
    mkdir -p "$tree/lib"
    ln -s ../usr/lib/modules "$tree/lib/modules"
  }
  version=$(cd "$tree/lib/modules" && echo *)
  # In /boot, or among the modules of newer packages.
  for file in vmlinuz config; do
    mv "$tree/boot/$file-$version" "$out/$file" 2>/dev/null ||
      mv "$tree/lib/modules/$version/$file" "$out/$file"
  done
  depmod -b "$tree" "$version"
  make_initrd "$out/initrd" "$lab/root-${root_of[$1]}"
  image "$(realpath "$tree/lib/modules")" "$out/modules.ext4" 16
  echo "$version" >"$out/version"
  rm -rf "$tree"
}

# make_initrd FILE ROOT: mounts the disks, and then runs the root's bash.
make_initrd ()
{
  local initrd=$work/initrd module path name

  rm -rf "$initrd"
  mkdir -p "$initrd"/{bin,dev,proc,sysroot,modules}
  cp "$2/bin/busybox" "$initrd/bin/"
  cp "$here/initrd" "$initrd/init"
  chmod +x "$initrd/init"
  for module in virtio_pci virtio_blk crc32c_generic ext4; do
    # Some are built in, or have another name, in one kernel or another.
    modprobe -d "$tree" -S "$version" --show-depends "$module" 2>/dev/null || :
  done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' |
    while read -r path; do
      name=$(basename "$path" | sed 's/\.ko.*/.ko/')
      case $path in
        *.xz) xz -dc "$path" ;;
        *.zst) zstd -qdc "$path" ;;
        *) cat "$path" ;;
      esac >"$initrd/modules/$name"
      echo "$name" >>"$initrd/modules/order"
    done
  (cd "$initrd" && find . | cpio -o -H newc --quiet) | gzip -1 >"$1"
}
