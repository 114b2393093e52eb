#!/usr/bin/env bash
# The plugin reports its name, version and build, runs requests in parallel, and
# advertises to clients all that it can do.  The help text, the manual page and the
# completion have the parameters of the plugin's table.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdinfo

"$NBDKIT" file --dump-plugin >"$tmp/plugin"
for line in name=file file_windowed=yes thread_model=parallel \
  max_thread_model=parallel errno_is_preserved=1 magic_config_key=file \
  file_blkdiscard=yes file_blkrotational=yes file_blksszget=yes \
  file_blkzeroout=yes file_block_size=yes file_extents=yes \
  file_falloc_fl_punch_hole=yes file_falloc_fl_zero_range=yes; do
  grep -qFx "$line" "$tmp/plugin" || fail "--dump-plugin lacks $line"
done

# The help text, the headings of the manual page and its synopsis have each
# parameter of the table and no others.  nbdkit's completion for bash reads the
# help text with this expression.
"$NBDKIT" file --help >"$tmp/help"
manual=$srcdir/../docs/nbdkit-windowed-file-plugin.pod
parameters >"$tmp/table"
grep -qx cache-windows "$tmp/table" || fail "the table: $(<"$tmp/table")"
grep -E '^[-a-z0-9]+=' "$tmp/help" | sed 's/=.*//' | diff "$tmp/table" - >&2 ||
  fail 'other parameters in --help, or in another order'
sed -n 's/^=item \[\{0,1\}B<\([-a-z0-9]*\)=.*/\1/p' "$manual" | sort -u |
  diff <(sort "$tmp/table") - >&2 ||
  fail 'other parameters have a heading in the manual page'
sed -n '/^=head1 SYNOPSIS/,/^=head1 DESCRIPTION/p' "$manual" |
  grep -oE '[-a-z0-9]+\]?=' | sed 's/]*=//' | sort -u |
  diff <(sort "$tmp/table") - >&2 ||
  fail "other parameters are in the manual page's synopsis"
# Those that have no effect with cache=default.
awk '/^  { "/ { split ($0, word, "\""); key = word[2] }
     /\.needs = EVICTION/ { print key }' "$srcdir/../plugins/file/options.c" |
  sort >"$tmp/needing"
grep 'need B<cache=none> or B<cache=preserve>' "$manual" |
  grep -o '^.* need' | grep -o 'B<[^>]*>' | sed 's/B<\(.*\)>/\1/' | sort |
  diff "$tmp/needing" - >&2 ||
  fail 'the manual page says of others that they need cache=none'

truncate -s 1M "$tmp/disk"
targets=("$tmp/disk")
if [ "$(id -u)" = 0 ]; then
  truncate -s 1M "$tmp/backing"
  attach "$tmp/backing"
  targets+=("$device")
fi
for target in "${targets[@]}"; do
  for cache in default none; do
    start_nbdkit file "$target" "cache=$cache"
    for ability in write multi-conn flush fua trim zero fast-zero cache; do
      limited nbdinfo --can "$ability" "$uri" ||
        fail "$target, cache=$cache: cannot $ability"
    done
    stop_nbdkit
  done
done

# What cannot be written cannot be trimmed.
start_nbdkit -r file "$tmp/disk" cache=none
for ability in multi-conn cache; do
  limited nbdinfo --can "$ability" "$uri" || fail "read-only: cannot $ability"
done
for ability in write trim zero; do
  ! limited nbdinfo --can "$ability" "$uri" || fail "read-only: can $ability"
done
stop_nbdkit

# Prefetching reads into the page cache.
random_file "$tmp/disk" 4M
drop "$tmp/disk"
start_and_connect file "$tmp/disk"
ask cache 0 4M
stop_nbdkit
eventually 5 sh -c "[ \"\$('$builddir/lib/residency' '$tmp/disk')\" -gt 0 ]" ||
  fail 'the cache request brought nothing in'
