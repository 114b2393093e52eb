# A job of the lab: tests of this project, as they are, with their temporary
# folder in some place.
#
#   tests PLACE NAME[:ARGUMENT...]...
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154

# A machine is about ten times slower than what it runs on.
export FAULT_HISTORIES=2 FAULT_STOCK=no

# Where ext4 and btrfs lose what was on the disk, whatever the plugin, see
# docs/reliability.md.
case $(uname -r) in
  5.* | 6.[0-9].*) export FAULT_SYSTEMS=xfs,overlay-xfs ;;
esac

make_place "$1"
# Some tests have a server that is not root.
chmod a+rx "$tmp" "$folder"

for name in "${@:2}"; do
  IFS=: read -ra words <<<"$name"
  status=0
  began=$SECONDS
  (
    trap - EXIT INT TERM
    cd "$builddir"
    TMPDIR=$folder exec timeout -k 20 2700 \
      "$srcdir/${words[0]}" "${words[@]:1}"
  ) 3>&- || status=$?
  case $status in
    0) how=PASS ;;
    77) how=SKIP ;;
    *) how=FAIL ;;
  esac
  say "$how: ${words[*]}, $((SECONDS - began)) s"
  result test "$place" "${words[*]}" $how
done
