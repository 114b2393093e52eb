# The script of the example for Kubernetes, to be run on folders in place of its
# volumes.  Sourced after lib.sh.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2034,SC2154

manifest=$srcdir/../examples/kubernetes/convert-job.yaml

# text_of NAME: in the manifest's ConfigMap.
text_of ()
{
  awk -v name="$1" '
    /^---/ { exit }
    inside && /^  [^ ]/ { exit }
    inside { print substr($0, 5) }
    $0 == "  " name ": |" { inside = 1 }' "$manifest"
}

# make_volumes FOLDER: in it "in" and "out", for images and disks; "list", of
# the disks; and "convert", which is run by sh, for the line after that of
# JOB_COMPLETION_INDEX.
make_volumes ()
{
  mkdir "$1/in" "$1/out"
  text_of list >"$1/list"
  text_of convert | sed "s|/etc/convert/|$1/|; s|/in/|$1&|; s|/out/|$1&|
    s|/out\$|$1&|" >"$1/convert"
  [ -s "$1/list" ] || fail "$manifest has no list"
  [ -s "$1/convert" ] || fail "$manifest has no script"
}
