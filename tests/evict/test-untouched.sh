#!/usr/bin/env bash
# With cache=none, a client that reads and writes nothing leaves the pages of
# other programs in the page cache, be they dirty, read or mapped.  A client that
# reads at one place leaves the pages that are far away.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdinfo

# served COMMAND [OPTION]: by a server that ends with its client.
served ()
{
  limited "$NBDKIT" "${@:2}" -U - file "$tmp/disk" cache=none --run "$1" \
    >/dev/null || fail "$1"
}

truncate -s 1G "$tmp/disk"
far=$((1024 - 64))M
head -c 64M /dev/zero |
  dd of="$tmp/disk" oflag=seek_bytes seek="$far" iflag=fullblock bs=1M \
    conv=notrunc status=none
all=$(resident "$tmp/disk")
[ "$all" -ge $((64 * 256)) ] || skip 'the kernel keeps no dirty pages here'

# shellcheck disable=SC2016
served 'nbdinfo --size "$uri"'
[ "$(resident "$tmp/disk")" = "$all" ] || fail 'a client that reads nothing'

# It reads the first bytes.
# shellcheck disable=SC2016
served 'nbdinfo "$uri"'
[ "$(resident "$tmp/disk")" -ge $((64 * 256)) ] ||
  fail 'a client that reads the start of the disk'

# The last bytes are beside the pages.
start_and_connect file "$tmp/disk" cache=none
ask write $((1024 * 1048576 - 4096)) 4096, write $((960 * 1048576)) 4096
stop_nbdkit
empty_now "$tmp/disk" 'a client that writes before and after the pages'

# keeps WHAT: of the pages that are resident most stay, some of which the kernel
# may reclaim.
keeps ()
{
  local before after option

  for option in '' -r; do
    before=$(residency "$tmp/disk")
    [ "$before" -gt 8000 ] || fail "$before pages are resident"
    # shellcheck disable=SC2016
    served 'nbdinfo --size "$uri"' ${option:+"$option"}
    after=$(residency "$tmp/disk")
    [ $((after * 10)) -ge $((before * 9)) ] ||
      fail "nbdinfo${option:+ with -r}: of $before $1 pages, $after are left"
  done
}

head -c 64M /dev/zero >"$tmp/disk"
sync "$tmp/disk"
keeps clean
hold_pages map "$tmp/disk"
keeps mapped
let_pages_go
