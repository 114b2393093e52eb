#!/usr/bin/env bash
# stats=FILE has the requests, windows, bytes and errors of each disk, as JSON.
# It is written at the start, on SIGUSR1, at an interval and at the end.  The
# file is replaced as a whole or stays as it was, unless it is a mount point or
# its folder is read-only.  Neither a file that is something else nor the target
# of a symbolic link is overwritten.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need jq nbdcopy nbdinfo

disk=$tmp/disk
stats=$tmp/stats

# is EXPECTED FILTER: of the only disk.
is ()
{
  local got

  got=$(jq -r ".disks[0] | $2" "$stats") || fail "not JSON: $(cat "$stats")"
  [ "$got" = "$1" ] || fail "$2 is $got, not $1: $(cat "$stats")"
}

says ()
{
  grep -qF -- "$1" "$tmp/log"
}

# refused MESSAGE PARAMETER...: with one line, which has the message.
refused ()
{
  ! "$NBDKIT" -U "$tmp/none" file "$disk" "${@:2}" --run true 2>"$tmp/err" ||
    fail "taken: ${*:2}"
  tail -n 1 "$tmp/err" | grep -qF -- "$1" || fail "${*:2}: $(cat "$tmp/err")"
}

has_reads ()
{
  [ -s "$stats" ] && [ "$(jq '.disks[0].reads' "$stats")" = "$1" ]
}

# 256 sequential writes and one apart.
truncate -s 64M "$disk"
start_and_connect file "$disk" cache=none stats="$stats"
for i in {0..255}; do ask write $((i * 4096)) 4096; done
ask write 8388608 4096, flush
empty_soon "$disk" 'after a flush'
ask read 0 65536, zero 16777216 65536
ask trim 25165824 4096       # and reads what that has left there
kill -USR1 "$server"
eventually 10 has_reads 2 || fail "nothing on SIGUSR1: $(cat "$stats")"
is "$disk" .name
# The manual page explains these keys, and no others.
sed -n '/^=head1 STATISTICS/,/^=head1 WRITEBACK/ s/^=item //p' \
  "$srcdir/../docs/nbdkit-windowed-file-plugin.pod" |
  grep -o 'C<[a-z_]*>' | sed 's/C<//; s/>//' | sort >"$tmp/manual"
jq -r '.disks[0] | keys[]' "$stats" | sort | diff - "$tmp/manual" >&2 ||
  fail 'the manual page has other keys'
is 257 .writes
is $((257 * 4096)) .written_bytes
is $((257 * 4096)) .evicted_bytes
is '1 65536' '"\(.zeroes) \(.zeroed_bytes)"'
is '1 4096' '"\(.trims) \(.trimmed_bytes)"'
is '1 0 0' '"\(.flushes) \(.failed_requests) \(.writeback_errors)"'
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
ask_error E read 8388608 4096
stop_nbdkit
is '5 1' '"\(.reads) \(.failed_requests)"'
jq -e --arg version "$("$NBDKIT" file --version | sed -n 's/^file //p')" \
  --argjson pid "$server" \
  'del(.disks) == {statistics: "nbdkit-file-plugin", $version, $pid,
                   cache: "none"}' "$stats" >/dev/null || fail "the head: $(cat "$stats")"

# A shorter file replaces a longer one, whole.
start_nbdkit file "$disk" stats="$stats"
stop_nbdkit
[ "$(jq -c '[.cache, .disks]' "$stats")" = '["default",[]]' ] ||
  fail "not the head alone: $(cat "$stats")"

# Many disks, sorted, and names of all bytes, escaped so that they stay
# different: the name of one file is the escaped name of another.
mkdir "$tmp/dir"
odd=$'b"\\\n\x01\xff\xc3\xa4\xe0\x80\x80\e\x7f\xc2\x9b'
for name in "$odd" $'a\xff' 'a\xff' a; do printf 1 >"$tmp/dir/$name"; done
start_nbdkit file dir="$tmp/dir" stats="$stats"
for name in b%22%5C%0A%01%FF%C3%A4%E0%80%80%1B%7F%C2%9B a%FF a%5Cxff a a; do
  limited nbdcopy "nbd+unix:///$name?socket=$tmp/sock" null: ||
    fail "export $name"
done
stop_nbdkit
jq -r '.disks[] | "\(.name | sub(".*/"; "")) \(.read_bytes)"' "$stats" \
  >"$tmp/names"
