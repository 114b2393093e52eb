#!/usr/bin/env bash
# With dir= and dirfd=, the exports listed are the regular files and block
# devices, and every other name is refused at once.  That includes the name of a
# FIFO.  Afterwards the server serves the good exports as before.  Error
# messages contain no path.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdinfo nbdcopy cmp mkfifo

dir=$tmp/dir
mkdir "$dir" "$dir/sub"
random_file "$dir/good" 10001
random_file "$tmp/outside" 20002
truncate -s 1M "$dir/sub/file"
truncate -s 0 "$dir/empty"
truncate -s 4096 "$dir/.hidden" "$dir/with space"
mkfifo "$dir/fifo"
ln -s ../outside "$dir/link"
ln -s fifo "$dir/link-to-fifo"
ln -s sub "$dir/link-to-dir"
ln -s nothing "$dir/dangling"
ln -s loop "$dir/loop"
ln -s /dev/null "$dir/char"

start_nbdkit file "$tmp/outside"
ln "$tmp/sock" "$dir/socket"
stop_nbdkit

listed=(.hidden empty good link 'with space')
if [ "$(id -u)" = 0 ]; then
  truncate -s 2M "$tmp/backing"
  attach "$tmp/backing"
  ln -s "$device" "$dir/block"
  listed+=(block)
fi

# refuses EXPORT
refuses ()
{
  local status=0

  size_of "$1" >/dev/null || status=$?
  case $status in
    0) fail "served: $1" ;;
    124 | 137) fail "hangs: $1" ;;
  esac
  [ "$(size_of good)" = 10001 ] || fail "good is no longer served after $1"
}

x255=$(printf 'x%.0s' {1..255})
x4080=$(printf "$x255%.0s" {1..16})

# Only what is opened for reading waits for a writer at a FIFO's other end.
for mode in "dir=$dir" dirfd=7 "-r dir=$dir" '-r dirfd=7'; do
  readonly=()
  [[ $mode != -r* ]] || readonly=(-r)
  start_nbdkit "${readonly[@]}" file "${mode#-r }" cache=none 7<"$dir"

  lists "$mode" "${listed[@]}"
  [ "$(size_of empty)" = 0 ] || fail "$mode: empty"
  [ "$(size_of link)" = 20002 ] || fail "$mode: link"
  [ "$(size_of with%20space)" = 4096 ] || fail "$mode: with space"
  [ -z "${device:-}" ] || [ "$(size_of block)" = 2097152 ] ||
    fail "$mode: block"

  for name in '' . .. / ./good ../outside sub/file good/ "$tmp/outside" \
    missing "$x255" "${x255}x" "$x4080" sub fifo socket char \
    dangling loop link-to-dir link-to-fifo; do
    refuses "${name//\//%2F}"
  done

  limited nbdcopy "nbd+unix:///good?socket=$tmp/sock" "$tmp/out"
  same "$dir/good" "$tmp/out"
  stop_nbdkit
  rm "$tmp/out"
done

# A message names what the client asked for, escaped: clients receive it, too,
# since nbdkit 1.42.  The debug log has the folder.
ln -s dir "$tmp/folder" # which is named as it was given
for mode in "dir=$tmp/folder" dirfd=7; do
  start_nbdkit -v file "$mode" 7<"$dir"
  for name in missing fifo x%1B%5B2J; do
    ! size_of "$name" >/dev/null || fail "$mode: served: $name"
  done
  client_start "nbd+unix:///good?socket=$tmp/sock"
  truncate -s 9000 "$dir/good"
  ask_error E read 9000 1001
  client_stop
  truncate -s 10001 "$dir/good"
  stop_nbdkit

  grep ' error: ' "$tmp/log" >"$tmp/errors"
  for name in missing fifo 'x\\x1b\[2J' good; do
    grep -q " error: $name: " "$tmp/errors" || fail "$mode: no error of $name"
  done
  grep -q 'fifo: is not a regular file or block device' "$tmp/errors" ||
    fail "$mode: the log does not give the type of the FIFO"
  ! grep -F -e "$tmp" -e dirfd -e $'\e' "$tmp/errors" >&2 ||
    fail "$mode: an error names more than the client asked for"
done

# A file that cannot be opened for writing, because it is executed, is served
# read-only, and its name, which may mean another file by now, is not opened.
if strace -o /dev/null true 2>/dev/null; then
  export ASAN_OPTIONS=detect_leaks=0
  cp "$(command -v sleep)" "$dir/busy"
  "$dir/busy" 600 &
  busy=$!
  under_pids+=("$busy")
  under=(strace -f -qq -o "$tmp/trace" -e 'trace=?open,openat,openat2')
  start_nbdkit file "dir=$dir"
  [ "$(size_of busy)" = "$(stat -c %s "$dir/busy")" ] || fail 'busy'
  stop_nbdkit
  under=()
  kill $busy
  wait $busy 2>/dev/null || true
  rm "$dir/busy"
  grep -q 'O_RDWR.*ETXTBSY' "$tmp/trace" || fail 'the file was not busy'
  ! grep '"busy"' "$tmp/trace" | grep -v O_PATH >&2 || fail 'opens the name'
fi

# A server may have the right to search the directory, but not to read it.  Then
# it serves its files, and cannot list them.
if [ "$(id -u)" = 0 ]; then
  install -d -m 711 "$tmp/search"
  install -m 666 "$dir/good" "$tmp/search/good"
  chmod 777 "$tmp" # where it makes its socket
  for mode in "dir=$tmp/search" dirfd=7; do
    start_nbdkit -u nobody -g nogroup file "$mode" 7<"$tmp/search"
    [ "$(size_of good)" = 10001 ] || fail "$mode, no right to read"
    stop_nbdkit
  done
fi

# A sandbox may refuse statx(2), without which no program starts on 32-bit
# machines.
under=("$builddir/lib/without-statx")
if "${under[@]}" true 2>/dev/null; then
  start_nbdkit file "dir=$dir"
  [ "$(size_of good)" = 10001 ] || fail "without statx: $(<"$tmp/log")"
  lists 'without statx' "${listed[@]}"
  stop_nbdkit
fi
under=()
