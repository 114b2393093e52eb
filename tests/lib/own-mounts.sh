# The script that sources this begins again in a mount namespace of its own, so
# its mounts are visible to it and its children alone.  Otherwise a namespace
# that another program makes (a service, a container) would have a copy of a
# mount, and as long as the copy exists, unmounting neither ends a FUSE server
# nor releases a disk.  In a chroot that is not a mount there is no such
# namespace.
#
# It has to be sourced by the script itself, or by what that sources without
# arguments: a script cannot see its own behind those.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash

if [ -z "${MOUNTS_OF_ITS_OWN:-}" ] && [ "$(id -u)" = 0 ] &&
  unshare --mount --propagation slave true 2>/dev/null; then
  MOUNTS_OF_ITS_OWN=1 exec unshare --mount --propagation slave \
    "$BASH" "$0" "$@"
fi
