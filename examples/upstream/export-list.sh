#!/usr/bin/env bash
# A file system that does not answer, below the folder of dir=, stops the list of
# exports, and an idle server with it.  PLUGIN is the plugin (file).
#
# Status 0: the fault was shown.  1: it was not.  77: this cannot run here.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

set -euo pipefail

if ! { type -P nbdkit nbdinfo mount >/dev/null && [ "$(id -u)" = 0 ]; }; then
  echo "needs nbdkit, nbdinfo and root" >&2
  exit 77
fi
dir=$(mktemp -d)
pid=
# When descriptor 7 is closed, all calls that wait for the file system end.
trap 'exec 7>&-
  [ -z "$pid" ] || { kill "$pid"; wait "$pid" || :; }
  ! grep -q " $dir/files/dead " /proc/mounts || umount "$dir/files/dead"
  rm -r --one-file-system "$dir"' EXIT
mkdir "$dir/files" "$dir/files/dead"
truncate -s 1M "$dir/files/good"
ln -s dead/disk "$dir/files/link"
{ exec 7<>/dev/fuse; } 2>/dev/null || exit 77
mount -i -t fuse -o fd=7,rootmode=40000,user_id=0,group_id=0 dead \
  "$dir/files/dead" || exit 77

nbdkit -f -U "$dir/sock" -P "$dir/pid" "${PLUGIN:-file}" dir="$dir/files" "$@" \
  7<&- &
pid=$!
until [ -s "$dir/pid" ]; do sleep 0.1; done
if timeout -k 1 10 nbdinfo --list --no-content \
  "nbd+unix:///?socket=$dir/sock" >"$dir/list"; then
  echo "the exports are listed: $(grep -c '^export=' "$dir/list")"
  exit 1
fi
echo "no list of exports in 10 seconds"
