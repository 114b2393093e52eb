#!/usr/bin/env bash
# Block status never reports a hole where any process completed a write.  The
# write comes through the same connection, another connection, another server,
# or from a program on the same machine; on six file systems.  That includes a
# long write into preallocated blocks, when a client asks while it is in progress.
#
# ROUNDS=3200 SEED=7 in the environment make it longer (100,000 questions on
# each file system) and different.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_python_nbd
need_root

files=()
for i in {1..32}; do files+=("$i"); done

# on FOLDER: files of 64 MiB, which two servers serve.
on ()
{
  local i

  limited /usr/bin/python3 "$srcdir/serve/slow-writes.py" "$NBDKIT" \
    "${ROUNDS:-20}" "$1/disk" >&2 || fail "$1"
  for i in "${files[@]}"; do truncate -s 64M "$1/$i"; done
  ask_in "$1" "${ROUNDS:-40}" "${files[@]}"
}

# ask_in FOLDER ROUNDS NAME...
ask_in ()
{
  local other

  start_nbdkit file "dir=$1" cache=none
  mv "$tmp/sock" "$tmp/other"
  mv "$tmp/log" "$tmp/other-log"
  other=$job
  start_nbdkit file "dir=$1"
  timeout --foreground -k 5 7200 "$srcdir/lib/stale-map.py" "$2" \
    "${SEED:-1}" "$tmp/sock" "$tmp/other" "$1" "${@:3}" ||
    fail "$1: SEED=${SEED:-1}"
  stop_nbdkit
  mv "$tmp/other-log" "$tmp/log"
  job=$other server=$other pids=("$other")
  kill "$other"
  has_ended
}

mkdir "$tmp/tmpfs"
mounts+=("$tmp/tmpfs")
mount -t tmpfs -o size=3G none "$tmp/tmpfs"
on "$tmp/tmpfs"
umount "$tmp/tmpfs"
# On overlayfs the kernel counts no page in memory, and says that what is about
# to be stored in blocks that were allocated is not.
on_each 3G on tmpdir xfs btrfs overlay-ext4 overlay-xfs
