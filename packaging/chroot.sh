# Fresh Debian systems in folders, made from the repositories that this
# machine's apt uses.  They run in namespaces: all mounts and processes there
# end with the namespaces.
# Sourced after common.sh, which sets $top.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
work=${CHROOT_WORK:-}
at_end=()       # commands to run outside when all in the namespaces has ended

# running_suite: of this machine.
running_suite ()
(
  # shellcheck disable=SC1091
  . /etc/os-release
  # There sid has the name of testing.
  # shellcheck disable=SC2016
  case $(apt-get indextargets --format '<$(RELEASE)>') in
    *"<${VERSION_CODENAME:-}>"*) echo "$VERSION_CODENAME" ;;
    *'<sid>'*) echo sid ;;
    *) echo "${VERSION_CODENAME:-}" ;;
  esac
)

# in_namespaces COMMAND...: run a script that sources this file, too.  The
# script finds $work set, a folder that is removed afterwards.  Returns the
# status of the command.  A signal that ends this process also ends the command,
# which has 30 seconds to clean up.
in_namespaces ()
{
  local folder=${TMPDIR:-/var/tmp} status=0

  [ "$(id -u)" = 0 ] || die "needs root: it mounts"
  work=$(mktemp -d "$folder/windowed-chroot-XXXXXX")
  chmod a+rx "$work"
  export CHROOT_WORK=$work
  trap end_namespaces EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  # In a process group of its own, to which one signal can be sent.  With
  # sched_autogroup a session has its own priority, which is not inherited.
  setsid bash -c 'nice 2>/dev/null >/proc/self/autogroup; exec "$@"' bash \
    unshare --mount --pid --fork --kill-child --mount-proc "$@" </dev/null &
  inside=$!
  wait "$inside" || status=$?
  inside=
  return "$status"
}

