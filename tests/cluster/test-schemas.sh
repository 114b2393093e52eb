#!/usr/bin/env bash
# The manifests for Kubernetes match the schemas of several versions.  No manifest
# has a field that the schemas do not have, and the Job has its limit of memory.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need python3 cmp

# The validator, with the schemas in it, from PyPI; kept for the next time.
validator=kubernetes-validate==1.37.0
versions=(1.29 1.33 1.37)

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

manifest=$srcdir/../examples/kubernetes/convert-job.yaml
for version in "${versions[@]}"; do
  for example in "${manifest%/*}"/*.yaml; do
    valid "$example" "$version" ||
      fail "$example is not valid for Kubernetes $version"
  done
done

# The schemas refuse a misspelt field and a wrong type.
for change in s/backoffLimitPerIndex/backofLimitPerIndex/ \
  s/readOnlyRootFilesystem/readonlyRootFilesystem/ \
  's/completions: .*/completions: three/'; do
  sed "$change" "$manifest" >"$tmp/bad.yaml"
  ! cmp -s "$manifest" "$tmp/bad.yaml" || fail "$change: changes nothing"
  ! valid "$tmp/bad.yaml" "${versions[-1]}" || fail "$change: is not refused"
done

# What no schema has.
"$venv/bin/python" - "$manifest" <<'END' ||
import sys
import yaml
config, job = yaml.safe_load_all(open(sys.argv[1], encoding="utf-8"))
resources = job["spec"]["template"]["spec"]["containers"][0]["resources"]
assert job["spec"]["completions"] == len(config["data"]["list"].split())
assert resources["limits"]["memory"] == resources["requests"]["memory"]
END
  fail 'completions or the limit of memory are not what they should be'
