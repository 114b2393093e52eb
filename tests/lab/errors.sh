# A job of the lab: a disk that refuses writes for a while, or everything, by
# the device mapper.  What was acknowledged and flushed is there, or a write or
# the flush has failed.
#
#   errors flakey|error ext4|xfs|raw HISTORIES [alone]
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154

# shellcheck source=../lib/lib.sh
. "$srcdir/lib/lib.sh" || exit
# shellcheck source=places.sh
. "$srcdir/lab/places.sh"
# shellcheck source=measure.sh
. "$srcdir/lab/measure.sh"

mode=$1 type=$2 histories=$3
place=$mode-$type
name=windowed-lab-$$
writes=96                       # of 256 KiB
module dm_mod
[ "$mode" != flakey ] || module dm_flakey
result nbdkit "$("$stock" --version)"
new_disk
low=$disk
sectors=$(blockdev --getsz "$low")
# The client's model is as large as the device.
[ "$type" != raw ] || sectors=$((2 * writes * request / 512))
device=/dev/mapper/$name
works="0 $sectors linear $low 0"
case $mode in
  flakey) refuses="0 $sectors flakey $low 0 0 3600 1 error_writes" ;;
  error) refuses="0 $sectors error" ;;
esac
dmsetup create "$name" --table "$works" || fail "dmsetup"
undo dmsetup remove --retry "$name"

disk_now ()
{
  dmsetup suspend --nolockfs --noflush "$name"
  dmsetup load "$name" --table "$1"
  dmsetup resume "$name"
}

# mounted_again: nothing of it is in memory.
mounted_again ()
{
  [ "$type" = raw ] || {
    umount "$folder"
    mount -t "$type" "$device" "$folder" || fail "it cannot be mounted again"
  }
  echo 3 >/proc/sys/vm/drop_caches
}

# The blocks are there before, so only data is at stake.
prepared ()
{
  target=$device
  [ "$type" = raw ] || file_system_on "$device" "$type"
  head -c $((writes * request)) /dev/zero | tr '\0' '\377' |
    dd of="$target" bs=1M iflag=fullblock conv=notrunc,fsync status=none
  echo 3 >/proc/sys/vm/drop_caches
}

# history NUMBER SERVER: sets $told, the client was, and $lost, data was.
history ()
{
  local i at start=$((5 + $1 * 13 % 60)) span=$((2 + $1 * 7 % 15))
  local flag

  told=0 lost=0
  prepared
  serve "$2"
  client_start "$uri"
  for ((i = 0; i < writes; i++)); do
    [ $i != $start ] || disk_now "$refuses"
    [ $i != $((start + span)) ] || { sleep 0.3; disk_now "$works"; }
    at=$((i * request)) flag=
    [ $(($1 % 3)) != 0 ] || [ $((i % 8)) != 5 ] || flag=fua
    ask_any write $at $request $flag
    [[ $answer = ok* ]] || told=1
    ((i % 3)) || sleep 0.01
  done
  ask_any flush
  [[ $answer = ok* ]] || told=1
  disk_now "$works"
  ask save "$tmp/model"
  client_stop
  kill "$server"
  eventually 60 gone "$job" || fail 'the server does not end'
  pids=()
  mounted_again
  cmp -n $((writes * request)) "$tmp/model" "$target" >/dev/null 2>&1 || lost=1
  [ "$type" = raw ] || umount "$folder"
}

# many SERVER: what became of that many histories.
many ()
{
  local i all_told=0 all_lost=0

  silent=0
  for ((i = 1; i <= histories; i++)); do
    history $i "$1"
    all_told=$((all_told + told))
    all_lost=$((all_lost + lost))
    silent=$((silent + (lost && !told)))
  done
  value="$silent silent of $all_lost losses, $all_told of $histories reported"
}

of_stock=-
[ "${4:-}" = alone ] || {
  many "$stock"
  of_stock=$value
}
many "$ours"
as_promised [ $silent = 0 ]
result row "$place" errors "$value" "$of_stock" "$kept"
