# Makes what the cluster is made of, once, in the build folder.
# Sourced after scripts/common.sh and packaging/chroot.sh.
#
#   $built/kubernetes/      etcd, containerd, runc and CNI's plugins: packages of
#                           Debian, unpacked and not installed
#   $built/bin/kube         the rest of Kubernetes, see kube/main.go
#   $built/base.tar         a root of Debian 12: what FROM debian:bookworm is
#   $built/image/           convert.tar, pause.tar: archives of the images
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154

# The name that the example has, with the version.
image_name=$(sed -n 's/^ *image: *//p' \
  "$top/examples/kubernetes/convert-job.yaml")
pause_name=registry.example/pause:1

# quietly WHAT COMMAND...: the output goes to a log, which is shown on failure.
quietly ()
{
  local log=$built/log/${1// /-}.log

  step "$1"
  mkdir -p "$built/log"
  logged "$log" "${@:2}"
  [ "$status" = 0 ] || {
    tail -n 30 "$log" >&2
    die "$1: failed, see $log"
  }
}

make_all ()
{
  local lock sources id

  mkdir -p "$built/image" "$built/bin"
  exec {lock}>"$built/lock"
  flock "$lock"
  [ -d "$built/kubernetes" ] ||
    quietly 'unpacking etcd, containerd and runc' unpack "$built/kubernetes" \
      etcd-server containerd runc containernetworking-plugins
  sources=$(cat "$here"/kube/* | sha256sum)
  [ "$(cat "$built/bin/sources" 2>/dev/null)" = "$sources" ] || {
    quietly 'building Kubernetes' build_kube
    echo "$sources" >"$built/bin/sources"
  }
  copy_tree "$work/context" "$work"
  # Only files that end up in the image make a new one.
  id=$(cd "$work/context" &&
    find configure.ac Makefile.am nbdkit.in plugins docs/*.pod \
      examples/kubernetes/Containerfile -type f -print0 |
    sort -z | xargs -0 sha256sum | sha256sum)
  [ "$(cat "$built/image/sources" 2>/dev/null)" = "$id" ] || {
    [ -s "$built/base.tar" ] || quietly 'making a root of Debian 12' make_base
    quietly 'building the images' build_images
    echo "$id" >"$built/image/sources"
  }
  exec {lock}>&-
}

# unpack FOLDER PACKAGE...: and their dependencies that are not installed here.
unpack ()
{
  local folder=$1 packages package

  rm -rf "$folder.part"
  mkdir -p "$work/deb/partial" "$folder.part"
  # apt does not list those that are installed.
  mapfile -t packages < <({ printf '%s\n' "${@:2}"
    apt-get -qq --simulate --no-install-recommends install "${@:2}" |
      awk '$1 == "Inst" { print $2 }'; } | sort -u)
  (cd "$work/deb" &&
    apt-get -qq -o APT::Sandbox::User=root download "${packages[@]}")
  for package in "$work"/deb/*.deb; do dpkg-deb -x "$package" "$folder.part"; done
  mv "$folder.part" "$folder"
}

# Without optimisation and debug information, which takes two thirds of the time
# and of the memory.
build_kube ()
{
  local version minor=k8s.io/component-base/version

  version=$(sed -n 's/^require k8s.io\/kubernetes //p' "$here/kube/go.mod")
  mkdir -p "$built/kube"
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

# build_image NAME TAR CONTEXT CONTAINERFILE
build_image ()
{
  buildah build --isolation chroot --pull-never --no-cache --tag "$1" \
    --file "$4" "$3"
  rm -f "$2"
  buildah push "$1" "docker-archive:$2:$1"
}

# What is "FROM debian:bookworm" in the example's Containerfile is the root here.
build_images ()
{
  local container debian=docker.io/library/debian:bookworm

  buildah inspect --type image $debian >/dev/null || {
    container=$(buildah from scratch)
    buildah add "$container" "$built/base.tar" /
    buildah commit --rm "$container" $debian
  }
  build_image "$image_name" "$built/image/convert.tar" "$work/context" \
    "$work/context/examples/kubernetes/Containerfile"
  printf '%s\n' "FROM $image_name" 'ENTRYPOINT ["sleep", "infinity"]' \
    >"$work/pause"
  build_image $pause_name "$built/image/pause.tar" "$work/context" "$work/pause"
  buildah rmi --prune
}
