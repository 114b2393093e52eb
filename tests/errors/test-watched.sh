#!/usr/bin/env bash
# A trim changes no byte outside the whole pages of its range: its edges stay as
# they are.  A program that watches the image for the close of a writer sees one for
# each client, also one that leaves without a flush, whose data takes seconds.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_python_nbd
need /usr/bin/python3 nbdcopy

# trims WHERE: all pages are in memory, dirty or clean, or on the disk only.
trims ()
{
  /usr/bin/python3 - "$uri" <<'END' || fail "trim: $1"
import os, sys, nbd
PAGE, SIZE = 4096, 256 << 10
h = nbd.NBD()
h.connect_uri(sys.argv[1])
for state in "dirty", "clean", "dropped":
    for first in 0, 1, 512, 4095, 4096, 4097, 65536 + 100:
        for count in 1, 100, 4095, 4096, 4097, 8191, 8192, 12288 + 5, 100003:
            data = bytes(1 + b % 255 for b in os.urandom(SIZE))
            h.pwrite(data, 0)
            if state != "dirty":
                h.flush()
            if state == "clean":
                h.pread(SIZE, 0)
            h.trim(count, first, nbd.CMD_FLAG_FUA if count % 2 else 0)
            got = h.pread(SIZE, 0)
            start = -(-first // PAGE) * PAGE
            end = max((first + count) // PAGE * PAGE, start)
            where = f"{state}: trim of {count} at {first}"
            if got[:start] != data[:start] or got[end:] != data[end:]:
                sys.exit(f"{where}: a byte outside the whole pages has changed")
            for at in range(start, end, PAGE):
                if got[at:at + PAGE] not in (data[at:at + PAGE], bytes(PAGE)):
                    sys.exit(f"{where}: the page at {at} is neither")
h.shutdown()
END
}

# watch FILE: until $tmp/stop is there; the number of closes is in $tmp/closes.
watch ()
{
  rm -f "$tmp/ready" "$tmp/stop"
  /usr/bin/python3 - "$1" "$tmp" >"$tmp/closes" <<'END' &
import ctypes, os, select, sys
CLOSE_WRITE, EVENT = 8, 16
libc = ctypes.CDLL(None)
fd = libc.inotify_init1(0)
libc.inotify_add_watch(fd, os.fsencode(sys.argv[1]), CLOSE_WRITE)
open(f"{sys.argv[2]}/ready", "w").close()
closes = 0
while True:
    if select.select([fd], [], [], 0.05)[0]:
        closes += len(os.read(fd, 65536)) // EVENT
    elif os.path.exists(f"{sys.argv[2]}/stop"):
        break
print(closes)
END
  watcher=$!
  pids+=("$watcher")
  eventually 10 test -e "$tmp/ready" || fail 'nobody watches'
}

# sees NUMBER WHAT
sees ()
{
  touch "$tmp/stop"
  wait "$watcher" || fail "$2: the watcher"
  [ "$(<"$tmp/closes")" = "$1" ] ||
    fail "$2: $(<"$tmp/closes") closes of a writer, not $1"
}

# slow_disk: $slow is an ext4 on a disk of 10 MB/s.
slow_disk ()
{
  need nbdfuse mkfs.ext4 losetup
  [ -e /dev/fuse ] || lacks 'needs FUSE'
  mkdir "$tmp/fuse" "$tmp/slow"
  mounts+=("$tmp/fuse")
  setsid nbdfuse "$tmp/fuse/disk" --command nbdkit -s --exit-with-parent \
    --filter=rate memory 256M rate=80M burstiness=0.1 2>"$tmp/fuse.log" &
  under_pids+=("$!")
  eventually 20 test -e "$tmp/fuse/disk" || fail "nbdfuse: $(<"$tmp/fuse.log")"
  attach "$tmp/fuse/disk" --direct-io=on
  mkfs.ext4 -q -E nodiscard,lazy_itable_init=1 -O ^has_journal "$device"
  mounts+=("$tmp/slow")
  mount "$device" "$tmp/slow"
  slow=$tmp/slow
}

is_closed ()
{
  [ -z "$(find "/proc/$server/fd" -lname "$1")" ]
}

mounted ext4 64M
disk=$mounted/disk
for cache in none preserve default; do
  rm -f "$disk"
  truncate -s 1M "$disk"
  start_nbdkit file "$disk" "cache=$cache"
  trims "cache=$cache"
  watch "$disk"
  for _ in 1 2 3; do another_client 'write 0 64K' 'zero 0 4K' >/dev/null; done
  eventually 5 is_closed "$disk" || fail "cache=$cache: the file stays open"
  sees 3 "cache=$cache, three clients"
  stop_nbdkit
done

slow_disk
truncate -s 32M "$slow/disk"
random_file "$tmp/src" 16M
for cache in none preserve default; do
  watch "$slow/disk"
  start_nbdkit file "$slow/disk" "cache=$cache"
  limited nbdcopy --connections=1 "$tmp/src" "$uri" || fail "cache=$cache: copy"
  sleep 3
  eventually 5 is_closed "$slow/disk" || fail "cache=$cache: it stays open"
  stop_nbdkit
  sees 1 "cache=$cache, a client without a flush"
done
