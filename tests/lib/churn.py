#!/usr/bin/python3
"""Connections that open and close at random.  Each thread opens an export,
writes and reads its own part of it, and disconnects, with or without
NBD_CMD_DISC.

  churn.py SECONDS THREADS SOCKET EXPORT...

The threads run for SECONDS, and until there were 100 connections.  Each export
has at least THREADS times 1 MiB, and holds zeroes at first.

Copyright (C) 2026 The nbdkit-windowed-file authors
SPDX-License-Identifier: BSD-3-Clause
"""

import random
import sys
import threading
import time

from nbd_model import Export, connect, end_with_any_thread

PART = 1 << 20
MIN_CONNECTIONS = 100
socket, names = sys.argv[3], sys.argv[4:]
end = time.monotonic() + int(sys.argv[1])
connections = []    # an element for each


def visit(rng, export, name):
    """One connection."""
    export.handles = [connect(socket, name=name)]
    connections.append(name)
    for _ in range(rng.randrange(12)):
        export.random_request()
    if rng.randrange(2):
        export.any().shutdown()
    export.handles = []


def come_and_go(number):
    rng = random.Random(number)
    exports = {name: Export(rng, PART, number * PART) for name in names}
    while time.monotonic() < end or len(connections) < MIN_CONNECTIONS:
        name = rng.choice(names)
        visit(rng, exports[name], name)


end_with_any_thread()
threads = [threading.Thread(target=come_and_go, args=(i,))
           for i in range(int(sys.argv[2]))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
