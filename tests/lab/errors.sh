# A job of the lab: a disk that refuses writes for a while, or everything, by the
# device mapper.  Data that was acknowledged and flushed is on the disk, or a write
# or the flush has failed.
#
#   errors flakey|error ext4|xfs|raw HISTORIES
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2034,SC2154

mode=$1 type=$2 histories=$3
place=$mode-$type
name=windowed-lab-$$
writes=96                       # of 256 KiB
module dm_mod
[ "$mode" != flakey ] || module dm_flakey
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

# prepared: the blocks are there before, so only data can be lost.
prepared ()
{
  target=$device
  [ "$type" = raw ] || file_system_on "$device" "$type"
  head -c $((writes * request)) /dev/zero | tr '\0' '\377' |
    dd of="$target" bs=1M iflag=fullblock conv=notrunc,fsync status=none
  echo 3 >/proc/sys/vm/drop_caches
}

# request_that ARGUMENT...: reports an error, if it fails.
request_that ()
{
  ask_any "$@"
  [[ $answer = ok* ]] || reported=1
}

# history NUMBER: sets $reported, an error reached the client, and $lost, data is
# lost.
history ()
{
  local i start=$((5 + $1 * 13 % 60)) span=$((2 + $1 * 7 % 15)) flag

  reported=0 lost=0
  prepared
  serve
  client_start "$uri"
  for ((i = 0; i < writes; i++)); do
    [ $i != $start ] || disk_now "$refuses"
    [ $i != $((start + span)) ] || { sleep 0.3; disk_now "$works"; }
    flag=
    [ $(($1 % 3)) != 0 ] || [ $((i % 8)) != 5 ] || flag=fua
    request_that write $((i * request)) "$request" $flag
    ((i % 3)) || sleep 0.01
  done
  request_that flush
  disk_now "$works"
  ask save "$tmp/model"
  client_stop
  kill "$server"
  eventually 60 gone "$job" || fail 'the server does not end'
  pids=()
  # So that nothing of it is in memory.
  [ "$type" = raw ] || {
    umount "$folder"
    mount -t "$type" "$device" "$folder" || fail "it cannot be mounted again"
  }
  echo 3 >/proc/sys/vm/drop_caches
  cmp -n $((writes * request)) "$tmp/model" "$target" >/dev/null 2>&1 || lost=1
  [ "$type" = raw ] || umount "$folder"
}

all_reported=0 all_lost=0 silent=0
for ((number = 1; number <= histories; number++)); do
  history $number
  all_reported=$((all_reported + reported))
  all_lost=$((all_lost + lost))
  silent=$((silent + (lost && !reported)))
done
row errors "$silent silent of $all_lost losses, $all_reported of $histories \
reported" [ "$silent.$((all_reported > 0))" = 0.1 ]
