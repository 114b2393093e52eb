#!/bin/sh
# Print the version, with the commit unless that has the version as its tag, and
# "-dirty" if files were changed since: 1.0.0-g4c352dd.  In a tarball, print what
# it was made from.  Without git, print the version alone.  The checkout may be
# another user's, whose "make" root trusts already.
#
# usage: sh packaging/version.sh VERSION
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

set -eu

top=$(dirname "$0")/..
if [ -e "$top/.tarball-version" ]; then
  cat "$top/.tarball-version"
elif [ -e "$top/.git" ] && commit=$(GIT_OPTIONAL_LOCKS=0 git -C "$top" \
  -c safe.directory='*' describe --tags --always --dirty --abbrev=7 --match "v$1" 2>/dev/null); then
  case $commit in
    "v$1"*) echo "${commit#v}" ;;
    *) echo "$1-g$commit" ;;
  esac
else
  echo "$1"
fi
