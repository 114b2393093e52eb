#!/usr/bin/env bash
# "make install-over-stock" replaces the stock plugin in nbdkit's folder, and
# "make uninstall-over-stock" puts it back.  Both refuse to lose a stock plugin.
# An nbdkit that is started by its path, as virt-v2v starts it, loads this
# plugin.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need make

ours=$builddir/../plugins/file/.libs/nbdkit-file-plugin.so
plugins=$tmp/dest/plugins
active=$plugins/nbdkit-file-plugin.so
kept=$plugins/nbdkit-stock-file-plugin.so

# over_stock TARGET VARIABLE...: make it, with its output in $tmp/make.log.
over_stock ()
{
  env -u MAKEFLAGS -u MAKELEVEL make -C "$builddir/.." "$1-over-stock" \
    "${@:2}" >"$tmp/make.log" 2>&1
}

# in_root TARGET: in a folder that stands for nbdkit's.
in_root ()
{
  over_stock "$1" "DESTDIR=$tmp/dest" stockplugindir=/plugins
}

works ()
{
  in_root "$1" || { cat "$tmp/make.log" >&2; fail "$1"; }
}

contents ()
{
  find "$plugins" -type f -exec sha256sum {} + | sort
}

# refused TARGET MESSAGE: and nothing is changed.
refused ()
{
  local before

  before=$(contents)
  ! in_root "$1" || fail "$1 is not refused: $(cat "$tmp/make.log")"
  grep -q "^over-stock: .*$2" "$tmp/make.log" ||
    fail "$1: not refused with '$2': $(cat "$tmp/make.log")"
  [ "$(contents)" = "$before" ] || fail "$1 changes files"
}

# holds ACTIVE [KEPT]: these and no others are in the folder.
holds ()
{
  same "$1" "$active"
  [ $# = 1 ] || same "$2" "$kept"
  [ "$(find "$plugins" -type f | wc -l)" = $# ] || fail "$(ls "$plugins")"
}

# Not plugins, but nothing that we would take for ours.
echo stock >"$tmp/stock"
echo newer >"$tmp/newer"

mkdir -p "$plugins"
refused install 'stock plugin is missing'
works uninstall

cp "$tmp/stock" "$active"
works uninstall
holds "$tmp/stock"
for _ in 1 2; do
  works install
  holds "$ours" "$tmp/stock"
done
[ "$(stat -c %a "$active")" = 755 ] || fail "mode $(stat -c %a "$active")"
for _ in 1 2; do
  works uninstall
  holds "$tmp/stock"
done

# The link that an interrupted step left.
ln "$active" "$kept"
works install
holds "$ours" "$tmp/stock"

# A package of nbdkit was upgraded: it has overwritten ours.
cp --remove-destination "$tmp/newer" "$active"
refused install 'would be overwritten'
works uninstall
holds "$tmp/newer"
works install
holds "$ours" "$tmp/newer"

# It was removed, and then installed again.
rm "$active"
refused install 'stock plugin is missing'
works uninstall
holds "$tmp/newer"
works install

# The stock plugin is gone.
rm "$kept"
refused install 'the stock plugin is missing'
refused uninstall 'the stock plugin is missing'
cp "$ours" "$kept"
refused uninstall 'not the stock plugin'
! over_stock install "DESTDIR=$tmp/none" || fail 'there is no such folder'
grep -q 'no such folder of plugins' "$tmp/make.log" || fail 'another message'

# The script by itself takes a folder that is not absolute.
cp --remove-destination "$tmp/stock" "$active"
rm "$kept"
(cd "$tmp/dest" && "$srcdir/../packaging/over-stock" install "$ours" plugins) ||
  fail 'a relative folder'
holds "$ours" "$tmp/stock"

# The rest replaces nbdkit's own folder, in a mount namespace of this script.
need_root
[ -n "${MOUNTS_OF_ITS_OWN:-}" ] || skip 'needs a mount namespace'
folder=$(nbdkit --dump-config | sed -n 's/^plugindir=//p')
[ ! -e "$folder/nbdkit-stock-file-plugin.so" ] ||
  skip 'the stock plugin is set aside here already'
server=$(type -P nbdkit)
cp -a "$folder" "$tmp/folder"
mounts+=("$folder")
mount --bind "$tmp/folder" "$folder"

# which STATUS WHO: which plugin a copy loads that starts nbdkit as virt-v2v does.
which ()
{
  local got=0

  rm -f "$tmp/out/disk-sda"
  truncate -s 16M "$tmp/out/disk-sda"
  "$srcdir/../tools/verify-cache" --which --interval 0.002 -- \
    nbdcopy --requests=64 --flush -- "$tmp/disk" [ "$server" \
    --exit-with-parent --threads 16 -D nbdkit.backend.datapath=0 \
    --filter cow file file="$tmp/out/disk-sda" cache=none ] \
    >"$tmp/which" || got=$?
  [ "$got" = "$1" ] || fail "status $got, not $1: $(cat "$tmp/which")"
  grep -q "^$2	$folder/nbdkit-file-plugin.so	$server " "$tmp/which" ||
    fail "not $2: $(cat "$tmp/which")"
}

mkdir "$tmp/out"
random_file "$tmp/disk" 16M
which 1 stock
over_stock install || fail "$(cat "$tmp/make.log")"
which 0 ours
[[ $(nbdkit stock-file --dump-plugin) != *file_windowed* ]] ||
  fail 'stock-file is not the stock plugin'
over_stock uninstall || fail "$(cat "$tmp/make.log")"
which 1 stock
