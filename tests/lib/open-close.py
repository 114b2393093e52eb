#!/usr/bin/python3
"""Connect, write and read a little, disconnect, and again: COUNT times.

  open-close.py COUNT URI...     taking turns among the URIs

Copyright (C) 2026 The nbdkit-windowed-file authors
SPDX-License-Identifier: BSD-3-Clause
"""

import sys

import nbd

uris = sys.argv[2:]
for i in range(int(sys.argv[1])):
    h = nbd.NBD()
    h.connect_uri(uris[i % len(uris)])
    content = bytes([i % 256]) * 512
    h.pwrite(content, i % 64 * 512)
    if h.pread(512, i % 64 * 512) != content:
        sys.exit(f"open-close: {uris[i % len(uris)]}: read differs")
    h.shutdown()
