#!/usr/bin/env bash
# scripts/verify-cache tells a copy that leaves nothing in the page cache from
# one that does, by its status; its own matrix finds ours to leave nothing and
# the stock plugin to leave something, and draws it.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=lib.sh
. "${srcdir:-.}/lib.sh" || exit
need cachestats gnuplot jq nbdcopy qemu-img

# verify STATUS ARGUMENT...
verify ()
{
  local got=0

  "$srcdir/../scripts/verify-cache" "${@:2}" >"$tmp/out" 2>"$tmp/err" ||
    got=$?
  cat "$tmp/out" "$tmp/err" >&2
  [ "$got" = "$1" ] || fail "verify-cache ${*:2}: status $got, not $1"
}

# refused STATUS MESSAGE ARGUMENT...: in one line.
refused ()
{
  verify "$1" "${@:3}"
  [ "$(wc -l <"$tmp/err")" = 1 ] || fail "${*:3}: not one line"
  grep -q -- "$2" "$tmp/err" || fail "${*:3}: says nothing of $2"
}

random_file "$tmp/in" 16M
truncate -s 16M "$tmp/out.img"
ours=("[" "$NBDKIT" --exit-with-parent file "$tmp/out.img")

verify 0 --json "$tmp/json" -- nbdcopy -- "$tmp/in" "${ours[@]}" cache=none "]"
jq -e '.[0] | .wrong == "" and .cachestat == 0 and .cachestats == 0 and
       .plugin == "ours" and .of == 4096 and .most > 0 and (.samples | length) > 1' "$tmp/json" \
  >/dev/null || fail "$(cat "$tmp/json")"
same "$tmp/in" "$tmp/out.img"

verify 1 --settle 0 -- nbdcopy -- "$tmp/in" "${ours[@]}" "]"
grep -q 'more than 0 pages left' "$tmp/out" || fail 'what is wrong?'
verify 0 --max-pages 4096 -- nbdcopy -- "$tmp/in" "${ours[@]}" "]"
verify 1 --settle 0 --max-pages 4096 --max-running 4095 --file "$tmp/in" \
  -- cat "$tmp/in" "$tmp/in"
grep -q 'more than 4095 pages meanwhile' "$tmp/out" || fail 'what is wrong?'

refused 2 'say which files' -- true
refused 2 'max-pages: x: not a number' --max-pages x -- true
refused 2 'settle: -1' --settle=-1 -- true
refused 2 'should end in .svg or .png' --plot x.gif
refused 2 "there is no folder $tmp/missing" --json "$tmp/missing/x" -- true
refused 2 'not one of copy-in-raw' --only copy-in
refused 2 '--file is for a command' --file "$tmp/in"
refused 2 'size: 12: not a multiple' --size 12
refused 3 'status 1: nothing verified' --file "$tmp/in" -- false
refused 3 'No such file' --file "$tmp/in" -- "$tmp/no-program"
refused 3 'not there after the command' --file "$tmp/none" -- true
refused 3 'build it' --build-dir "$tmp"

verify 0 --size 32M --dir "$tmp" --build-dir "$(dirname "$NBDKIT")" \
  --json "$tmp/json" --plot "$tmp/plot.svg"
jq -e '[.[] | select(.plugin | startswith("ours"))] |
       length == 8 and all(.cachestat == 0)' "$tmp/json" >/dev/null ||
  fail 'ours, in the matrix'
jq -e '[.[] | select(.plugin == "stock, cache=default")] |
       length == 0 or length == 8 and all(.cachestat > 0)' "$tmp/json" \
  >/dev/null || fail 'the stock plugin, in the matrix'
grep -q '</svg>' "$tmp/plot.svg" || fail 'no picture'
[ -z "$(find "$tmp" -name 'windowed-verify-*')" ] || fail 'it has left a folder'
