#!/usr/bin/env bash
# With each errno that a file system reports for a failed writeback, no change and
# no flush of any client succeeds until all have left.  That includes an errno that
# elsewhere means that there is no such call.  The error is seen on the description
# of the only client, or on the inherited one of all, which would report it to one
# of them, if they were not known to have the same file.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit

# loses ERRNO HOW: of 2 MiB some are refused, and then the disk is well again.
loses ()
{
  local what="$1, $2" first

  say "$what"

  rm -f "$tmp/refuse"
  fuse_disk "refuse=$tmp/refuse" "refused=$1"
  if [ "${2% *}" = inherited ]; then
    exec 7<>"$tmp/disk"
    chmod 777 "$tmp"
    ! setpriv --reuid=nobody --clear-groups head -c 1 "$tmp/disk" \
      >"$tmp/read" 2>&1 || fail 'anybody may open it'
    start_nbdkit -u nobody -g nogroup file fd=7 cache=none
  else
    start_nbdkit file "$tmp/disk" cache=none
  fi
  client_start "$uri"
  ask write 0 2M, write 8M 4K fua, flush
  touch "$tmp/refuse"
  ask write 0 2M
  eventually 5 test -s "$tmp/refuse" || fail "$what: it is not written back"
  [ "${2#* }" != evictor ] ||
    eventually 5 grep -q 'writing back' "$tmp/log" ||
    fail "$what: nothing in the log"
  rm "$tmp/refuse"
  [ "${2#* }" != fua ] || ask_any write 8M 4K fua
  ask_any flush
  [[ $answer = 'error '* ]] || fail "$what: the flush says $answer"
  first=${answer#error }
  first=${first%% *}
  [ "$1" != EDQUOT ] || [ "$first" = ENOSPC ] || fail "$what: $answer"
  # Of what was not written, the kernel may reclaim single pages at any time.
  [ "$(resident "$tmp/disk")" -ge 256 ] || fail "$what: its pages were dropped"
  if [ "${2% *}" = inherited ]; then
    latched "$first" 32M "$what"
  else
    latched "$first" 32M "$what" alone
  fi
  log_has 1 'writing back'
  client_stop
  works_again 48M "$what"
  stop_nbdkit
  [ "${2% *}" != inherited ] || exec 7>&-
  umount "$tmp/disk"
}

loses EPERM 'named evictor'
loses EPERM 'named fua'
loses EDQUOT 'named evictor'
for error in EIO EPERM EINVAL EOPNOTSUPP ENOSYS; do
  loses $error 'inherited evictor'
  loses $error 'inherited fua'
done

# nbdkit takes this errno of a zero for the request to write zeroes itself, so a
# write that fails with it would be acknowledged.
need_strace
need jq
truncate -s 1M "$tmp/zeroed"
for cache in none default; do
  under=(strace -f -qq -o "$tmp/trace" -e 'trace=fallocate,pwrite64'
    -e inject=fallocate:error=EOPNOTSUPP
    -e inject=pwrite64:error=EOPNOTSUPP:when=1)
  start_and_connect -t 1 file "$tmp/zeroed" "cache=$cache" stats="$tmp/stats"
  under=()
  ask_error ENOTSUP zero 0 64K nohole fast
  ask_error EIO zero 0 64K nohole
  grep -q 'pwrite64.*EOPNOTSUPP.*INJECTED' "$tmp/trace" ||
    fail "cache=$cache: no write failed"
  stop_nbdkit
  # A fast zero that is refused is no failed request.
  jq -e '.disks[0] | .zeroes == 2 and .failed_requests == 1' "$tmp/stats" ||
    fail "cache=$cache: statistics"
done
