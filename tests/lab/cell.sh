# A job of the lab: what is promised of a place, one property after the other.
#
#   cell PLACE [PROPERTY...]
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154

make_place "$1"
make_source
properties=("${@:2}")
[ ${#properties[@]} -gt 0 ] ||
  properties=(copy preserve block-status zero space)
for property in "${properties[@]}"; do
  began=$SECONDS
  "property_$property"
  say "$property: $((SECONDS - began)) s"
done
