#!/usr/bin/env bash
# On disks in virtual time, no load is more than 5 % slower than with the loop of
# nbdkit's own plugin, or than in performance.txt, has a longer p99 or p99.9, or
# more in memory.
#
# The table is deterministic: if a change makes it better, or worse on purpose,
# "sim/sim -p" prints the new one.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit

"$builddir/sim/sim" -p >"$tmp/new"
# The fields: disk load plugin rate best p50 p99 p99.9 start memory flight
awk '
  NR == FNR { old[$1, $2, $3] = $0; rows += $3 == "ours"; next }
  # A burst that a disk allows may go into the warm-up, which does not count.
  FNR > 1 && $3 == "stock" && rate < ($4 < $5 ? $4 : $5) * 0.95 - 0.1 {
    print "stock: " $0 "\nis:  " ours
    worse = 1
  }
  FNR > 1 && $3 == "ours" {
    seen++
    rate = $4
    ours = $0
    if (!split (old[$1, $2, $3], o, " ") || $4 < o[4] * 0.95 - 0.1 ||
        $7 > o[7] * 1.05 + 0.05 || $8 > o[8] * 1.05 + 0.05 ||
        $9 > o[9] * 1.05 + 0.05 || $10 > o[10] * 1.05 + 0.1) {
      print "was: " old[$1, $2, $3] "\nis:  " $0
      worse = 1
    }
  }
  END { exit worse || !seen || seen != rows }
' "$srcdir/sim/performance.txt" "$tmp/new" >"$tmp/worse" ||
  fail "worse than in performance.txt: $(<"$tmp/worse")"
