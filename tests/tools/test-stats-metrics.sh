#!/usr/bin/env bash
# examples/node-exporter/metrics.jq turns a statistics file into metrics that
# Prometheus' parser reads, with the right names, types and numbers.  Each counter
# of the file is in a metric.
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
stats=$tmp/stats
filter=$srcdir/../examples/node-exporter/metrics.jq

# parse FILE [OPTION...]: write a line for each sample, "name labels value", sorted, to
# $tmp/parsed.  Fails if the textfile collector of node_exporter would refuse
# the metrics: it has no other types, and no sample comes twice.
parse ()
{
  jq -r -f "$filter" "${@:2}" "$1" >"$tmp/metrics" || fail "jq: $(cat "$1")"
  $python - "$tmp/metrics" >"$tmp/parsed" <<'END' ||
import sys
from prometheus_client import parser
lines = []
with open(sys.argv[1], encoding="utf-8", newline="\n") as f:
    for m in parser.text_fd_to_metric_families(f):
        assert m.type in ("counter", "gauge"), m
        assert m.documentation.endswith("."), m
        for s in m.samples:
            assert s.name.endswith("_total") == (m.type == "counter"), m
            labels = ",".join(f"{k}={v!r}" for k, v in sorted(s.labels.items()))
            lines.append(f"{s.name.removeprefix('nbdkit_file_')} {labels} "
                         f"{s.value:.12g}")
names = [line.rpartition(" ")[0] for line in lines]
assert len(set(names)) == len(names), names
print("\n".join(sorted(lines)))
END
    fail "no metrics: $(cat "$tmp/metrics")"
}

# has SAMPLE: as parse writes it.
has ()
{
  grep -qxF -- "$1" "$tmp/parsed" || fail "no $1: $(cat "$tmp/parsed")"
}

truncate -s 64M "$disk"
start_and_connect file "$disk" cache=none stats="$stats"
for i in {0..255}; do ask write $((i * 4096)) 4096; done
ask flush
ask read 0 131072               # too long to be read past the page cache
stop_nbdkit
here="disk='$disk'"
parse "$stats"
# The documents list each metric.
sed 's/ .*//' "$tmp/parsed" | sort -u >"$tmp/names"
[ "$(wc -l <"$tmp/names")" -gt 10 ] || fail "metrics: $(<"$tmp/names")"
while read -r metric; do
  grep -qE "[\`_]${metric}[\`{]" "$srcdir/../docs/service.md" ||
    fail "docs/service.md lacks $metric"
done <"$tmp/names"

has "plugin_info cache='none',version='$("$NBDKIT" file --version |
  sed -n 's/^file //p')' 1"
has "requests_total $here,operation='write' 256"
has "requests_total $here,operation='flush' 1"
has "request_bytes_total $here,operation='write' $((256 * 4096))"
has "request_bytes_total $here,operation='read' 131072"
has "evicted_bytes_total $here $((256 * 4096))"
has "failed_requests_total $here 0"
grep -qE "^kernel_call_info call='[a-z]+.*',$here,purpose='wait' 1\$" \
  "$tmp/parsed" || fail "no call that waits for writeback: $(cat "$tmp/parsed")"
# The name of the server keeps those of two servers apart.
cp "$tmp/parsed" "$tmp/unnamed"
parse "$stats" --arg server 'a "b"'
grep -vF "server='a \"b\"'" "$tmp/parsed" && fail 'samples without their server'
sed "s/,server='a \"b\"'//" "$tmp/parsed" | sort >"$tmp/without"
diff "$tmp/unnamed" "$tmp/without" >&2 || fail 'the name changes more'
# Each counter of the file is in one sample, and times are in seconds.
jq '.disks[0] |= with_entries(select(.value | type == "number") |=
    (.value = if .key | endswith("_ns") then 12345678900 else 987 end))
  | .disks[0].name = "b\"\\"' "$stats" >"$tmp/numbers"
parse "$tmp/numbers"
grep -F "disk='b\"\\\\'" "$tmp/parsed" | grep -v ^kernel_call_info | sed 's/.* //' |
  sort | uniq -c >"$tmp/values"
diff -b - "$tmp/values" >&2 <<END || fail "samples: $(<"$tmp/parsed")"
 3 12.3456789
 $(jq '.disks[0] | length - 7' "$tmp/numbers") 987
END

# A file of something else makes no metrics.
! jq -r -f "$filter" <<<'{"a": 1}' >"$tmp/metrics" 2>"$tmp/err" ||
  fail 'metrics of something else'
grep -q "no statistics of nbdkit's file plugin" "$tmp/err" ||
  fail "$(<"$tmp/err")"
[ ! -s "$tmp/metrics" ] || fail "of something else: $(<"$tmp/metrics")"