# unshare(1) ignores SIGTERM.  Its command does not, and unshare ends with the
# command.
end_namespaces ()
{
  local status=$? i device file command

  trap '' INT TERM
  set +e
  if [ -n "${inside:-}" ] && kill -0 "$inside" 2>/dev/null; then
    kill -TERM -- "-$inside"
    for ((i = 0; i < 300; i++)); do
      kill -0 "$inside" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL "$inside" 2>/dev/null
    wait "$inside"
  fi
  losetup -nlO NAME,BACK-FILE | while read -r device file; do
    [[ $file != "$work"/* ]] || losetup -d "$device"
  done
  for command in "${at_end[@]}"; do "$command"; done
  rm -rf --one-file-system "$work"
  exit "$status"
}

# When the first process of the namespace ends, the kernel kills all other
# processes there.  After a failure or a signal these may still be cleaning up,
# so wait for them, for 20 seconds at most.
let_others_end ()
{
  local status=$? i others

  trap '' TERM
  for ((i = 0; status != 0 && i < 200; i++)); do
    others=(/proc/[0-9]*)
    [ ${#others[@]} -gt 1 ] || break
    sleep 0.1
  done
  exit "$status"
}

if [ -n "$work" ]; then
  trap let_others_end EXIT
  trap 'exit 143' TERM
fi

# sources SUITE: this machine's sources.list, for that suite.  The suite sid has
# neither updates nor security of its own.
sources ()
{
  # shellcheck disable=SC2016
  apt-get indextargets --no-release-info \
    --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    awk -v here="$(running_suite)" -v suite="$1" -v keyring="$keyring" '
      suite == "sid" && $2 != here { next }
      $3 == "main" && $2 ~ "^" here "(-updates|-security)?$" && !seen[$0]++ {
        sub(here, suite, $2)
        print "deb [signed-by=" keyring "]", $1, $2, $3
      }'
}

# How this machine's apt reaches them: proxies, retries and the like.
apt_settings ()
{
  echo 'Acquire::Retries "3";'
  apt-config dump |
    grep -E '^Acquire::(Check-|Force|Retries|ftp|http|https|tor)[:A-Za-z0-9-]* ' |
    grep -v ' "";$' || true
}

# debian SUITE FOLDER OPTION...: make the folder, with these options of
# mmdebstrap.  dpkg does not sync the files, which is faster.
debian ()
{
  [ -s "$keyring" ] || die "no $keyring: install debian-archive-keyring"
  sources "$1" >"$work/sources.list"
  [ -s "$work/sources.list" ] ||
    die "apt has no Debian repository for $(running_suite): see apt-cache policy"
  apt_settings >"$work/apt.conf"
  mmdebstrap --mode=root --format=directory --keyring="$keyring" \
    --aptopt="$work/apt.conf" --dpkgopt=force-unsafe-io "${@:3}" \
    "$1" "$2" "$work/sources.list" || die "mmdebstrap cannot make a $1"
}

# make_chroot SUITE FOLDER: Debian's essential packages, and apt.
make_chroot ()
{
  local root=$2 certificates

  debian "$1" "$root" --variant=apt --include=debian-archive-keyring
  # A mirror may have a certificate that only this machine trusts.
  certificates=$(apt-config dump --format '%v%n' Acquire::https::CAInfo)
  certificates=${certificates:-/etc/ssl/certs/ca-certificates.crt}
  if [ -s "$certificates" ]; then
    cp "$certificates" "$root/etc/apt/certificates-of-host.crt"
    echo 'Acquire::https::CAInfo "/etc/apt/certificates-of-host.crt";' \
      >"$root/etc/apt/apt.conf.d/zz-certificates-of-host"
  fi
  in_chroot "$root" apt-get -qq update
}

# mount_chroot FOLDER: mount /proc, /sys and /dev until the namespace ends.  The
# folder becomes a mount point, because a process whose root is no mount point
# cannot make a mount namespace of its own.
mount_chroot ()
{
  mount --bind "$1" "$1"
  mount -t proc proc "$1/proc"
  mount --rbind /sys "$1/sys"
  mount --rbind /dev "$1/dev"
}

# in_chroot FOLDER COMMAND...: as root; as_builder: as a plain user.  The
# command gets the variables of the proxies and CI, and no others of this
# environment.
in_chroot ()
{
  enter 0:0 /root "$@"
}

as_builder ()
{
  enter 1000:1000 /build "$@"
}

enter ()
{
  local user=$1 home=$2 root=$3 passed=() name

  for name in {http,https,no}_proxy {HTTP,HTTPS,NO}_PROXY CI; do
    [ -z "${!name:-}" ] || passed+=("$name=${!name}")
  done
  chroot --userspec="$user" "$root" env -i HOME="$home" LC_ALL=C.UTF-8 \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    DEBIAN_FRONTEND=noninteractive "${passed[@]}" "${@:4}"
}

# find_tarball: $tarball, if none was given, is what "make dist" makes.
find_tarball ()
{
  [ -z "$tarball" ] || return 0
  [ -e "$top/build/Makefile" ] ||
    die "build/ is not configured: do that, or give --tarball FILE"
  rm -f "$top/build"/nbdkit-windowed-file-*.tar.gz
  make -C "$top/build" dist >/dev/null
  tarball=$(echo "$top/build"/nbdkit-windowed-file-*.tar.gz)
}

# copy_tree FOLDER WORK: copy the sources as they are here, committed or not,
# without what was built.  WORK, the folder that FOLDER is in, is left out: if
# WORK is in the tree, the copy would contain itself.
copy_tree ()
{
  local work=${2#"$top"/}

  mkdir -p "$1"
  if git -C "$top" rev-parse >/dev/null 2>&1; then
    # Files that were deleted but not committed are listed, too.
    git -C "$top" ls-files -z --cached --others --exclude-standard \
      --exclude="/$work" |
      (cd "$top" && while IFS= read -r -d '' file; do
        [ ! -e "$file" ] || printf '%s\0' "$file"
      done) | tar -C "$top" --null --files-from=- -cf - | tar -C "$1" -xf -
  else
    tar -C "$top" --exclude='./build*' --exclude=./autom4te.cache \
      --exclude="./$work" -cf - . |
      tar -C "$1" -xf -
  fi
}
