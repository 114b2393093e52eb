#!/usr/bin/env bash
# With cache=none, small single reads bypass the page cache, and reads of a
# stream use its readahead.  That holds also if 16 threads serve the stream and
# overtake each other, and for what the client has asked to cache.  Many readers do
# not take much memory of the server.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need fio nbdcopy
need_strace

mounted ext4 400M
disk=$mounted/disk
random_file "$disk" 256M
# So large that single reads are seldom near each other: those are a stream.
truncate -s 16G "$disk"

# reads COMMAND...: $direct of $all reads bypass the page cache while it runs:
# those of the descriptor $fd, which has O_DIRECT.
reads ()
{
  local from

  from=$(wc -l <"$tmp/calls")
  "$@" >"$tmp/out" 2>&1 || fail "$*: $(<"$tmp/out")"
  all=$(tail -n "+$((from + 1))" "$tmp/calls" | grep -c 'pread64([0-9]' || :)
  direct=$(tail -n "+$((from + 1))" "$tmp/calls" | grep -c "pread64($fd," || :)
}

drop "$disk"
under=(strace -f -qq -o "$tmp/calls" -e trace=pread64)
start_nbdkit file "$disk" cache=none
client_start --names "$uri" # which has no model of the data
ask a open, a read 100M 4K
fd=$(grep -ls '^flags:.*4....$' "/proc/$server/fdinfo"/* || :)
fd=${fd##*/}
[ -n "$fd" ] || fail 'no read is direct'

for size in 16384 65536; do
  reads limited nbdcopy --request-size=$size "$uri" null:
  [ "$all" -ge $((256 * 1048576 / size)) ] || fail "$all reads of $size are seen"
  ((direct * 50 <= all)) ||
    fail "nbdcopy in requests of $size: $direct of $all reads were direct"
done

reads limited fio --name=load --ioengine=nbd --uri="$uri" --size=16g --io_size=16m \
  --rw=randread --bs=4k --iodepth=16
[ "$all" -ge 4096 ] || fail "$all random reads are seen"
((direct * 10 >= all * 9)) ||
  fail "random: only $direct of $all reads were direct"

# What a client has asked to cache is read from the page cache.
cached ()
{
  local i

  ask a cache 100M 4M
  for ((i = 0; i < 256; i++)); do
    ask a read $((102400 + i * 197 % 1024 * 4))K 4K
  done
}

reads cached
[ "$all" -ge 256 ] || fail "$all reads after a request to cache are seen"
((direct * 10 <= all)) ||
  fail "after a request to cache: $direct of $all reads were direct"
stop_nbdkit
under=()

# There may be thousands of threads, and each has a buffer for direct reads: no
# larger than what it reads.  64 buffers of the largest size would be 16 MiB; the
# threads themselves take 6 to 9 MiB.
start_nbdkit file "$disk" cache=none
before=$(memory VmRSS)
limited fio --name=load --ioengine=nbd --uri="$uri" --size=256m --io_size=16m \
  --rw=randread --bs=4k --iodepth=16 --numjobs=4 >"$tmp/out" 2>&1 ||
  fail "$(<"$tmp/out")"
grown=$(($(memory VmHWM) - before))
((grown < 12288)) || fail "64 threads that read at random take $grown KiB"
stop_nbdkit
