#!/usr/bin/env bash
# nbd-client lists the exports of a folder, which is all that it does without
# the kernel's nbd driver.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbd-client

mkdir "$tmp/dir" "$tmp/dir/folder"
for name in one 'another one' 3; do
  truncate -s 1M "$tmp/dir/$name"
  echo "$name"
done | LC_ALL=C sort >"$tmp/want"

start_nbdkit file "dir=$tmp/dir" cache=none
limited nbd-client -l -unix "$tmp/sock" >"$tmp/out" || fail 'no list'
grep -v '^Negotiation' "$tmp/out" | LC_ALL=C sort >"$tmp/got"
diff "$tmp/want" "$tmp/got" >&2 || fail 'the list of exports'
stop_nbdkit
