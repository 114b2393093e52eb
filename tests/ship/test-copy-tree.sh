#!/usr/bin/env bash
# Scripts that build elsewhere copy all sources and nothing that was built.
# That holds also if the copy is made within the tree, which once copied itself
# into itself until the disk was full.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit

# shellcheck source=../../packaging/chroot.sh
. "$srcdir/../packaging/chroot.sh"

top=$tmp/tree
mkdir -p "$top"/{src,build-lab,lab/old}
touch "$top"/{README,src/main.c,'src/a b',build-lab/built,lab/old/copy}

# copies_are LIST: what is in two copies, made one after the other.
copies_are ()
{
  local copy

  for copy in one two; do
    copy_tree "$top/lab/$copy/src" "$top/lab"
    (cd "$top/lab/$copy/src" && find . -type f | sort) >"$tmp/list"
    [ "$(paste -sd, "$tmp/list")" = "$1" ] || fail "$copy has: $(<"$tmp/list")"
  done
  rm -r "$top"/lab/{one,two}
}

copies_are './README,./src/a b,./src/main.c'

command -v git >/dev/null || exit 0
git -C "$top" init -q
echo 'build*' >"$top/.gitignore"
git -C "$top" add README
copies_are './.gitignore,./README,./src/a b,./src/main.c'
