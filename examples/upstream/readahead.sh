#!/usr/bin/env bash
# With cache=none, most of what is read stays in the page cache: the kernel has
# read ahead, and drops no folio that is partly outside of the request.  PLUGIN
# is the plugin (file).
#
# Status 0: the fault was shown.  1: it was not.  77: this cannot run here.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

set -euo pipefail

if ! type -P nbdkit nbdcopy fincore >/dev/null; then
  echo "needs nbdkit, nbdcopy and fincore" >&2
  exit 77
fi
dir=$(mktemp -d -p "${TMPDIR:-/var/tmp}")
trap 'rm -r "$dir"' EXIT

cached () { echo $(($(fincore -nbo RES "$dir/disk") / 1048576)); }

head -c 256M /dev/urandom >"$dir/disk"
dd of="$dir/disk" oflag=nocache conv=notrunc,fdatasync count=0 status=none
[ "$(cached)" = 0 ] || exit 77
# shellcheck disable=SC2016
nbdkit -r -U - "${PLUGIN:-file}" "$dir/disk" cache=none \
  --run 'nbdcopy --request-size=65536 "$uri" null:'
left=$(cached)
echo "$left of 256 MiB are in the page cache after they were read"
[ "$left" -gt 16 ]
