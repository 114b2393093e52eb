#!/usr/bin/env bash
# Every program in scripts/, tools/, bench/ and packaging/ has --help and -h, and
# refuses a wrong argument with one line and status 2, having done nothing.  The
# tools that are installed have --version.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit

export PYTHONDONTWRITEBYTECODE=1

# helps SCRIPT
helps ()
{
  limited "$1" --help >"$tmp/out" 2>"$tmp/err" </dev/null ||
    fail "$1 --help: $(<"$tmp/err")"
  [ ! -s "$tmp/err" ] || fail "$1 --help writes to stderr: $(<"$tmp/err")"
  [[ $(<"$tmp/out") = "usage: ${1#"$srcdir/../"}"* ]] ||
    fail "$1 --help: $(<"$tmp/out")"
  [ "$(wc -l <"$tmp/out")" -gt 2 ] || fail "$1 --help does not say what it does"
  limited "$1" -h 2>&1 </dev/null | cmp -s - "$tmp/out" || fail "$1 -h"
}

# refuses SCRIPT ARGUMENT...
refuses ()
{
  local status=0

  limited "$@" >"$tmp/out" 2>"$tmp/err" </dev/null || status=$?
  [ "$status" = 2 ] || fail "$*: status $status, not 2: $(<"$tmp/err")"
  [ ! -s "$tmp/out" ] || fail "$* writes to stdout: $(<"$tmp/out")"
  [ "$(wc -l <"$tmp/err")" = 1 ] ||
    fail "$*: not one line, but: $(<"$tmp/err")"
  [[ $(<"$tmp/err") = *"${1##*/}: "*"$2"* ]] ||
    fail "$*: the message does not name both: $(<"$tmp/err")"
}

seen=0
for script in "$srcdir"/../{scripts,tools,bench,packaging}/*; do
  if [ ! -f "$script" ] || [ ! -x "$script" ]; then
    continue
  fi
  helps "$script"
  refuses "$script" --no-such-option
  refuses "$script" 'no such argument'
  seen=$((seen + 1))
done
[ "$seen" -gt 5 ] || fail "only $seen scripts were found"

for tool in cachewatch copy verify-cache; do
  limited env PYTHONSAFEPATH=1 "$srcdir/../tools/$tool" --version >"$tmp/out" ||
    fail "$tool --version"
  grep -qx "$tool (not installed)" "$tmp/out" || fail "$tool: $(<"$tmp/out")"
done
