#!/usr/bin/env bash
# With cache=none small reads that stand alone go past the page cache, and those
# of a stream through it, where the kernel reads ahead: also if 16 threads serve
# it and overtake each other.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=lib.sh
. "${srcdir:-.}/lib.sh" || exit
need fio nbdcopy strace
strace -o /dev/null true 2>/dev/null || lacks 'needs ptrace'

mounted ext4 400M
disk=$mounted/disk
random_file "$disk" 256M

# direct_fd: the server's descriptor for direct reads, or nothing.
direct_fd ()
{
  local info flags

  for info in "/proc/$server/fdinfo"/*; do
    flags=$(sed -n 's/^flags:[[:space:]]*//p' "$info")
    ((8#${flags:-0} & 8#40000)) || continue
    echo "${info##*/}"
    return
  done
}

# reads COMMAND...: $direct of $all reads of the disk went past the page cache
# while it ran.
reads ()
{
  local before fd

  before=$(wc -l <"$tmp/calls")
  limited "$@" >"$tmp/out" 2>&1 || fail "$*: $(<"$tmp/out")"
  fd=$(direct_fd)
  tail -n +$((before + 1)) "$tmp/calls" >"$tmp/new"
  all=$(grep -c "pread64([0-9]*<$disk>" "$tmp/new" || :)
  direct=$(grep -c "pread64(${fd:-none}<" "$tmp/new" || :)
}

# memory WHAT: of the server, in KiB.
memory ()
{
  sed -n "s/^$1:[[:space:]]*\([0-9]*\) kB/\1/p" "/proc/$server/status"
}

drop "$disk"
under=(strace -f -y -qq -o "$tmp/calls" -e trace=pread64)
start_nbdkit file "$disk" cache=none
# One that stays: what the disk has learnt of its instruments stays, too.
client_start "$uri"

for size in 16384 65536; do
  reads nbdcopy --request-size=$size "$uri" null:
  [ "$all" -ge $((256 * 1048576 / size)) ] || fail "$all reads of $size are seen"
  ((direct * 50 <= all)) ||
    fail "nbdcopy in requests of $size: $direct of $all reads were direct"
done

reads fio --name=load --ioengine=nbd --uri="$uri" --size=256m --io_size=16m \
  --rw=randread --bs=4k --iodepth=16
((direct * 2 >= all)) ||
  fail "random: only $direct of $all reads were direct"
client_stop
stop_nbdkit
under=()

# Each thread has a buffer for them, of which there may be thousands: no larger
# than what it reads.
start_nbdkit file "$disk" cache=none
before=$(memory VmRSS)
limited fio --name=load --ioengine=nbd --uri="$uri" --size=256m --io_size=16m \
  --rw=randread --bs=4k --iodepth=16 --numjobs=4 >"$tmp/out" 2>&1 ||
  fail "$(<"$tmp/out")"
grown=$(($(memory VmHWM) - before))
((grown < 8192)) || fail "64 threads that read at random take $grown KiB"
stop_nbdkit
