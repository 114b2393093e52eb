#!/usr/bin/env bash
# Under valgrind's helgrind, the plugin takes its locks in one order and shares
# no data between threads without a lock.  The test makes every kind of request,
# on several connections.  Atomics are excluded, as helgrind does not know them
# (ThreadSanitizer does).
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=valgrind.sh
. "${srcdir:-.}/serve/valgrind.sh" || exit

[[ $(getconf GNU_LIBC_VERSION) < 'glibc 2.42' ]] ||
  skip "helgrind takes errno for shared with this C library"

under+=(--tool=helgrind)
# Valgrind 3.24 calls Dubious what was Misc.
for kind in Misc Dubious; do
  sed "s/Helgrind:Misc/Helgrind:$kind/" "$srcdir/serve/helgrind.supp" \
    >"$tmp/$kind.supp"
  ! "${under[@]}" "--suppressions=$tmp/$kind.supp" true 2>"$tmp/err" ||
    under+=("--suppressions=$tmp/$kind.supp")
done
all_clean
