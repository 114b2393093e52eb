#!/usr/bin/env bash
# tools/cachewatch counts the resident and dirty pages of a file or block
# device, and leaves the page cache as it is.  It counts by cachestat(2) and by
# mincore(2), live and in lines, and never opens a file for writing.  A file's
# name cannot control the terminal or forge lines.  --stats prints the
# statistics of the plugin, from a file or a log.  It says why pages may stay.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need jq gnuplot nbdcopy script strace

watch=$srcdir/../tools/cachewatch
page=$(getconf PAGESIZE)

# is FILE FILTER EXPECTED [OPTION...]
is ()
{
  local got

  got=$("$watch" --once --json "${@:4}" "$1" | jq -r ".files[0] | $2") ||
    fail "cachewatch $1"
  [ "$got" = "$3" ] || fail "$2 of $1 ${*:4}: $got, not $3"
}

# counts_file [OPTION...]: what is resident of the file, as another program does.
# It should be all, but where memory is idle the kernel may take some of it.
counts_file ()
{
  there=$(resident "$tmp/file")
  got=$("$watch" --once --json "$@" "$tmp/file" | jq '.files[0].resident') ||
    fail "cachewatch $*"
  [ "$there" -gt 0 ] && [ "$got" = $((there * page)) ]
}

mebibytes ()
{
  head -c "$2M" /dev/zero >"$1"
}

# A page stays dirty only until another process calls sync(2), so it is written
# repeatedly while a watch counts it.
dirty_is_seen ()
{
  mebibytes "$tmp/file" 8
  sleep 0.05
  grep -q "\"dirty\": $((8 << 20))," "$tmp/samples"
}

mebibytes "$tmp/file" 8
"$watch" --interval 0.01 --json "$tmp/file" >"$tmp/samples" &
watcher=$!
pids+=("$watcher")
eventually 60 dirty_is_seen || fail 'what is dirty is not counted'
kill "$watcher"
wait "$watcher" || fail "the watch ended with status $?"
is "$tmp/file" .size $((8 << 20))
eventually 5 counts_file || fail "$got bytes are resident, and not $there pages"
eventually 5 counts_file --mincore ||
  fail "$got bytes are resident by mincore, and not $there pages"
is "$tmp/file" .dirty null --mincore
sync "$tmp/file"
is "$tmp/file" .dirty 0
drop "$tmp/file"
is "$tmp/file" .resident 0
is "$tmp/file" .resident 0 --mincore

# The manual page explains what a program reads.
"$watch" --once --json "$tmp/file" | jq -r '.files[0] | keys[]' >"$tmp/keys"
while read -r key; do
  grep -q "^=item .*C<$key>" "$srcdir/../tools/nbdkit-cachewatch.pod" ||
    fail "$key of --json is not in the manual page"
done <"$tmp/keys"
[ "$("$watch" --once --tsv "$tmp/file" | head -n 1 | tr '\t' '\n' | sort)" = \
  "$({ echo seconds; grep -v bytes_per_second "$tmp/keys"; } | sort)" ] ||
  fail 'other columns than keys'

# What it looks at stays as it is: half of a file is cached, the rest is not.
dd if="$tmp/file" of="$tmp/sink" bs=4M count=1 status=none
map_at_rest "$tmp/file" "$tmp/map"
strace -f -e trace=openat,open,read,pread64 -o "$tmp/calls" \
  "$watch" --count 5 --interval 0.05 --tsv "$tmp/file" >"$tmp/tsv"
as_before "$tmp/file" "$tmp/map" 'after a watch' || fail "$taken"
grep -F "$tmp/file" "$tmp/calls" >"$tmp/opened" || fail 'was it not opened?'
! grep -E 'O_RDWR|O_WRONLY' "$tmp/opened" || fail 'it was opened for writing'
[ "$(wc -l <"$tmp/tsv")" = 6 ] || fail "$(wc -l <"$tmp/tsv") lines, not 6"
awk -F'\t' 'NF != 9 { exit 1 }' "$tmp/tsv" || fail 'fields of --tsv'

