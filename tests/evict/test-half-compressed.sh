#!/usr/bin/env bash
# Random reads of a half-compressed file on btrfs leave no page in memory,
# although btrfs reads compressed data through the page cache despite O_DIRECT.
# Nor does a write of a part of a page, for which it reads to the extent's end.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
mounted btrfs 1G compress-force=zstd:1
disk=$mounted/disk
head -c 1M /dev/urandom >"$tmp/random"
head -c 1M /dev/zero | tr '\0' t >"$tmp/text"
for ((i = 0; i < 48; i++)); do cat "$tmp/random" "$tmp/text"; done >"$disk"
sync "$disk"
drop "$disk"

start_nbdkit -r file "$disk" cache=none
client_start --names "$uri" # which has no copy of the disk
ask a open
# A stream first, so that reads that belong to no stream can be distinguished.
for ((i = 0; i < 16; i++)); do ask a read "$((i * 64))K" 64K; done
empty_soon "$disk" 'after a stream'
# Each in another MiB, none beside the last, for longer than the idle timer.
for ((i = 4; i < 94; i += 3)); do
  ask a read "$((i * 1024 + 512))K" 4K
  sleep 0.1
done
empty_soon "$disk" 'after random reads, while the client stays'
stop_nbdkit

# The extent that has the last page of the first 2 MiB ends in the next 2 MiB.
disk=$mounted/other
dd if="$tmp/text" of="$disk" bs=64K seek=1 status=none
dd if="$tmp/text" of="$disk" bs=64K seek=17 status=none
dd if="$tmp/text" of="$disk" bs=64K seek=33 status=none
sync "$disk"
drop "$disk"
start_nbdkit file "$disk" cache=none
client_start --names "$uri"
ask a open, a write $((2097152 - 4086)) 100
client_stop
empty_soon "$disk" 'after a write of 100 bytes'
stop_nbdkit
