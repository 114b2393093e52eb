#!/usr/bin/env bash
# scripts/bench measures each contestant in each round, and its tables have the
# median and the range.  The tables of README.md and docs/ are those of
# docs/measured.json.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need cc fio jq nbdcopy nbdkit
/usr/bin/python3 -c 'import nbd' 2>/dev/null || lacks "needs python3's nbd"

results=$tmp/results.json

bench ()
{
  "$srcdir/../scripts/bench" --build-dir "$builddir/.." --dir "$tmp" \
    --out "$results" --mib 64 --seconds 1 "$@"
}

# has FILTER: the filter of jq is true of the results.
has ()
{
  jq -e "$1" "$results" >/dev/null || fail "not so: $1: $(<"$results")"
}

# shows PATTERN: a line of the output.
shows ()
{
  grep -q -- "$1" "$tmp/output" || fail "no line with $1: $(<"$tmp/output")"
}

# All that there are, in a short round.
bench --rounds 1 --loads connect >"$tmp/output" || fail 'all contestants'
shows '^Left out: newest-stock: no chroot is given'
has '.runs | all (.visit_ms > 0) and any (.who == "ours")'

bench --rounds 2 --loads copy-in,copy-out,write-4k,fua-randwrite-4k \
  --contestants 'ours,ours cache-windows=1,stock-none' >"$tmp/output" ||
  fail "$(tail "$tmp/output")"
has '[.runs[] | .load + " " + .who] | group_by (.) |
  length == 12 and all (length == 2)'
# On a busy machine pages may stay for longer than 0.2 s after a flush.
has '[.runs[] | select (.who != "stock-none")] | group_by ([.load, .who]) |
  all (map (.pages_left) | min == 0)'
has '[.runs[] | select (.load == "copy-out" and .who == "stock-none")] |
  all (.pages_left > 0)'
has '[.runs[] | select (.load == "write-4k")] |
  all (.per_second > 0 and .cpu_us > 0 and .p999_ms > 0 and .most_mib > 0)'

# A table has the median and the range of the rounds that were measured.
jq '.contestants = {ours: "this plugin", a: "other"} |
  .runs = [ {"ours": [10, 11, 12], "a": [5]} | to_entries[] | .key as $who |
    .value | to_entries[] |
    {load: "copy-in", who: $who, round: .key, seconds: .value} ]' \
  "$results" >"$tmp/made.json"
bench --report "$tmp/made.json" >"$tmp/output"
shows '^| copy 64 MiB in | 11.00 (10.00–12.00) | 5.00 |$'
bench --summary "$results" >"$tmp/output"
shows '^| … MiB left | 0 | 0 |'

# The documents.  With other results, the tables of both pages change.
top=$srcdir/..
measured=$top/docs/measured.json
"$top/scripts/bench" --documents "$measured" >"$tmp/patch"
[ ! -s "$tmp/patch" ] || fail "docs/measured.json has other figures: apply \
scripts/bench --documents docs/measured.json | patch -p0: $(<"$tmp/patch")"
jq '.runs |= map(if .who == "ours" and .seconds then .seconds *= 3 else . end)
' "$measured" >"$tmp/slower.json"
"$top/scripts/bench" --documents "$tmp/slower.json" >"$tmp/patch"
for file in README.md docs/benchmarks.md; do
  grep -qxF -- "--- $file" "$tmp/patch" || fail "$file has no such figures"
done