# Live, on a terminal, and the picture at the end.
script -qec "TERM=xterm $(printf %q "$watch") --count 3 --interval 0.1 \
  --plot $tmp/out.svg $tmp/file $tmp/sink" "$tmp/screen" >/dev/null ||
  fail 'on a terminal, with --plot'
grep -q resident "$tmp/screen" || fail 'nothing on the screen'
grep -q '<svg' "$tmp/out.svg" || fail 'out.svg is no SVG'

COLUMNS=20 "$watch" --once "$tmp/file" >"$tmp/screen" || fail 'narrow'
PYTHONIOENCODING=latin-1 "$watch" --once "$tmp/file" >"$tmp/screen" ||
  fail 'a locale without the characters of the bar'

if [ -e /dev/full ]; then
  ! "$watch" --once --tsv "$tmp/file" >/dev/full 2>"$tmp/err" ||
    fail 'full, and no error'
  grep -q 'standard output: No space left' "$tmp/err" || fail "$(<"$tmp/err")"
fi
"$watch" --once "$tmp/file" >&- || fail 'without a standard output'

# A file that is deleted while it is watched is marked.
cp "$tmp/file" "$tmp/gone"
is "$tmp/gone" .deleted false
rm "$tmp/samples" # which has lines of the first watch
"$watch" --interval 0.05 --json "$tmp/gone" >"$tmp/samples" &
watcher=$!
pids+=("$watcher")
eventually 20 grep -qs '"deleted": false' "$tmp/samples" || fail 'no sample'
rm "$tmp/gone"
eventually 20 grep -q '"deleted": true' "$tmp/samples" ||
  fail 'a deleted file is not marked'
kill "$watcher"
wait "$watcher" || fail "the watch ended with status $?"

# A name of control characters: ESC, C1, tab and newline; bytes that are no UTF-8.
odd=$tmp/$'e\e[2J\t\n9\tx\x7f\xc2\x9b\xff\\\xc3\xa4'
escaped=$tmp/'e\x1b[2J\x09\x0a9\x09x\x7f\xc2\x9b\xff\\ä'
cp "$tmp/file" "$odd"
"$watch" --count 1 --tsv "$odd" >"$tmp/tsv" || fail '--tsv of an odd name'
[ "$(tail -n +2 "$tmp/tsv" | cut -f 2)" = "$escaped" ] ||
  fail "--tsv: $(cat -v "$tmp/tsv")"
