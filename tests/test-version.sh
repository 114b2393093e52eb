#!/usr/bin/env bash
# nbdkit tells the plugin's version, and all that is shipped has the same one.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=lib.sh
. "${srcdir:-.}/lib.sh" || exit

top=$srcdir/..
version=$(sed -n 's/^#define PACKAGE_VERSION "\(.*\)"/\1/p' \
  "$builddir/../config.h")
[[ $version =~ ^[0-9]+[.][0-9]+[.][0-9]+$ ]] || fail "config.h: $version"

# says WHAT LINE COMMAND...
says ()
{
  "${@:3}" >"$tmp/out" || fail "$1: status $?"
  grep -qFx -- "$2" "$tmp/out" || fail "$1: not a line: $2"
}

says "--version" "file $version" "$NBDKIT" file --version
says "--dump-plugin" "version=$version" "$NBDKIT" file --dump-plugin
says "debian/changelog" "nbdkit-windowed-file ($version)" \
  sed '1 s/).*/)/; q' "$top/debian/changelog"
says "NEWS" "$version" sed -n 's/^\([0-9][^ ]*\).*/\1/p; /^[0-9]/q' "$top/NEWS"
says "the spec" "$version" \
  sed -n 's/^Version: *//p' "$top/nbdkit-windowed-file.spec"
