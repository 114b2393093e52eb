# A job of the lab: a server that is nobody, of a file that it may only read.  The
# kernel does not report to it what is in memory, by cachestat(2) or mincore(2).
#
#   unprivileged
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2034,SC2154

need_root
make_place ext4
place=unprivileged
make_source
filled
chmod a+rx "$folder"
chmod 1777 "$tmp"             # for the socket
chmod 644 "$target"

# serve_as_nobody CACHE
serve_as_nobody ()
{
  start_nbdkit -u nobody -g nogroup -r file "$target" "cache=$1"
}

# read_in REQUEST-SIZE
read_in ()
{
  watched patient nbdcopy --connections="$connections" --request-size="$1" \
    "$uri" null:
}

pages=() highest=0
serve_as_nobody none
for bytes in 4096 262144; do
  drop "$target"
  read_in $bytes
  [ "$status" = 0 ] || fail "$(<"$tmp/out")"
  pages+=("$(settled)")
  highest=$((most > highest ? most : highest))
done
stop_nbdkit
left "${pages[@]}"
peak reading $highest

# Half of it is in memory: it stays, or the server reports that it cannot know.
half_resident
serve_as_nobody preserve
read_in 262144
stop_nbdkit
compare_maps "$target" "$tmp/before"
if [ "$status" != 0 ]; then
  row preserve 'refuses' grep -q cache=preserve "$tmp/log"
else
  row preserve "kept $stayed of $resident, added $added" preserved
fi
