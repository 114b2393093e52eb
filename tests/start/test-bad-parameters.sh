#!/usr/bin/env bash
# Wrong, missing or contradictory parameters end the server at once, with an
# error that names the parameter and the value.  What the stock plugin accepts is
# in start/test-drop-in.sh.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need mkfifo

mkdir "$tmp/dir"
disk=$tmp/disk
truncate -s 1M "$disk" "$tmp/other"
mkfifo "$tmp/fifo"
start_nbdkit memory 1M          # for its socket

# refused WORD... -- ARGUMENT...: with an error, the last, which has all the
# words.  Before it, nbdkit may say what is no number.
# (For "-U -" nbdkit would make a folder in /tmp, and leave it there.)
refused ()
{
  local message status=0 word words=()

  while [ "$1" != -- ]; do words+=("$1"); shift; done
  shift
  timeout --foreground -k 1 60 "$NBDKIT" -U "$tmp/none" file "$@" --run : \
    2>"$tmp/err" || status=$?
  [ "$status" != 0 ] || fail "accepted: $*"
  [ "$status" = 1 ] || fail "status $status: $*"
  message=$(grep '^nbdkit: error: ' "$tmp/err" | tail -n 1)
  for word in "${words[@]}"; do
    [[ $message = *"$word"* ]] || fail "no $word: $*: $message"
  done
}

# taken PARAMETER...: without an error.
taken ()
{
  limited "$NBDKIT" -U "$tmp/none" file "$disk" "$@" --run : 2>"$tmp/err" ||
    fail "refused: $*"
  rm "$tmp/none"
}

# Which file to serve: exactly one.
refused file dir fd --
refused file --                         cache=none
refused file dir --                     "file=$disk" "dir=$tmp/dir"
refused dir file --                     "dir=$tmp/dir" "$disk"
refused fd file --                      "$disk" fd=7 7<"$tmp/other"
refused fd dir --                       "dir=$tmp/dir" fd=7 7<"$disk"
refused fd dirfd --                     dirfd=8 fd=7 7<"$disk" 8<"$tmp/dir"
refused fd 7 --                         fd=7 fd=7 7<"$disk"
refused dirfd 7 --                      dirfd=7 dirfd=7 7<"$tmp/dir"
# People think that it copies.
refused "$disk" "$tmp/other" nbdkit-copy -- "$tmp/other" "$disk"
refused dir "$tmp/dir" --               "dir=$tmp" "dir=$tmp/dir"
refused directory "$tmp/dir" --         "dir=$tmp" "directory=$tmp/dir"

# It must be there, and of the right kind.
for how in file file= ; do
  refused "$how" missing --             "file=$tmp/missing"
  refused "$how" "$tmp/dir" directory -- "file=$tmp/dir"
  refused "$how" "$tmp/fifo" 'not a regular file or block device' -- \
    "file=$tmp/fifo"
  refused "$how" "$tmp/sock" --         "file=$tmp/sock"
  refused "$how" /dev/null --           file=/dev/null
done
refused file --                         file=
refused file "$tmp/missing" --          "file=$tmp/missing" "file=$disk"
refused file "$tmp/gone" --             "file=$disk" "file=$tmp/gone"
refused dir "$tmp/gone" --              "dir=$tmp/gone" "dir=$tmp/dir"
refused dir missing --                  "dir=$tmp/missing"
refused dir "$disk" --                  "dir=$disk"
refused dir "$tmp/fifo" --              "directory=$tmp/fifo"
refused dir --                          dir=

for bad in notanumber 99 -1 1 7x '' 99999999999999999999; do
  refused fd "$bad" --                  "fd=$bad" 99>&-
  refused dirfd "$bad" --               "dirfd=$bad" 99>&-
done
refused fd 7 directory --               fd=7 7<"$tmp/dir"
refused fd 7 --                         fd=7 7</dev/null
refused fd 7 'not a regular file or block device' -- fd=7 7<>"$tmp/fifo"
refused dirfd 7 --                      dirfd=7 7<"$disk"

# How to serve it.
for bad in bogus '' NONE ' none'; do
  refused cache "$bad" --               "$disk" "cache=$bad"
  refused cache "$bad" --               "$disk" "cache=$bad" cache=none
done
for cache in cache={default,none} reduce-memory-pressure={true,false}; do
  refused "$cache" cache=preserve --    "$disk" cache=preserve "$cache"
  refused "$cache" cache=preserve --    "$disk" "$cache" cache=preserve
done
refused cache=none cache=preserve -- \
  "$disk" cache=default cache=none cache=preserve
refused reduce-memory-pressure maybe -- "$disk" reduce-memory-pressure=maybe
refused symlinks bogus follow --        "dir=$tmp/dir" symlinks=bogus
refused symlinks refuse dir= --         "$disk" symlinks=refuse
refused fadvise bogus --                "$disk" fadvise=bogus fadvise=normal

for bad in cache-windows={0,1025,8x,0x,8K,1.5} \
  cache-window-size={0,1Q,65K,2G,1MB,8E,-9000000000000000000E} \
  cache-limit={0,255K,8E} \
  {cache-windows,cache-window-size,cache-limit}={x,-1,'',K,' ','1 '} \
  {cache-windows,cache-window-size,cache-limit}=99999999999999999999; do
  case $bad in
    cache-windows=*) range='from 1 to 1024' ;;
    cache-window-size=*) range='from 64K to 1G' ;;
    *) range='from 256K to below 8E' ;;
  esac
  refused "${bad%%=*}=${bad#*=}" "$range" -- "$disk" cache=none "$bad"
done
# The syntax of nbdkit, whose later versions take hexadecimal sizes, too.
for good in cache-windows={1,8,0x8,010,' 8',+8,1024} \
  {cache-window-size,cache-limit}={1048576,1048576b,2048s,2048S,1024k,1024K,1M} \
  cache-window-size={64K,32M} \
  cache-limit={256K,1G,1t,1P,7E,9223372036854775807}; do
  taken cache=none "$good"
done
# The last cache= decides whether there are windows to set.
taken cache=default cache-windows=4 reduce-memory-pressure=true
# It may be repeated as long as nothing else is asked for.
taken cache=preserve cache=preserve
taken cache=none cache-windows=8 cache-windows=4 stats=- stats="$tmp/stats"
[ -s "$tmp/stats" ] || fail 'the last stats= does not count'
refused cache-limit 64M cache=none -- "$disk" cache-limit=64M
refused cache-windows 4 cache=none -- \
  "$disk" reduce-memory-pressure=false cache-windows=4
for cache in cache=default fadvise=normal; do
  refused cache-windows 4 cache=none -- "$disk" "$cache" cache-windows=4
  refused cache-window-size 2M cache=none -- \
    "$disk" "$cache" cache-window-size=2M
done

refused cache-windows 4 cache=none -- \
  "$disk" cache=none cache-windows=4 cache=default
refused stats-format unknown --          "$disk" stats=- stats-format=json

refused bogus --                        "$disk" bogus=1

stop_nbdkit