diff - "$tmp/names" >&2 <<'END' || fail "names: $(cat -v "$stats")"
a 2
a\\xff 1
a\xff 1
b"\\\x0a\x01\xffä\xe0\x80\x80\x1b\x7f\xc2\x9b 1
END
! LC_ALL=C grep -q '[[:cntrl:]]' "$stats" || fail 'control characters'

# No kernel calls that were never used; and users see the name that they gave, not
# what it was a link to.
ln -s disk "$tmp/link"
start_nbdkit -r file "$tmp/link" cache=default stats="$stats"
limited nbdcopy "$uri" null: || fail 'copying with cache=default'
stop_nbdkit
is "$tmp/link" .name
is 'nothing nothing nothing' '"\(.waits_by) \(.counts_by) \(.reads_by)"'

# The server writes when it starts and then every second.  A reader that has the
# file open keeps the old statistics.  Mode and owner stay.
truncate -s 64M "$disk"
rm "$stats"
start_nbdkit file "$disk" stats="$stats" stats-interval=1
jq -e '.disks == []' "$stats" >/dev/null || fail "at the start: $(cat "$stats")"
chmod 640 "$stats"
owner=$(stat -c %u:%g "$stats")
if [ "$(id -u)" = 0 ]; then
  owner=1:1
  chown "$owner" "$stats"
fi
# As logrotate names the last one, if this is process 1 of a container.
echo "not statistics" >"$stats.$server"
exec 8<"$stats"
client_start "$uri"
ask read 33554432 4096
eventually 10 has_reads 1 || fail 'nothing after a second'
ask read 33554432 4096
eventually 10 has_reads 2 || fail 'nothing after another'
[ "$(stat -c %a-%u:%g "$stats")" = "640-$owner" ] ||
  fail "mode and owner $(stat -c %a-%u:%g "$stats")"
[ "$(cat "$stats.$server")" = "not statistics" ] || fail 'the wrong file is gone'
rm "$stats.$server"
[ "$(jq -c .disks <&8)" = '[]' ] || fail 'the old file was written to'
exec 8<&-

# SIGUSR1 in between; many times while it is read.
for ((i = 0; i < 200; i++)); do
  kill -USR1 "$server"
  [ "$(tail -n 1 "$stats")" = ']}' ] || fail 'half of the file was read'
done
ask read 33554432 4096
kill -USR1 "$server"
eventually 10 has_reads 3 || fail 'nothing after many signals'
# Another file in the place of the statistics is not overwritten.  Not while
# statistics are being written.
sleep 0.2
printf 'not statistics' >"$tmp/text"
mv "$tmp/text" "$stats"
ask read 33554432 4096
kill -USR1 "$server"
eventually 10 says 'does not contain statistics, so it is not overwritten' ||
  fail 'nothing about a file that is something else'
[ "$(cat "$stats")" = 'not statistics' ] || fail 'it was overwritten'
rm "$stats"
eventually 10 has_reads 4 || fail 'it does not come back'
stop_nbdkit
[ "$(echo "$stats"*)" = "$stats" ] || fail "left: $(echo "$stats"*)"

# The new file cannot be completed: the old one stays, and nothing else.
for i in {1..40}; do printf 1 >"$tmp/dir/disk$i"; done
all_exports ()
{
  for i in {1..40}; do
    limited nbdcopy "nbd+unix:///disk$i?socket=$tmp/sock" null: ||
      fail "export disk$i"
  done
}
rm "$stats"
under=(prlimit --fsize=8192)
start_nbdkit file dir="$tmp/dir" stats="$stats"
under=()
cp "$stats" "$tmp/old"
all_exports
kill -USR1 "$server"
eventually 10 says "stats=$stats: cannot write $stats.$server.part: File too large" ||
  fail 'nothing about a file that is too large'
stop_nbdkit
cmp "$stats" "$tmp/old" || fail 'half of the statistics were written'
[ "$(echo "$stats"*)" = "$stats" ] || fail "left: $(echo "$stats"*)"

# A file that is a mount point, as one that a container gets from its host, cannot
# be replaced.
if [ "$(id -u)" = 0 ]; then
  mkdir "$tmp/bound"
  touch "$tmp/host" "$tmp/bound/stats"
  mounts+=("$tmp/bound/stats")
  mount --bind "$tmp/host" "$tmp/bound/stats"
  refused 'is a mount point: mount its directory' stats="$tmp/bound/stats"
  umount "$tmp/bound/stats"
fi

