#!/usr/bin/env bash
# Connections that come and go at random, to one file and to several, read what
# they wrote and leave no descriptor, thread or page behind, and (except for a
# little) no memory.
#
# SECONDS_EACH=300 in the environment makes it longer.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_python_nbd

seconds=${SECONDS_EACH:-3}

# new_files: of zeroes, in place of those that there are.
new_files ()
{
  for name in a b c; do : >"$tmp/dir/$name"; done
  truncate -s 16M "$tmp/dir"/*
}

# churn ARGUMENT... -- EXPORT...
churn ()
{
  local arguments=() uris=() name fds tasks before after i

  while [ "$1" != -- ]; do arguments+=("$1"); shift; done
  shift
  for name; do uris+=("nbd+unix:///$name?socket=$tmp/sock"); done
  new_files
  start_nbdkit file "${arguments[@]}"
  fds=$(entries fd)
  tasks=$(entries task)
  # ThreadSanitizer adds one of its own when it sees the first.
  ! grep -q libtsan "/proc/$server/maps" || tasks=$((tasks + 1))
  # One after the other, when what is kept has been made.
  limited "$srcdir/lib/open-close.py" 200 "${uris[@]}"
  # Sanitizers keep more.
  if ! grep -qE 'lib[at]san' "/proc/$server/maps"; then
    # A leak grows each time; an arena of malloc, or a stack, does not.
    for ((i = 1; i <= 3; i++)); do
      before=$(memory VmRSS)
      limited "$srcdir/lib/open-close.py" 1000 "${uris[@]}"
      after=$(memory VmRSS)
      [ "$after" -gt $((before + 1024)) ] || break
    done
    [ "$i" -le 3 ] ||
      fail "${arguments[*]}: $after kB of memory, were $before"
  fi
  new_files
  timeout --foreground -k 5 $((seconds + 240)) \
    "$srcdir/lib/churn.py" "$seconds" 16 "$tmp/sock" "$@" >/dev/null ||
    fail "${arguments[*]}"
  soon_at_most fd "$fds" 'after all left'
  soon_at_most task "$tasks" 'after all left'
  # With preserve the kernel may have read ahead for a client despite
  # POSIX_FADV_RANDOM, which looks like pages of another process.
  if [[ ${arguments[*]} = *cache=none* ]]; then
    for name in a b c; do empty_soon "$tmp/dir/$name" 'after all left'; done
  fi
  stop_nbdkit
}

mkdir "$tmp/dir"
ring=(cache-windows=2 cache-window-size=128K)
churn "$tmp/dir/a" cache=none -- ''
churn "$tmp/dir/a" cache=none "${ring[@]}" -- ''
churn "dir=$tmp/dir" cache=none "${ring[@]}" -- a b c
churn "$tmp/dir/a" cache=preserve -- ''
churn "$tmp/dir/a" cache=preserve "${ring[@]}" -- ''
churn dirfd=7 cache=preserve "${ring[@]}" -- a b c 7<"$tmp/dir"
churn fd=7 cache=default -- '' 7<>"$tmp/dir/a"
