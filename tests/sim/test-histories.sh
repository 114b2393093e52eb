#!/usr/bin/env bash
# Thousands of histories of the plugin's own code in a simulated world, with
# errors, other processes and all orders of its threads, keep the promises of
# docs/reliability.md; so do the histories that once broke one.
#
# HISTORIES says how many.  The seeds are the same each time.  After a failure, "sim/sim -s SEED -n 1 -v"
# shows what happened, and "sim/sim -s SEED -m" prints a smaller history.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit

"$builddir/sim/sim" -n "${HISTORIES:-20000}" -f 5 >"$tmp/out" || fail "$(<"$tmp/out")"
# FUSE, whose block status has races that are rare among all file systems.
"$builddir/sim/sim" -x 'fs 4' -x 'connections 4' -n 5000 -f 5 >"$tmp/out" ||
  fail "$(<"$tmp/out")"
fixed=("$srcdir"/sim/histories/*.txt)
[ -e "${fixed[0]}" ] || fail 'no fixed history is there'
"$builddir/sim/sim" -n 1000 "${fixed[@]}" ||
  fail "a fixed history breaks a promise"
