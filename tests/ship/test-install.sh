#!/usr/bin/env bash
# "make install" installs what README says, hides nothing of nbdkit's own, and
# "make uninstall" leaves nothing.  The installed tools run, and no link in an
# installed document is broken.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need python3

root=$tmp/root
version=$(sed -n 's/^#define PACKAGE_VERSION "\(.*\)"/\1/p' \
  "$builddir/../config.h")

# installed PATTERN: what fits it, or fail.
installed ()
{
  local found

  found=$(find "$root" -path "$1")
  [ -n "$found" ] || fail "not installed: $1"
  echo "$found"
}

make_in_build install "$root"
for page in windowed-file-plugin cachewatch copy verify-cache; do
  [ -s "$(installed "*/man/man1/nbdkit-$page.1")" ] || fail "$page.1 is empty"
done
[ -z "$(find "$root" -name nbdkit-file-plugin.1)" ] ||
  fail "it hides the manual page of nbdkit's own plugin"
[ -z "$(find "$root" -path '*/bin/nbdkit')" ] || fail 'it hides nbdkit'
installed '*/libexec/nbdkit-windowed-file/nbdkit' >/dev/null
installed '*/nbdkit-windowed-file-plugin.so' >/dev/null
[ -z "$(find "$root" -name nbdkit-file-plugin.so)" ] ||
  fail "it takes the name of nbdkit's own plugin"
for tool in cachewatch copy verify-cache; do
  installed "*/bash-completion/completions/nbdkit-$tool" >/dev/null
done

documents=$(installed '*/doc/nbdkit-windowed-file')
python3 "$srcdir/tools/documents.py" --installed "$documents" >&2 ||
  fail 'links in the installed documents are broken, see above'
for example in kubernetes/convert-job.yaml node-exporter/stats.conf \
  virt-v2v/Containerfile; do
  [ -s "$documents/examples/$example" ] || fail "not installed: $example"
done

truncate -s 1M "$tmp/disk"
for tool in cachewatch copy verify-cache; do
  program=$(installed "*/bin/nbdkit-$tool")
  "$program" --help >"$tmp/out" || fail "$program --help"
  grep -q "^usage: nbdkit-$tool" "$tmp/out" ||
    fail "it has another name: $(head -n 1 "$tmp/out")"
  [ "$("$program" --version)" = "nbdkit-$tool $version" ] ||
    fail "it has another version: $("$program" --version)"
done
"$(installed '*/bin/nbdkit-cachewatch')" --once --json "$tmp/disk" >/dev/null ||
  fail 'nbdkit-cachewatch does not run'
[ -z "$(find "$root" -name __pycache__)" ] || fail 'running it left something'

make_in_build uninstall "$root"
# The prefix itself may have the name, as in "make distcheck".
prefix=$(sed -n 's/^prefix = //p' "$builddir/../Makefile")
{ find "$root" ! -type d; find "$root$prefix" -mindepth 1 -name '*windowed*'; } \
  >"$tmp/left"
[ ! -s "$tmp/left" ] || fail "left: $(cat "$tmp/left")"
