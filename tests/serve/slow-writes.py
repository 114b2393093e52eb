"""Ask for block status while a long write into preallocated blocks is in
progress, and again when it has ended: nothing of it may be a hole then.

  slow-writes.py NBDKIT ROUNDS FILE

The time stamps of the file do not help a server that remembers holes: they are
set when the write begins.
"""

import os
import sys
import threading

import nbd

SIZE = 64 << 20
START, LENGTH = 8 << 20, 16 << 20
HOLE = 2                        # base:allocation's NBD_STATE_HOLE

server, rounds, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
data = b"x" * LENGTH


def extents(h, count, offset):
    """[(length, flags)] of a range."""
    found = []

    def extent(context, offset, entries, error):
        found.extend(zip(entries[::2], entries[1::2]))

    h.block_status(count, offset, extent)
    return found


f = os.open(path, os.O_RDWR | os.O_CREAT)
h = nbd.NBD()
h.add_meta_context("base:allocation")
os.ftruncate(f, SIZE)
h.connect_command([server, "-s", "--exit-with-parent", "file", path])

wrong = during = 0
for i in range(rounds):
    os.ftruncate(f, 0)
    os.ftruncate(f, SIZE)
    os.posix_fallocate(f, 0, SIZE)
    writer = threading.Thread(target=os.pwrite, args=(f, data, START))
    writer.start()
    while writer.is_alive():
        extents(h, SIZE, 0)
        during += 1
    writer.join()
    wrong += any(flags & HOLE
                 for offset in range(START, START + LENGTH, 61 * 4096)
                 for length, flags in extents(h, 4096, offset))
h.shutdown()
os.close(f)
os.unlink(path)

if during < rounds // 4:
    sys.exit(f"{path}: only {during} questions during {rounds} writes")
if wrong:
    sys.exit(f"{path}: in {wrong} of {rounds} rounds what was written is a hole")
