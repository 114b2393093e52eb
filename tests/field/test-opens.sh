#!/usr/bin/env bash
# The plugin opens a file once for each client and once for each thing that it
# does with it, whatever the number of clients and requests: a virus scanner may
# read the file at each open, and each open for writing triggers udev.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_strace
need_python_nbd

disk=$tmp/disk
random_file "$disk" 64M

cat >"$tmp/clients.py" <<'END'
"""clients.py URI NUMBER REQUEST...: connect NUMBER clients at once, let them
make requests, and stay until there is a line on stdin.  A request is "read" (at
random places), "write" (one, of the first client), "fua" (16 at a time of each
client) or "flush"."""
import random
import sys
import threading
import nbd

uri, number, *requests = sys.argv[1:]
barrier = threading.Barrier(int(number))
clients = []


def connect():
    h = nbd.NBD()
    barrier.wait()
    h.connect_uri(uri)
    clients.append(h)


threads = [threading.Thread(target=connect) for _ in range(int(number))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(clients) == int(number)
for request in requests:
    if request == "write":
        clients[0].pwrite(b"x" * 65536, 0)
    elif request == "read":
        for h in clients:
            for _ in range(40):
                h.pread(4096, random.randrange(16000) * 4096)
    elif request == "flush":
        for h in clients:
            h.flush()
    elif request == "fua":
        for h in clients:
            for _ in range(4):
                buffers = [nbd.Buffer.from_bytearray(b"x" * 4096)] * 16
                cookies = [h.aio_pwrite(b, random.randrange(16000) * 4096,
                                        flags=nbd.CMD_FLAG_FUA)
                           for b in buffers]
                for cookie in cookies:
                    while not h.aio_command_completed(cookie):
                        h.poll(-1)
print("done", flush=True)
sys.stdin.readline()
END

# A call that another thread interrupts in the trace has no result on its line.
opens ()
{
  grep -E "openat?\\(.*\"($disk|/proc/self/fd/[0-9]+)\"" "$tmp/trace" |
    grep -cvE 'O_PATH|= -1 '
}

# The open descriptors of the file, as octal flags.
descriptors ()
{
  local fd

  for fd in "/proc/$server/fd"/*; do
    [ "$(readlink "$fd")" != "$disk" ] ||
      sed -n 's/^flags:[[:space:]]*//p' "/proc/$server/fdinfo/${fd##*/}"
  done
}

# check WHAT MOST -- ARGUMENT... -- CLIENT-ARGUMENT...: the clients cause MOST
# opens at most, and no more descriptors.
check ()
{
  local what=$1 most=$2 arguments=() number

  shift 3
  while [ "$1" != -- ]; do arguments+=("$1"); shift; done
  shift
  under=(strace -f -qq -e "trace=open,openat" -e signal=none -o "$tmp/trace")
  start_nbdkit "${arguments[@]}"
  coproc CLIENTS { exec /usr/bin/python3 "$tmp/clients.py" "$uri" "$@"; }
  pids+=("$CLIENTS_PID")
  clients=$CLIENTS_PID
  exec {to}>&"${CLIENTS[1]}" {from}<&"${CLIENTS[0]}"
  read -r -t 300 answer <&"$from" || fail "$what: a client failed"
  [ "$answer" = "done" ] || fail "$what: $answer"
  descriptors >"$tmp/flags"
  number=$(wc -l <"$tmp/flags")
  [ "$number" -gt 0 ] || fail "$what: no descriptor is open"
  [ "$number" -le "$most" ] || fail "$what: $number descriptors, not $most"
  echo >&"$to"
  exec {to}>&- {from}<&-
  eventually 5 gone "$clients" || fail "$what: the clients do not end"
  stop_nbdkit
  number=$(opens)
  [ "$number" -le "$most" ] || fail "$what: $number opens, not $most"
}

# Besides the clients: the disk; the one that looks for errors, once there was a
# write; and the one for direct reads.
check 'clients at once' 17 -- file "$disk" cache=none -- 16
check 'random reads' 6 -- file "$disk" cache=none -- 4 read
check 'preserve' 7 -- file "$disk" cache=preserve -- 4 write read flush
check 'a write' 6 -- file "$disk" cache=none -- 4 write flush
check 'FUA' 22 -- file "$disk" cache=none -- 4 write fua
check 'FUA, cache=default' 21 -- file "$disk" cache=default -- 4 write fua

# Nothing is open for writing that no client may write to.
check 'read-only' 6 -- -r file "$disk" cache=none -- 4 read
! grep -q '[123]$' "$tmp/flags" ||
  fail "read-only: it is open with the flags $(<"$tmp/flags")"
