# A job of the lab: what is promised of a place, one property after the other,
# by the stock plugin (not if alone) and by ours.
#
#   cell PLACE [alone] [PROPERTY...]
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154

# shellcheck source=../lib/lib.sh
. "$srcdir/lib/lib.sh" || exit
# shellcheck source=places.sh
. "$srcdir/lab/places.sh"
# shellcheck source=measure.sh
. "$srcdir/lab/measure.sh"

place=$1 alone=''
shift
[ "${1:-}" != alone ] || { alone=yes; shift; }
properties=("$@")
[ ${#properties[@]} -gt 0 ] ||
  properties=(copy left peak-writing peak-reading preserve block-status zero
    space)
result nbdkit "$("$stock" --version)"
"place_$place"
make_source

declare -A seen
[ -n "$alone" ] || stock_serves || alone=yes
for property in "${properties[@]}"; do
  seen[$property]=${refused:--}
  [ -z "$alone" ] || continue
  began=$SECONDS
  "property_$property" "$stock"
  seen[$property]=$value
  say "stock $property: $value, $((SECONDS - began)) s"
done
for property in "${properties[@]}"; do
  began=$SECONDS
  "property_$property" "$ours"
  say "ours $property: $value (${kept:--}), $((SECONDS - began)) s"
  result row "$place" "$property" "$value" "${seen[$property]}" "$kept"
done
