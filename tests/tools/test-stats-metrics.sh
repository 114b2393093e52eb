#!/usr/bin/env bash
# stats-format=openmetrics writes what a parser of OpenMetrics reads, with the
# right names, types, units and numbers.  The test has names of all bytes.
# Prometheus' older parser reads the file, too.  With stats-interval= the file
# is written at that interval, and a reader never sees half of it.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
python=/usr/bin/python3         # the one that Debian's packages are for
need $python nbdcopy
$python -c 'import prometheus_client.openmetrics.parser' 2>/dev/null ||
  lacks 'needs python3-prometheus-client'

disk=$tmp/disk
stats=$tmp/disks.prom

# parsed FILE: a line for each sample, "name labels value", sorted.  Fails if it
# is not OpenMetrics, or not what node exporter's textfile collector takes: no
# type but these two.
parsed ()
{
  $python - "$1" <<'END'
import sys
from prometheus_client import openmetrics, parser
import prometheus_client.openmetrics.parser
def read():
    return open(sys.argv[1], encoding="utf-8", newline="\n")
lines = []
for m in openmetrics.parser.text_fd_to_metric_families(read()):
    assert m.type in ("counter", "gauge"), m
    assert m.documentation.endswith("."), m
    assert m.unit == next((u for u in ("bytes", "seconds")
                           if m.name.endswith("_" + u)), ""), m
    for s in m.samples:
        labels = ",".join(f"{k}={v!r}" for k, v in sorted(s.labels.items()))
        lines.append(f"{s.name.removeprefix('nbdkit_file_')} {labels} {s.value:.12g}")
older = sum(len(m.samples)
            for m in parser.text_fd_to_metric_families(read()))
assert older == len(lines), (older, len(lines))
print("\n".join(sorted(lines)))
END
}

# has SAMPLE: as parsed prints it.
has ()
{
  parsed "$stats" >"$tmp/parsed" || fail "not OpenMetrics: $(cat "$stats")"
  grep -qxF -- "$1" "$tmp/parsed" || fail "no $1: $(cat "$tmp/parsed")"
}

truncate -s 64M "$disk"
start_nbdkit file "$disk" cache=none stats="$stats" stats-format=openmetrics
client_start "$uri"
for i in {0..255}; do ask write $((i * 4096)) 4096; done
ask flush
ask read 0 131072               # too long to be read past the page cache
client_stop
stop_nbdkit
here="disk='$disk'"
# The manual page explains each metric.
parsed "$stats" | sed 's/ .*//; s/_total$//' | sort -u >"$tmp/metrics"
[ "$(wc -l <"$tmp/metrics")" -gt 10 ] || fail "metrics: $(<"$tmp/metrics")"
sed -n '/^=head1 STATISTICS/,/^=head1 ERRORS/p' \
  "$srcdir/../docs/nbdkit-file-plugin.pod" >"$tmp/manual"
while read -r metric; do
  grep -q "C<$metric>" "$tmp/manual" || fail "the manual lacks $metric"
done <"$tmp/metrics"

has "plugin_info cache='none',version='$("$NBDKIT" file --version |
  sed -n 's/^file //p')' 1"
has "requests_total $here,operation='write' 256"
has "requests_total $here,operation='flush' 1"
has "request_bytes_total $here,operation='write' $((256 * 4096))"
has "request_bytes_total $here,operation='read' 131072"
# The read has a window of its own.
has "window_requests_total $here 257"
has "window_extents_total $here 2"
has "evicted_bytes_total $here $((256 * 4096 + 131072))"
has "failed_requests_total $here 0"
has "held_back_seconds_total $here 0"
grep -qE "^kernel_call_info call='[a-z]+.*',$here,purpose='wait' 1\$" \
  "$tmp/parsed" || fail "no call that waits for writeback: $(cat "$tmp/parsed")"
[ "$(tail -n 1 "$stats")" = '# EOF' ] || fail 'no # EOF'

