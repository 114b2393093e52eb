#!/usr/bin/env bash
# stats=FILE has the requests, windows, bytes and errors of each disk, as text
# and JSON.  It is written at the start, on SIGUSR1 and at the end.  The file is
# replaced as a whole or stays as it was; neither a file that is something else
# nor the target of a symbolic link is overwritten.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need jq nbdcopy python3

disk=$tmp/disk
stats=$tmp/stats

# is EXPECTED FILTER: of the only disk.
is ()
{
  local got

  got=$(jq -r ".disks[0] | $2" "$stats") || fail "not JSON: $(cat "$stats")"
  [ "$got" = "$1" ] || fail "$2 is $got, not $1: $(cat "$stats")"
}

has_reads ()
{
  [ -s "$stats" ] && [ "$(jq '.disks[0].reads' "$stats")" = "$1" ]
}

# 256 sequential writes and one apart: 257 requests, 2 extents, one window.
truncate -s 64M "$disk"
start_nbdkit file "$disk" cache=none stats="$stats" stats-format=json
client_start "$uri"
for i in {0..255}; do ask write $((i * 4096)) 4096; done
ask write 8388608 4096
ask flush
empty_soon "$disk" 'after a flush'
ask read 0 65536
ask zero 16777216 65536
ask trim 25165824 4096       # and reads what that has left there
kill -USR1 "$server"
eventually 10 has_reads 2 || fail "nothing on SIGUSR1: $(cat "$stats")"
is "$disk" .name
# The manual page explains each key.
sed -n '/^=head1 STATISTICS/,/^=head1 ERRORS/p' \
  "$srcdir/../docs/nbdkit-file-plugin.pod" >"$tmp/manual"
jq -r '.disks[0] | keys[]' "$stats" >"$tmp/keys"
while read -r key; do
  grep -q "^=item.*C<$key>" "$tmp/manual" || fail "the manual lacks $key"
done <"$tmp/keys"
is 257 .writes
is $((257 * 4096)) .written_bytes
is 257 .window_requests
is 2 .window_extents
is $((257 * 4096)) .evicted_bytes
is '1 65536' '"\(.zeroes) \(.zeroed_bytes)"'
is '1 4096' '"\(.trims) \(.trimmed_bytes)"'
is '1 0 0' '"\(.flushes) \(.failed_requests) \(.writeback_errors)"'
is 0 .held_back
is true '.writeback_waits > 0 and .writeback_wait_ns > 0'
# The server continues, and writes statistics again, also of a file that was
# opened again.
ask read 0 4096
client_stop
client_start "$uri"
ask read 33554432 4096
kill -USR1 "$server"
eventually 10 has_reads 4 || fail "nothing on the second SIGUSR1: $(cat "$stats")"
# Past the end of what the file has become: a request that fails.
truncate -s 1M "$disk"
ask_any read 8388608 4096
[[ $answer = error* ]] || fail "a read past the end: $answer"
client_stop
stop_nbdkit
is '5 1' '"\(.reads) \(.failed_requests)"'
jq -e '.statistics == "nbdkit-file-plugin" and .cache == "none"' "$stats" \
  >/dev/null || fail 'the head of the JSON'

# A shorter text replaces a longer one, whole: a reader keeps the old file.
[ "$(wc -l <"$stats")" -gt 1 ] || fail 'only one line of JSON'
cp "$stats" "$tmp/old"
chmod 640 "$stats"
exec 8<"$stats"
start_nbdkit file "$disk" stats="$stats"
stop_nbdkit
cmp - "$tmp/old" <&8 || fail 'it was written in place'
exec 8<&-
[ "$(stat -c %a "$stats")" = 640 ] || fail "mode $(stat -c %a "$stats")"
[ "$(wc -l <"$stats")" = 1 ] || fail "not the head alone: $(cat "$stats")"
grep -q 'cache=default' "$stats" || fail "which cache= was it?"

# Many disks, sorted, and names of all bytes.
mkdir "$tmp/dir"
odd=$'b"\\\n\x01\xff\xc3\xa4\xe0\x80\x80\xed\xa0\x80'
odd_uri=b%22%5C%0A%01%FF%C3%A4%E0%80%80%ED%A0%80
printf 1 >"$tmp/dir/a"
printf 1 >"$tmp/dir/$odd"
start_nbdkit file dir="$tmp/dir" stats="$stats" stats-format=json
for name in $odd_uri a; do
  limited nbdcopy "nbd+unix:///$name?socket=$tmp/sock" null: ||
    fail "export $name"
done
stop_nbdkit
[ "$(jq -c '[.disks[].name | sub(".*/"; "")]' "$stats")" = \
  "$(jq -nc '["a", "b\"\\\n\u0001\ufffdä" + 6 * "\ufffd"]')" ] ||
  fail "names: $(cat "$stats")"
python3 -c 'import json, sys; json.load(open(sys.argv[1], encoding="utf-8"))' \
  "$stats" || fail 'Python does not read it'

# As text, without characters that a terminal would obey.
odd=$'e\033]0;x\a\t\x7f\xc2\x9b\xff\\\xc3\xa4'
printf 1 >"$tmp/dir/$odd"
start_nbdkit file dir="$tmp/dir" stats="$stats"
limited nbdcopy \
  "nbd+unix:///e%1B%5D0%3Bx%07%09%7F%C2%9B%FF%5C%C3%A4?socket=$tmp/sock" null: ||
  fail 'an export with control characters'
