#!/usr/bin/env bash
# Connections that have read and are idle do not let more pages of the file stay
# in memory while another client reads.
#
# The active client reads 256 KiB and skips the rest of 2 MiB, so that the
# readahead of each piece is never used.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need fallocate
/usr/bin/python3 -c 'import nbd' 2>/dev/null || lacks "needs libnbd for Python"

disk=$tmp/disk
fallocate -l 512M "$disk" || lacks 'needs 512 MiB of room'
head -c 512M /dev/zero | dd of="$disk" bs=1M conv=notrunc status=none

# most_with CONNECTIONS: the most pages while one client reads and this number of
# connections is idle.
most_with ()
{
  drop "$disk"
  start_nbdkit --threads=2 file "$disk" cache=none cache-limit=2M
  watch_start "$disk"
  limited /usr/bin/python3 - "$tmp/sock" "$1" <<'PYTHON'
import sys
import time
import nbd

idle = []
for i in range(int(sys.argv[2]) + 1):
    h = nbd.NBD()
    h.connect_unix(sys.argv[1])
    h.pread(512, 0)
    idle.append(h)
active = idle.pop()
time.sleep(2.5)     # a connection counts as a reader for a second
for i in range(256):
    active.pread(131072, i << 21)
    active.pread(131072, (i << 21) + 131072)
active.shutdown()
for h in idle:
    h.shutdown()
PYTHON
  watch_end || fail 'the pages were not counted'
  stop_nbdkit
}

most_with 0
alone=$most
most_with 60
say "most pages with one reader: $alone, with 60 idle connections: $most"
[ "$most" -le $((alone + 32 * 256)) ] ||
  fail "$most pages with 60 idle connections, and $alone without them"
