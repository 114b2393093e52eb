# What the scripts share: messages, work folders, and the build.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash

set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
name=${0##*/}
export LC_ALL=C.UTF-8
# mkfs and others are in folders that a user's PATH may lack.
PATH=$PATH:/usr/sbin:/sbin

step ()
{
  echo "==> $*"
}

die ()
{
  echo "$name: $*" >&2
  exit 1
}

# bad_usage MESSAGE: end with status 2, which means a wrong command line.
bad_usage ()
{
  echo "$name: $*; see $name --help" >&2
  exit 2
}

# make_work_folder NAME MIB: make the folder $work in TMPDIR, on a disk with MIB
# MiB free.  The folder is removed when the script ends.
make_work_folder ()
{
  local folder=${TMPDIR:-/var/tmp} free type

  type=$(stat -f -c %T "$folder") || die "no folder $folder"
  case $type in
    tmpfs | ramfs)
      die "$folder is a $type, whose pages are its storage; set TMPDIR" ;;
  esac
  free=$(df --output=avail -B1M "$folder" | tail -n 1)
  [ "$free" -ge "$2" ] ||
    die "$folder has only ${free// /} MiB free of the $2 needed; set TMPDIR"
  work=$(mktemp -d "$folder/windowed-$1-XXXXXX")
  trap 'rm -rf "$work"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
}

# logged LOG COMMAND...: run the command with its output in LOG and its status
# in $status.  Do not call it as a condition (if, ||, &&): bash ignores errexit
# there.
logged ()
{
  local log=$1

  shift
  set +e
  (set -e; "$@") >"$log" 2>&1 </dev/null
  # shellcheck disable=SC2034
  status=$?
  set -e
}

# build FOLDER CONFIGURE-OPTION...: build in this folder.  A folder that was
# configured with the same options is not configured again.
build ()
{
  [ ! -e "$top/config.status" ] ||
    die "the source folder is configured itself; run 'make distclean' there"
  (cd "$top" && autoreconf -i)
  build_configured "$@"
}

# build_configured FOLDER CONFIGURE-OPTION...: the same, after autoreconf.
build_configured ()
(
  cd "$top"
  mkdir -p "$1"
  cd "$1"
  shift
  if [ ! -e config.status ] || [ "$(cat .options 2>/dev/null)" != "$*" ]; then
    "$top/configure" "$@"
    echo "$*" >.options
  fi
  make -j "$(nproc)"
)
