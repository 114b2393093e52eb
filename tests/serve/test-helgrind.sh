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

under+=(--tool=helgrind "--suppressions=$srcdir/serve/helgrind.supp")
all_clean
