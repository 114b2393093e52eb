#!/usr/bin/env bash
# Command lines and histories of requests that libFuzzer makes up for some
# seconds, while system calls fail, crash nothing and lose no data silently.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need clang
clang -fsanitize=fuzzer -x c -o "$tmp/probe" - \
  <<<'int LLVMFuzzerTestOneInput (char *p, long n) { return 0; }' ||
  lacks 'needs libFuzzer'

"$srcdir/../scripts/fuzz" --seconds 5 --build-dir "$builddir/.." \
  >"$tmp/out" 2>&1 || fail "$(tail -n 60 "$tmp/out")"
