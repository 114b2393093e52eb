#!/usr/bin/env bash
# "tools/cachewatch --stats --prometheus" turns the statistics of servers into
# metrics that Prometheus' parser reads, with the right names, types and numbers.
# Each number of the statistics is in one metric, the documents list each metric,
# and the alerting rules name existing ones.  If one file has no statistics, or
# has the name of another, there are no metrics.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
python=/usr/bin/python3         # the one that Debian's packages are for
need $python jq
$python -c 'import prometheus_client.parser' 2>/dev/null ||
  lacks 'needs python3-prometheus-client'

disk=$tmp/disk
watch=$srcdir/../tools/cachewatch
examples=$srcdir/../examples/node-exporter

# parse FILE...: write a line for each sample, "name labels value", sorted, to
# $tmp/parsed.  Fails if the textfile collector of node_exporter would refuse
# the metrics: it has no other types, and no sample comes twice.
parse ()
{
  "$watch" --stats --prometheus "$@" >"$tmp/metrics" || fail "status $?: $*"
  $python - "$tmp/metrics" >"$tmp/parsed" <<'END' ||
import sys
from prometheus_client import parser
lines, families = [], []
with open(sys.argv[1], encoding="utf-8", newline="\n") as f:
    for m in parser.text_fd_to_metric_families(f):
        families.append(m.name)
        assert m.type in ("counter", "gauge"), m
        assert m.documentation.endswith("."), m
        assert m.samples, m
        for s in m.samples:
            assert s.name.endswith("_total") == (m.type == "counter"), m
            labels = ",".join(f"{k}={v!r}" for k, v in sorted(s.labels.items()))
            lines.append(f"{s.name.removeprefix('nbdkit_file_')} {labels} "
                         f"{s.value:.12g}")
names = [line.rpartition(" ")[0] for line in lines]
assert len(set(names)) == len(names), names
assert len(set(families)) == len(families), families
print("\n".join(sorted(lines)))
END
    fail "no metrics: $(cat "$tmp/metrics")"
}

# has SAMPLE: as parse writes it.
has ()
{
  grep -qxF -- "$1" "$tmp/parsed" || fail "no $1: $(cat "$tmp/parsed")"
}

# changed FILE CODE: one.json after this code in Python.
changed ()
{
  $python - "$tmp/one.json" "$2" >"$tmp/$1" <<'END'
import json, sys
with open(sys.argv[1], encoding="utf-8") as f:
    stats = json.load(f)
disks = stats.pop("disks")
disk = disks[0]
exec(sys.argv[2])
print(json.dumps(stats)[:-1] + ', "disks": [',
      ",\n".join(map(json.dumps, disks)), "]}", sep="\n")
END
}

# refused MESSAGE FILE...: by one line that has the message, without metrics.
refused ()
{
  local status=0

  "$watch" --stats --prometheus "${@:2}" >"$tmp/metrics" 2>"$tmp/err" ||
    status=$?
  [ "$status" = 2 ] || fail "${*:2}: status $status, not 2"
  grep -qF -- "$1" "$tmp/err" || fail "${*:2}: $(<"$tmp/err"), not $1"
  [ "$(wc -l <"$tmp/err")" = 1 ] || fail "${*:2}: $(<"$tmp/err")"
  [ ! -s "$tmp/metrics" ] || fail "${*:2}: $(<"$tmp/metrics")"
}

truncate -s 64M "$disk"
start_and_connect file "$disk" cache=none stats="$tmp/one.json"
for i in {0..255}; do ask write $((i * 4096)) 4096; done
ask flush
ask read 0 131072               # too long to be read past the page cache
stop_nbdkit
one=$server
parse "$tmp/one.json"
cp "$tmp/parsed" "$tmp/alone"
# The documents list each metric, and the alerting rules have no others.
sed 's/ .*//' "$tmp/parsed" | sort -u >"$tmp/names"
while read -r metric; do
  grep -qE "[\`_]${metric}[\`{]" "$srcdir/../docs/service.md" ||
    fail "docs/service.md lacks $metric"
done <"$tmp/names"
grep -o 'nbdkit_file_[a-z_]*' "$examples/alerts.yaml" | sort -u >"$tmp/alerted"
[ -s "$tmp/alerted" ] || fail 'no metric in the alerting rules'
sed 's/^/nbdkit_file_/' "$tmp/names" | comm -13 - "$tmp/alerted" >"$tmp/other"
[ ! -s "$tmp/other" ] || fail "alerting rules of no metric: $(<"$tmp/other")"

