#!/usr/bin/env bash
# In a sandbox that refuses the system calls of the page cache, or all ioctls, a
# copy succeeds, and the log or a refused client shows when pages cannot be
# dropped.
#
# Each call is refused with the errno of a missing call, of a seccomp profile
# and of a security module.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdcopy nbdinfo cmp
need_strace

disk=$tmp/disk
plugin='file'
random_file "$tmp/src" 40M

new_disk ()
{
  rm -f "$disk"
  truncate -s 40M "$disk"
}

# refuse CALL ERRNO: from now on, by strace.
refuse ()
{
  under=(strace -f -qq -o /dev/null -e "trace=$1" -e "inject=$1:error=$2"
    -e signal=none)
}

# copies WHAT: with a flush.
copies ()
{
  limited nbdcopy --flush "$tmp/src" "$uri" 2>"$tmp/said" ||
    fail "$1: a copy failed: $(<"$tmp/said")"
}

is_stored ()
{
  cmp "$tmp/src" "$disk" >&2 || fail "$1: the data is not stored"
}

# Pages cannot be dropped at all.
for err in ENOSYS EPERM EACCES; do
  what="posix_fadvise: $err"
  refuse /^fadvise64 $err # on 32-bit machines fadvise64_64
  new_disk
  start_nbdkit file "$disk" cache=none
  limited nbdinfo --size "$uri" >/dev/null || fail "$what: it is not served"
  log_has 1 fadvise
  copies "$what"
  log_has 1 ''
  stop_nbdkit
  is_stored "$what"

  new_disk
  start_nbdkit file "$disk" cache=preserve
  ! limited nbdinfo --size "$uri" >/dev/null 2>&1 ||
    fail "$what: cache=preserve is served"
  grep -q cache=preserve "$tmp/log" || fail "$what: the log gives no reason"
  stop_nbdkit
done

# works WHAT: nothing is worse for clients, and without -v nothing is said.  The
# server gets $source, which may be fd=7.
source=$disk
works ()
{
  local option

  for option in '' -v; do
    new_disk
    exec 7<>"$disk"
    start_nbdkit ${option:+"$option"} "$plugin" "$source" cache=none \
      cache-windows=4
    exec 7>&-
    copies "$1"
    empty_soon "$disk" "$1, after a copy"
    limited nbdcopy "$uri" "$tmp/out" || fail "$1: cannot copy out"
    empty_soon "$disk" "$1, after reading"
    stop_nbdkit
    is_stored "$1"
    same "$tmp/src" "$tmp/out"
    [ -n "$option" ] || [ ! -s "$tmp/log" ] || fail "$1: there is a log"
  done
}

for err in ENOSYS EPERM EACCES EINVAL; do
  refuse sync_file_range $err
  works "sync_file_range: $err"
  # Once for each opening: the second copy may find the disk still open.
  said=$(grep -c 'waits by fdatasync' "$tmp/log")
  [[ $said = [12] ]] || fail "$err: said $said times in the debug log"
done

under=("$builddir/lib/without-cachestat")
works 'cachestat: ENOSYS'

# With refused ioctls, as Landlock refuses them (Linux 6.10), all requests to a
# block device work.
if [ "$(id -u)" = 0 ]; then
  need losetup
  truncate -s 64M "$tmp/image"
  attach "$tmp/image" -b 4096
  exec 8<"$device" # the kernel drops all pages when nobody has it open
  for err in ENOTTY EPERM EACCES EINVAL ENOSYS; do
    what="ioctl: $err"
    refuse ioctl $err
    start_and_connect file "$device" cache=none
    ask write 0 4M, zero 1M 1M, zero 2M 8K nohole fua, trim 3M 64K fua, flush
    ask write 3M 64K, read 0 4M, flush, save "$tmp/model"
    stop_nbdkit
    empty_soon "$device" "$what"
    cmp -n 4M "$tmp/model" "$device" >&2 || fail "$what: wrong data"
    drop "$device"
    [ ! -s "$tmp/log" ] || fail "$what: there is a log"
  done
  exec 8<&-
  losetup -d "$device"
fi

# Without /proc a descriptor cannot be opened again, so only fd= works; and the
# script that starts the server, and sanitizers, do not work.
plugin=$("$NBDKIT" file --dump-plugin | sed -n 's/^path=//p')
if [ "$(id -u)" = 0 ] && [[ $(ldd "$plugin") != *lib[at]san* ]]; then
  NBDKIT=$("$NBDKIT" --dump-config | sed -n 's/^binary=//p')
  # In a chroot the root may be no mount, whose propagation could be changed.
  under=(unshare --mount --propagation unchanged sh -c
    'mount --make-private /proc && mount -t tmpfs none /proc && exec "$@"' sh)
  source=fd=7
  works 'no /proc'
  grep -q 'reopening: No such file.*sharing a description' \
    "$tmp/log" || fail 'without /proc: the debug log does not say so'
  start_nbdkit "$plugin" "$disk" cache=none
  ! limited nbdinfo --size "$uri" >/dev/null 2>&1 ||
    fail 'without /proc: a file is served by its name'
  grep -q 'disk: cannot open files without /proc' "$tmp/log" ||
    fail 'without /proc: the log gives no reason'
  stop_nbdkit
fi
