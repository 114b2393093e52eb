#!/usr/bin/env bash
# If a served file is truncated, reading past its end fails with EIO and a
# message that gives the reason, and the server continues.  Block status does
# not report the part that was cut off as a hole, which a client would copy
# without reading it.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=rig/lib.sh
. "$(dirname "$0")/rig/lib.sh" || exit
need nbdinfo

for cache in none preserve default; do
  rm -f "$tmp/disk"
  truncate -s 8M "$tmp/disk"
  start_and_connect file "$tmp/disk" "cache=$cache"
  ask write 0 8M, flush

  truncate -s 3000000 "$tmp/disk"
  ask read 0 2900000
  for range in '4M 4K' '2999999 2' '2M 2M'; do
    ask_error EIO read "$range"
  done
  grep -q 'truncated' "$tmp/log" || fail "$cache: no message says why"
  for range in '3M 1M' '4M 4M' '0 8M'; do
    ask extents "$range"
    [[ ${answer##*:} = 0 ]] || fail "$cache: extents $range: $answer"
  done

  # Writing makes it longer again.  What was cut off reads as zeroes, so ask
  # only for what was written since.
  ask write 6M 1M, write 5M 4K fua, flush, read 6M 1M, read 5M 4K
  ask read 0 2900000, zero 1M 4K, trim 2M 4K
  limited nbdinfo --size "$uri" >/dev/null || fail "$cache: a second client"
  stop_nbdkit
done

# Truncated while block status is being found, between fstat and lseek.
need_strace

# stop_in_lseek: attach strace, which makes the server wait before each call.
stop_in_lseek ()
{
  strace -f -p "$server" -e trace=/lseek -e inject=/lseek:delay_enter=2000000 \
    2>"$tmp/trace" &
  tracer=$!
  pids+=("$tracer")
  eventually 20 grep -q attached "$tmp/trace" || fail 'strace'
}

# cut SIZE: truncate to SIZE in lseek.  Returns 1 if that was too late.
cut ()
{
  local late

  rm -f "$tmp/disk"
  truncate -s 64M "$tmp/disk"
  start_and_connect file "$tmp/disk"
  stop_in_lseek
  echo 'extents 32M 1M' >&"$client_in"
  sleep 0.5
  truncate -s "$1" "$tmp/disk"
  late=0
  ! read -r -t 0 <&"$client_out" || late=1
  read -r -t 60 answer <&"$client_out" || fail "$1: no answer"
  kill "$tracer"
  eventually 20 gone "$tracer" || fail 'strace does not end'
  stop_nbdkit
  return "$late"
}

while read -r bytes want; do
  for _ in {1..5}; do ! cut "$bytes" || break; done
  [ "$answer" = "ok $want" ] ||
    fail "truncated to $bytes in lseek: extents: $answer, not $want"
done <<'END'
1000000 1048576:0
34078720 524288:3 524288:0
END
