#!/usr/bin/env bash
# The example for Kubernetes: its manifests are what the schemas of several
# versions ask for, with no field that they do not have; its limit of memory is
# there; and its script, run here on folders in place of volumes, converts every
# disk of its list and leaves nothing in the page cache.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=lib.sh
. "${srcdir:-.}/lib.sh" || exit
need python3 nbdcopy qemu-img qemu-nbd cmp

# The validator, with the schemas in it, from PyPI; kept for the next time.
validator=kubernetes-validate==1.37.0
versions=(1.29 1.33 1.37)
manifest=$srcdir/../examples/kubernetes/convert-job.yaml

venv=$builddir/venv-$validator
if [ ! -e "$venv/complete" ]; then
  rm -rf "$venv"
  { python3 -m venv "$venv" &&
    timeout 300 "$venv/bin/pip" install --quiet --disable-pip-version-check \
      --only-binary=:all: "$validator" && touch "$venv/complete"
  } >"$tmp/log" 2>&1 || { cat "$tmp/log" >&2
    lacks "needs python3-venv, and $validator from PyPI"; }
fi

# valid FILE VERSION
valid ()
{
  "$venv/bin/kubernetes-validate" --strict -k "$2" "$1" >"$tmp/log" 2>&1
}

for version in "${versions[@]}"; do
  valid "$manifest" "$version" || fail "not valid for Kubernetes $version"
done

# invalid SED-COMMAND: the manifest so changed, which must be refused.
invalid ()
{
  sed "$1" "$manifest" >"$tmp/bad.yaml"
  ! cmp -s "$manifest" "$tmp/bad.yaml" || fail "$1: changes nothing"
  ! valid "$tmp/bad.yaml" "${versions[-1]}" || fail "$1: nobody minds"
}

invalid s/backoffLimitPerIndex/backofLimitPerIndex/
invalid s/readOnlyRootFilesystem/readonlyRootFilesystem/
invalid 's/completions: .*/completions: three/'
invalid s/restartPolicy:/restartPolicies:/

# What no schema knows; and the list and the script, taken out.
"$venv/bin/python" - "$manifest" "$tmp" <<'END' ||
import sys
import yaml
config, job = yaml.safe_load_all(open(sys.argv[1], encoding="utf-8"))
for name, text in config["data"].items():
    with open(f"{sys.argv[2]}/{name}", "w", encoding="utf-8") as f:
        f.write(text)
pod = job["spec"]["template"]["spec"]
resources = pod["containers"][0]["resources"]
assert job["spec"]["completions"] == len(config["data"]["list"].split())
assert resources["limits"]["memory"] == resources["requests"]["memory"]
END
  fail 'completions or the limit of memory are not what they should be'

# The script, with our nbdkit first in PATH and these folders as volumes.
mkdir "$tmp/in" "$tmp/out"
[[ $NBDKIT != */* ]] || export PATH=${NBDKIT%/*}:$PATH
sed "s|/etc/convert/|$tmp/|; s|/in/|$tmp&|; s|/out/|$tmp&|; s|/out\$|$tmp&|" \
  "$tmp/convert" >"$tmp/here"

mapfile -t disks <"$tmp/list"
for i in "${!disks[@]}"; do
  random_file "$tmp/raw.$i" $(((i + 1) * 1048576))
  qemu-img convert -f raw -O qcow2 "$tmp/raw.$i" "$tmp/in/${disks[i]}"
  JOB_COMPLETION_INDEX=$i limited sh "$tmp/here" >"$tmp/log" 2>&1 ||
    fail "converting ${disks[i]}"
  out=$tmp/out/${disks[i]%.qcow2}.raw
  empty_now "$out" 'after converting'
  same "$tmp/raw.$i" "$out"
done

# Tried again, and with nothing to do.
JOB_COMPLETION_INDEX=0 limited sh "$tmp/here" >"$tmp/log" 2>&1 ||
  fail 'converting a second time'
! JOB_COMPLETION_INDEX=${#disks[@]} limited sh "$tmp/here" >"$tmp/log" 2>&1 ||
  fail 'an index beyond the list succeeds'
rm "$tmp/in/${disks[0]}"
! JOB_COMPLETION_INDEX=0 limited sh "$tmp/here" >"$tmp/log" 2>&1 ||
  fail 'converting nothing succeeds'
