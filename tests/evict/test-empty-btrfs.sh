#!/usr/bin/env bash
# A file on btrfs written with cache=none has no page cached after a
# flush, soon after the last write, when the connection is closed, and
# when the server has ended.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=empty-cache.sh
. "${srcdir:-.}/evict/empty-cache.sh" || exit

mounted btrfs 320M
truncate -s $((33 * 1048576 + 1234)) "$mounted/disk"
stays_empty "$mounted/disk"
