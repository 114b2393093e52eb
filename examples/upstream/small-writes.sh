#!/usr/bin/env bash
# With cache=none, the server waits for the disk once for each small write.
# PLUGIN is the plugin (file).
#
# Status 0: the fault was shown.  1: it was not.  77: this cannot run here.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

set -euo pipefail

if ! { type -P nbdkit nbdcopy >/dev/null && strace -o /dev/null true; }; then
  echo "needs nbdkit, nbdcopy and strace" >&2
  exit 77
fi
dir=$(mktemp -d -p "${TMPDIR:-/var/tmp}")
trap 'rm -r "$dir"' EXIT

head -c 16M /dev/urandom >"$dir/new"
truncate -s 16M "$dir/disk"
# shellcheck disable=SC2016
strace -f -o "$dir/calls" -e trace=pwrite64,sync_file_range \
  nbdkit -U - "${PLUGIN:-file}" "$dir/disk" cache=none \
  --run "nbdcopy --request-size=4096 '$dir/new' \"\$uri\""
writes=$(grep -c 'pwrite64(' "$dir/calls")
waits=$(grep -c 'sync_file_range(.*WAIT_AFTER' "$dir/calls" || :)
echo "$writes writes of 4 KiB, $waits waits for the disk"
[ "$waits" -gt $((writes / 2)) ]
