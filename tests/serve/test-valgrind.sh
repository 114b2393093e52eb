#!/usr/bin/env bash
# Under valgrind's memcheck, the plugin touches no memory that is not its own
# and frees all that it allocated.  The test makes every kind of request, on
# several connections.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=valgrind.sh
. "${srcdir:-.}/serve/valgrind.sh" || exit

# shellcheck disable=SC2054
under+=(--leak-check=full --show-leak-kinds=definite,indirect
  --errors-for-leak-kinds=definite,indirect
  "--suppressions=$srcdir/serve/valgrind.supp")
all_clean
