#!/usr/bin/env bash
# ./nbdkit runs the system's nbdkit with "file" and "windowed-file" meaning the
# plugin just built, and changes nothing else.  First in PATH it stands in for
# nbdkit.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# The shell of --run expands the strings in single quotes.
# shellcheck disable=SC2016

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdcopy nbdinfo cmp

system=$("$NBDKIT" --dump-config | sed -n 's/^binary=//p')
random_file "$tmp/src" 3000001
truncate -s 3000001 "$tmp/disk"

# as_system ARGUMENT...: says and returns what the system's nbdkit does.
as_system ()
{
  local theirs=0 ours=0

  "$system" "$@" >"$tmp/theirs" 2>&1 || theirs=$?
  "$NBDKIT" "$@" >"$tmp/ours" 2>&1 || ours=$?
  [ "$theirs" = "$ours" ] || fail "status $ours, not $theirs: $*"
  diff "$tmp/theirs" "$tmp/ours" >&2 || fail "says something else: $*"
}

as_system --version
as_system --dump-config
as_system memory --dump-plugin
as_system
as_system -U - memory 1M --run 'nbdinfo --size "$uri"'
as_system -U - --filter=offset memory 1M offset=64K \
  --run 'nbdinfo --size "$uri"'
as_system -U - null --run "exit 5"
as_system no-such-plugin
as_system --filter=no-such-filter file "$tmp/disk"
as_system memory --no-such-option

windowed ()
{
  "$NBDKIT" "$@" --dump-plugin | grep -qFx file_windowed=yes ||
    fail "not the plugin just built: $*"
}

windowed file
windowed windowed-file
windowed -r --filter=offset --filter cow -U "$tmp/none" file
windowed --pidfile "$tmp/p" -fv -e export -t 4 -D file.zero=1 file
"$NBDKIT" --dump-plugin -- file | grep -qFx file_windowed=yes ||
  fail "not the plugin just built, after --"

cat >"$tmp/show" <<'END'
#!/bin/sh
for last; do :; done
echo "$last"
END
chmod +x "$tmp/show"

# replaces ARGUMENT...: does the wrapper find the plugin, which is the last?
replaces ()
{
  [[ $(NBDKIT_SYSTEM=$tmp/show "$NBDKIT" "$@" file) = */nbdkit-file-plugin.so ]]
}

# The system's nbdkit says of each of its options whether it takes an argument.
while IFS= read -r option; do
  "$system" "$option" >"$tmp/out" 2>&1 </dev/null || :
  if grep -q 'requires an argument' "$tmp/out"; then
    replaces "$option" 1 || fail "$option: the plugin is not found"
    ! replaces "$option" || fail "$option: its argument is taken for the plugin"
  else
    replaces "$option" || fail "$option: the plugin is not found"
  fi
done < <("$system" --long-options; "$system" --short-options)
replaces --time 5 --keep || fail 'shortened options: the plugin is not found'
replaces -rt 4 -t4 -fD nbdkit.x=1 || fail 'letters: the plugin is not found'

# refuses OPTION: it may be one of a later version.
refuses ()
{
  ! "$NBDKIT" "$1" x file --dump-plugin >"$tmp/out" 2>&1 ||
    fail "$1: is not refused"
  grep -qF "nbdkit: $1: unknown option" "$tmp/out" ||
    fail "$1: the error says: $(<"$tmp/out")"
}

refuses --no-such-option
refuses -rX
refuses --t
replaces --no-such-option=x || fail 'an option with =: the plugin is not found'

# What only looks like the plugin.
as_system -U - --filter=offset memory 1M offset=0 size=64K -e file \
  --run 'nbdinfo --size "$uri"'
(cd "$tmp" && touch file && as_system -e file memory 1M --dump-plugin)

# The bytes arrive, with the options before and after the plugin's name.
copied ()
{
  same "$tmp/src" "$tmp/disk"
  : >"$tmp/disk"
  truncate -s 3000001 "$tmp/disk"
}

limited "$NBDKIT" -U - file "$tmp/disk" cache=none \
  --run "nbdcopy '$tmp/src' \"\$uri\""
copied
limited "$NBDKIT" file cache=none -U - --filter=offset "file=$tmp/disk" \
  offset=0 --run "nbdcopy '$tmp/src' \"\$uri\""
copied

# Arguments arrive as they were given.
mkdir "$tmp/a  b"
limited "$NBDKIT" file "$tmp/disk" --run 'test "$0" != "" && exit 7' -U - ||
  [ $? = 7 ] || fail 'the command of --run'
ln "$tmp/disk" "$tmp/a  b/\$x * 'y'"
limited "$NBDKIT" -U - file "$tmp/a  b/\$x * 'y'" \
  --run "nbdcopy '$tmp/src' \"\$uri\""
copied

case $NBDKIT in
  */*) folder=$(cd "$(dirname "$NBDKIT")" && pwd) ;;
  *) folder=$(dirname "$(command -v "$NBDKIT")") ;;
esac
export PATH=$folder:$PATH
nbdkit file --dump-plugin | grep -qFx file_windowed=yes || fail 'by PATH'
limited nbdcopy -- "$tmp/src" [ nbdkit --exit-with-parent file "$tmp/disk" \
  cache=none ]
copied
