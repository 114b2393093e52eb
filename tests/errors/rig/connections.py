"""Several NBD connections that a shell script holds open: one request a line on
stdin, one line of answer on stdout, "ok" or "error ERRNO message".

  connections.py URI

  NAME open
  NAME write OFFSET COUNT [fua]     data as in stamp.h, new in each request
  NAME zero OFFSET COUNT [fua]      without a hole
  NAME read OFFSET COUNT            checks nothing
  NAME flush
  NAME close

Numbers may end in K or M.  Connections that are open at the end are closed.

Copyright (C) 2026 The nbdkit-windowed-file authors
SPDX-License-Identifier: BSD-3-Clause
"""

import sys

import nbd

UNITS = {"K": 1 << 10, "M": 1 << 20}
connections = {}
serial = 0


def number(word):
    unit = UNITS.get(word[-1])
    return int(word[:-1]) * unit if unit else int(word)


def data(count):
    global serial
    serial += 1
    return (b"\xda\x7a" + serial.to_bytes(6, "little")) * (count // 8)


def obey(name, what, *arguments):
    if what == "open":
        connections[name] = nbd.NBD()
        connections[name].connect_uri(sys.argv[1])
        return
    h = connections[name]
    flags = nbd.CMD_FLAG_FUA if "fua" in arguments else 0
    if what in ("write", "zero", "read"):
        offset, count = number(arguments[0]), number(arguments[1])
    if what == "write":
        h.pwrite(data(count), offset, flags)
    elif what == "zero":
        h.zero(count, offset, flags | nbd.CMD_FLAG_NO_HOLE)
    elif what == "read":
        h.pread(count, offset)
    elif what == "flush":
        h.flush()
    elif what == "close":
        connections.pop(name).shutdown()
    else:
        raise ValueError(what)


for line in sys.stdin:
    try:
        obey(*line.split())
        print("ok", flush=True)
    except nbd.Error as e:
        print("error", e.errno, e.string, flush=True)
for h in connections.values():
    h.shutdown()
