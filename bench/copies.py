# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
"""What three servers have in the page cache during a copy and after it."""

import os
import tempfile
import time

from contestants import find
from loads import fill, run, sparse
from machine import TOP, facts
from pagecache import PAGE, Watch

WHOS = "stock-default", "stock-none", "ours"
FILES = "disk.img", "out.img"
SIZE = 1 << 30
INTERVAL = 0.05     # seconds between two samples
AFTER = 1           # second that is sampled after a copy


def copy(who):
    """Copy a cold file.  A server of this kind serves each of its ends."""
    fill(FILES[0], SIZE)
    sparse(FILES[1], SIZE)
    os.sync()
    source, target = (["[", "nbdkit", "--exit-with-parent", *read_only,
                       who.plugin, name, *who.parameters, "]"]
                      for name, read_only in zip(FILES, (["-r"], [])))
    with Watch(FILES, INTERVAL) as watch:
        run("nbdcopy", "--flush", "--", *source, *target)
        seconds = time.monotonic() - watch.begin
        time.sleep(AFTER)
    return {"title": who.title, "seconds": seconds, "samples": watch.samples}


def measure(args):
    """All copies, by the name of the server."""
    results = {"page": PAGE, "size": SIZE, "machine": facts(args.dir)}
    with tempfile.TemporaryDirectory(prefix="windowed-", dir=args.dir) as work:
        os.chdir(work)
        results |= {name: copy(find(name, args, work)) for name in WHOS}
        os.chdir(TOP)
    return results