# Names of all kinds of bytes.  Two differ only in a byte that is not UTF-8.
mkdir "$tmp/dir"
printf 1 >"$tmp/dir/"$'b"\\\n\x01\xff\xc3\xa4'
printf 1 >"$tmp/dir/"$'b"\\\n\x01\xfe\xc3\xa4'
# The name of one file is the escaped name of the other.
printf 1 >"$tmp/dir/"$'a\xff'
printf 1 >"$tmp/dir/a\\xff"
start_nbdkit file dir="$tmp/dir" stats="$stats" stats-format=openmetrics
for name in b%22%5C%0A%01%F{E,F}%C3%A4 a%FF a%5Cxff; do
  limited nbdcopy "nbd+unix:///$name?socket=$tmp/sock" null: ||
    fail "export $name"
done
stop_nbdkit
for i in e f; do
  has "sweeps_total disk='$tmp/dir/b\""'\\\\\\x0a\\x01\\xf'"${i}ä' 0"
done

# The server writes when it starts and then every second.  A reader that has the
# file open keeps the old statistics.
rm "$stats"
start_nbdkit file "$disk" stats="$stats" stats-format=openmetrics \
  stats-interval=1
has "plugin_info cache='default',version='$("$NBDKIT" file --version |
  sed -n 's/^file //p')' 1"
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
reads ()
{
  grep -qxF "nbdkit_file_requests_total{disk=\"$disk\",operation=\"read\"} $1" \
    "$stats"
}
eventually 10 reads 1 || fail 'nothing after a second'
ask read 33554432 4096
eventually 10 reads 2 || fail 'nothing after another'
[ "$(stat -c %a-%u:%g "$stats")" = "640-$owner" ] ||
  fail "mode and owner $(stat -c %a-%u:%g "$stats")"
[ "$(cat "$stats.$server")" = "not statistics" ] || fail 'the wrong file is gone'
rm "$stats.$server"
cat <&8 >"$tmp/old"
[ "$(tail -n 1 "$tmp/old")" = '# EOF' ] || fail 'half of the old file'
! grep -q operation "$tmp/old" || fail 'the old file was written to'
exec 8<&-

# SIGUSR1 in between; many times while it is read.
kill -USR1 "$server"
for ((i = 0; i < 200; i++)); do
  kill -USR1 "$server"
  [ "$(tail -n 1 "$stats")" = '# EOF' ] || fail 'half of the file was read'
done
ask read 33554432 4096
kill -USR1 "$server"
eventually 10 reads 3 || fail 'nothing after many signals'
# Another file in the place of the statistics is not overwritten.  Not while
# statistics are being written.
sleep 0.2
printf 'not statistics' >"$tmp/text"
mv "$tmp/text" "$stats"
ask read 33554432 4096
kill -USR1 "$server"
says () { grep -qF -- "$1" "$tmp/log"; }
eventually 10 says 'does not contain statistics, so it is not overwritten' ||
  fail 'nothing about a file that is something else'
[ "$(cat "$stats")" = 'not statistics' ] || fail 'it was overwritten'
rm "$stats"
eventually 10 reads 4 || fail 'it does not come back'
client_stop
stop_nbdkit
[ "$(echo "$stats"*)" = "$stats" ] || fail "left: $(echo "$stats"*)"

# Other formats, as often.
start_nbdkit file "$disk" stats="$stats" stats-format=json stats-interval=60
stop_nbdkit
grep -q '^{"statistics"' "$stats" || fail 'no JSON'
start_nbdkit file "$disk" stats=- stats-interval=1
eventually 10 says "Statistics of nbdkit's file plugin" || fail 'not in the log'
stop_nbdkit

# refused MESSAGE PARAMETER...
refused ()
{
  ! "$NBDKIT" -U "$tmp/none" file "$disk" "${@:2}" --run true 2>"$tmp/err" ||
    fail "taken: ${*:2}"
  grep -qF -- "$1" "$tmp/err" || fail "${*:2}: $(cat "$tmp/err")"
}

for value in 0 -1 86401 1.5 x ''; do
  refused "stats-interval=$value: must be a number of seconds from 1 to 86400" \
    stats=- stats-interval="$value"
done
refused 'stats-interval=5: has no effect without stats=FILE' stats-interval=5
refused 'was given before' stats=- stats-interval=5 stats-interval=5
cp "$disk" "$tmp/image"
refused "stats=$tmp/image: this file does not contain statistics" \
  stats="$tmp/image" stats-interval=5
same "$disk" "$tmp/image"
refused 'is not a regular file' stats=/dev/null stats-interval=5
refused "stats=$tmp/none/stats: " stats="$tmp/none/stats" stats-interval=5
