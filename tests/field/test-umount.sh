#!/usr/bin/env bash
# After the last client has left without a flush, the file system of its file can
# be unmounted while the data is written, and then has it.  A server that ends, a
# disk that refuses the data, and a new name of the file lose nothing silently.
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
need losetup mkfs.ext4 nbdcopy

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
  fuse_file "gate=$tmp/gate" "refuse=$tmp/refuse" refused=EIO
  under_pids+=("$fuse_server")
  mkfs.ext4 -q -E nodiscard,lazy_itable_init=1 -O ^has_journal "$tmp/disk" ||
    fail mkfs
  mkdir -p "$tmp/mounted"
  mounts+=("$tmp/mounted")
  mount -o loop "$tmp/disk" "$tmp/mounted" || fail mount
  random_file "$image" 4M
  sync "$image"
  drop "$image"
  random_file "$tmp/src" 128K # within the credit before a rate is known
}

has_the_data ()
{
  cmp -n 128K "$tmp/src" "$image" >&2 || fails "the data is not there: $*"
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

is_closed ()
{
  alive "$server" || fails 'the server has ended'
  [ -z "$(find "/proc/$server/fd" -lname "$image" 2>/dev/null)" ]
}

# parked: the server has closed the file.
parked ()
{
  eventually 1 is_closed || fails 'the server has the file open'
}

# While the data is written, umount(2) has detached the file system, and waits.
is_detached ()
{
  ! mountpoint -q "$tmp/mounted" || { gone "$umount" && start_umount; }
}

start_umount ()
{
  umount "$tmp/mounted" 2>/dev/null &
  umount=$!
  return 1
}

case_unmounted ()
{
  local umount

  mount_disk
  start_nbdkit file "dir=$tmp/mounted" cache=none
  uri="nbd+unix:///image?socket=$tmp/sock"
  leave
  start_umount || :
  eventually 1 is_detached || fails 'umount: busy while the data is written'
  touch "$tmp/gate"
  wait "$umount" || fail "umount: status $?"
  eventually 5 grep -q 'unmounted or renamed' "$tmp/log" ||
    fail 'the log does not say that'
  mount -o loop "$tmp/disk" "$tmp/mounted" || fail 'the second mount'
  has_the_data 'after umount'
  drop "$image"
  # The server works with it again.
  limited nbdcopy --flush "$tmp/src" "$uri" || fail 'a copy after that failed'
  empty_soon "$image" 'after that'
  stop_nbdkit
  unmount_disk
}

case_terminated ()
{
  mount_disk
  start_nbdkit file "$image" cache=none
  leave
  parked
  kill "$server"
  sleep 0.1
  alive "$server" || fails 'the server has ended before the data was written'
  touch "$tmp/gate"
  has_ended
  empty_now "$image" 'after the server has ended'
  has_the_data 'after the server has ended'
  unmount_disk
}

leases ()
{
  "$srcdir/lib/holder.py" F_WRLCK "$image" >"$tmp/held" 2>/dev/null &
  holder=$!
  pids+=("$holder")
  eventually 1 test -s "$tmp/held"
}

# attempts: of the server to open a file that is leased.
attempts ()
{
  grep -c 'opening for writing: Resource temporarily unavailable' "$tmp/log" ||
    :
}

# Another process has a lease of the parked file, and keeps it.  Each attempt to
# open it takes half a second.
case_leased ()
{
  local holder before

  mount_disk
  start_nbdkit -v file "$image" cache=none
  leave
  parked
  eventually 5 leases || fails 'no lease'
  before=$(attempts)
  send TERM "$server"
  eventually 5 gone "$job" ||
    fails 'the server waits for the lease after SIGTERM'
  touch "$tmp/gate"
  [ "$(attempts)" -le $((before + 2)) ] ||
    fail "$(($(attempts) - before)) attempts to open it after SIGTERM"
  has_ended
  send TERM "$holder"
  eventually 5 gone "$holder" || fail 'the holder does not end'
  unmount_disk
}

# Nobody has seen the error of a page that was written while the disk was parked.
case_refused ()
{
  mount_disk
  start_nbdkit file "$image" cache=none
  leave
  parked
  touch "$tmp/refuse" "$tmp/gate"
  eventually 5 grep -q 'an earlier write had failed' "$tmp/log" ||
    fail 'the log does not have the error'
  client_start "$uri"
  ask_error EIO flush
  rm "$tmp/refuse"
  client_stop
  stop_nbdkit
  unmount_disk
}

# renamed EXPORT ARGUMENT: of a server of the image.
renamed ()
{
  mount_disk
  start_nbdkit file "$2" cache=none 7<"$tmp/mounted"
  uri=${uri/\?/$1?}
  leave
  parked
  mv "$image" "$image.new"
  sleep 0.3 # it is opened again, and parked
  touch "$tmp/gate"
  empty_soon "$image.new" "$2: renamed after the last client has left"
  cmp -n 128K "$tmp/src" "$image.new" || fail "$2: the data was lost"
  [ ! -s "$tmp/log" ] || fail "$2: renamed: $(<"$tmp/log")"
  stop_nbdkit
  unmount_disk
}

case_renamed ()
{
  renamed '' "$image"
}

case_renamed_in_directory ()
{
  renamed image dirfd=7
}

[ $# -gt 0 ] ||
  set -- unmounted terminated leased refused renamed renamed_in_directory
for name; do "case_$name"; done
