#!/usr/bin/env bash
# nbdkit reports the plugin's version and commit, and everything that is shipped
# has the same version.  No command of the documents has a version in it, which
# would age.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit

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

commit=$("$NBDKIT" file --version | sed -n 's/^file //p')
[[ $commit =~ ^$version(-([0-9]+-)?g[0-9a-f]+)?(-dirty)?$ ]] ||
  fail "--version: $commit"
says "--dump-plugin" "version=$commit" "$NBDKIT" file --dump-plugin
"$NBDKIT" -v -U - file "$top/NEWS" --run true 2>"$tmp/log"
grep -q "debug: nbdkit-windowed-file $commit$" "$tmp/log" ||
  fail 'the log lacks the version'

# A distribution has revisions of its own.
says "debian/changelog" "nbdkit-windowed-file ($version)" \
  sed '1 s/(\([0-9.]*\).*/(\1)/; q' "$top/debian/changelog"
says "NEWS" "$version" sed -n 's/^\([0-9][^ ]*\).*/\1/p; /^[0-9]/q' "$top/NEWS"
says "the changelog of the spec" "$version-1" \
  sed -n '/^%changelog/,/^-/ s/^\*.* - //p' \
  "$top/packaging/nbdkit-windowed-file.spec.in"
# The images of the examples.  The tests of the examples read the names there.
tags ()
{
  grep -rhoE 'windowed(-file)?:[0-9]+[.][0-9]+[.][0-9]+' \
    "$top/examples" | sed 's/.*://' | sort -u
}
says "tags of images in the examples" "$version" tags
[ "$(tags | wc -l)" = 1 ] || fail "tags of images: $(tags | xargs)"
! grep -rnF "$version" "$top/README.md" "$top/docs"/*.md ||
  fail 'a command or sentence with the version, which ages, see above'
