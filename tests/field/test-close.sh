#!/usr/bin/env bash
# A close delays no client of another export and not the end of the server.
#
# The disk is emptied while its writeback cannot proceed: the disk is an ext4 on
# a loop device on FUSE, whose server answers no write until the test lets it.
#
#   test-close.sh [CASE...]    of the functions case_* (all)
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_root
need losetup mkfs.ext4 nbdcopy

# fails MESSAGE: after the blocked writes may proceed.
fails ()
{
  touch "$tmp/gate"
  fail "$@"
}

# number WHAT: of these requests to the disk.
number ()
{
  [[ $(<"$tmp/counts") =~ $1=([0-9]+) ]]
  echo "${BASH_REMATCH[1]}"
}

has_more_writes ()
{
  [ "$(number writes)" -gt "$1" ]
}

# blocked_disk: $tmp/dir/a is on the disk, and $tmp/dir/b is not.
blocked_disk ()
{
  touch "$tmp/gate"
  fuse_file "counts=$tmp/counts" "gate=$tmp/gate"
  under_pids+=("$fuse_server")
  mkfs.ext4 -q -E nodiscard,lazy_itable_init=1 -O ^has_journal "$tmp/disk" ||
    fail mkfs
  mkdir "$tmp/mounted" "$tmp/dir"
  mounts+=("$tmp/mounted")
  mount -o loop "$tmp/disk" "$tmp/mounted" || fail mount
  # Its blocks are allocated, so that a write changes no metadata.
  random_file "$tmp/mounted/a" 4M
  sync "$tmp/mounted/a"
  drop "$tmp/mounted/a"
  ln -s ../mounted/a "$tmp/dir/a"
  head -c 1M /dev/zero >"$tmp/dir/b"
}

# With a filter that serializes all requests, close is called as one of them.
case_serialized ()
{
  local before i

  blocked_disk
  # As much as may be dirty before the speed of the disk is known.
  random_file "$tmp/src" 128K
  start_nbdkit --filter=noparallel file serialize=all-requests "dir=$tmp/dir" \
    cache=none
  client_start "nbd+unix:///b?socket=$tmp/sock"
  ask read 0 4096
  rm "$tmp/gate"
  before=$(number writes)
  # Without a flush.
  limited nbdcopy "$tmp/src" "nbd+unix:///a?socket=$tmp/sock" ||
    fails 'a copy to a failed'
  eventually 5 has_more_writes "$before" || fails 'a is not written back'
  for i in {1..10}; do
    ask_for 10 read $((i * 65536)) 4096 ||
      fails "read $i of b is not answered while a is written back"
    [[ $answer = ok* ]] || fails "read $i of b: $answer"
    sleep 0.1
  done
  [ ! -e "$tmp/gate" ] || fail 'the writes were not blocked'
  touch "$tmp/gate"
  empty_soon "$tmp/mounted/a" 'when the writes were let go'
  stop_nbdkit
  empty_now "$tmp/mounted/a" 'after the server has ended'
  cmp -n 128K "$tmp/src" "$tmp/mounted/a" >&2 || fail 'the data is not in a'
  umount "$tmp/mounted"
  umount "$tmp/disk"
}

# Another process uses all pages.
case_terminated ()
{
  random_file "$tmp/image" 64M
  drop "$tmp/image"
  hold_pages map "$tmp/image"
  start_and_connect file "$tmp/image" cache=none
  ask write 0 64K, read 0 64K
  kill "$server"
  client_stop
  has_ended
  let_pages_go
}

[ $# -gt 0 ] || set -- serialized terminated
for name; do "case_$name"; done
