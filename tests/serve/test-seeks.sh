#!/usr/bin/env bash
# Block status asks the kernel once where a run of data ends that a client scans
# in pieces, forgets the run when the data may have gone, and reports data where
# the kernel's answer is an error or makes no progress.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
python=/usr/bin/python3         # the one that Debian's libnbd is for
"$python" -c 'import nbd' 2>/dev/null || lacks 'needs libnbd for Python'
library=$builddir/lib/.libs/seeks.so
[ -e "$library" ] || lacks "needs $library: make check TESTS="
plugin=$("$NBDKIT" file --dump-plugin | sed -n 's/^path=//p')
[[ $(ldd "$plugin") != *lib[at]san* ]] ||
  skip 'the library of a sanitizer must be the first one'

mkdir "$tmp/seeks"
truncate -s 64M "$tmp/disk"
under=(env "LD_PRELOAD=$library" "SEEKS=$tmp/seeks")
start_nbdkit file "$tmp/disk" cache=none
limited "$python" "$srcdir/serve/seeks.py" "$tmp/sock" "$tmp/disk" \
  "$tmp/seeks" || fail 'block status'
stop_nbdkit