awk -F'\t' 'NF != 9 { exit 1 }' "$tmp/tsv" || fail 'a name forges fields'
is "$odd" '.path | sub(".*/"; "") | @json' \
  "$(jq -nc '"e\u001b[2J\t\n9\tx\u007f\u009b\ufffd\\ä"')"
"$watch" --once --json "$odd" >"$tmp/json"
! LC_ALL=C grep -q '[^ -~]' "$tmp/json" || fail "$(cat -v "$tmp/json")"
rm "$odd"
! "$watch" --once "$odd" 2>"$tmp/err" || fail 'a file that is not there'
grep -qF "$escaped: No such file" "$tmp/err" || fail "$(cat -v "$tmp/err")"

# Ctrl-C is how it ends, and the picture is drawn all the same.
rm "$tmp/out.svg" "$tmp/tsv"
env --default-signal=INT "$watch" --tsv --plot "$tmp/out.svg" "$tmp/file" \
  >"$tmp/tsv" &
watching=$!
pids+=("$watching")
eventually 20 grep -qs '^[0-9]' "$tmp/tsv" || fail 'it does not begin'
kill -INT "$watching"
wait "$watching" || fail 'Ctrl-C'
[ -s "$tmp/out.svg" ] || fail 'no picture after Ctrl-C'

# Why pages stay: below the screen, but not between lines for programs.
start_and_connect file "$tmp/file"
ask read 0 4K
"$watch" --once "$tmp/file" >"$tmp/screen"
grep -qE "^$tmp/file: [0-9,]+ pages; served by nbdkit \(pid $server\) without cache=none$" \
  "$tmp/screen" || fail "a server without cache=none: $(<"$tmp/screen")"
"$watch" --once --tsv "$tmp/file" >"$tmp/tsv"
[ "$(wc -l <"$tmp/tsv")" = 2 ] || fail "reasons in --tsv: $(<"$tmp/tsv")"
stop_nbdkit
hold_pages map "$tmp/file"
"$watch" --once "$tmp/file" >"$tmp/screen"
grep -q "; mapped by python3 (pid $holder)$" "$tmp/screen" ||
  fail "a process that maps the file: $(<"$tmp/screen")"
let_pages_go
"$watch" --once "$tmp/file" >"$tmp/screen"
[ "$(id -u)" != 0 ] || ! grep -q '; ' "$tmp/screen" ||
  fail "no reason: $(<"$tmp/screen")"

# Storage that is the page cache, and a file below a loop device.
if [ "$(id -u)" = 0 ]; then
  mkdir "$tmp/tmpfs"
  mounts+=("$tmp/tmpfs")
  mount -t tmpfs none "$tmp/tmpfs"
  echo >"$tmp/tmpfs/f"
  "$watch" --once "$tmp/tmpfs/f" >"$tmp/screen"
  grep -q 'it is on tmpfs, whose pages are its storage$' "$tmp/screen" ||
    fail "tmpfs: $(<"$tmp/screen")"
  cp "$tmp/file" "$tmp/backing"
  attach "$tmp/backing"
  "$watch" --once "$tmp/backing" >"$tmp/screen"
  grep -qE "; it is the backing file of $device(;|$)" "$tmp/screen" ||
    fail "a backing file: $(<"$tmp/screen")"

  attach "$tmp/file"
  is "$device" .size $((8 << 20))

  # The kernel refuses the counts of other users' files.
  chmod a+x "$tmp"
  else=(setpriv --reuid=65534 --regid=65534 --clear-groups)
  for how in --once --mincore; do
    # A user who cannot read the source folder cannot run it.
    "${else[@]}" "$watch" --help >/dev/null 2>&1 || break
    ! "${else[@]}" "$watch" --count 1 --json $how "$tmp/file" 2>"$tmp/err" ||
      fail 'another user sees the counts'
    grep -q 'only the owner, users who may write to the file, and root' \
      "$tmp/err" || fail "another user: $(<"$tmp/err")"
  done
  chmod go-x "$tmp"
fi

# Statistics for people, with units.
mkdir "$tmp/dir"
mebibytes "$tmp/dir/a" 1
mebibytes "$tmp/dir/"$'b\e' 2
start_nbdkit file dir="$tmp/dir" cache=none stats="$tmp/stats"
for name in a b%1B; do
  limited nbdcopy "nbd+unix:///$name?socket=$tmp/sock" null: ||
    fail "export $name"
done
stop_nbdkit
"$watch" --stats "$tmp/stats" >"$tmp/screen" || fail '--stats'
[ "$(grep -c '^[^ ]' "$tmp/screen")" = 2 ] || fail "$(<"$tmp/screen")"
for line in "^$tmp/dir/a, cache=none\$" "^$tmp/dir/b\\\\x1b, cache=none\$" \
  '^  read_bytes  *2\.0 MiB$' '^  writeback_wait_ns  *[0-9.]* ms$' \
  '^  disk_bytes_per_second  *[0-9.<]* MiB/s$' '^  writes  *[0-9]*$' \
  '^  counts_by  *[a-z]'; do
  grep -q "$line" "$tmp/screen" || fail "no $line: $(<"$tmp/screen")"
done
# Each key of the file.
jq -r '.disks[] | keys_unsorted[1:][]' "$tmp/stats" | diff - <(
  sed -n 's/^  \([a-z_]*\) .*/\1/p' "$tmp/screen"
) >&2 || fail "not all keys: $(<"$tmp/screen")"

# The last that are complete in a log, between other lines, by standard input.
{
  sed 's/^/nbdkit: file: /; s/"reads": [0-9]*/"reads": 1111/' "$tmp/stats"
  echo 'nbdkit: file: something else'
  sed 's/^/nbdkit: file: /; s/"reads": [0-9]*/"reads": 2222/
    2i nbdkit: debug: between' "$tmp/stats"
  echo 'nbdkit: file: the end'
} >"$tmp/journal"
"$watch" --stats - <"$tmp/journal" >"$tmp/screen" || fail '--stats of a log'
[ "$(grep -c '^  reads  *2,222$' "$tmp/screen")" = 2 ] ||
  fail "--stats of a log: $(<"$tmp/screen")"
# An interval leaves out the disks that were not used.
{
  cat "$tmp/stats"
  sed '1 s/"disks"/"changed": true, &/; 3,$ { /^{/ d }
    s/},$/}/; s/"reads": [0-9]*/"reads": 3333/' "$tmp/stats"
  sed '1 s/"disks"/"changed": true, &/; /^{"name/ d' "$tmp/stats"
  head -n 2 "$tmp/stats"    # a log may lose lines
  sed '1 s/"disks"/"changed": true, &/; /^{"name/ d' "$tmp/stats"
} >"$tmp/journal"
"$watch" --stats - <"$tmp/journal" >"$tmp/screen" || fail '--stats of intervals'
[ "$(grep -c '^  reads  *3,333$' "$tmp/screen") $(grep -c '^  reads ' "$tmp/screen")" = '1 2' ] ||
  fail "--stats of intervals: $(<"$tmp/screen")"
