#!/usr/bin/env bash
# With cache=none, reading a file in TMPDIR leaves no page cached, cold or warm,
# and few are while it runs.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=read-cache.sh
. "${srcdir:-.}/evict/read-cache.sh" || exit

reads_leave_nothing "$tmp/disk"
