# Makes what a machine of the lab is started from: a root file system, a kernel
# with its modules, and the plugin built in that root.  Each is a disk image in
# the lab's folder, and made once; the plugin, whenever the sources changed.
# Sourced after scripts/common.sh, packaging/chroot.sh and machines.sh.
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

# repositories SUITE: where its packages are.  sid has no updates.
repositories ()
{
  sources "$1" | awk -v suite="$1" '$4 == suite || suite != "sid"'
}

# image FOLDER FILE MIB: a disk with what the folder has, and room.
image ()
{
  rm -f "$2"
  mke2fs -q -t ext4 -E root_owner=0:0 -d "$1" "$2-part" \
    $(($(du -sm "$1" | cut -f 1) * 5 / 4 + $3))M  >/dev/null
  mv "$2-part" "$2"
}

# Have the kernel start programs for arm64 with qemu, in a chroot too (F).  Who
# has that set up already keeps it.
run_arm64_programs ()
{
  local at=/proc/sys/fs/binfmt_misc magic mask

  need_programs lab-arm64 qemu-system-aarch64 qemu-aarch64-static arch-test
  [ -e $at/register ] || mount -t binfmt_misc binfmt_misc $at ||
    die "the kernel starts no programs for other machines (binfmt_misc)"
  ! arch-test -n arm64 >/dev/null || return 0
  # An ELF file of 64 bits, little-endian, of type 2 or 3, for machine 183.
  magic='\x7f\x45\x4c\x46\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
  mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
  echo ":${work##*/}:M::$magic:$mask:$(command -v qemu-aarch64-static):F" \
    >$at/register
}

# It is one register for the whole system, whatever the namespace.
forget_arm64_programs ()
{
  [[ " ${wanted_kernels[*]} " = *arm64* ]] || return 0
  # shellcheck disable=SC2016
  unshare --mount sh -c '
    at=/proc/sys/fs/binfmt_misc
    [ -e $at/register ] || mount -t binfmt_misc binfmt_misc $at
    [ ! -e "$at/$1" ] || echo -1 >"$at/$1"' sh "${work##*/}"
}

