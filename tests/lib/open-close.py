#!/usr/bin/python3
"""Many short connections: connect, write and read a little, and disconnect,
taking turns among the URIs.

  open-close.py COUNT URI...

Copyright (C) 2026 The nbdkit-windowed-file authors
SPDX-License-Identifier: BSD-3-Clause
"""

import sys

from nbd_model import connect


def visit(uri, number):
    h = connect(uri)
    content = bytes([number % 256]) * 512
    h.pwrite(content, number % 16 * 512)
    if h.pread(512, number % 16 * 512) != content:
        sys.exit(f"open-close: {uri}: read differs")
    h.shutdown()


for i in range(int(sys.argv[1])):
    visit(sys.argv[2 + i % (len(sys.argv) - 2)], i)
