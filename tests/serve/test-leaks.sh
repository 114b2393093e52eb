#!/usr/bin/env bash
# A thousand connections leave the server with the descriptors, threads and
# (except for a little) memory that it had before.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_python_nbd

# unchanged ARGUMENT... -- URI...
unchanged ()
{
  local arguments=() fds tasks before after

  while [ "$1" != -- ]; do arguments+=("$1"); shift; done
  shift
  start_nbdkit file "${arguments[@]}"
  # Before anything was opened, then after what is kept has been made.
  fds=$(entries fd)
  limited "$srcdir/lib/open-close.py" 200 "$@"
  soon_at_most fd "$fds" 'after 200 connections'
  sleep 1.2                     # until a thread that was idle may be gone
  tasks=$(entries task)
  before=$(memory VmRSS)
  limited "$srcdir/lib/open-close.py" 1000 "$@"
  soon_at_most fd "$fds" 'after 1,200 connections'
  soon_at_most task "$tasks" 'after 1,200 connections'
  after=$(memory VmRSS)
  [ "$after" -le $((before + 1024)) ] ||
    fail "${arguments[*]}: $after kB of memory, were $before"
  stop_nbdkit
}

mkdir "$tmp/dir"
truncate -s 1M "$tmp/dir/a" "$tmp/dir/b" "$tmp/dir/c"
at=nbd+unix://
socket="socket=$tmp/sock"

for cache in default none; do
  unchanged "$tmp/dir/a" "cache=$cache" -- "$at/?$socket"
done
unchanged "dir=$tmp/dir" cache=none -- \
  "$at/a?$socket" "$at/b?$socket" "$at/c?$socket"
unchanged fd=7 cache=none -- "$at/?$socket" 7<>"$tmp/dir/a"
unchanged dirfd=7 cache=none -- \
  "$at/a?$socket" "$at/b?$socket" "$at/c?$socket" 7<"$tmp/dir"
