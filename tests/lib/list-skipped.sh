#!/usr/bin/env bash
# list-skipped.sh LOG...: list the tests that were skipped, by reason, given the
# logs of a run of "make check".  Prints nothing if none was.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

set -euo pipefail

declare -A skipped=()   # reason: tests
number=0
for log; do
  grep -qs '^:test-result: *SKIP' "${log%.log}.trs" || continue
  reason=$(sed -n 's/^SKIP: //p' "$log" | tail -n 1)
  reason=${reason:-no reason, see $log}
  test=${log%.log}
  skipped[$reason]+=" ${test##*/tests/}"
  number=$((number + 1))
done
[ "$number" -gt 0 ] || exit 0

echo "Tests that were skipped: $number"
for reason in "${!skipped[@]}"; do
  echo "$reason:${skipped[$reason]}"
done | sort | fold -s -w 76 | sed 's/^/  /'
cat <<'END'
"scripts/install-deps check" installs the programs that the tests need.  Tests
that need root run only as root.
END
