#!/usr/bin/python3
"""NBD connections that a shell script holds open: one request a line on stdin,
one line of answer on stdout, "ok ..." or "error ERRNO message".

  client.py URI
  client.py -- COMMAND ARGUMENT...  a server on stdin and stdout
  client.py --names URI             several connections: before each request is
                                    the name of one

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

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
import nbd

from nbd_model import Model, data

UNITS = {"K": 1 << 10, "M": 1 << 20}
FLAGS = {"fua": nbd.CMD_FLAG_FUA, "nohole": nbd.CMD_FLAG_NO_HOLE,
         "fast": nbd.CMD_FLAG_FAST_ZERO, "one": nbd.CMD_FLAG_REQ_ONE}
rng = random.Random(1)


class Wrong(Exception):
    """What was read is not what it should be."""


def number(word):
    return int(word.rstrip("KM")) * UNITS.get(word[-1], 1)


def connect(arguments):
    h = nbd.NBD()
    # libnbd does not send requests smaller than the advertised block size; the
    # server serves them.
    h.set_strict_mode(h.get_strict_mode() & ~nbd.STRICT_ALIGN)
    h.add_meta_context("base:allocation")
    if arguments[0] == "--":
        h.connect_command(arguments[1:])
    else:
        h.connect_uri(arguments[0])
    return h


def extents(h, offset, count, flags):
    found = []
    h.block_status(count, offset,
                   lambda _, __, entries, ___: found.extend(entries), flags)
    if not found:
        raise Wrong("no extents")
    return " ".join(f"{length}:{kind}"
                    for length, kind in zip(found[::2], found[1::2]))


def on_range(h, model, verb, offset, count, flags):
    """A request that has a range.  Return the answer."""
    wrong = None
    if verb == "extents":
        return extents(h, offset, count, flags)
    if verb == "write":
        content = data(rng, count, offset)
        h.pwrite(content, offset, flags)
        if model:
            model.write(content, offset)
    elif verb == "zero":
        h.zero(count, offset, flags)
        if model:
            model.zero(count, offset)
    elif verb == "cache":
        h.cache(count, offset)
    elif verb == "read":
        got = h.pread(count, offset)
        wrong = model and model.difference(got, offset)
    elif verb == "trim":
        h.trim(count, offset, flags)
        wrong = model and model.trimmed(h.pread(count, offset), offset)
    else:
        wrong = "unknown request"
    if wrong:
        raise Wrong(wrong)
    return ""


def obey(h, model, verb, *arguments):
    """Return the answer."""
    if verb == "flush":
        h.flush()
    elif verb == "size":
        return str(h.get_size())
    elif verb == "save":
        model.save(arguments[0])
    else:
        flags = sum(FLAGS[word] for word in arguments[2:])
        return on_range(h, model, verb, *map(number, arguments[:2]), flags)
    return ""


def obey_named(connections, name, verb, *arguments):
    if verb == "open":
        connections[name] = connect(sys.argv[2:])
    elif verb == "close":
        connections.pop(name).shutdown()
    else:
        return obey(connections[name], None, verb, *arguments)
    return ""


def main():
    connections = {}
    if sys.argv[1] != "--names":
        h = connections[""] = connect(sys.argv[1:])
        model = Model(h.get_size())
    for line in sys.stdin:
        words = line.split()
        try:
            if sys.argv[1] == "--names":
                answer = obey_named(connections, *words)
            else:
                answer = obey(h, model, *words)
            print(f"ok {answer}".rstrip(), flush=True)
        except Wrong as e:
            print("error EWRONG", e, flush=True)
        except nbd.Error as e:
            print("error", e.errno, e.string, flush=True)
    for h in connections.values():
        h.shutdown()


try:
    main()
except nbd.Error as failed:
    sys.exit(f"client: {failed.string}")
