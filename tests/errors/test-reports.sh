#!/usr/bin/env bash
# A writeback error fails every change and every flush of every client, until the
# last client has left.  If no request has failed for it by then, the next client
# gets it, once: the server remembers 64 such files, without an open descriptor.
# A read-only server uses no report up.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=rig/lib.sh
. "$(dirname "$0")/rig/lib.sh" || exit

# serve [OPTION...]
serve ()
{
  start_nbdkit "$@" file "$mnt/disk" "cache=$which"
  client_start --names "$uri"
}

fresh_file ()
{
  disk_says -
  rm -f "$mnt/disk"
  fallocate -l 64M "$mnt/disk"
  write_back
}

# The kernel writes back, as it does some seconds after a write.
write_back ()
{
  sync -f "$mnt/disk" 2>/dev/null || :
}

# leaves NAME...: disconnect these, who are the last ones, and wait until the server
# has closed the file.
leaves ()
{
  local name

  for name; do ask "$name" close; done
  eventually 5 is_closed "$mnt/*" || fail "$which: the file stays open"
}

# told NAME...: each has its own request fail, and all later ones.
told ()
{
  local name request

  for name; do
    for request in 'write 8M 4K' flush 'zero 8M 64K' 'trim 8M 64K' \
      'write 8M 4K fua' flush; do
      # shellcheck disable=SC2086
      fails $name $request
    done
  done
}

# starts_anew NAME: a new client's requests succeed.
starts_anew ()
{
  ask "$1" open, "$1" write 8M 4K, "$1" flush, "$1" zero 8M 64K
  ask "$1" write 9M 4K fua, "$1" flush
}

# written_twice: a client has written and flushed, and has written again, which
# the disk refuses.
written_twice ()
{
  fresh_file
  serve
  ask a open, a write 0 4M, a flush
  disk_says d
  ask a write 0 128K # in one piece, so that it cannot fail itself
}

# The client that wrote gets it, and others beside it, whenever they come.
while_connected ()
{
  written_twice
  ask b open
  write_back
  disk_says -
  fails a flush
  told b a
  ask c open
  told c
  ask a close, b close
  told c
  ask a open
  told a
  ask a read 0 4M, c read 32M 4M
  leaves a c
  starts_anew a
  stop_nbdkit
  log_has 1 'writing back data'
  log_has 0 'none has got'
}

# The client that returns has its error, and so has the log, also if others look
# before.
comes_back ()
{
  local i expected=1

  written_twice
  write_back
  leaves a
  disk_says -
  for i in {1..3}; do
    limited nbdinfo --size "$uri" >/dev/null
    sleep 0.3
  done
  [ "$which" != default ] || expected=0 # the server has not seen it
  log_has $expected 'none has got the writeback error'
  log_has $expected 'writing back data'
  ask b open, b read 0 4M
  fails b flush
  told b
  ask c open
  told c
  leaves b c
  starts_anew d
  stop_nbdkit
  log_has $expected 'none has got the writeback error'
}

# The error is another program's, and the server only reads.
read_only ()
{
  fresh_file
  disk_says d
  # Data that the disk knows.
  dd of="$mnt/disk" bs=1M count=4 iflag=fullblock conv=notrunc status=none \
    < <(yes $'\332zabcde')
  write_back
  disk_says -
  serve -r
  ask a open, a read 0 8M
  leaves a
  ask a open, a read 4M 8M
  stop_nbdkit
  ! sync "$mnt/disk" 2>/dev/null ||
    fail "$which: a read-only server has used up the report to fsync"
}

# The server remembers 64 of 66 files.
many_files ()
{
  local i remembered=0

  mkdir "$mnt/dir"
  for i in {1..66}; do fallocate -l 1M "$mnt/dir/$i"; done
  write_back
  start_nbdkit file "dir=$mnt/dir" "cache=$which"
  client_start --names "$tmp/sock"
  disk_says d
  for i in {1..66}; do
    ask "$i" open, "$i" write 0 64K, "$i" close
  done
  eventually 10 is_closed "$mnt/*" || fail "$which: files stay open"
  disk_says -
  log_has 64 'none has got the writeback error.*fail for it'
  log_has 2 'none has got the writeback error.*may succeed'
  for i in {1..66}; do
    ask "$i" open
    ask_any "$i" write 64K 4K
    [[ $answer = ok* ]] || remembered=$((remembered + 1))
  done
  [ $remembered = 64 ] || fail "$which: $remembered clients had an error"
  for i in {1..66}; do ask "$i" close; done
  eventually 10 is_closed "$mnt/*" || fail "$which: files stay open"
  for i in {1..66}; do ask "$i" open, "$i" write 64K 4K fua; done
  stop_nbdkit
  rm -r "$mnt/dir"
}

disk_up 256M
make_fs ext4 -O ^has_journal
for which in default none preserve; do
  for t in while_connected comes_back many_files read_only; do
    # With cache=default the kernel has not written back by then.
    [ $which-$t != default-many_files ] || continue
    say "$which: $t"
    "$t"
  done
done