# %p in the name is the pid, and that after nbdkit has forked (--run).
mkdir "$tmp/pids"
start_nbdkit file "$disk" stats="$tmp/pids/of-%p.json"
"$NBDKIT" -U "$tmp/second" file "$disk" stats="$tmp/pids/of-%p.json" --run true
stop_nbdkit
for file in "$tmp/pids"/*; do
  [ "$file" = "$tmp/pids/of-$(jq .pid "$file").json" ] || fail "the name $file"
done
[ "$(find "$tmp/pids" -type f | wc -l)" = 2 ] || fail "$(ls "$tmp/pids")"

# A symbolic link is not followed: not at the start, and not later.
: >"$tmp/precious"
rm "$stats"
start_nbdkit file "$disk" stats="$stats"
limited nbdinfo --size "$uri" >/dev/null # it has been written by now
ln -sf precious "$stats"
kill -USR1 "$server"
eventually 10 says 'is a symbolic link, and none is followed' || fail 'a link is followed'
stop_nbdkit
[ -L "$stats" ] || fail 'the link was replaced'
[ ! -s "$tmp/precious" ] || fail 'the target of a link was overwritten'

# In the log, with a line for each disk.
start_nbdkit file dir="$tmp/dir" cache=none stats=- stats-interval=1
eventually 10 says '{"statistics": "nbdkit-file-plugin"' || fail 'not in the log'
all_exports
stop_nbdkit
sed 's/^.*nbdkit: file: //' "$tmp/log" | tail -n 42 |
  jq -e '.disks | length == 40' >"$tmp/json" || fail 'not a line for each disk'

# An interval writes the disks that were used since the last one, and a signal
# all.
lines_of ()
{
  grep -c "{\"name\": \"$1\"" "$tmp/log" || :
}

has_line ()
{
  [ "$(lines_of "$1")" -ge "$2" ]
}

objects ()
{
  grep -c nbdkit-file-plugin "$tmp/log" || :
}

has_objects ()
{
  [ "$(objects)" -ge "$1" ]
}

# intervals NUMBER: wait for that many more objects in the log.
intervals ()
{
  eventually 10 has_objects $(($(objects) + $1)) || fail 'no more intervals'
}

start_nbdkit -r file dir="$tmp/dir" stats=- stats-interval=1
limited nbdcopy "nbd+unix:///a?socket=$tmp/sock" null: || fail 'export a'
eventually 10 has_line "$tmp/dir/a" 1 || fail 'a used disk is left out'
intervals 2
lines=$(lines_of "$tmp/dir/a")
intervals 2
[ "$(lines_of "$tmp/dir/a")" = "$lines" ] || fail 'an unused disk is written'
kill -USR1 "$server"
eventually 10 has_line "$tmp/dir/a" $((lines + 1)) || fail 'not all on SIGUSR1'
stop_nbdkit
has_line "$tmp/dir/a" $((lines + 2)) || fail 'not all at the end'

# More names than anybody looks at share an entry.
mkdir "$tmp/many"
(cd "$tmp/many" && for i in {1..4100}; do echo "$i" >"$i"; done)
start_nbdkit -r file dir="$tmp/many" stats="$tmp/all"
need_python_nbd
limited /usr/bin/python3 - "$tmp/sock" <<'END' || fail 'many names'
import sys, nbd
for i in range(1, 4101):
    h = nbd.NBD()
    h.set_export_name(str(i))
    h.connect_unix(sys.argv[1])
    h.pread(1, 0)
    h.shutdown()
END
stop_nbdkit
[ "$(jq -c '[(.disks | length),
             (.disks[] | select(.name == "(other files)") | .reads)]' "$tmp/all")" = \
  '[4097,4]' ] || fail 'names without end'

cp "$disk" "$tmp/image"
mkfifo "$tmp/fifo"
refused "stats=$tmp/image: this file does not contain statistics" \
  stats="$tmp/image"
same "$disk" "$tmp/image"
refused "stats=$disk: " stats="$disk"
refused 'is not a regular file' stats="$tmp/fifo"
refused 'is not a regular file' stats=/dev/null
refused ".part: No such file or directory: create the directory" \
  stats="$tmp/none/stats"
refused "stats=$tmp: " stats="$tmp"
for link in "$stats" /dev/stderr /proc/self/fd/2; do
  refused "stats=$link: is a symbolic link, and none is followed; name the" \
    stats="$link"
done
[ ! -s "$tmp/precious" ] || fail 'the target of a link was overwritten'
refused 'stats=: the name is empty' stats=
for value in 0 -1 86401 1.5 x ''; do
  refused "stats-interval=$value: must be a number of seconds from 1 to 86400" \
    stats=- stats-interval="$value"
done
refused 'stats-interval=5: has no effect without stats=FILE' stats-interval=5
