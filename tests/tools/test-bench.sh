#!/usr/bin/env bash
# scripts/bench measures, and makes the documents of what it has measured.  Each
# contestant has its figures for each of its rounds, the tables are written
# between their marks and nowhere else, what cannot be measured is refused
# before anything runs, Ctrl-C leaves nothing behind, and a table or a chart
# that contradicts the results is found.
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

refused 'how many rounds' --only neighbour-latency \
  --contestants 'ours none:some'
refused 'no results of a benchmark' --compare "$tmp/none" "$tmp/none"

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

# ---- the main loads

cat >>"$document" <<'END'
<!-- origin: begin -->
<!-- origin: end -->
<!-- worse: begin -->
<!-- worse: end -->
<!-- other-build: begin -->
<!-- other-build: end -->
END
cat >"$tmp/README.md" <<'END'
| | stock, `cache=default` | stock, `cache=none` | this plugin, `cache=none` |
|---|---:|---:|---:|
| left in the page cache after reading 1 GiB in requests of 64K | 1 | 2 | 3 |

![old](docs/bench/page-cache.svg)
END
main='ours none,other build none,stock none,stock none again:1,stock default:1'
measure write-4k,read-64k --pairs 2 --other-build "$builddir/.." \
  --contestants "$main,null:1"
has results '[.runs[] | .load + " " + .who] | group_by (.) |
  map ({ (.[0]): length }) | add | . == {
    "write-4k ours none": 2, "write-4k other build none": 2,
    "write-4k stock none": 2, "write-4k stock none again": 1,
    "write-4k stock default": 1, "write-4k null": 1,
    "read-64k ours none": 2, "read-64k other build none": 2,
    "read-64k stock none": 2, "read-64k stock none again": 1,
    "read-64k stock default": 1 }'
has results '.machine | .versions.fio != null and .file_system != null
  and .load_average != null'
has results '[.runs[] | select (.load == "read-64k")] |
  all (.samples | length > 0)'
grep -q '^| left in .* | \*\*0\*\* |$' "$tmp/README.md" || {
  cat "$tmp/README.md" >&2
  fail 'README has not what was measured'
}
grep -q 'To read 1 GiB.* 0 MiB left' "$tmp/README.md" ||
  fail 'README does not describe the chart'
grep -q '^| 4K writes in sequence | [0-9.]* (' "$document" ||
  fail 'there are no ratios to the other build'
grep -q 'measured twice in a round' "$document" || fail 'no noise'

bench --check || fail 'what was just made contradicts the results'

# ---- a second run

jq '.runs |= map (if .who == "ours none" and .load == "read-64k"
                  then .seconds *= 1.3 else . end)' "$out/results.json" \
  >"$out/results-second.json"
bench --compare "$out/results.json" "$out/results-second.json" >"$tmp/compared"
grep -q '^| read-64k | this plugin, cache=none | time |.* | ≠ |$' \
  "$tmp/compared" || {
  cat "$tmp/compared" >&2
  fail 'a ratio that differs is not marked'
}
[ "$(grep -c '≠' "$tmp/compared")" = 1 ] || fail 'more ratios are marked'
bench --report >"$tmp/output"
grep -q '^| read-64k | this plugin, cache=none | .* ≠ ' "$out/results.md" ||
  fail 'the page does not mark a ratio that differs'
rm "$out/results-second.json"
bench --report >"$tmp/output"

# ---- contradictions

# found MESSAGE: the check fails with this message.
found ()
{
  ! bench --check >"$tmp/output" 2>&1 || fail "not found: $1"
  grep -qF -- "$1" "$tmp/output" || {
    cat "$tmp/output" >&2
    fail "the check does not say \"$1\""
  }
}

# broken FILE SED MESSAGE: the check finds this change of a file.
broken ()
{
  cp "$1" "$tmp/whole"
  sed -i "$2" "$1"
  ! cmp -s "$1" "$tmp/whole" || fail "sed $2 has changed nothing in $1"
  found "$3"
  cp "$tmp/whole" "$1"
}

broken "$tmp/README.md" 's/\*\*0\*\*/**1 %**/' 'not what the results say'
broken "$tmp/README.md" 's/ 0 MiB left/ 1 MiB left/' 'not what the results say'
broken "$tmp/README.md" 's/^| left in .* 64K/| left behind/' \
  'no figure belongs to "left behind"'
broken "$tmp/README.md" \
  "\$s/$/\nMedians of nine runs on 2 cores, Linux 6.1, ext4, nbdkit 1.2/" \
  'Medians of nine runs'
broken "$tmp/README.md" 's/^!/Written 7 GiB:\n\n!/' 'does not show "7 GiB"'
broken "$document" "\$s/$/\nFaster everywhere/" 'name the loads'
broken "$out/results.md" 's/^| write-4k | this/| write-4k | that/' \
  'not what the results say'
broken "$out/time.svg" 's/>compared with/>faster than/' \
  'changed after it was drawn'
broken "$out/time.svg" 's/<!-- scripts.*//' 'has no stamp'
# Other results than those that were drawn: the tables are old, too.
cp "$out/results.json" "$tmp/results"
jq '.runs |= map (if .who == "ours none" and .seconds
                  then .seconds *= 2 else . end)' \
  "$tmp/results" >"$out/results.json"
found 'time.svg: is drawn from other figures'
cp "$tmp/results" "$out/results.json"
mv "$out/time.svg" "$out/other.svg"
found 'time.svg: is missing'
found 'other.svg: no results have this chart'
mv "$out/other.svg" "$out/time.svg"
bench --check || fail 'the check fails though all is as it was'

# ---- Ctrl-C

cp -r "$out" "$tmp/kept"
"$srcdir/../scripts/bench" --build-dir "$builddir/.." --dir "$tmp" \
  --out "$tmp/kept" --only write-4k --pairs 9 --seconds 60 \
  >"$tmp/output" 2>&1 &
bench=$!
fio=
for ((i = 0; i < 600; i++)); do
  sleep 0.1
  grep -q '^round 1' "$tmp/output" || continue
  server=$(cat "/proc/$bench/task/$bench/children" 2>/dev/null || true)
  fio=$(for pid in $server; do
          grep -lx fio "/proc/$pid/comm" 2>/dev/null || true
        done)
  [ -z "$fio" ] || break
done
[ -n "$fio" ] || fail 'fio did not start'
kill -TERM "$bench"
! wait "$bench" || fail 'a run that was ended succeeds'
grep -q interrupted "$tmp/output" || {
  cat "$tmp/output" >&2
  fail 'bench does not say that it was interrupted'
}
for pid in $server; do
  [ ! -e "/proc/$pid" ] || {
    cat "/proc/$pid/status" >&2
    fail "process $pid is left over"
  }
done

# Nothing is left over.
for left in "$tmp"/windowed-bench-*; do
  [ ! -e "$left" ] || fail "$left is left over"
done
for left in /dev/shm/windowed-bench-source-"$bench"*; do
  [ ! -e "$left" ] || fail "$left is left over"
done
