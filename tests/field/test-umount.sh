#!/usr/bin/env bash
# After the last client has left without a flush, the server holds the file until
# the data is on the disk, and no longer: then its file system can be unmounted, and
# has the data.  A server that ends, new permissions and the removal of the file
# lose nothing silently, and the log has nothing that did not happen.
#
# The disk is an ext4 on a loop device on FUSE, whose server answers no write
# until the test lets it.
#
#   test-umount.sh [CASE...]    of the functions case_* (all)
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_root
need nbdcopy

image=$tmp/mounted/image

# fails MESSAGE: after the blocked writes may proceed.
fails ()
{
  touch "$tmp/gate"
  fail "$@"
}

# mount_disk: $image is on the disk, and has its blocks.
mount_disk ()
{
  touch "$tmp/gate"
  fuse_file "gate=$tmp/gate"
  under_pids+=("$fuse_server")
  mount_ext4 "$tmp/disk"
  random_file "$image" 4M
  sync "$image"
  drop "$image"
  random_file "$tmp/src" 128K # within the credit before a rate is known
}

has_the_data ()
{
  cmp -n 128K "$tmp/src" "$1" >&2 || fails "the data is not there: $2"
}

unmount_disk ()
{
  umount "$tmp/mounted" || fails 'umount at the end'
  umount "$tmp/disk"
}

# leave: a client writes, and leaves without a flush.  The disk writes nothing from
# now on.
leave ()
{
  rm "$tmp/gate"
  limited nbdcopy "$tmp/src" "$uri" || fails 'the copy failed'
}

case_unmounted ()
{
  mount_disk
  start_nbdkit file "dir=$tmp/mounted" cache=none
  uri="nbd+unix:///image?socket=$tmp/sock"
  leave
  sleep 0.3
  ! umount "$tmp/mounted" 2>/dev/null ||
    fails 'umount: not busy while the data is written'
  touch "$tmp/gate"
  eventually 1 umount "$tmp/mounted" 2>/dev/null || fail 'umount: still busy'
  mount -o loop "$tmp/disk" "$tmp/mounted" || fail 'the second mount'
  has_the_data "$image" 'after umount'
  drop "$image"
  # The server works with it again.
  limited nbdcopy --flush "$tmp/src" "$uri" || fail 'a copy after that failed'
  # After a flush nothing is left to be written.
  eventually 1 umount "$tmp/mounted" 2>/dev/null || fail 'umount after a flush'
  mount -o loop "$tmp/disk" "$tmp/mounted" || fail 'the third mount'
  stop_nbdkit
  [ ! -s "$tmp/log" ] || fail "unmounted: $(<"$tmp/log")"
  unmount_disk
}

case_terminated ()
{
  mount_disk
  start_nbdkit file "$image" cache=none
  leave
  kill "$server"
  sleep 0.1
  alive "$server" || fails 'the server has ended before the data was written'
  touch "$tmp/gate"
  has_ended
  empty_now "$image" 'after the server has ended'
  has_the_data "$image" 'after the server has ended'
  unmount_disk
}

# after COMMAND...: which changes the name or the permissions of the file, which is
# then $image.new, while the data is written.
after ()
{
  leave
  "$@" || fails "$*"
  sleep 0.3
  touch "$tmp/gate"
  empty_soon "$image.new" "$1: after the last client has left"
  has_the_data "$image.new" "$1"
  eventually 1 is_closed "$tmp/mounted/*" || fail "$1: the file stays open"
  [ ! -s "$tmp/log" ] || fail "$1: $(<"$tmp/log")"
  stop_nbdkit
  unmount_disk
}

# The server could not open it again.
case_forbidden ()
{
  mount_disk
  mv "$image" "$image.new"
  chown nobody "$image.new"
  chmod 600 "$image.new"
  chmod 777 "$tmp"
  chmod 755 "$tmp/mounted"
  start_nbdkit -u nobody -g nogroup file "$image.new" cache=none
  after chown root "$image.new"
}

# An upload: the image is removed as soon as it has been sent elsewhere.
case_deleted ()
{
  mount_disk
  ln "$image" "$image.new"
  start_nbdkit file dirfd=7 cache=none 7<"$tmp/mounted"
  uri=${uri/\?/image?}
  after rm "$image"
  mount_disk
  start_nbdkit file "$image" cache=none
  leave
  rm "$image"
  sleep 0.3
  touch "$tmp/gate"
  eventually 1 is_closed "$tmp/mounted/*" || fail 'deleted: the file stays open'
  stop_nbdkit
  [ ! -s "$tmp/log" ] || fail "deleted: $(<"$tmp/log")"
  unmount_disk
}

[ $# -gt 0 ] || set -- unmounted terminated forbidden deleted
for name; do "case_$name"; done
