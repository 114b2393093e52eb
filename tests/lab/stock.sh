# A job of the lab: the same of the plugin that came with this machine's nbdkit,
# for docs/platforms.md.  It promises nothing but the data.
#
#   stock PLACE [PROPERTY...]
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC1091,SC2034,SC2154

NBDKIT=$(PATH=/usr/sbin:/usr/bin command -v nbdkit)
unpromised=' left peak-writing peak-reading zero '
. "$srcdir/lab/cell.sh"
