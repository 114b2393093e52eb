#!/usr/bin/env bash
# A mount that a test makes is invisible outside of the test, so no other
# process can keep it in use.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_root
[ -n "${MOUNTS_OF_ITS_OWN:-}" ] || lacks 'cannot have a mount namespace'

mkdir "$tmp/mnt"
mounts+=("$tmp/mnt")
mount -t tmpfs -o size=64k none "$tmp/mnt" || fail 'cannot mount'
grep -qF " $tmp/mnt " /proc/self/mounts || fail 'it is not mounted here'
! grep -F " $tmp/mnt " "/proc/$PPID/mounts" || fail 'it is mounted outside'
