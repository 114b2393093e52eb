# A job of the lab: the space below runs out, which only writeback finds out.  The
# flush fails, or the writes do.
#
#   full nfs4|nfs3
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2034,SC2154

make_place "$1" 80M
place=$1-full
written=0 refused=0 slowest=0

# Whenever a write finds no room, Linux's NFS server reports to its clients that it
# lost all uncommitted data.  They send all of it again, for minutes within one
# pwrite of 1 MiB, which no server in user space can change.  Then neither the
# server nor its client is waited for.
limit=120

end_by_force ()
{
  exec {client_in}>&- {client_out}<&-
  client_up=
  kill -KILL "$client_pid" "$server"
  eventually 60 gone "$server" || fail 'the server does not end'
  pids=()
  row errors "the write at $1 MiB has no answer in $limit s" false
  exit 0
}

truncate -s 160M "$target"
serve
client_start "$uri"
for ((i = 0; i < 160; i++)); do
  before=$SECONDS
  ask_for $limit write $((i * MiB)) "$MiB" || end_by_force $i
  slowest=$((SECONDS - before > slowest ? SECONDS - before : slowest))
  if [[ $answer = ok* ]]; then
    written=$((written + 1))
  else
    refused=$((refused + 1))
  fi
done
ask_for $limit flush || fail 'the flush has no answer'
client_stop
kill "$server"
eventually 60 gone "$job" || fail 'the server does not end'
pids=()
row errors "$written MiB acknowledged, $refused refused, flush: $answer, slowest \
write: $slowest s" [ "$refused-$answer" != 0-ok ]
