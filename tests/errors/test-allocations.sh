#!/usr/bin/env bash
# If an allocation, descriptor, thread or mapping of the plugin fails, no data
# is wrong, and the server neither crashes nor hangs.  One of them fails, or all
# from one on.  The data is right in reads and in the file, and the server
# answers afterwards.  With cache=none eviction works again: no page of the file
# stays in the page cache.  A statistics file is JSON, or empty.
#
# The test samples the calls by a seed that it prints.  Environment:
#
#   ALLOCATION_PLACES=N      calls of each kind, in each mode (60), or "all"
#   ALLOCATION_SEED=N        sample other calls
#   ALLOCATION_EVICTION=no   do not check the page cache
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need jq

places=${ALLOCATION_PLACES:-60}
seed=${ALLOCATION_SEED:-$$}
workload="$builddir/errors/rig/workload"
library="$builddir/errors/rig/.libs/fail-nth.so"
never=$((1 << 62))
runs=0 bad=0

plugin=$("$NBDKIT" file --dump-plugin | sed -n 's/^path=//p')
[[ $(ldd "$plugin") != *lib[at]san* ]] ||
  skip 'sanitizers have an allocator of their own'

# serve FOLDER MODE: $job is the server; fails if it does not start.
serve ()
{
  local options=(cache="$2" stats="$1/stats")

  # So small that windows are evicted all the time.
  [ "$2" = default ] ||
    options+=(cache-windows=2 cache-window-size=64K cache-limit=256K)
  LD_PRELOAD=$library FAIL_NTH=$1/control "$NBDKIT" -f --exit-with-parent \
    -P "$1/pid" -U "$1/sock" file "$1/disk" "${options[@]}" 2>"$1/log" &
  job=$!
  eventually 20 ready "$1" || {
    echo 'it hangs before it serves'
    waits_where "$job" 2>&1
  }
  [ -s "$1/pid" ]
}

ready ()
{
  [ -s "$1/pid" ] || gone "$job"
}

# end_server EXPECTED-STATUS...: prints what is wrong.
end_server ()
{
  local status=0

  if ! eventually 10 gone "$job"; then
    echo 'it does not end'
    waits_where "$job" 2>&1
    kill -KILL "$job"
  fi
  wait "$job" || status=$?
  [[ " $* " = *" $status "* ]] || echo "it ended with status $status"
}

# one_run FOLDER MODE KIND FIRST LAST: prints what is wrong.
one_run ()
{
  local uri="nbd+unix:///?socket=$1/sock" status=0 file=()

  "$workload" make "$1/disk" "$1/model"
  drop "$1/disk"
  "$workload" arm "$1/control" "${@:3}"
  # With preserve, pages that cannot be told from those of other processes for
  # want of memory stay.
  [ "$2" != none ] || [ "${ALLOCATION_EVICTION:-}" = no ] || file=("$1/disk")
  if serve "$1" "$2"; then
    timeout -k 5 200 "$workload" run "$1/control" "$uri" "$1/model" \
      "${file[@]}" || status=$?
    if [ "$status" = 124 ]; then
      echo 'no answer in 200 s'
      waits_where "$job" 2>&1
    fi
    send TERM "$job"
    end_server 0
  else
    end_server 1
  fi
  "$workload" check "$1/disk" "$1/model" || :
  [ ! -s "$1/stats" ] || jq -e . "$1/stats" >/dev/null 2>&1 ||
    echo "the statistics are no JSON: $(tail -c 60 "$1/stats")"
}

# in_background FOLDER MODE KIND FIRST LAST
in_background ()
{
  while [ "$(jobs -rp | wc -l)" -ge "$parallel" ]; do wait -n || :; done
  mkdir "$1"
  {
    own_pid=$BASHPID    # the server's parent
    one_run "$@"
  } >"$1/problems" 2>&1 &
  pids+=($!)
}

# collect FOLDER WHAT: show what was wrong there.
collect ()
{
  runs=$((runs + 1))
  [ -s "$1/problems" ] || return 0
  bad=$((bad + 1))
  say "$2, failed $("$workload" calls "$1/control" | cut -d ' ' -f 3-):"
  say "$(<"$1/problems")"
  tail -n 5 "$1/log" >&2
}

# choose CALLS: print the numbers of the calls to fail, evenly spread.
choose ()
{
  local i n=$1 from

  [ "$places" = all ] || [ "$n" -le "$places" ] || n=$places
  for ((i = 0; i < n; i++)); do
    from=$((i * $1 / n))
    echo $((1 + from + RANDOM % ((i + 1) * $1 / n - from)))
  done
}

# sweep_calls MODE KIND one|on
sweep_calls ()
{
  local calls failed=0 chosen first last

  mkdir "$tmp/count"
  last=$never
  [ "$3" = one ] || last=0
  one_run "$tmp/count" "$1" "$2" "$never" "$last" >"$tmp/count/problems" 2>&1
  read -r calls _ < <("$workload" calls "$tmp/count/control")
  collect "$tmp/count" "cache=$1, nothing failed"
  mapfile -t chosen < <(choose "$calls")
  for first in "${chosen[@]}"; do
    last=$first
    [ "$3" = one ] || last=0
    in_background "$tmp/$first" "$1" "$2" "$first" "$last"
  done
  wait
  for first in "${chosen[@]}"; do
    collect "$tmp/$first" "cache=$1, $2 $first of $calls fails, $3"
    [[ $("$workload" calls "$tmp/$first/control") = *' 0' ]] ||
      failed=$((failed + 1))
  done
  say "cache=$1, $2, $3: of $calls calls ${#chosen[@]} tried, $failed failed"
  [ "$2" = mmap ] || [ "$failed" -gt 0 ] || fail "no call of $2 failed"
  rm -rf "$tmp/count" "${chosen[@]/#/$tmp/}"
  pids=()
  [ "$bad" -le 10 ] || fail 'that is enough'
}

# The statistics of many disks: whichever allocation fails while they are
# formatted, the file is the old one or the new one.
statistics_of_many ()
{
  local uris=() i failed=1

  mkdir "$tmp/dir"
  for i in {1..100}; do
    truncate -s 64K "$tmp/dir/$i"
    uris+=("nbd+unix:///$i?socket=$tmp/sock")
  done
  under=(env "LD_PRELOAD=$library" "FAIL_NTH=$tmp/control")
  for ((i = 0; failed > 0; i++)); do
    "$workload" arm "$tmp/control" alloc $never $never
    start_nbdkit file dir="$tmp/dir" stats="$tmp/stats"
    limited "$srcdir/lib/open-close.py" 100 "${uris[@]}"
    [ "$i" = 0 ] || "$workload" arm "$tmp/control" alloc "$i" "$i"
    stop_nbdkit
    # The old one was written when the server started.
    jq -e --argjson i "$i" \
      '.disks | length == 100 or (length == 0 and $i > 0)' \
      "$tmp/stats" >/dev/null ||
      fail "statistics of 100 disks, allocation $i fails: not JSON"
    [ "$i" = 0 ] || read -r _ failed _ < <("$workload" calls "$tmp/control")
  done
  [ "$i" -gt 2 ] || fail 'no allocation failed while statistics were formatted'
}

say "ALLOCATION_SEED=$seed"
RANDOM=$seed
parallel=$((2 * $(nproc)))
for mode in none preserve default; do
  for kind in alloc fd thread mmap; do
    for way in one on; do sweep_calls $mode $kind $way; done
  done
done
say "$runs runs, $bad with something wrong"
[ "$bad" = 0 ] || fail 'see above'
statistics_of_many
