#!/usr/bin/env bash
# symlinks= limits how far a symbolic link in a folder leads, when it is opened
# and when it is listed.  Swapping a file for a link or a FIFO while it is being
# opened does not get around the limit.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_python_nbd
need nbdinfo mkfifo

opens=${OPENS:-500}  # in each race

dir=$tmp/dir
mkdir "$dir" "$dir/sub"
printf 'good, %0100d' 1 >"$dir/good"
printf 'secret, %0100d' 1 >"$tmp/secret"
cp "$dir/good" "$dir/sub/deep"
ln -s good "$dir/inside"
ln -s sub/deep "$dir/deep"
ln -s sub/../good "$dir/around"
ln -s ../secret "$dir/outside"
ln -s "$dir/good" "$dir/absolute"
ln -s outside "$dir/twice"
ln -s /proc/self/fd/0 "$dir/magic"
ln -s loop "$dir/loop"
ln -s nothing "$dir/dangling"

# serves EXPORT...: these, and no others.
serves ()
{
  local name status

  lists "$mode" "$@"
  for name in good inside deep around outside absolute twice magic loop \
    dangling; do
    status=0
    size_of "$name" >/dev/null || status=$?
    case " $* " in
      *" $name "*) [ $status = 0 ] || fail "$mode: refuses $name" ;;
      *) [ $status = 1 ] || fail "$mode: serves $name: $status" ;;
    esac
  done
}

# races OTHER: which is swapped with dir/good.
races ()
{
  local counts

  counts=$(limited \
    "$srcdir/lib/swap-race.py" "$tmp/sock" "$dir/good" "$1" "$opens") ||
    fail "$mode: swapping with $1"
  [[ $counts =~ ^served=([0-9]+)\ refused=([0-9]+)$ ]] || fail "$counts"
  if [ "${BASH_REMATCH[1]}" = 0 ] || [ "${BASH_REMATCH[2]}" = 0 ]; then
    fail "$mode: no race with $1: $counts"
  fi
}

mkfifo "$tmp/fifo"
ln -s "$tmp/secret" "$tmp/link"
for mode in "dir=$dir" dirfd=7; do
  start_nbdkit file "$mode" 7<"$dir"
  serves good inside deep around outside absolute twice
  races "$tmp/fifo"
  stop_nbdkit

  while IFS=: read -r option symlinks exports name why; do
    # shellcheck disable=SC2086
    start_nbdkit $option file "$mode" symlinks=$symlinks 7<"$dir"
    # shellcheck disable=SC2086
    serves $exports
    grep -q "$name: is a symbolic link$why" "$tmp/log" ||
      fail "$mode: $symlinks does not say why"
    races "$tmp/link"
    races "$tmp/fifo"
    stop_nbdkit
  done <<'END'
:beneath:good inside deep around:outside: out of the directory
-r:refuse:good:inside:, which symlinks=refuse
END
done

# A folder that is itself a link was named by who runs the server.
ln -s dir "$tmp/folder"
mode='a link to the folder'
start_nbdkit file "dir=$tmp/folder" symlinks=refuse
serves good
stop_nbdkit

# A lookup fails with EAGAIN if a name is renamed in the meantime, perhaps each
# time.
need_strace
mode='renames without an end'
start_nbdkit file "dir=$dir" symlinks=beneath
refuse_now openat2 EAGAIN
status=0
size_of good || status=$?
[ $status = 1 ] || fail "$mode: status $status: $(<"$tmp/refusal")"
grep -q 'good: cannot open: Device or resource busy' "$tmp/log" ||
  fail "$mode: the log does not say why"
stop_nbdkit
