#!/usr/bin/python3
"""Random reads, writes, zeroes, trims and flushes of an export, one after the
other, each checked against a model of what it should hold.

  model-io.py OPERATIONS SEED SAVE-TO URI CONNECTIONS [LONGEST-REQUEST]

Each request is on one of the connections.  The export starts as zeroes.  What it
should hold in the end is saved in the file SAVE-TO.

fio has no requests to zero and trim in the mix, and nbdsh no model.

Copyright (C) 2026 The nbdkit-windowed-file authors
SPDX-License-Identifier: BSD-3-Clause
"""

import random
import sys

import nbd

from nbd_model import Export, Wrong, connect

handles = [connect(sys.argv[4]) for _ in range(int(sys.argv[5]))]
export = Export(random.Random(int(sys.argv[2])), handles[0].get_size())
export.handles = handles
for i in range(int(sys.argv[1])):
    try:
        export.random_request(*map(int, sys.argv[6:]))
    except (Wrong, nbd.Error) as e:
        sys.exit(f"model-io: request {i}: {e}")
export.save(sys.argv[3])
