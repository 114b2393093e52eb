# What test-mixed, test-overlay, test-reads and test-squashfs have in common:
# with cache=none a load leaves no page cached, and few while it runs.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need fio nbdcopy cmp cachestats

size=$((128 * 1048576))
page=$(getconf PAGESIZE)

# is_seen FILE: all of it is in memory now, and that is what the watcher sees.
# Of reads that go past the page cache it sees nothing.  The kernel may have taken
# some pages back by then: some machines do so early, but not each time.
is_seen ()
{
  local seen

  eventually 5 all_is_seen "$1" ||
    fail "$seen pages are seen of a file of $((size / page)) that was read"
}

all_is_seen ()
{
  cat "$1" >/dev/null
  seen=$(residency "$1")
  ((seen * page * 100 >= size * 99 && seen * page <= size))
}

# watch_once FILE LIMIT COMMAND...: $most is the most that was cached while it
# ran.  The status is 2 if it has not come down.
watch_once ()
{
  local file=$1 limit=$2 status=0

  watch_start "$file" $((limit * 3 / 4 / page))
  limited "${@:3}" >"$tmp/out" 2>&1 || fail "${*:3}: $(<"$tmp/out")"
  watch_end || status=$?
  [ -n "$most" ] || fail "${*:3}: it was too short to be watched"
  return "$status"
}

# watched FILE LIMIT COMMAND...: no more was cached while it ran, after it
# was well below for the first time: the test may have put all of it there, and
# while it goes down readers bring some of it in again.  A busy machine may
# need more than one run until then.
watched ()
{
  local limit=$2 most i

  for ((i = 1; ; i++)); do
    ! watch_once "$@" || break
    [ $i -lt 20 ] || fail "${*:3}: the page cache does not come down"
  done
  [ "$most" -le $((limit / page)) ] ||
    fail "${*:3}: $most pages were cached, not $((limit / page)) at most"
}

is_empty_for_both ()
{
  is_empty "$1" && [ "$(residency "$1")" = 0 ]
}

# empty_for_both FILE WHEN: cachestats and cachestat(2) agree that it is.  A page
# that is still being read in only the second counts.
empty_for_both ()
{
  eventually "$patience" is_empty_for_both "$1" ||
    fail "$2: cachestats sees $(resident "$1") pages, cachestat(2)" \
      "$(residency "$1")"
}

# stops_at MIB FILE WATCHED WHAT: of what a reader has read that stops there, and
# of what the kernel has read ahead, nothing stays.
stops_at ()
{
  local i

  start_nbdkit -r file "$2" cache=none
  client_start --names "$uri"
  ask a open
  for ((i = 0; i < $1; i++)); do ask a read "${i}M" 1M; done
  client_stop
  empty_soon "$3" "$4: after a reader stopped at $1 MiB"
  stop_nbdkit
}
