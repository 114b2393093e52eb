# How jobs of the lab tell what they found: lines of fields with tabs between
# them, on descriptor 3.
#
#   nbdkit VERSION                                of the system's nbdkit
#   row PLACE PROPERTY OURS STOCK VERDICT         promised, broken, or none
#   test PLACE NAME PASS|FAIL|SKIP                of the project's own tests
#   absent PLACE WHY                              there is no such place here
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash

result ()
{
  local IFS=$'\t'

  printf '%s\n' "$*" >&3
}
