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

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
import nbd

from nbd_model import Model, data, end_with_any_thread, random_range

PART = 1 << 20
MIN_CONNECTIONS = 100
socket, exports = sys.argv[3], sys.argv[4:]
end = time.monotonic() + int(sys.argv[1])
connections = []    # an element for each


def request(h, rng, model, start):
    """One request to the part of an export that begins at "start".  Return what
    was wrong, or None."""
    offset, count = random_range(rng, PART, PART)
    what = rng.randrange(40)
    if what < 5:
        h.flush()
    elif what < 20:
        return model.difference(h.pread(count, start + offset), offset)
    elif what < 24:
        h.zero(count, start + offset)
        model.zero(count, offset)
    else:
        content = data(rng, count)
        h.pwrite(content, start + offset,
                 0 if rng.randrange(8) else nbd.CMD_FLAG_FUA)
        model.write(content, offset)
    return None


def visit(rng, models, start):
    """One connection."""
    export = rng.choice(exports)
    h = nbd.NBD()
    h.set_export_name(export)
    h.connect_unix(socket)
    connections.append(export)
    for _ in range(rng.randrange(12)):
        wrong = request(h, rng, models[export], start)
        if wrong:
            raise ValueError(f"{export}: part {start}: {wrong}")
    if rng.randrange(2):
        h.shutdown()


def come_and_go(number):
    rng = random.Random(number)
    models = {export: Model(PART) for export in exports}
    while time.monotonic() < end or len(connections) < MIN_CONNECTIONS:
        visit(rng, models, number * PART)


end_with_any_thread()
threads = [threading.Thread(target=come_and_go, args=(i,))
           for i in range(int(sys.argv[2]))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
