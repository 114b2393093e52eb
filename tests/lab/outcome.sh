# What became of a job, from the lines that it wrote (see run): one line
# for each thing that was looked at, and the sums of all jobs.
# Sourced by scripts/lab.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154

# outcome KERNEL JOB RESULTS: print it, and keep it for the sums.
outcome ()
{
  awk -F '\t' -v at="$1 $2" '
    function tell(how, what) { print how ": " at ": " what }
    $1 == "row" && $5 == "yes" { tell("PASS", $3 ": " $4) }
    $1 == "row" && $5 == "no" { tell("FAIL", $3 ": " $4) }
    $1 == "test" { tell($4, $3) }
    $1 == "absent" { tell("SKIP", $3) }
    $1 == "oops" { tell("FAIL", "the kernel says: " $2) }
    $1 == "status" && $2 != 0 { tell("FAIL", "it ended with status " $2) }
    $1 == "end" { ended = 1 }
    $1 == "seconds" { took = $2 " s" }
    END {
      if (!ended)
        tell("FAIL", "the machine did not come to the end of the job")
      print "----: " at ": " took
    }' "$3" | tee -a "$work/counts"
}

# total: the last line, and whether nothing failed.
total ()
{
  local passed failed skipped

  touch "$work/counts"
  passed=$(grep -c '^PASS' "$work/counts" || :)
  failed=$(grep -c '^FAIL' "$work/counts" || :)
  skipped=$(grep -c '^SKIP' "$work/counts" || :)
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" = 0 ] && [ $((passed + skipped)) -gt 0 ]
}
