"""Four connections to one disk, see test-python.sh.

What should be on the disk is kept in a model, which is saved at the end.

Copyright (C) 2026 The nbdkit-windowed-file authors
SPDX-License-Identifier: BSD-3-Clause
"""

import random
import sys

import nbd

from nbd_model import connect, extents

MIB = 1 << 20
REQUESTS = 400      # of each connection, 16 at a time


def wait(handles, pending, most):
    """Until each connection has no more than MOST commands in flight."""
    for h, cookies in zip(handles, pending):
        while len(cookies) > most:
            # Raises an exception if the command failed.
            cookies[:] = [c for c in cookies if not h.aio_command_completed(c)]
            if len(cookies) > most:
                h.poll(-1)


def change(h, model, offset, count, kind, rng):
    """Begin one change of the disk, and make it to the model."""
    fua = nbd.CMD_FLAG_FUA if rng.random() < 0.05 else 0
    if kind == "zero":
        model[offset:offset + count] = bytes(count)
        hole = nbd.CMD_FLAG_NO_HOLE if rng.random() < 0.5 else 0
        return h.aio_zero(count, offset, flags=fua | hole)
    data = rng.randbytes(count)
    model[offset:offset + count] = data
    return h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(data)), offset,
                        flags=fua)


def write_all(handles, model, rng):
    """Random requests, in slots that do not overlap, so that their order
    does not matter; the connections take turns in each part of the disk."""
    slots = list(range(0, len(model), len(model) // (4 * REQUESTS)))
    room = slots[1]
    slots = slots[:4 * REQUESTS]
    rng.shuffle(slots)
    pending = [[] for _ in handles]
    for i, slot in enumerate(slots):
        count = rng.choice([1, 512, 4096, room // 2, room - 1, room])
        offset = slot + rng.randrange(room - count + 1)
        kind = rng.choice(["write", "write", "write", "zero"])
        pending[i % 4].append(change(handles[i % 4], model, offset, count,
                                     kind, rng))
        if i % 16 == 0:
            wait(handles, pending, 15)
    wait(handles, pending, 0)


def read_all(handles, model):
    """Each connection reads all of it, in pieces of another size."""
    for i, h in enumerate(handles):
        piece = [4096, 65536, 262144, MIB + 1][i]
        buffers, cookies = [], []
        for offset in range(0, len(model), piece):
            count = min(piece, len(model) - offset)
            buffers.append((offset, nbd.Buffer(count)))
            cookies.append(h.aio_pread(buffers[-1][1], offset))
            wait([h], [cookies], 15)
        wait([h], [cookies], 0)
        for offset, buffer in buffers:
            data = buffer.to_bytearray()
            if data != model[offset:offset + len(data)]:
                sys.exit(f"connection {i}: {len(data)} bytes at {offset} "
                         "are not what was written")


def check_status(h, model):
    """What block status calls zero has no data; a trimmed end is a hole."""
    offset, kind = 0, 0
    while offset < len(model):
        found = extents(h, offset, len(model) - offset)
        if not found:
            sys.exit("no block status")
        for count, kind in found:
            if kind & nbd.STATE_ZERO and any(model[offset:offset + count]):
                sys.exit(f"block status: there is data at {offset}")
            offset += count
    if not kind & nbd.STATE_HOLE:
        sys.exit("block status: what was trimmed is no hole")


def main():
    uri, path = sys.argv[1:]
    rng = random.Random(1)
    handles = [connect(uri) for _ in range(4)]
    if not all(h.can_multi_conn() for h in handles):
        sys.exit("several connections are not advertised as safe")
    model = bytearray(handles[0].get_size())

    write_all(handles, model, rng)
    handles[1].flush()
    read_all(handles, model)

    handles[2].trim(4 * MIB, len(model) - 4 * MIB)
    model[-4 * MIB:] = bytes(4 * MIB)
    check_status(handles[3], model)
    read_all(handles, model)
    for h in handles:
        h.shutdown()
    with open(path, "wb") as f:
        f.write(model)


main()
