#!/usr/bin/env bash
# The plugin accepts what the stock plugin accepts, with the same meaning.  Each
# row of the list below is run with both plugins.  If the installed stock plugin
# has another version than the row is about, the row gives the expected result,
# and only this plugin is run.  What is refused is in test-bad-parameters.sh.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdinfo nbdcopy

need_strace

find_stock
about=$("$NBDKIT" "$stock" --dump-plugin)
[[ $about != *file_windowed=* ]] || lacks "needs the stock plugin, not ours"
[[ $about =~ version=1\.([0-9]+) ]] || fail "its version: $about"
minor=${BASH_REMATCH[1]}

# Told apart by their sizes.  The client asks for the export "in".
mkdir "$tmp/cwd" "$tmp/cwd/dir"
cd "$tmp/cwd"
truncate -s 64K disk
truncate -s 128K other
truncate -s 192K dir/in
truncate -s 256K a=b cache
ln -s disk link
ln -s dir dirlink
size_disk=65536 size_other=131072 size_in=196608

# inherits COMMAND...: with descriptors to be given as fd= and dirfd=.
inherits ()
{
  "$@" 7<>other 8<dir 9<dir
}

# meaning PLUGIN ARGUMENT...: in $meaning, what it serves and how.
meaning ()
{
  local size

  # shellcheck disable=SC2054
  under=(strace -f -qq -o "$tmp/trace" -e trace=/^fadvise64)
  start_nbdkit "$@"
  under=()
  size=$(size_of in) || fail "$*: nobody can connect"
  case $size in
    "$size_disk") meaning=disk ;;
    "$size_other") meaning=other ;;
    "$size_in") meaning=in ;;
    *) meaning=$size ;;
  esac
  head -c "$size" /dev/urandom >"$tmp/data"
  # Stock holds the last 8 requests back.
  limited nbdcopy --flush --request-size=4096 \
    "$tmp/data" "nbd+unix:///in?socket=$tmp/sock" ||
    fail "$*: cannot be written to"
  stop_nbdkit

  if grep -q POSIX_FADV_DONTNEED "$tmp/trace"; then
    meaning+=' none'
  else
    meaning+=' default'
  fi
  case $(<"$tmp/trace") in
    *POSIX_FADV_RANDOM*) meaning+=' random' ;;
    *POSIX_FADV_SEQUENTIAL*) meaning+=' sequential' ;;
    *) meaning+=' normal' ;;
  esac
}

# means MEANING ARGUMENT...: for stock plugins of versions 1.$from to 1.$to.
# If there is no version to speak of, both agree whatever it is.
means ()
{
  local want=$1

  shift
  if [ "$minor" -ge "$from" ] && [ "$minor" -le "$to" ]; then
    inherits meaning "$stock" "$@"
    [ "$meaning" = "$want" ] ||
      fail "stock 1.$minor, $*: means $meaning, and not $want as listed here"
    both=$((both + 1))
  fi
  inherits meaning file "$@"
  [ "$meaning" = "$want" ] || fail "$*: means $meaning, and not $want"
}

# each_means MEANING ARGUMENT...: each of the arguments alone.
each_means ()
{
  local argument

  for argument in "${@:2}"; do means "$1" "$argument"; done
}

both=0

# ---- nbdkit 1.32 and later ----

from=32 to=9999

# The served file.
each_means 'disk default normal' disk file=disk file=./disk file=dir/../disk \
  "file=/$tmp//cwd/./disk" file=link
each_means 'other default normal' file=/proc/self/fd/7
each_means '262144 default normal' file=a=b ./a=b cache
each_means 'in default normal' dir=dir directory=dir dir=dir/ dir=dirlink \
  dir=.//dirlink/../dir/.

# How.
means 'disk default normal' disk cache=default
means 'disk none normal' disk cache=none
means 'in none normal' cache=none dir=dir
means 'disk none normal' disk cache=none cache=none
means 'disk default normal' disk cache=none cache=default
means 'disk none normal' cache=default disk cache=none
means 'disk default normal' disk fadvise=normal
means 'disk default random' disk fadvise=random
means 'disk default sequential' fadvise=sequential disk
means 'in default random' dir=dir fadvise=random
means 'disk none random' disk fadvise=random cache=none
means 'disk default random' disk fadvise=random fadvise=random
means 'disk default normal' disk fadvise=random fadvise=normal
means 'disk default random' fadvise=sequential disk fadvise=random

# ---- since 1.34 ----

from=34 to=9999

each_means 'other default normal' fd=7 fd=0x7 fd=0X7 fd=07 fd=007 'fd= 7' fd=+7
means 'other none random' fd=7 cache=none fadvise=random
each_means 'in default normal' dirfd=8 dirfd=010 dirfd=0x8

# ---- since 1.46: another name for cache=, and they share one switch ----

from=46

pressure=reduce-memory-pressure
for true in true 1 on yes t y TRUE; do
  means 'disk none normal' disk "$pressure=$true"
done
for false in false 0 off no f n False; do
  means 'disk default normal' disk cache=none "$pressure=$false"
done
means 'disk none normal' disk "$pressure=true" "$pressure=true"
means 'disk none normal' disk "$pressure=false" "$pressure=true"
means 'disk default normal' disk "$pressure=true" "$pressure=false"
means 'disk none normal' disk cache=none "$pressure=true"
means 'disk none normal' disk cache=default "$pressure=true"
means 'disk none normal' disk "$pressure=false" cache=none
means 'disk default normal' disk "$pressure=true" cache=default

[ "$both" -gt 25 ] || fail "only $both rows were run with the stock plugin"

# ---- when names are looked up ----

# serves SIZE WHEN
serves ()
{
  local size

  size=$(size_of in) || fail "$plugin, $2: nobody can connect"
  [ "$size" = "$1" ] || fail "$plugin, $2: serves $size bytes, and not $1"
}

for plugin in "$stock" file; do
  # Links once, when the server starts; files whenever a client connects.
  start_nbdkit "$plugin" link
  serves $size_disk 'a link'
  ln -sfn other link
  serves $size_disk 'a link that points elsewhere now'
  rm link
  serves $size_disk 'a link that is gone'
  truncate -s 320K new
  mv new disk
  serves 327680 'another file where the link had pointed to'
  rm disk
  ! size_of in >/dev/null || fail "$plugin: serves a file that is gone"
  stop_nbdkit
  truncate -s "$size_disk" disk
  ln -s disk link

  start_nbdkit "$plugin" dir=dirlink
  serves $size_in 'a link to a folder'
  mkdir elsewhere
  truncate -s 320K elsewhere/in
  ln -sfn elsewhere dirlink
  serves $size_in 'a link that points to another folder now'
  mv dir aside
  mv elsewhere dir
  serves 327680 'another folder where the link had pointed to'
  stop_nbdkit
  rm -r dir
  mv aside dir
  ln -sfn dir dirlink

  # A server in the background leaves the folder it was started in.
  rm -f "$tmp/pid" "$tmp/sock"
  "$NBDKIT" -P "$tmp/pid" -U "$tmp/sock" "$plugin" ./link
  eventually 20 test -s "$tmp/pid" || fail "$plugin: no server"
  server=$(<"$tmp/pid")
  serves $size_disk 'a relative name'
  kill "$server"
  eventually 20 gone "$server" || fail "$plugin: does not end"
done
