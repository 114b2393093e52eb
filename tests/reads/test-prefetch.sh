#!/usr/bin/env bash
# A request to cache 2 GiB takes no more memory of the server than a large read,
# although each window has only 64 KiB.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit

truncate -s 2147483647 "$tmp/disk" # which 32-bit Python can map
start_and_connect file "$tmp/disk" cache=none cache-window-size=64K
ask cache 0 1M # the thread, and its stack
before=$(memory VmRSS)
for _ in 1 2 3 4; do
  ask cache 0 2147483647
done
grown=$(($(memory VmHWM) - before))
# 1,024 windows, and not 32,768, for which the server took 44 MiB.
((grown < 16384)) || fail "requests to cache 2 GiB take $grown KiB"
stop_nbdkit
empty_now "$tmp/disk" 'after requests to cache 2 GiB'
