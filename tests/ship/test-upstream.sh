#!/usr/bin/env bash
# Each script of docs/upstream.md shows a fault of nbdkit's own plugin, does not
# show it with this plugin, and leaves nothing behind.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need fincore nbdcopy nbdinfo sshfs
need_root
need_strace
[ -c /dev/fuse ] || lacks 'needs /dev/fuse'
find_stock
# The system's Python has the module nbd.
PATH=$(dirname "$NBDKIT"):/usr/bin:$PATH
need_python_nbd
export TMPDIR=$tmp/left
mkdir "$TMPDIR"

# ends STATUS PLUGIN SCRIPT [PARAMETER...]
ends ()
{
  local status=0

  PLUGIN=$2 limited "${@:3}" >&2 || status=$?
  [ "$status" = "$1" ] || fail "$3 with $2: status $status, not $1"
  rmdir "$TMPDIR" || fail "$3 with $2 leaves files"
  mkdir "$TMPDIR"
}

for script in "$srcdir"/../examples/upstream/*.sh; do
  ends 0 "$stock" "$script"
  ends 1 file "$script" symlinks=beneath
done
