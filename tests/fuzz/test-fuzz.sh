#!/usr/bin/env bash
# Histories of requests that libFuzzer makes up for some seconds, while system
# calls fail, crash nothing and lose no data silently; nor does one history in
# which each allocation, open or thread fails, or all from one on.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need clang
clang -fsanitize=fuzzer -x c -o "$tmp/probe" - \
  <<<'int LLVMFuzzerTestOneInput (char *p, long n) { return 0; }' ||
  lacks 'needs libFuzzer'

# seed CALL ERROR AFTER ALL: the numbers of faults.h and arm; then two clients
# write, read, zero, flush and leave, with cache=none and small windows.
seed ()
{
  local step

  for step in 04 "20 00 $1 $4 00 00 $3 $2" \
    '60 00 00 00 00 01 ff 00' '66 00 00 55 00 01 ff 00' \
    '66 00 00 66 50 07 ff 00' '66 00 01 77 80 01 10 00' \
    '62 00 00 00 20 09 ff 00' '66 01 00 88 a0 03 ff 00' \
    '60 01 00 00 90 05 ff 00' '63 01 00 00 00 01 ff 00' \
    '64 01 00 00 00 01 ff 00' '65 01 00 00 00 00 00 00' \
    '00 01 00 00 00 00 00 00' '65 00 00 00 00 00 00 00'; do
    printf '%b' "\\x${step// /\\x}"
  done
}

mkdir -p "$tmp/corpus"
for after in {0..15}; do
  for all in 0 1; do
    for call in '0b 08' '01 09' '0c 08'; do # memory, open, thread
      # shellcheck disable=SC2086
      seed $call "$(printf %02x "$after")" 0$all >"$tmp/corpus/$call $after $all"
    done
  done
done

"$srcdir/../scripts/fuzz" --seconds 5 --build-dir "$builddir/.." \
  --corpus "$tmp/corpus" >"$tmp/out" 2>&1 || fail "$(tail -n 60 "$tmp/out")"
