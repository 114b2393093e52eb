#!/usr/bin/env bash
# Under valgrind's memcheck, the plugin touches no memory that is not its own
# and frees all that it allocated.  The test makes every kind of request, on
# several connections.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need valgrind nbdcopy nbdinfo

# The server itself, not the script that starts it.
plugin=$("$NBDKIT" file --dump-plugin | sed -n 's/^path=//p')
NBDKIT=$("$NBDKIT" --dump-config | sed -n 's/^binary=//p')
# shellcheck disable=SC2054
under=(valgrind --quiet --error-exitcode=119 --keep-debuginfo=yes
  "--log-file=$tmp/valgrind" --leak-check=full
  --show-leak-kinds=definite,indirect
  --errors-for-leak-kinds=definite,indirect
  "--suppressions=$srcdir/serve/valgrind.supp")

# clean CLIENTS ARGUMENT...: serve with these while the function runs.  What
# valgrind says of the program begins with "==", of itself with "--".
clean ()
{
  local status=0

  start_nbdkit "$plugin" "${@:2}"
  "$1"
  kill "$server"
  eventually 60 gone "$job" || fail 'the server does not end'
  wait "$job" || status=$?
  pids=()
  if [ "$status" != 0 ] || grep -q '^==' "$tmp/valgrind"; then
    cat "$tmp/valgrind" >&2
    fail "status $status: $*"
  fi
}

requests ()
{
  local i

  client_start "$uri"
  ask write 0 2M
  for i in {1..40}; do ask write $((3000000 + i * 9001)) 4097; done
  ask write 4096 4096 fua, zero 1000 300000, zero 5000 4096 nohole fua
  ask trim 1M 64K, extents 0 4M, cache 0 1M, flush, write 0 100000, read 0 1M
  client_stop
  limited "$srcdir/lib/open-close.py" 20 "$uri"
  limited nbdcopy --flush --connections=4 "$tmp/src" "$uri"
}

named ()
{
  local name

  for name in a b missing a b; do
    limited "$srcdir/lib/open-close.py" 5 \
      "nbd+unix:///$name?socket=$tmp/sock" 2>/dev/null ||
      [ "$name" = missing ] || fail "$name"
  done
  limited nbdinfo --list "$uri" >/dev/null
}

mkdir "$tmp/dir"
truncate -s 4M "$tmp/dir/a"
truncate -s 1M "$tmp/dir/b"
random_file "$tmp/src" 4M
clean requests "$tmp/dir/a" cache=none cache-windows=2 cache-window-size=64K
rm "$tmp/dir/a"
truncate -s 4M "$tmp/dir/a"
clean requests "$tmp/dir/a" cache=default
clean named "dir=$tmp/dir" cache=none
