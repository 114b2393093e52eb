#!/usr/bin/env bash
# scripts/test-cluster selects cases by name and kind, and counts their results.
# The test needs no cluster.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit

script=$srcdir/../scripts/test-cluster

# answers STATUS TEXT ARGUMENT...: as it does without doing anything.
answers ()
{
  local status=0

  limited "$script" "${@:3}" >"$tmp/log" 2>&1 || status=$?
  [ "$status" = "$1" ] || fail "${*:3}: status $status"
  grep -qF -- "$2" "$tmp/log" || fail "${*:3}: does not say $2"
}

answers 0 'usage: scripts/test-cluster' --help
answers 0 'usage: scripts/test-cluster' -h
answers 0 'a pod is deleted in the middle' --list
answers 0 'a task is requeued in the middle' --list
answers 0 'a task is requeued in the middle' --list slurm
! grep -q 'a pod' "$tmp/log" || fail 'a pod, in Slurm'
answers 2 'no case requeue, see --list' kubernetes requeue
answers 2 'no case nonsense, see --list' nonsense
answers 2 'unknown argument: --nonsense' --nonsense
answers 2 '--build-dir needs an argument' --build-dir

# The message names every missing program, and nothing is built before it.
mkdir "$tmp/bin"
ln -s /usr/bin/* "$tmp/bin"
rm -f "$tmp/bin/mmdebstrap" "$tmp/bin/qemu-img"
PATH=$tmp/bin answers 1 'mmdebstrap' --build-dir "$tmp/built" --setup kubernetes
grep -q 'needs .*qemu-img.*: run "scripts/install-deps cluster"' "$tmp/log" ||
  fail 'does not name all that is missing'
[ ! -e "$tmp/built" ] || fail 'something was built'

work=$tmp kind=kubernetes built=$tmp
export work kind built
# shellcheck source=outcome.sh
. "$srcdir/cluster/outcome.sh"
case=job
check 'it is so' equal 1 1 >"$tmp/log"
[ "$(total)" = '1 passed, 0 failed, 0 skipped' ] || fail "one: $(total)"
check 'it is not so' equal 1 2 >"$tmp/log"
grep -qxF 'FAIL: kubernetes job: it is not so' "$tmp/log" || fail 'not told'
status=0
last=$(total) || status=$?
[ "$status-$last" = '1-1 passed, 1 failed, 0 skipped' ] ||
  fail "two: $last (status $status)"
rm "$tmp/counts"
! total >"$tmp/log" || fail 'nothing was run, and all is well'
