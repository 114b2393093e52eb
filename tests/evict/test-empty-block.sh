#!/usr/bin/env bash
# A block device written with cache=none has no page cached after a flush, two
# seconds after the last write, when the connection is closed, and when the
# server has ended.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=empty-cache.sh
. "${srcdir:-.}/evict/empty-cache.sh" || exit

need_root
need losetup blockdev
truncate -s $((33 * 1048576 + 512)) "$tmp/backing"
attach "$tmp/backing"
stays_empty "$device"
