#!/usr/bin/env bash
# scripts/bench measures the effect of a copy on its neighbours.  Each
# contestant runs once a round and has its figures, the tables are written
# between their marks and nowhere else, and what cannot be measured is refused
# before anything runs.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need python3 jq fio gnuplot nbdcopy qemu-nbd nbdkit

export PYTHONDONTWRITEBYTECODE=1
document=$tmp/docs/benchmarks.md
out=$tmp/docs/bench
contestants='nothing,stock none,ours none cache-windows=4,other build none'

bench ()
{
  "$srcdir/../scripts/bench" --build-dir "$builddir/.." --dir "$tmp" \
    --out "$out" "$@"
}

# refused MESSAGE ARGUMENT...: the benchmark fails with this message, and makes
# no folder for results.
refused ()
{
  local message=$1

  shift
  ! bench "$@" >"$tmp/output" 2>&1 || fail "bench $* succeeded"
  grep -qF -- "$message" "$tmp/output" || {
    cat "$tmp/output" >&2
    fail "bench $*: no \"$message\""
  }
  [ ! -e "$out" ] || fail "bench $* wrote results"
}

# measure LOADS ARGUMENT...
measure ()
{
  bench --only "$@" --seconds 1 --copy-mib 64 >"$tmp/output" 2>&1 || {
    cat "$tmp/output" >&2
    fail "bench --only $*"
  }
}

# has FILE FILTER: the filter of jq is true of the results.
has ()
{
  jq -e "$2" "$out/$1.json" >/dev/null || {
    cat "$out/$1.json" >&2
    fail "$1: not so: $2"
  }
}

nbdkit --dump-plugin file 2>/dev/null | grep -q '^name=file$' ||
  lacks 'needs the stock plugin'
nbdkit pattern 1M --run true || lacks 'needs nbdkit pattern'

refused 'no such load' --only neighbour-latency-x
refused 'no such contestant' --only neighbour-latency --contestants ours
refused 'needs --other-build' --only neighbour-latency \
  --contestants 'other build none'
refused 'no plugin of ours' --only neighbour-latency --other-build "$tmp"
refused 'GiB of disk' --only beyond-memory --copy-mib $((1 << 40))
refused 'has no results' --redraw

mkdir "$tmp/docs"
cat >"$document" <<'END'
# Before
<!-- beyond-memory: begin -->
old
<!-- beyond-memory: end -->
between
<!-- neighbour-latency: begin -->
<!-- neighbour-latency: end -->
after
END
cp "$document" "$tmp/before"

measure neighbour-latency-copy-out --pairs 1 --contestants 'ours none'
has neighbour-latency '.runs | length == 1 and .[0].seconds > 0'

measure neighbour-latency-copy-in --pairs 2 --contestants "$contestants" \
  --other-build "$builddir/.."
# Each of four contestants ran twice.
has neighbour-latency '[.runs[] | .who] | group_by (.) |
  length == 4 and all (length == 2)'
# "nothing" takes a second, in which both neighbours write.
has neighbour-latency '[.runs[] | select (.who == "nothing")] |
  all (.appends > 0 and .fdatasync_p99_ms > 0 and .direct_max_ms > 0
       and .seconds == null)'
has neighbour-latency '[.runs[] | select (.who != "nothing")] |
  all (.appends != null and .seconds > 0 and .server_cpu_s != null)'
[ -s "$out/neighbour-latency.svg" ] || fail 'there is no chart'
[ ! -e "$out/results.json" ] || fail 'the other results were replaced'
# The rows are there, and all outside of the marks is as it was.
grep -q '^| this plugin, cache=none, cache-windows=4 |' "$document" ||
  fail 'a contestant is not in the document'
sed '/neighbour-latency: begin/,/neighbour-latency: end/{/neighbour-latency: /!d
  }' "$document" | diff "$tmp/before" - ||
  fail 'something outside of the marks has changed'

measure beyond-memory --pairs 1 \
  --contestants 'nothing,ours none,stock default'
has beyond-memory '.runs | length == 3 and all (.seconds > 0
  and .kswapd_cpu_s != null and .neighbours_cpu_s >= 0)'
# A small image fits into memory: the stock plugin caches all of it.
has beyond-memory '[.runs[] | select (.who == "stock default")] |
  all (.pages_after > 0)'
has beyond-memory '[.runs[] | select (.who == "ours none")] |
  all (.pages_after == 0)'
! grep -q '^old$' "$document" || fail 'the old table is still there'

cp "$document" "$tmp/measured"
rm "$out/neighbour-latency.svg"
bench --redraw >"$tmp/output" 2>&1 || {
  cat "$tmp/output" >&2
  fail 'bench --redraw'
}
[ -s "$out/neighbour-latency.svg" ] || fail 'the chart was not drawn again'
diff "$tmp/measured" "$document" || fail 'other tables from the same figures'

# Nothing is left over.
for left in "$tmp"/windowed-bench-*; do
  [ ! -e "$left" ] || fail "$left is left over"
done
