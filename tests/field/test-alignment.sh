#!/usr/bin/env bash
# A client may read, write, zero and trim any range of a device with sectors of
# 4096 bytes, because the smallest advertised block size is 1.
#
# libnbd refuses what is not aligned to the advertised minimum, so an image that
# ends within a sector could not be copied to such a device.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_root
need cmp jq losetup nbdcopy nbdinfo
/usr/bin/python3 -c 'import nbd' 2>/dev/null || lacks "needs libnbd for Python"

random_file "$tmp/src" $((1048576 + 512))
truncate -s 64M "$tmp/backing"
attach "$tmp/backing" -b 4096
[ "$(blockdev --getss "$device")" = 4096 ] ||
  skip 'the kernel makes no loop device with sectors of 4096 bytes'

for cache in default none; do
  start_nbdkit file "$device" "cache=$cache"
  limited nbdcopy --flush "$tmp/src" "$uri" 2>"$tmp/said" ||
    fail "$cache: an image of 1 MiB and 512 bytes: $(<"$tmp/said")"
  cmp -n $((1048576 + 512)) "$tmp/src" "$device" >&2 ||
    fail "$cache: the image is not on the device"

  limited /usr/bin/python3 - "$uri" "$tmp/src" 2>"$tmp/said" <<'PYTHON' ||
import sys
import nbd

h = nbd.NBD()
h.connect_uri(sys.argv[1])
with open(sys.argv[2], "rb") as f:
    model = bytearray(f.read())


def check(what, start, end):
    got = h.pread(end - start, start)
    if got != model[start:end]:
        sys.exit(f"{what}: wrong bytes in [{start}, {end})")


check("pread of 2 bytes", 510, 512)
h.pwrite(b"abc", 4095)
model[4095:4098] = b"abc"
check("pwrite of 3 bytes", 4000, 4200)
h.zero(5000, 8191)
model[8191:13191] = bytes(5000)
check("zero of 5000 bytes", 8000, 13300)
h.trim(10000, 20001)        # a hint: the bytes inside are not defined
check("trim, the bytes before", 19000, 20001)
check("trim, the bytes after", 30001, 31000)
h.flush()
h.shutdown()
PYTHON
    fail "$cache: $(tail -n 1 "$tmp/said")"

  if nbdkit_advertises=$(limited nbdinfo --json "$uri" | jq -c '.exports[0] |
    [.block_size_minimum, .block_size_preferred]') &&
    [ "$nbdkit_advertises" != '[null,null]' ]; then
    [ "$nbdkit_advertises" = '[1,4096]' ] ||
      fail "$cache: advertises $nbdkit_advertises, not [1,4096]"
  fi
  stop_nbdkit
done