version=$("$NBDKIT" file --version | sed -n 's/^file //p')
at="disk='$disk'"
has "plugin_info cache='none',pid='$one',server='one',version='$version' 1"
has "requests_total $at,operation='write',server='one' 256"
has "requests_total $at,operation='flush',server='one' 1"
has "request_bytes_total $at,operation='write',server='one' $((256 * 4096))"
has "request_bytes_total $at,operation='read',server='one' 131072"
has "evicted_bytes_total $at,server='one' $((256 * 4096))"
has "failed_requests_total $at,server='one' 0"
grep -qE "^kernel_call_info call='[a-z]+.*',$at,purpose='wait',server='one' 1\$" \
  "$tmp/parsed" || fail "no call that waits for writeback: $(cat "$tmp/parsed")"

# Two servers of one image: each sample has its server, and nothing else changes.
rm "$disk"
truncate -s 64M "$disk"
start_and_connect file "$disk" stats="$tmp/a \"b\""
ask read 0 4096
stop_nbdkit
parse "$tmp/one.json" "$tmp/a \"b\""
has "plugin_info cache='default',pid='$server',server='a \"b\"',version='$version' 1"
has "requests_total $at,operation='read',server='a \"b\"' 1"
grep -F "server='one'" "$tmp/parsed" | diff "$tmp/alone" - >&2 ||
  fail 'another server changes the metrics of the first'
sed "s/server='[^']*'//" "$tmp/parsed" | sed 's/ [^ ]*$//' >"$tmp/samples"
grep -v '^plugin_info\|^kernel_call' "$tmp/samples" | sort | uniq -c |
  awk '$1 != 2 { exit 1 }' || fail "not the same of both: $(<"$tmp/parsed")"

# Each number of the statistics is in one sample, and times are in seconds: each
# gets a number of its own.
changed numbers 'disk["name"] = "b\"\\"
for i, (key, value) in enumerate(disk.items()):
    if isinstance(value, int):
        disk[key] = 500000000 + i * 10**9 if key.endswith("_ns") else 1000 + i'
parse "$tmp/numbers"
jq -r '.disks[0] | to_entries[] | select(.value | type == "number")
  | if .key | endswith("_ns") then .value / 1e9 else .value end' \
  "$tmp/numbers" | sort >"$tmp/given"
grep -F "disk='b\"\\\\'" "$tmp/parsed" | grep -v ^kernel_call_info |
  sed 's/.* //' | sort | diff "$tmp/given" - >&2 ||
  fail "not each number once: $(<"$tmp/parsed")"
jq -r '.disks[0] | to_entries[1:][] | select(.value | type == "string")
  | "call=\u0027\(.value)\u0027"' "$tmp/numbers" | sort >"$tmp/given"
sed -n "s/^kernel_call_info \(call='.*'\),disk=.*/\1/p" "$tmp/parsed" | sort |
  diff "$tmp/given" - >&2 || fail "not each call once: $(<"$tmp/parsed")"

# Names stay in any locale.
changed japanese 'disk["name"] = "\u65e5"
disks.append(disk | {"name": "\u672c"})'
parse "$tmp/japanese"
PYTHONIOENCODING=ascii "$watch" --stats --prometheus "$tmp/japanese" |
  cmp - "$tmp/metrics" || fail 'a locale changes names'

# No image was opened yet; the log of a server, by standard input.
changed none 'disks.clear()'
"$watch" --stats --prometheus "$tmp/none" | grep -v '^#' >"$tmp/metrics"
grep -q '^nbdkit_file_plugin_info{server="none",' "$tmp/metrics" ||
  fail "no server without images: $(<"$tmp/metrics")"
sed 's/^/nbdkit: file: /' "$tmp/one.json" |
  "$watch" --stats --prometheus - >"$tmp/metrics" || fail 'of a log'
grep -q '{server="-",' "$tmp/metrics" || fail "of a log: $(<"$tmp/metrics")"

# A file of something else, also beside one of statistics, makes no metrics.
echo '{"a": 1}' >"$tmp/other"
changed old 'del stats["pid"]'
changed incomplete 'del disk["reads"]'
changed wrong 'disk["reads"] = "x"'
head -n 2 "$tmp/one.json" >"$tmp/half"
for file in other old incomplete wrong half; do
  refused "$tmp/$file: no complete statistics of nbdkit's file plugin" \
    "$tmp/one.json" "$tmp/$file"
done
refused "$tmp/missing: No such file" "$tmp/one.json" "$tmp/missing"
mkdir "$tmp/dir"
cp "$tmp/one.json" "$tmp/dir/one"
refused "$tmp/dir/one: its metrics would have the label server=\"one\" of $tmp/one.json" \
  "$tmp/one.json" "$tmp/dir/one"
! "$watch" --prometheus "$tmp/one.json" 2>"$tmp/err" || fail 'without --stats'
grep -q 'only allowed with --stats' "$tmp/err" || fail "$(<"$tmp/err")"
