#!/usr/bin/env bash
# Where several names of a folder are one file, each client's errors and
# statistics have the export name that this client asked for.
#
# The text of an error is sent to the client by nbdkit 1.42 and later, so the
# name of another export must not be in it.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need jq prlimit

mkdir "$tmp/dir"
head -c 1M /dev/zero >"$tmp/dir/alpha"
ln "$tmp/dir/alpha" "$tmp/dir/beta"
ln -s alpha "$tmp/dir/gamma"

# A write above 512 KiB fails with EFBIG.
under=(prlimit --fsize=$((512 << 10)))

start_nbdkit file "dir=$tmp/dir" cache=none stats="$tmp/stats"
client_start --names "$tmp/sock"
names=(alpha beta gamma)
for name in "${names[@]}"; do ask "$name" open; done

# has_numbers: of the requests of each client, by name.
has_numbers ()
{
  jq -e '[.disks[] | [(.name | sub(".*/"; "")), .reads, .writes, .flushes]] |
    sort == [["alpha", 3, 3, 3], ["beta", 4, 4, 4], ["gamma", 5, 5, 5]]' \
    "$tmp/stats" >/dev/null 2>&1
}

# has_own_name WHAT REQUEST...: of each client fails, and the message has its
# export's name and no other.
has_own_name ()
{
  local name other text lines

  for name in "${names[@]}"; do
    lines=$(wc -l <"$tmp/log")
    ask_error E "$name" "$@"
    text=$(tail -n "+$((lines + 1))" "$tmp/log")
    for other in "${names[@]}"; do
      if [ "$other" = "$name" ]; then
        [[ $text = *"$name"* ]] || fail "$name, $1: the name is not in '$text'"
      else
        [[ $text != *"$other"* ]] || fail "$name, $1: $other is in '$text'"
      fi
    done
  done
}

# Each client makes another number of requests.
for n in 0 1 2; do
  for ((i = 0; i < 3 + n; i++)); do
    for request in "read $((i * 8))K 4K" "write $((i * 8))K 4K" flush; do
      ask "${names[n]}" "$request"
    done
  done
done
kill -USR1 "$server"
eventually 2 has_numbers || fail "statistics: $(<"$tmp/stats")"

has_own_name write 768K 4K
truncate -s 4096 "$tmp/dir/alpha"
has_own_name read 32K 4K
stop_nbdkit
