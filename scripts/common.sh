# What the scripts share: how they speak, and how they build.
# shellcheck shell=bash

set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
name=${0##*/}
export LC_ALL=C.UTF-8
# mkfs and others are there, where not everybody's PATH leads.
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

# bad_usage MESSAGE: status 2 tells a wrong command line from a failure.
bad_usage ()
{
  echo "$name: $*; see $name --help" >&2
  exit 2
}

# make_work_folder NAME MIB: makes $work in TMPDIR, on a disk with MIB MiB free.
# It is removed when the script ends.
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

# stock_plugin: the file plugin that came with nbdkit, by its path; our package
# sets it aside.
stock_plugin ()
{
  local folder plugin about

  folder=$(nbdkit --dump-config | sed -n 's/^plugindir=//p')
  for plugin in "$folder"/nbdkit{-stock,}-file-plugin.so; do
    [ -e "$plugin" ] || continue
    about=$(nbdkit "$plugin" --dump-plugin)
    if [[ $about != *file_windowed=yes* ]]; then
      echo "$plugin"
      return
    fi
  done
  die "no stock plugin to compare with: all in $folder are ours"
}

# logged LOG COMMAND...: its output goes to LOG, its status to $status.  Not to
# be called where the status of "logged" itself is asked for (if, ||, &&), for
# there the shell forgets about errexit.
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

# build FOLDER CONFIGURE-OPTION...: build there, out of tree.  A folder that
# was configured with the same options before is re-used.
build ()
(
  [ ! -e "$top/config.status" ] ||
    die "the source folder is configured itself; run 'make distclean' there"
  cd "$top"
  autoreconf -i
  mkdir -p "$1"
  cd "$1"
  shift
  if [ ! -e config.status ] || [ "$(cat .options 2>/dev/null)" != "$*" ]; then
    "$top/configure" "$@"
    echo "$*" >.options
  fi
  make -j "$(nproc)"
)
