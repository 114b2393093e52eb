#!/usr/bin/env bash
# Pages that another process reads between the places where clients use
# cache=none are swept out of the page cache.  That holds also far away in a
# large file, and for pages that arrived during earlier sweeps.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need fio

disk=$tmp/disk
truncate -s 256G "$disk" || skip 'no sparse files of 256 GiB here'
head -c 256M "$disk" >/dev/null
[ "$(residency "$disk")" -ge 65536 ] ||
  lacks 'cachestat(2) does not see the pages of this file'

# is_small PAGES: the client reads, and no more is cached than that.
is_small ()
{
  ! gone "$client" || fail 'the client has ended'
  [ "$(residency "$disk")" -le "$1" ]
}

start_nbdkit file "$disk" cache=none
# One client reads from the start of the file, and one from its middle.
fio --name=load --ioengine=nbd --uri="$uri" --size=100g --bs=256k --iodepth=4 \
  --numjobs=2 --offset_increment=128g --rw=read --time_based --runtime=900 \
  >"$tmp/out" 2>&1 &
client=$!
pids+=("$client")
eventually 20 is_small 32768        # swept, what was read above

dd if="$disk" of=/dev/null bs=1M skip=110K count=2K status=none
eventually 60 is_small $((512 * 256)) ||
  fail "$(residency "$disk") pages stay of what others have read"
kill "$client"
wait "$client" || :
stop_nbdkit
