#!/usr/bin/env bash
# Under valgrind's helgrind, with every kind of request and with several
# connections, the plugin's locks are taken in one order and no data is used
# by two threads without one, but for atomics, which helgrind does not know
# (ThreadSanitizer does).
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=valgrind.sh
. "${srcdir:-.}/serve/valgrind.sh" || exit

under+=(--tool=helgrind "--suppressions=$srcdir/serve/helgrind.supp")
all_clean
