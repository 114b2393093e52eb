#!/usr/bin/env bash
# The documents have commands that can be pasted, and links that lead somewhere.
# The commands in README, the documents and the manual pages are in blocks that
# bash can read.  Every test that a page names exists.
# The pictures of measurements are those that the present data make, and a page
# shows each picture with a text.  The script tests/ship/newcomer/run runs the
# commands.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need python3

top=$srcdir/..
export PYTHONDONTWRITEBYTECODE=1

python3 "$srcdir/tools/documents.py" "$top" >"$tmp/wrong" || {
  cat "$tmp/wrong" >&2
  fail 'see above'
}

# Its modules need libnbd's.
if /usr/bin/python3 -c 'import nbd' 2>/dev/null; then
  mkdir "$tmp/pictures"
  "$top/scripts/bench" --pictures "$tmp/pictures" || fail 'bench --pictures'
  for name in benchmarks copies; do
    cmp "$top/docs/pictures/$name.svg" "$tmp/pictures/$name.svg" >&2 ||
      fail 'draw them: scripts/bench --pictures docs/pictures'
  done
else
  say 'The pictures are not compared: there is no module nbd of Python.'
fi

# The rules, in their order.
sed -n 's/^  { "\([a-z]*\)", [a-z_]* }, .*/\1/p' \
  "$top/plugins/file/eviction/engine.c" >"$tmp/rules"
[ "$(wc -l <"$tmp/rules")" -ge 5 ] || fail 'which rules has the engine?'
sed -n '/^| rule |/,/^$/ s/^| [^a-z]\([a-z]*\)[^a-z] |.*/\1/p' \
  "$top/docs/how-it-works.md" >"$tmp/documented"
diff -u "$tmp/rules" "$tmp/documented" >&2 ||
  fail 'docs/how-it-works.md does not have the rules of engine.c'

# All pages are in the newcomer's list, and what is not run has its reasons.
"$srcdir/ship/newcomer/run" --not-run >"$tmp/not-run" || fail 'newcomer/run'
cat "$tmp/not-run" >&2
[ "$(wc -l <"$tmp/not-run")" -le 24 ] || fail 'too many blocks are not run'

(cd "$top" && python3 tests/ship/newcomer/blocks.py ./*.md docs/*.md \
  docs/*.pod tools/*.pod) >"$tmp/commands"
[ "$(grep -c '^block ' "$tmp/commands")" -gt 20 ] || fail 'few commands'
bash -n "$tmp/commands" || fail 'bash cannot read a block, see above'
