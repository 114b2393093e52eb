#!/usr/bin/env bash
# Every program in scripts/, tools/, bench/ and packaging/ has --help and -h, and
# refuses a wrong argument with one line and status 2, having done nothing.  The
# tools that are installed have --version.  Where neither root nor sudo can
# install packages, scripts/install-deps ends with the command for root.
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
  limited "$srcdir/../tools/$tool" --version >"$tmp/out" || fail "$tool --version"
  grep -qx "$tool (not installed)" "$tmp/out" || fail "$tool: $(<"$tmp/out")"
done

# An ordinary user without sudo, and nothing is installed.
mkdir "$tmp/bin"
for program in cat dirname grep sed tr; do
  ln -s "$(command -v "$program")" "$tmp/bin/$program"
done
printf '#!/bin/sh\necho 1000\n' >"$tmp/bin/id"
printf '#!/bin/sh\n' >"$tmp/bin/dpkg-query"
printf '#!/bin/sh\ntouch "%s"\n' "$tmp/called" >"$tmp/bin/apt-get"
chmod +x "$tmp/bin/"{id,dpkg-query,apt-get}
bash=$(command -v bash)
PATH=$tmp/bin "$bash" "$srcdir/../scripts/install-deps" build \
  >"$tmp/out" 2>"$tmp/err" && fail 'install-deps without root succeeds'
grep -q '^install-deps: not root, and there is no sudo; as root, run' "$tmp/err" ||
  fail "install-deps: $(<"$tmp/err")"
grep -q '^  apt-get update && apt-get -y install .* autoconf .* sed$' "$tmp/err" ||
  fail "not the whole command: $(<"$tmp/err")"
[ ! -e "$tmp/called" ] || fail 'install-deps calls apt-get without root'
