# How the cases speak: what passed and failed, and figures, which go to a file
# of the build folder as well.
# Sourced by what runs cases; $work/counts is what is counted at the end.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154

# shellcheck source=../lib/totals.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/totals.sh"

tell ()
{
  echo "$*" | tee -a "$work/counts"
}

# figure TEXT: of the case that runs.
figure ()
{
  echo "    $*" | tee -a "$built/results/$kind"
}

# check WHAT COMMAND...: passes if the command does.
check ()
{
  if "${@:2}"; then
    tell "PASS: $kind $case: $1"
  else
    tell "FAIL: $kind $case: $1"
  fi
}

# equal EXPECTED GOT
equal ()
{
  [ "$1" = "$2" ] || {
    echo "    expected: $1; got: $2"
    return 1
  }
}

# within SECONDS COMMAND...: try it five times a second until it succeeds.  What
# counts is how often: all of this may be frozen for a while.
within ()
{
  local i

  for ((i = 0; i < $1 * 5; i++)); do
    ! "${@:2}" || return 0
    sleep 0.2
  done
  return 1
}
