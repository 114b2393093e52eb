# Makes what the clusters are made of, once, in the test's build folder: the
# programs, from Debian's packages, which are unpacked and not installed, and
# from the modules of Kubernetes; the image; and the plugin as it is here.
# Sourced after scripts/common.sh and packaging/chroot.sh.
#
#   $built/kubernetes/      etcd, containerd, runc and CNI's plugins
#   $built/slurm/           Slurm and munge
#   $built/bin/kube         the rest of Kubernetes, see kube/main.go
#   $built/base.tar         a root of Debian 12: what FROM debian:bookworm is
#   $built/image/           convert.tar, pause.tar: archives of the images
#   $built/plugin/          the plugin, built and installed on this machine
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154

# The name that the example has, with the version.
image_name=$(sed -n 's/^ *image: *//p' \
  "$top/examples/kubernetes/convert-job.yaml")
pause_name=registry.example/pause:1

# quietly WHAT COMMAND...: its output goes to a log that is told of if it fails.
quietly ()
{
  local log=$built/log/${1// /-}.log began=$SECONDS

  step "$1"
  mkdir -p "$built/log"
  logged "$log" "${@:2}"
  [ "$status" = 0 ] || {
    tail -n 30 "$log" >&2
    die "$1: failed, see $log"
  }
  echo "    $((SECONDS - began)) s"
}

# unpack FOLDER PACKAGE...: with what they depend on that is not installed here.
unpack ()
{
  local folder=$1 missing package

  rm -rf "$folder" "$folder.part" "$work/deb"
  mkdir -p "$work/deb/partial" "$folder.part"
  mapfile -t missing < <(apt-get -qq --simulate --no-install-recommends \
    install "${@:2}" | awk '$1 == "Inst" { print $2 }')
  # Installed packages are not in that list, but are needed here.
  mapfile -t missing < <(printf '%s\n' "${missing[@]}" "${@:2}" | sort -u)
  (cd "$work/deb" &&
    apt-get -qq -o APT::Sandbox::User=root download "${missing[@]}")
  for package in "$work"/deb/*.deb; do
    dpkg-deb -x "$package" "$folder.part"
  done
  rm -rf "$work/deb"
  mv "$folder.part" "$folder"
}

make_kubernetes_packages ()
{
  [ ! -d "$built/kubernetes" ] || return 0
  quietly 'unpacking etcd, containerd and runc' unpack "$built/kubernetes" \
    etcd-server containerd runc containernetworking-plugins
}

make_slurm_packages ()
{
  [ ! -d "$built/slurm" ] || return 0
  quietly 'unpacking Slurm' unpack "$built/slurm" slurm-wlm munge
}

# A change of its source, or of the version of Kubernetes, builds it again.
make_kube ()
{
  local sources

  sources=$(cat "$here"/kube/* | sha256sum)
  [ ! -x "$built/bin/kube" ] ||
    [ "$(cat "$built/bin/kube.sources" 2>/dev/null)" != "$sources" ] || return 0
  quietly 'building Kubernetes' build_kube
  echo "$sources" >"$built/bin/kube.sources"
}

# Without optimisation and debug information, which takes two thirds of the time
# and of the memory.
build_kube ()
{
  local version minor=k8s.io/component-base/version

  version=$(sed -n 's/^require k8s.io\/kubernetes //p' "$here/kube/go.mod")
  mkdir -p "$built/kube" "$built/bin"
  cp "$here"/kube/* "$built/kube/"
  cd "$built/kube" || return
  export GOFLAGS='-mod=mod -modcacherw -buildvcs=false' GOTOOLCHAIN=local \
    GOMODCACHE=$built/go/mod GOCACHE=$built/go/build GOGC=400
  go mod tidy
  nice go build -trimpath -gcflags='all=-dwarf=false -N -l' \
    -gcflags=std=-dwarf=false -o "$built/bin/kube.part" -ldflags="-s -w \
      -X $minor.gitVersion=$version -X $minor.gitMajor=1 \
      -X $minor.gitMinor=$(cut -d . -f 2 <<<"$version")" .
  mv "$built/bin/kube.part" "$built/bin/kube"
}

# ------------------------------------------------------------------ images

# The image of examples/kubernetes/Containerfile, built by buildah.  There is no
# registry: what is "FROM debian:bookworm" there is a root of mmdebstrap's here.
make_image ()
{
  local id

  mkdir -p "$built/image"
  copy_tree "$work/context" "$work"
  # Only files that end up in the image make a new one.
  id=$(cd "$work/context" &&
    find configure.ac Makefile.am nbdkit.in plugins docs/*.pod \
      examples/kubernetes/Containerfile -type f -print0 |
    sort -z | xargs -0 sha256sum | sha256sum)
  [ "$(cat "$built/image/sources" 2>/dev/null)" != "$id" ] || return 0
  rm -f "$built/image/sources"
  [ -s "$built/base.tar" ] || quietly 'making a root of Debian 12' make_base
  quietly 'building the image' build_image
  [ -s "$built/image/pause.tar" ] ||
    quietly 'making the image of the pause' build_pause
  echo "$id" >"$built/image/sources"
}

make_base ()
{
  make_chroot bookworm "$work/base"
  rm -rf "$work"/base/var/lib/apt/lists/*
  tar -C "$work/base" --one-file-system -cf "$built/base.tar.part" .
  rm -rf --one-file-system "$work/base"
  mv "$built/base.tar.part" "$built/base.tar"
}

# buildah COMMAND...: with a store of its own, and no registry.
buildah ()
{
  command buildah --root "$built/buildah/root" \
    --runroot "$work/buildah" --storage-driver overlay "$@"
}

# commit_tar TAR NAME: an image of one layer.
commit_tar ()
{
  local container

  container=$(buildah from scratch)
  buildah add "$container" "$1" /
  buildah commit --rm "$container" "$2"
}

build_image ()
{
  buildah inspect --type image docker.io/library/debian:bookworm >/dev/null ||
    commit_tar "$built/base.tar" docker.io/library/debian:bookworm
  buildah build --isolation chroot --pull-never --no-cache \
    --tag "$image_name" --file "$work/context/examples/kubernetes/Containerfile" \
    "$work/context"
  rm -f "$built/image/convert.tar"
  buildah push "$image_name" "docker-archive:$built/image/convert.tar:$image_name"
  buildah rmi --prune
}

build_pause ()
{
  local container

  printf '%s\n' '#include <unistd.h>' 'int main (void) { for (;;) pause (); }' \
    >"$work/pause.c"
  gcc -O2 -static -s -o "$work/pause" "$work/pause.c"
  container=$(buildah from scratch)
  buildah copy "$container" "$work/pause" /pause
  buildah config --entrypoint '["/pause"]' --user 65535:65535 "$container"
  buildah commit --rm "$container" "$pause_name"
  rm -f "$built/image/pause.tar"
  buildah push "$pause_name" "docker-archive:$built/image/pause.tar:$pause_name"
}

# The plugin, for Slurm, whose nodes have it installed.
make_plugin ()
{
  quietly 'building the plugin' build_plugin
}

build_plugin ()
{
  build "$built/host" --prefix="$built/plugin" --with-systemdsystemunitdir=no
  make -C "$built/host" install
}
