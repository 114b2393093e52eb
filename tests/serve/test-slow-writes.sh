#!/usr/bin/env bash
# Block status does not report as a hole what a long write put into preallocated
# blocks, also if a client asks while the write is in progress.  The test runs
# on five file systems.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_root
need_python_nbd

# on FOLDER
on ()
{
  limited /usr/bin/python3 "$srcdir/serve/slow-writes.py" "$NBDKIT" \
    "${ROUNDS:-20}" "$1/disk" >&2 || fail "$1"
}

on_each 512M on tmpdir xfs btrfs overlay-ext4 overlay-xfs