# Nobody is asked about packages before they are installed, which takes five
# minutes where that is emulated.
#
# make_root ROOT: of a release, for an architecture (bookworm, trixie-arm64).
make_root ()
{
  local root=$lab/root-$1 suite=${1%-arm64}

  [ ! -s "$root.ext4" ] || return 0
  step "making a root of $1"
  rm -rf --one-file-system "$root"
  repositories "$suite" >"$work/sources.list"
  [ -s "$work/sources.list" ] || die "apt has no Debian repository here"
  apt_settings >"$work/apt.conf"
  mmdebstrap --quiet --mode=root --variant=apt --keyring="$keyring" \
    --architectures="$(architecture "$1")" \
    --aptopt="$work/apt.conf" --aptopt='APT::Install-Recommends "false"' \
    --aptopt='#clear DPkg::Pre-Install-Pkgs' \
    --dpkgopt=force-unsafe-io \
    --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' \
    --include="${root_packages[*]}" \
    "$suite" "$root" "$work/sources.list"
  rm -rf "$root"/var/lib/apt/lists/*
  mkdir -p "$root/lib/modules" "$root/lab"
  image "$root" "$root.ext4" 1500
}

# make_plugin ROOT: only what changed is compiled again.
make_plugin ()
{
  local folder=$lab/build-$1

  [ ! "$folder.ext4" -nt "$lab/root-$1.ext4" ] ||
    [ "$(cat "$folder.sources" 2>/dev/null)" != "$(sources_id)" ] || return 0
  step "building the plugin in $1"
  rm -f "$folder.sources"
  copy_tree "$folder/src" "$lab"
  mkdir -p "$folder/build"
  logged "$folder.log" unshare --mount "$here/build" "$lab/root-$1" "$folder"
  [ "$status" = 0 ] || {
    tail -n 30 "$folder.log" >&2
    die "the plugin does not build in $1, see $folder.log"
  }
  image "$folder" "$folder.ext4" 16
  sources_id >"$folder.sources"
}

# sources_id: another if any source file is.
sources_id ()
{
  copy_tree "$work/sources" "$lab"
  (cd "$work/sources" && find . -type f -print0 | sort -z |
    xargs -0 sha256sum) | sha256sum
  rm -rf "$work/sources"
}

# make_kernel NAME
make_kernel ()
{
  local out=$lab/kernel-$1

  [ ! -s "$out/modules.ext4" ] || return 0
  step "fetching the kernel $1"
  rm -rf "$out" "$work/kernel"
  mkdir -p "$out"
  fetch_kernel "$1" "$work/kernel"
  version=$(cd "$work/kernel/lib/modules" && echo *)
  move_kernel vmlinuz "$out/vmlinuz"
  move_kernel config "$out/config"
  depmod -b "$work/kernel" "$version"
  make_initrd "$out/initrd" "$lab/root-${root_of[$1]}"
  (cd "$work/kernel/lib/modules/$version" && rm -rf "${useless_modules[@]}")
  depmod -b "$work/kernel" "$version"
  image "$(realpath "$work/kernel/lib/modules")" "$out/modules.ext4" 16
  echo "$version" >"$out/version"
  rm -rf "$work/kernel"
}

# fetch_kernel NAME FOLDER: its packages, unpacked.
fetch_kernel ()
{
  local apt=$work/apt folder=$2 packages
  local metapackage=${kernel_package[$1]:-linux-image-amd64}

  rm -rf "$apt"
  mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$apt/deb" "$folder"
  repositories "${kernel_suite[$1]}" >"$apt/sources.list"
  apt_settings >"$apt/conf"
  # The user _apt cannot write where root can.
  echo 'APT::Sandbox::User "root";' >>"$apt/conf"
  : >"$apt/status"
  apt=(env "APT_CONFIG=$apt/conf" apt-get -qq
    -o "APT::Architecture=$(architecture "$1")"
    -o "APT::Architectures::=$(architecture "$1")"
    -o "Dir::Etc::sourcelist=$apt/sources.list"
    -o Dir::Etc::sourceparts=/nonexistent
    -o "Dir::State::lists=$apt/lists" -o "Dir::State::status=$apt/status"
    -o "Dir::Cache=$apt" -o APT::Install-Recommends=false)
  "${apt[@]}" update
  # The metapackage depends on the newest; newer ones are split in several.
  mapfile -t packages < <("${apt[@]}" --simulate install "$metapackage" |
    awk '$1 == "Inst" && $2 ~ /^linux-(image|modules|binary|base)-[0-9]/ { print $2 }')
  [ ${#packages[@]} -gt 0 ] || die "no kernel $1"
  (cd "$work/apt/deb" && "${apt[@]}" download "${packages[@]}")
  for package in "$work"/apt/deb/*.deb; do
    dpkg-deb -x "$package" "$folder"
  done
  rm -rf "$work/apt"
  [ ! -d "$folder/usr/lib/modules" ] || {
    mkdir -p "$folder/lib"
    ln -sfn ../usr/lib/modules "$folder/lib/modules"
  }
}

# move_kernel WHAT FILE: in /boot, or among the modules of newer packages.
move_kernel ()
{
  mv "$work/kernel/boot/$1-$version" "$2" 2>/dev/null ||
    mv "$work/kernel/lib/modules/$version/$1" "$2"
}

# make_initrd FILE ROOT: mounts the disks and goes on there.
make_initrd ()
{
  local tree=$work/initrd module path name

  rm -rf "$tree"
  mkdir -p "$tree"/{bin,dev,proc,sysroot,modules}
  cp "$2/bin/busybox" "$tree/bin/"
  cp "$here/initrd" "$tree/init"
  chmod +x "$tree/init"
  for module in virtio_pci virtio_blk crc32c_generic ext4; do
    # Some are built in, or have another name, in one kernel or another.
    modprobe -d "$work/kernel" -S "$version" --show-depends "$module" \
      2>/dev/null || :
  done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' |
    while read -r path; do
      name=$(basename "$path" | sed 's/\.ko.*/.ko/')
      case $path in
        *.xz) xz -dc "$path" ;;
        *.zst) zstd -qdc "$path" ;;
        *) cat "$path" ;;
      esac >"$tree/modules/$name"
      echo "$name" >>"$tree/modules/order"
    done
  (cd "$tree" && find . | cpio -o -H newc --quiet) | gzip -1 >"$1"
  rm -rf "$tree"
}
