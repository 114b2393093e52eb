#!/usr/bin/env bash
# Block status asks the kernel once where a run of data ends that a client scans
# in pieces, and forgets the run when a client has made a hole.  On overlayfs,
# where it looks for pages of holes, it looks at each hole once.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_strace

# scan: ask for each of the 64 MiB.
scan ()
{
  local i

  for ((i = 0; i < 64; i++)); do
    ask extents "${i}M" 1M
    map+=("$answer")
  done
}

random_file "$tmp/disk" 64M
sync "$tmp/disk"
under=(strace -f -qq -e trace=lseek -o "$tmp/trace")
start_and_connect file "$tmp/disk" cache=none
map=()
scan
# One more when the file is opened, to see what the file system can do.
seeks=$(grep -c 'SEEK_HOLE' "$tmp/trace" || :)
[ "$seeks" -le 2 ] || fail "$seeks calls of lseek(2) for one run of data"
ask extents 0 1M, trim 8M 4M, flush
map=()
scan
[ "${map[7]} ${map[8]} ${map[11]} ${map[12]}" = \
  '1048576:0 1048576:3 1048576:3 1048576:0' ] || fail "after a trim: ${map[*]}"
stop_nbdkit

[ "$(id -u)" = 0 ] || exit 0
mount_overlay "$tmp" "$tmp/over" || skip 'no overlayfs'
holes=128
truncate -s $((holes * 2))M "$tmp/over/disk"
for ((i = 0; i < holes; i++)); do
  printf data | dd of="$tmp/over/disk" bs=1M seek=$((2 * i)) conv=notrunc \
    status=none
done
under=(strace -f -qq -e trace=mincore -o "$tmp/trace")
start_and_connect file "$tmp/over/disk" cache=none
ask write 0 4096, flush
: >"$tmp/trace"
ask extents 0 $((holes * 2))M
calls=$(wc -l <"$tmp/trace")
[ "$calls" -gt 0 ] || fail 'no page of a hole was looked for: this is no test'
[ "$calls" -le $((holes * 3)) ] || fail "$calls calls for $holes holes"
stop_nbdkit
