#!/usr/bin/env bash
# scripts/lab counts each result of a job once, and counts a machine that did
# not reach the end of its job as failed.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit

work=$tmp
# shellcheck source=outcome.sh
. "$srcdir/lab/outcome.sh"

results=$tmp/results/6.1
mkdir -p "$results"

# job NAME LINE...: its results.  The fields of a line have commas between.
job ()
{
  printf '%s\n' 'kernel,6.1.0-1' 'nbdkit,nbdkit 1.2.3' 'commit,abc1234' \
    "${@:2}" | tr , '\t' >"$results/$1.results"
  outcome 6.1 "$1" "$results/$1.results" >>"$tmp/out"
}

job ext4 'row,ext4,copy,yes,yes' 'row,ext4,left,7 pages,no' \
  'row,ext4,space,-,' 'status,0' 'end,9' 'seconds,12'
job vfat 'row,vfat,space,0 of 64 MiB,' 'status,0' 'end,9'
job ntfs3 'absent,ntfs3,this kernel has no ntfs3' 'status,0' 'end,9'
job xfs 'row,xfs,copy,yes,yes'
job tests-ext4 'test,ext4,test-a.sh,PASS' 'test,ext4,test-b.sh,SKIP' \
  'test,ext4,test-c.sh,FAIL' 'status,1' 'oops,BUG: of the kernel' 'end,9'

status=0
last=$(total) || status=$?
[ "$status-$last" = '1-3 passed, 5 failed, 2 skipped' ] ||
  fail "the sums: $last (status $status): $(<"$tmp/out")"
rm "$tmp/counts"
status=0
last=$(total) || status=$?
[ "$status-$last" = '1-0 passed, 0 failed, 0 skipped' ] ||
  fail "nothing was run, and all is well: $last (status $status)"

# Each job of the list is one that there is.
grep -v '^#' "$srcdir/lab/jobs" | while read -r name seconds oldest parts; do
  [ -n "$name" ] || continue
  [ "$seconds" -gt 0 ] || fail "tests/lab/jobs: $name: $seconds"
  [[ $oldest =~ ^([0-9]+\.[0-9]+|-)$ ]] || fail "tests/lab/jobs: $name: $oldest"
  while read -r script _; do
    [ -e "$srcdir/lab/$script.sh" ] || fail "tests/lab/jobs: $name: $script"
  done <<<"${parts// + /$'\n'}"
done
