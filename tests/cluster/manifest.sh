# The scripts in the manifests for Kubernetes, to be run on folders in place of
# volumes.  Sourced after lib.sh.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154

# text_of NAME MANIFEST: in its ConfigMap.
text_of ()
{
  awk -v name="$1" '
    /^---/ { exit }
    inside && /^  [^ ]/ { exit }
    inside { print substr($0, 5) }
    $0 == "  " name ": |" { inside = 1 }' \
    "$srcdir/../examples/kubernetes/$2.yaml"
}

# refuses MESSAGE COMMAND...: the command ends with status 66, which means that
# another try would fail, too, and reports why.
refuses ()
{
  local status=0

  "${@:2}" >"$tmp/log" 2>&1 || status=$?
  [ "$status" = 66 ] || fail "$1: status $status"
  grep -qF -- "$1" "$tmp/log" || fail "does not say: $1"
}
