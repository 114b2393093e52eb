# A job of the lab: the space below runs out, which only writeback finds out.
# The flush fails, or the writes do.
#
#   full thin|nfs4|nfs3
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154

# shellcheck source=../lib/lib.sh
. "$srcdir/lib/lib.sh" || exit
# shellcheck source=places.sh
. "$srcdir/lab/places.sh"
# shellcheck source=measure.sh
. "$srcdir/lab/measure.sh"

kind=$1 place=$1-full
result nbdkit "$("$stock" --version)"
case $kind in
  thin) place_thin 80M ;;
  nfs3) nfs vers=3,nolock 80M ;;
  nfs4) nfs vers=4.2 80M ;;
esac

# Linux's NFS server tells its clients that it forgot what is not committed,
# whenever a write found no room.  They send all of that again, and as long as
# some of it has no room, again: on 6.12 2.8 GB in 232 s, for one pwrite of 1
# MiB.  No server in user space can do anything about it.
patience=120

# end_by_force: neither the server nor its client is waited for.
end_by_force ()
{
  exec {client_in}>&- {client_out}<&-
  client_up=
  kill -KILL "$client_pid" "$server"
  eventually 60 gone "$server" || fail 'the server does not end'
  pids=()
}

# runs_out SERVER
runs_out ()
{
  local i before written=0 refused=0 slowest=0

  if [ -b "$target" ]; then
    blkdiscard -f "$target" || :
  else
    rm -f "$target"
    truncate -s 160M "$target"
  fi
  serve "$1"
  client_start "$uri"
  for ((i = 0; i < 160; i++)); do
    before=$SECONDS
    ask_for "$patience" write $((i * MiB)) $MiB || {
      told=0
      value="the write at $i MiB has no answer in $patience s"
      end_by_force
      return
    }
    ((SECONDS - before > slowest)) && slowest=$((SECONDS - before))
    if [[ $answer = ok* ]]; then
      written=$((written + 1))
    else
      refused=$((refused + 1))
    fi
  done
  ask_for "$patience" flush || fail 'the flush has no answer'
  flushed=${answer%% *}
  client_stop
  kill "$server"
  eventually 60 gone "$job" || fail 'the server does not end'
  pids=()
  told=$refused
  [ "$flushed" = ok ] || { told=1; flushed=$(cut -d ' ' -f 2 <<<"$answer"); }
  value="$written MiB acknowledged, $refused refused, flush: $flushed"
  value+=", slowest write: $slowest s"
}

runs_out "$stock"
of_stock=$value
runs_out "$ours"
as_promised [ "$told" -gt 0 ]
result row "$place" errors "$value" "$of_stock" "$kept"