# The log of several servers has no server that is a mix of two.
sed '1 s/"disks"/"changed": true, &/; 1 s/"pid": /&1/; /^{"name/ d' \
  "$tmp/stats" >>"$tmp/journal"
"$watch" --stats - <"$tmp/journal" >"$tmp/screen" || fail '--stats of servers'
! grep -q ' reads ' "$tmp/screen" || fail "two servers: $(<"$tmp/screen")"
cat >"$tmp/forged" <<'END'
{"statistics": "nbdkit-file-plugin", "cache": "none", "disks": [
{"name": "e\u001b[2J\\x07", "reads": 1}
]}
END
"$watch" --stats "$tmp/forged" | grep -qxF 'e\x1b[2J\x07, cache=none' ||
  fail 'a forged name reaches the terminal'
sed 's/"reads": 1/"wait_ns": 1e999/' "$tmp/forged" >"$tmp/huge"
sed "s/\"reads\": 1/\"wait_ns\": 1$(printf '%0400d' 0)/" "$tmp/forged" \
  >"$tmp/long"
sed -i 2d "$tmp/forged"
"$watch" --stats "$tmp/forged" | grep -q 'no disk was opened yet' ||
  fail 'no disks'

# refused MESSAGE ARGUMENT...: one line, soon.
refused ()
{
  local status=0

  timeout 60 "$watch" "${@:2}" >"$tmp/out" 2>&1 || status=$?
  [ "$status" = 2 ] || fail "cachewatch ${*:2}: status $status"
  [ "$(wc -l <"$tmp/out")" = 1 ] || fail "${*:2}: not one line"
  grep -q -- "$1" "$tmp/out" || fail "${*:2}: $(cat "$tmp/out"), not $1"
}

mkfifo "$tmp/fifo"
refused 'No such file' "$tmp/none"
refused 'neither a regular file' "$tmp/fifo"
refused 'neither a regular file' "$tmp"
refused 'neither a regular file' /dev/null
refused 'interval=0' --interval 0 "$tmp/file"
refused 'count=0' --count 0 "$tmp/file"
refused 'plot=x.gif' --plot x.gif "$tmp/file"
# gnuplot takes it for a command.
(cd "$tmp" && "$watch" --once --plot '|touch made.svg' file >screen) ||
  fail 'a plot whose name begins with |'
[ ! -e "$tmp/made.svg" ] || fail 'the name of a plot was run'
[ -s "$tmp/|touch made.svg" ] || fail 'no plot'
refused "there is no folder $tmp/missing" --plot "$tmp/missing/x.svg" "$tmp/file"
refused 'not allowed with' --json --tsv "$tmp/file"
refused 'not allowed with' --stats --json "$tmp/stats"
refused 'No such file' --stats "$tmp/missing"
refused 'no complete statistics' --stats "$tmp/file"
head -n 2 "$tmp/stats" >"$tmp/half"
refused 'no complete statistics' --stats "$tmp/half"
refused 'no complete statistics' --stats "$tmp/long"
"$watch" --stats "$tmp/huge" >"$tmp/screen" || fail 'a huge number'
refused 'no FILE to watch'
