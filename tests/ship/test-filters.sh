#!/usr/bin/env bash
# The filters of nbdkit that are used with file plugins read and write the right
# data through this plugin, and "nbdcopy --blkhash" makes the same hash of a
# served file as of the file itself.
#
# Filters that this nbdkit lacks are left out, unless ALL_FILTERS is set, as
# tests/ship/newest sets it: then the test fails.
#
#   test-filters.sh [FILTER...]     of the functions filter_* (all)
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need debugfs mkfs.ext2 nbdcopy nbdinfo qemu-img qemu-io sfdisk tar xz

# serve OPTION... -- ARGUMENT...: of nbdkit, and of the plugin.
serve ()
{
  local options=()

  while [ "$1" != -- ]; do options+=("$1"); shift; done
  start_nbdkit "${options[@]}" file "${@:2}" "${cache[@]}"
}

# copy_out [OPTION...]: of nbdcopy.
copy_out ()
{
  rm -f out
  limited nbdcopy "$@" "$uri" out
}

io ()
{
  limited qemu-io -f raw "$uri" "${@/#/-c}" >io 2>&1 || fail "$(<io)"
  ! grep -iE 'failed|error' io >&2 || fail 'qemu-io, see above'
}

# part FILE OFFSET LENGTH: in KiB, to stdout.
part ()
{
  dd if="$1" bs=1K skip="$2" count="$3" status=none
}

# filled NUMBER LENGTH: bytes with this octal number, to stdout.
filled ()
{
  head -c "$2" /dev/zero | tr '\0' "\\$1"
}

# read_and_write [OPTION...]: the export is a, and then b, of the same size.
read_and_write ()
{
  copy_out "$@"
  same a out
  limited nbdcopy --flush b "$uri"
  copy_out "$@"
  same b out
}

# through ARGUMENT...: serve a, read it, and write b.
through ()
{
  serve "$@"
  read_and_write
  stop_nbdkit
}

# plain ARGUMENT...: "disk" is a copy of a, and then b.
plain ()
{
  cp a disk
  through "$@"
  same b disk
}

# ---- a and b are 2 MiB of random data ----

# Up to nbdkit 1.48 the filter passes block status requests on to the plugin,
# which answers for the disk and not for the file in it.
filter_ext2 ()
{
  truncate -s 16M disk
  mkfs.ext2 -q disk
  debugfs -w -R 'write a data' disk >/dev/null 2>&1
  serve --filter=ext2 -- disk ext2file=/data
  read_and_write --no-extents
  stop_nbdkit
  debugfs -R 'dump data back' disk 2>/dev/null
  same b back
}

filter_partition ()
{
  truncate -s 6M disk
  printf '%s\n' '2048 2048 L' '4096 4096 L' | sfdisk -q --no-reread disk
  dd if=a of=disk bs=1K seek=2048 conv=notrunc status=none
  through --filter=partition -- disk partition=2
  same b <(part disk 2048 2048)
}

# virt-v2v since 2.13.1 has the disks of its source served like this.
filter_cow ()
{
  mkdir dir
  cp a disk
  ln -s "$PWD/disk" dir/sda
  cp a before
  cache=(reduce-memory-pressure=on)
  serve --filter=cow -- dir=dir
  uri="nbd+unix:///sda?socket=$tmp/sock"
  read_and_write
  empty_soon disk 'links through the cow filter'
  stop_nbdkit
  same before disk
}

# compressed FILTER COMMAND...
compressed ()
{
  "${@:2}" <a >disk
  serve --filter="$1" -- disk
  copy_out
  stop_nbdkit
  same a out
}

filter_gzip () { compressed gzip gzip; }
filter_xz () { compressed xz xz --block-size=256KiB; }

filter_tar ()
{
  tar -cf disk a b
  through --filter=tar -- disk tar-entry=a
  same b <(tar -xOf disk a)
  same b <(tar -xOf disk b)
}

filter_luks ()
{
  local secret=(--object 'secret,id=s,data=word')

  # On a busy machine qemu-img may fail to measure its hash speed.
  eventually 20 qemu-img convert "${secret[@]}" -f raw -O luks \
    -o key-secret=s,iter-time=10 a disk || fail 'qemu-img'
  through --filter=luks -- disk passphrase=word
  qemu-img convert "${secret[@]}" -O raw --image-opts \
    driver=luks,key-secret=s,file.filename=disk back
  same b back
}

