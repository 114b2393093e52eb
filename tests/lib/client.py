#!/usr/bin/python3
"""NBD connections that a shell script holds open: one request a line on stdin,
one line of answer on stdout, "ok ..." or "error ERRNO message".

  client.py URI
  client.py -- COMMAND ARGUMENT...  a server on stdin and stdout
  client.py --names URI             several connections: before each request is
                                    the name of one
  client.py --names SOCKET          the same; a name is that of the export, too

  write OFFSET COUNT [fua]          random bytes
  zero OFFSET COUNT [nohole] [fast] [fua]
  trim OFFSET COUNT [fua]
  read OFFSET COUNT                 compared with the model
  flush
  cache OFFSET COUNT
  extents OFFSET COUNT [one]        answers LENGTH:FLAGS ...
  size
  save FILE                         write the model there

Numbers may end in K or M.  The model is what the export should hold.  It
starts as zeroes.  With --names there is none, and two more requests are "open"
and "close".

Copyright (C) 2026 The nbdkit-windowed-file authors
SPDX-License-Identifier: BSD-3-Clause
"""

import random
import sys

import nbd

from nbd_model import Export, Wrong, connect, extents

UNITS = {"K": 1 << 10, "M": 1 << 20}
FLAGS = {"fua": nbd.CMD_FLAG_FUA, "nohole": nbd.CMD_FLAG_NO_HOLE,
         "fast": nbd.CMD_FLAG_FAST_ZERO, "one": nbd.CMD_FLAG_REQ_ONE}
rng = random.Random(1)
exports = {}    # by name; without --names, one without a name


def number(word):
    return int(word.rstrip("KM")) * UNITS.get(word[-1], 1)


def add(name, h, size=None):
    exports[name] = Export(rng, size)
    exports[name].handles.append(h)


def obey(name, verb, *arguments):
    """Return the answer."""
    if verb == "open":
        return add(name, connect(sys.argv[2], name=name))
    export = exports[name]
    h = export.any()
    if verb == "close":
        return exports.pop(name).any().shutdown()
    if verb == "size":
        return h.get_size()
    if verb in ("flush", "save"):
        return getattr(export, verb)(*arguments)
    offset, count = map(number, arguments[:2])
    flags = sum(FLAGS[word] for word in arguments[2:])
    if verb == "extents":
        return " ".join(f"{length}:{kind}" for length, kind
                        in extents(h, offset, count, flags))
    if verb == "cache":
        return h.cache(count, offset)
    if verb == "read":
        return export.read(count, offset)
    return {"write": export.write, "zero": export.zero,
            "trim": export.trim}[verb](count, offset, flags)


def main():
    names = sys.argv[1] == "--names"
    if not names:
        h = connect(*sys.argv[1:])
        add("", h, h.get_size())
    for line in sys.stdin:
        words = line.split()
        try:
            answer = obey(*words) if names else obey("", *words)
            print("ok" if answer is None else f"ok {answer}", flush=True)
        except Wrong as e:
            print("error EWRONG", e, flush=True)
        except nbd.Error as e:
            print("error", e.errno, e.string, flush=True)
    for export in exports.values():
        export.any().shutdown()


try:
    main()
except nbd.Error as failed:
    sys.exit(f"client: {failed.string}")
