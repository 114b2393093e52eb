#!/usr/bin/env bash
# systemd accepts the installed units, and rates them as well hardened.  What they
# start is in test-service.sh.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need systemd-analyze

name=nbdkit-windowed-file@
make_in_build install "$tmp/root"
unit=$(find "$tmp/root" -name "$name.service")
[ -n "$unit" ] || skip 'was configured to install no units'

# They make openat2 fail, without which there is no symlinks=beneath.
! grep -E '^(RestrictSUIDSGID|DynamicUser)=' "$unit" >&2 ||
  fail 'the unit takes openat2 away'

# In tenths; systemd 252 and 257 rate it 0.4.
threshold=15
folder=${unit%/*}
for kind in service socket; do
  systemd-analyze verify --man=no --recursive-errors=no "$folder/$name.$kind" \
    >"$tmp/log" 2>&1 || fail "verify: $kind"
  [ ! -s "$tmp/log" ] || fail "verify says something of the $kind"
done

systemd-analyze security --offline=true --no-pager --threshold=$threshold \
  "$unit" >"$tmp/log" 2>&1 || fail "security: exposed more than $threshold / 10"

plugin=$(grep -o '/[^ ]*/nbdkit-windowed-file-plugin\.so' "$unit") ||
  fail 'no plugin in ExecStart'
[ -f "$tmp/root$plugin" ] || fail "$plugin is not where the unit expects it"
