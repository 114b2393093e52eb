#!/usr/bin/env bash
# Block status asks the kernel once where a run of data ends that a client scans
# in pieces, forgets the run when the data may have gone, and reports data where
# the kernel's answer is an error or makes no progress.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../errors/rig/lib.sh
. "${srcdir:-.}/errors/rig/lib.sh" || exit
need_python_nbd
late_calls
touch "$late/calls"
truncate -s 64M "$tmp/disk"
start_nbdkit file "$tmp/disk" cache=none
limited /usr/bin/python3 "$srcdir/serve/seeks.py" "$tmp/sock" "$tmp/disk" \
  "$late" || fail 'block status'
stop_nbdkit