filter_offset ()
{
  truncate -s 6M disk
  dd if=a of=disk bs=1K seek=1025 conv=notrunc status=none
  through --filter=offset -- disk offset=1025K range=2M
  same b <(part disk 1025 2048)
}

filter_truncate ()
{
  cp a disk
  serve --filter=truncate -- disk truncate=1M
  copy_out
  same out <(part a 0 1024)
  stop_nbdkit
  serve --filter=truncate -- disk round-up=4M
  truncate -s 4M a
  copy_out
  same a out
  io 'write -P 7 1M 64K' 'flush' 'read -P 7 1M 64K' 'read -P 0 2M 2M'
  stop_nbdkit
  cmp <(filled 7 65536) <(part disk 1024 64) || fail 'truncate: other data'
}

filter_rotational () { plain --filter=rotational -- disk rotational=true; }

filter_blocksize-policy ()
{
  plain --filter=blocksize-policy -- disk blocksize-minimum=4096 \
    blocksize-preferred=64K blocksize-maximum=1M blocksize-error-policy=error
}

filter_exportname ()
{
  mkdir dir
  cp a dir/disk
  serve --filter=exportname -- dir=dir exportname=disk \
    exportname-list=explicit exportname-strict=true exportdesc=fixed:described
  limited nbdinfo --list "$uri" >list
  [[ $(<list) = *'export="disk"'*described* ]] || fail "$(<list)"
  ! nbdinfo "nbd+unix:///other?socket=$tmp/sock" >other 2>&1 ||
    fail "another export was served: $(<other)"
  uri="nbd+unix:///disk?socket=$tmp/sock"
  read_and_write
  stop_nbdkit
  same b dir/disk
}

filter_multi-conn ()
{
  plain --filter=multi-conn -- disk multi-conn-mode=emulate
}

# The error filter fails requests until its file is gone, after the first failure.
filter_retry ()
{
  touch failing
  (timeout 30 sh -c "until grep -q EIO '$tmp/log'; do sleep 0.1; done"
    rm failing) &
  plain --filter=retry --filter=error -- disk retries=10 retry-delay=1 \
    retry-exponential=no error=EIO error-rate=100% error-file="$PWD/failing"
  grep -q EIO "$tmp/log" || fail 'no request failed'
}

filter_fua ()
{
  local mode

  for mode in emulate native force pass; do
    cp a disk
    serve --filter=fua -- disk fuamode=$mode
    read_and_write
    io 'write -f -P 9 4K 12K' 'read -P 9 4K 12K'
    stop_nbdkit
    cmp <(filled 11 12288) <(part disk 4 12) || fail "fua, $mode: other data"
  done
}

# The filter has a parameter cache= of its own.
filter_cache ()
{
  cache=(reduce-memory-pressure=true)
  plain --filter=cache -- disk cache=writeback
}

# "virt-v2v -v" adds this filter.
filter_count ()
{
  plain -v --filter=count -- disk
  grep -q 'count bytes: read 4194304, written 2097152,' "$tmp/log" ||
    fail "$(grep 'count bytes' "$tmp/log")"
}

# No filter, but a part of libnbd.
filter_blkhash ()
{
  cp a disk
  serve -- disk
  limited nbdcopy --blkhash "$uri" null: >hash-read
  limited nbdcopy --blkhash --flush b "$uri" >hash-written
  stop_nbdkit
  same b disk
  same hash-read <(nbdcopy --blkhash -- a null:)
  same hash-written <(nbdcopy --blkhash -- b null:)
  ! cmp -s hash-read hash-written || fail 'all hashes are the same'
}

# is_there FILTER
is_there ()
{
  if [ "$1" = blkhash ]; then
    nbdcopy --long-options | grep -qx -e --blkhash
  else
    "$NBDKIT" --filter="$1" null --version >/dev/null 2>&1
  fi
}

[ $# -gt 0 ] || set -- ext2 partition cow gzip xz tar luks offset truncate \
  rotational blocksize-policy exportname multi-conn retry fua cache count \
  blkhash
random_file "$tmp/a" 2M
random_file "$tmp/b" 2M
for filter; do
  is_there "$filter" || {
    [ -z "${ALL_FILTERS:-}" ] || fail "no $filter here"
    say "left out: $filter"
    continue
  }
  rm -rf "$tmp/work"
  mkdir "$tmp/work"
  cd "$tmp/work"
  cp "$tmp/a" "$tmp/b" .
  cache=(cache=none)
  "filter_$filter"
  say "ok: $filter"
done
