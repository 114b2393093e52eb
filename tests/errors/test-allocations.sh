#!/usr/bin/env bash
# If an allocation, descriptor or thread of the plugin fails, no data is wrong,
# and the server neither crashes nor hangs.  One of them fails, or all from one
# on.  The data is right in reads and in the file, and the server answers
# afterwards.  With cache=none eviction works again: no page of the file stays
# in the page cache.  A statistics file is JSON, or empty.
#
# The test samples the calls by a seed that it prints.  Environment:
#
#   ALLOCATION_PLACES=N      calls of each kind, in each mode (60), or "all"
#   ALLOCATION_SEED=N        sample other calls
#   ALLOCATION_EVICTION=no   do not check the page cache
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_python_nbd

library="$builddir/errors/rig/.libs/fail-nth.so"
seed=${ALLOCATION_SEED:-$$}
plugin=$("$NBDKIT" file --dump-plugin | sed -n 's/^path=//p')
[[ $(ldd "$plugin") != *lib[at]san* ]] ||
  skip 'sanitizers have an allocator of their own'
[ -e "$library" ] || lacks "needs $library: make check TESTS="

mkdir "$tmp/runs"
"$srcdir/errors/rig/allocations.py" "$NBDKIT" "$library" \
  "$builddir/lib/residency" "$tmp/runs" "${ALLOCATION_PLACES:-60}" "$seed" \
  "${ALLOCATION_EVICTION:-yes}" >&2 || fail "ALLOCATION_SEED=$seed"
