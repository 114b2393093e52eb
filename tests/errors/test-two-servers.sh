#!/usr/bin/env bash
# Data whose writeback failed under one server stays in memory although a second
# server of the same file reads it and drops what it has read.  When the clients
# of the first one leave without a flush, the data still reaches the disk.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=rig/lib.sh
. "$(dirname "$0")/rig/lib.sh" || exit

# two_servers TYPE CACHE: fails if the data is lost.
two_servers ()
{
  local job_1 server_1 job_2 server_2 uri_2 status=0

  # A journal would shut the file system down.
  make_fs "$1" -O ^has_journal
  # Full of data: ext4 loses what fails when it is written for the first time.
  head -c 64M /dev/zero >"$mnt/disk"
  sync "$mnt/disk"
  drop "$mnt/disk"

  tmp=$tmp/second start_nbdkit -r file "$mnt/disk" "cache=$2"
  job_2=$job server_2=$server uri_2=$uri
  start_nbdkit file "$mnt/disk" "cache=$2"
  job_1=$job server_1=$server
  client_start "$uri"
  disk_says a
  ask write 0 8M
  eventually 5 grep -q 'writing back' "$tmp/log" ||
    fail "$1, $2: no writeback failed"
  disk_says -

  # Its windows are dropped, and all of the file when its clients have left.
  limited nbdcopy --request-size=65536 "$uri_2" null:
  job=$job_2 server=$server_2 tmp=$tmp/second stop_nbdkit
  ask_any read 0 8M
  ask save "$tmp/model"
  client_stop
  job=$job_1 server=$server_1
  stop_nbdkit
  unmount_fs
  mount_fs "$1"
  cmp "$mnt/disk" "$tmp/model" >&2 || status=1
  unmount_fs
  return $status
}

disk_up 256M
mkdir "$tmp/second"
for type in ext4 overlay-ext4; do
  for cache in none preserve; do
    say "$type, cache=$cache"
    # Where DAMON reclaims idle pages, the kernel may take some of them.
    two_servers "$type" "$cache" || two_servers "$type" "$cache" ||
      two_servers "$type" "$cache" || fail "$type, $cache: data was lost"
  done
done
disk_down
