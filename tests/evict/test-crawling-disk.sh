#!/usr/bin/env bash
# On a very slow disk, a client that leaves without a flush leaves nothing in
# memory, and other clients' flushes are answered.  That holds however long the
# client was idle.  While its data goes to the disk, other clients can connect,
# write and flush.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need fio mkfs.ext4

# rate MBIT: from now on.
rate ()
{
  echo "$1M" >"$tmp/rate"
}

rate 8000
mkdir "$tmp/mounted"
slow_disk 256M rate=8000M rate-file="$tmp/rate" burstiness=0.1
mkfs.ext4 -q -E nodiscard,lazy_itable_init=1 "$tmp/fuse/disk" || fail mkfs
mounts+=("$tmp/mounted")
mount -o loop "$tmp/fuse/disk" "$tmp/mounted" || fail 'mount'
disk=$tmp/mounted/disk
truncate -s 64M "$disk"

# 15 MiB at 2 MB/s take longer than the idle timer.
start_nbdkit file "$disk" cache=none
rate 16
client_start "$uri"
for i in {0..14}; do ask write $((i * 1048576)) 1048576; done
sleep 4
stop_nbdkit
clear_now "$disk" "after a client that had been idle"

# 15 MiB at 8 MB/s are still going to the disk when others come.
start_nbdkit file "$disk" cache=none
rate 64
client_start "$uri"
for i in {0..14}; do ask write $((i * 1048576)) 1048576; done
client_stop
fio --name=busy --ioengine=nbd --uri="$uri" --rw=randwrite --bs=64k \
  --numjobs=2 --iodepth=16 --size=64m --time_based --runtime=40 \
  --norandommap >"$tmp/fio" 2>&1 &
busy=$!
pids+=("$busy")
client_start "$uri"
for i in {1..3}; do
  ask write $((i * 1048576)) 4096, flush
done
alive "$busy" || fail 'flushes were not answered before the disk was quiet'
kill "$busy"
wait "$busy" || :
client_stop
rate 8000
stop_nbdkit
clear_now "$disk" "after busy clients"
