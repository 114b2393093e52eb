#!/usr/bin/python3
"""Many short connections, or many that stay.

  open-close.py COUNT URI...    connect, write and read a little, and disconnect,
                                COUNT times, taking turns among the URIs
  open-close.py stay URI...     connect to all and read a little, print "ready",
                                and disconnect when the input ends

Copyright (C) 2026 The nbdkit-windowed-file authors
SPDX-License-Identifier: BSD-3-Clause
"""

import sys

from nbd_model import connect


def stay(uris):
    handles = [connect(uri) for uri in uris]
    for h in handles:
        h.pread(4096, 0)
    print("ready", flush=True)
    sys.stdin.read()
    for h in handles:
        h.shutdown()


def visit(uri, number):
    h = connect(uri)
    content = bytes([number % 256]) * 512
    h.pwrite(content, number % 16 * 512)
    if h.pread(512, number % 16 * 512) != content:
        sys.exit(f"open-close: {uri}: read differs")
    h.shutdown()


if sys.argv[1] == "stay":
    stay(sys.argv[2:])
else:
    for i in range(int(sys.argv[1])):
        visit(sys.argv[2 + i % (len(sys.argv) - 2)], i)
