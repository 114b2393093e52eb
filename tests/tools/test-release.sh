#!/usr/bin/env bash
# scripts/release makes a release of a clone: no placeholder of the address and
# the maintainer is left, the tag is annotated, and the page to publish has what
# is new, the address and the checksums.  It refuses versions that differ.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need git autoreconf

top=$srcdir/..
[ -e "$top/.git" ] || skip 'needs a checkout'
unset MAKEFLAGS
export TMPDIR=$tmp/work
mkdir "$TMPDIR" "$tmp/clone"
git -C "$top" ls-files -z -co --exclude-standard |
  tar -C "$top" --null -T - -cf - | tar -C "$tmp/clone" -xf -
cd "$tmp/clone"
home=https://example.org/windowed
maintainer='Ada Example <ada@example.org>'

commit ()
{
  git add -A
  git -c user.name=test -c user.email=test@example.org commit -qm "$1"
}

release ()
{
  scripts/release --home "$home/" --maintainer "$maintainer" none >"$tmp/log" 2>&1
}

git init -q
sed -i '1 s/(/(9/' debian/changelog
commit other
! release || fail 'released with two versions'
grep -q 'NEWS or debian/changelog has 9' "$tmp/log" || fail "$(<"$tmp/log")"
sed -i '1 s/(9/(/' debian/changelog
commit this
release || fail "$(<"$tmp/log")"

version=$(sed -n '/^[0-9]/ { s/ .*//p; q }' NEWS)
[ "$(git cat-file -t "v$version")" = tag ] || fail 'no annotated tag'
[ "$(git rev-parse "v$version^{}")" = "$(git rev-parse HEAD)" ] ||
  fail 'the tag is not the last commit'
[ "$(git log -1 --format='%an <%ae>')" = "$maintainer" ] || fail 'the author'
cd build-release
sha256sum -c SHA256SUMS >&2 || fail 'SHA256SUMS'
tar -xf ./*.tar.gz
! grep -rE 'windowed-file[.]invalid' . || fail 'placeholders are left, see above'
for file in configure.ac debian/{control,copyright,watch,upstream/metadata} \
  packaging/nbdkit-windowed-file.spec.in; do
  grep -qF "$home" ./*/"$file" || fail "$file lacks the address"
done
for text in "# nbdkit-windowed-file $version" '## Data' "$home/releases" \
  "    $(head -n 1 SHA256SUMS)"; do
  grep -qF -- "$text" release.md || fail "the page lacks: $text"
done