stop_nbdkit
grep -qxF "$tmp/dir/"'e\x1b]0;x\x07\x09\x7f\xc2\x9b\xff\\ä' "$stats" ||
  fail "the name is not escaped: $(cat -v "$stats")"

# No line about kernel calls that were never used.
start_nbdkit -r file "$disk" cache=default stats="$stats"
limited nbdcopy "$uri" null: || fail 'copying with cache=default'
stop_nbdkit
grep -q '^  failed requests: 0, writeback errors: 0$' "$stats" ||
  fail "text: $(<"$stats")"
! grep -q ' by ' "$stats" || fail "used kernel calls: $(<"$stats")"

# The new file cannot be completed: the old one stays, and nothing else.
for i in {1..40}; do printf 1 >"$tmp/dir/disk$i"; done
all_exports ()
{
  for i in {1..40}; do
    limited nbdcopy "nbd+unix:///disk$i?socket=$tmp/sock" null: ||
      fail "export disk$i"
  done
}
says ()
{
  grep -qF -- "$1" "$tmp/log"
}
rm "$stats"
under=(env --ignore-signal=XFSZ prlimit --fsize=8192)
start_nbdkit file dir="$tmp/dir" stats="$stats" stats-format=json
under=()
cp "$stats" "$tmp/old"
all_exports
kill -USR1 "$server"
eventually 10 says "stats=$stats: cannot write $stats.$server.part: File too large" ||
  fail 'nothing about a file that is too large'
stop_nbdkit
cmp "$stats" "$tmp/old" || fail 'half of the statistics were written'
[ "$(echo "$stats"*)" = "$stats" ] || fail "left: $(echo "$stats"*)"

# The same on a disk that is full.
if [ "$(id -u)" = 0 ]; then
  mkdir "$tmp/mnt"
  mounts+=("$tmp/mnt")
  mount -t tmpfs -o size=64k none "$tmp/mnt"
  start_nbdkit file dir="$tmp/dir" stats="$tmp/mnt/stats" stats-format=json
  cp "$tmp/mnt/stats" "$tmp/old"
  head -c 50K /dev/zero >"$tmp/mnt/fill"
  all_exports
  stop_nbdkit
  says '.part: No space left on device' || fail 'a full disk'
  cmp "$tmp/mnt/stats" "$tmp/old" || fail 'half old, half new on a full disk'
  rm "$tmp/mnt/fill"
  [ "$(ls "$tmp/mnt")" = stats ] || fail "left: $(ls "$tmp/mnt")"

  # Another user (-u) that may not write it is reported at the start.
  mkdir "$tmp/closed"
  chmod 777 "$tmp"
  start_nbdkit -u nobody file "$disk" stats="$tmp/closed/stats"
  eventually 10 says ".part: Permission denied" ||
    fail 'nothing about -u at the start'
  stop_nbdkit
  chmod 700 "$tmp"
fi

# A symbolic link is not followed: not at the start, and not later.
: >"$tmp/precious"
rm "$stats"
start_nbdkit file "$disk" stats="$stats"
ln -sf precious "$stats"
kill -USR1 "$server"
eventually 10 says 'follows no symbolic link' || fail 'a link is followed'
stop_nbdkit
[ -L "$stats" ] || fail 'the link was replaced'
[ ! -s "$tmp/precious" ] || fail 'the target of a link was overwritten'

# In the log.
start_nbdkit file "$disk" cache=none stats=-
limited nbdcopy "$uri" null: || fail 'copying'
stop_nbdkit
grep -q "^$disk\$" "$tmp/log" || fail 'nothing in the log'
grep -qE '^  windows: [0-9]+, requests in them: [0-9]+, extents' "$tmp/log" ||
  fail 'no windows in the log'

# refused MESSAGE PARAMETER...
refused ()
{
  ! "$NBDKIT" -U "$tmp/none" file "$disk" "${@:2}" --run true 2>"$tmp/err" ||
    fail "taken: ${*:2}"
  grep -qF -- "$1" "$tmp/err" || fail "${*:2}: $(cat "$tmp/err")"
}

cp "$disk" "$tmp/image"
printf 'not statistics' >"$tmp/text"
mkfifo "$tmp/fifo"
refused "stats=$tmp/image: this file does not contain statistics" \
  stats="$tmp/image"
same "$disk" "$tmp/image"
refused 'does not contain statistics' stats="$tmp/text"
[ "$(cat "$tmp/text")" = 'not statistics' ] || fail 'it was overwritten'
refused "stats=$disk: " stats="$disk"
refused 'is not a regular file' stats="$tmp/fifo"
refused 'is not a regular file' stats=/dev/null
refused ".part: No such file" stats="$tmp/none/stats"
refused "stats=$tmp: " stats="$tmp"
refused 'follows no symbolic link' stats="$stats"
[ ! -s "$tmp/precious" ] || fail 'the target of a link was overwritten'
refused 'stats=: the name is empty' stats=
refused 'was given before' stats=- stats=-
refused 'stats-format=xml: not one of: text, json' stats=- stats-format=xml
refused 'stats-format=json: has no effect without stats=FILE' stats-format=json
