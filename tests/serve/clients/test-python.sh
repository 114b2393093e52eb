#!/usr/bin/env bash
# With libnbd from Python, four connections with many requests in flight read
# what the other connections have written.  They write, zero, trim, flush and
# ask for block status.  The file has the same data, and no page stays cached.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need cachestats cmp
need_python_nbd

truncate -s $((32 * 1048576)) "$tmp/disk"
start_nbdkit file "$tmp/disk" cache=none
limited /usr/bin/python3 "$srcdir/serve/clients/connections.py" "$uri" "$tmp/model" ||
  fail 'see above'
empty_soon "$tmp/disk" 'when the clients have gone'
stop_nbdkit
empty_now "$tmp/disk" 'after the server has ended'
same "$tmp/model" "$tmp/disk"
