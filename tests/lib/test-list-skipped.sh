#!/usr/bin/env bash
# The end of "make check" lists the tests that were skipped, by reason.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit

# result TEST RESULT LINE...: as the harness of "make check" leaves it.
result ()
{
  printf ':test-result: %s\n' "$2" >"$tmp/$1.trs"
  printf '%s\n' "${@:3}" "$2 $1 (exit status: 77)" >"$tmp/$1.log"
}

# listed TEST...: what is listed goes to $tmp/out.
listed ()
{
  (cd "$tmp" && "$srcdir/lib/list-skipped.sh" "${@/%/.log}") >"$tmp/out" ||
    fail "list-skipped.sh: status $?"
}

mkdir "$tmp/errors"
result a.sh SKIP 'some output' 'SKIP: needs root'
result b.sh PASS 'SKIP: needs root'
result errors/c.sh SKIP 'SKIP: needs root'
result d.sh SKIP 'SKIP: needs the program fio'
result e.sh SKIP 'nothing'

listed b.sh
[ ! -s "$tmp/out" ] || fail "lists what passed: $(<"$tmp/out")"
listed a.sh b.sh errors/c.sh d.sh e.sh
for line in 'Tests that were skipped: 4' '  needs root: a.sh errors/c.sh' \
  '  needs the program fio: d.sh' '  no reason, see e.sh.log: e.sh'; do
  grep -qx -- "$line" "$tmp/out" || fail "no line \"$line\": $(<"$tmp/out")"
done
