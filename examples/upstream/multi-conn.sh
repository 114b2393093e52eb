#!/usr/bin/env bash
# A flush on one connection succeeds although another one's write is lost, and
# multi-conn promises that it covers it.  The disk is on sshfs, behind which 8 MiB
# are free: it has written behind, and keeps the error for the file handle that
# wrote.  PLUGIN is the plugin (file).
#
# Status 0: the fault was shown.  1: it was not.  77: this cannot run here.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

set -euo pipefail

sftp=$(echo /usr/lib*/openssh/sftp-server)
if ! { [ -x "$sftp" ] && type -P nbdkit sshfs mount >/dev/null &&
    nbdsh -c exit 2>/dev/null && [ "$(id -u)" = 0 ]; }; then
  echo "needs nbdkit, nbdsh, sshfs, sftp-server and root" >&2
  exit 77
fi
dir=$(mktemp -d)
trap '! mountpoint -q "$dir/mnt" || umount "$dir/mnt"
  ! mountpoint -q "$dir" || umount -l "$dir"; rmdir "$dir"' EXIT
mount -t tmpfs -o size=8m tmpfs "$dir" || exit 77
mkdir "$dir/mnt" "$dir/far"
printf '#!/bin/sh\nexec %s\n' "$sftp" >"$dir/ssh" # there is no other machine
chmod +x "$dir/ssh"
sshfs -o "ssh_command=$dir/ssh" "none:$dir/far" "$dir/mnt" || exit 77

for cache in none default; do
  : >"$dir/far/disk"
  truncate -s 64M "$dir/far/disk"
  # shellcheck disable=SC2016
  result=$(nbdkit -U - "${PLUGIN:-file}" "$dir/mnt/disk" cache="$cache" --run '
nbdsh -u "$uri" -c "
def ok (request, *args):
  try:
    request (*args)
    return True
  except nbd.Error:
    return False
other = nbd.NBD ()
other.connect_uri (\"$uri\")
written = sum (ok (other.pwrite, b\"x\" * 2**20, i * 2**20) for i in range (16))
print (h.can_multi_conn (), written, ok (h.flush))
"')
  read -r multi written flushed <<<"$result"
  stored=$(($(tr -d '\0' <"$dir/far/disk" | wc -c) / 1048576))
  echo "cache=$cache: multi-conn, MiB written on one connection, and whether the" \
    "flush of the other one succeeded: $result; MiB on the disk: $stored"
  [ "$multi $flushed" = 'True True' ] && [ "$written" -gt "$stored" ]
done
