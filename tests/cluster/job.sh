# The Job of examples/kubernetes: what is filled in, how it is begun and ended,
# and what must be so afterwards.
# Sourced by the cases of Kubernetes, after disks.sh and kubernetes.sh.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154

example=$top/examples/kubernetes/convert-job.yaml
pods='/sys/fs/cgroup/memory/kubepods/*/pod*'
containers='kubepods/*/pod*/*'

# What a case fills in: the disks, and what else it wants to be different.
# The image is the one that its name says, see setup.sh.
forget_wishes ()
{
  disks=() parallelism=2 memory=128Mi from=in to=out server='' slow=''
}

# fill_in: the example, with that.
fill_in ()
{
  awk -v list="${disks[*]}" '
    /^  convert: / { listing = 0 }
    !listing
    /^  list: / {
      listing = 1
      n = split(list, disk, " ")
      for (i = 1; i <= n; i++) print "    " disk[i]
    }' "$example" |
    sed "s/completions: .*/completions: ${#disks[@]}/
      s/parallelism: .*/parallelism: $parallelism/
      $(if [ "$memory" = none ]; then echo '/limits:/,/memory:/ s/memory:.*//'
        else echo "s/memory: 128Mi/memory: $memory/"; fi)
      s/claimName: images-in/claimName: images-$from/
      s/claimName: images-out/claimName: images-$to/
      ${server:+s|nbdkit --exit-with-parent file \"\$part\" cache=none|$server|}"
}

# begin_job: it runs, and is watched.
begin_job ()
{
  kubectl delete job convert-disks --ignore-not-found --wait >/dev/null
  empty_volume "$to"
  slow_one=
  if [ -n "$slow" ]; then
    slow_reads "$(<"$volumes/$from.device")" "$slow" "$containers" &
    slow_one=$!
  fi
  watch_begin "$to" "$pods"
  if [ ${#disks[@]} -gt 0 ]; then
    fill_in
  else
    cat "$example"
  fi | kubectl apply -f - >/dev/null
}

# end_job SECONDS: it has ended, well or not.
end_job ()
{
  within "$1" job_has_ended || {
    kubectl get pods
    kubectl get job convert-disks -o yaml
    tell "FAIL: $kind $case: the job does not end"
  }
  watch_end
  stop_being_slow
}

stop_being_slow ()
{
  [ -z "$slow_one" ] || kill "$slow_one"
  slow_one=
}

# As docs/scaling.md has it.
job_has_ended ()
{
  kubectl get job convert-disks -o jsonpath='{.status.conditions[*].type}' |
    grep -qwE 'Complete|Failed'
}

job_is ()
{
  equal "$1" "$(kubectl get job convert-disks -o \
    jsonpath='done: {.status.completedIndexes} failed: {.status.failedIndexes}')"
}

# tries N: that failed, of all disks.
tries ()
{
  equal "$1" "$(kubectl get job convert-disks -o jsonpath='{.status.failed}')"
}

# pods_of INDEX: their names.
pods_of ()
{
  kubectl get pods -o name \
    -l "batch.kubernetes.io/job-completion-index=$1"
}

# explained INDEX TEXT: the last lines of its pod, as "kubectl describe" shows.
explained ()
{
  kubectl describe "$(pods_of "$1" | tail -n 1)" | grep -qF -- "$2"
}

# all_is_well DISK...: of what must be so however it went.
all_is_well ()
{
  check 'one writer of a disk at any time' one_writer
  check 'what has its final name is not changed' never_changed
  # Before they are read to be compared.
  check 'no page of the disks is cached' nothing_cached "$to"
  check 'what has its final name is whole' right "$to" "$@"
}

# begin_in_the_middle MIB: of the first disk, slowly, have been written.
begin_in_the_middle ()
{
  make_disk in middle.raw raw 512
  slow=50000000
  disks=(middle.raw web-1.qcow2)
  begin_job
  within 60 written "$to" middle "$1" ||
    tell "FAIL: $kind $case: the conversion does not begin"
}
