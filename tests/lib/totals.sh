# The sums of the lines PASS, FAIL and SKIP in $work/counts.
# Sourced by outcome.sh of the lab and of the cluster.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154

# total: the last line, and whether nothing failed.
total ()
{
  local passed failed skipped

  touch "$work/counts"
  passed=$(grep -c '^PASS' "$work/counts" || :)
  failed=$(grep -c '^FAIL' "$work/counts" || :)
  skipped=$(grep -c '^SKIP' "$work/counts" || :)
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" = 0 ] && [ $((passed + skipped)) -gt 0 ]
}
