# What the contract promises of a place, measured: each property_NAME reports
# rows.
#
# Sourced after places.sh.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2034,SC2154

MiB=1048576
size=$((64 * MiB))            # of the data that is copied
page=$(getconf PAGESIZE)
connections=2
threads=16                      # of nbdkit, for each connection
request=$((256 * 1024))         # nbdcopy's
in_flight=$((connections * threads * request))
source=/dev/shm/windowed-lab-$$
undo rm -f "$source"

# ---- results ----

# row PROPERTY SEEN [COMMAND...]: as promised if the command succeeds.  Without a
# command nothing is promised, nor of $unpromised, with blanks around each.
unpromised=''
row ()
{
  local verdict=''

  [ $# = 2 ] || [[ $unpromised = *" $1 "* ]] ||
    { if "${@:3}"; then verdict=yes; else verdict=no; fi; }
  say "$1: $2 (${verdict:--})"
  result row "$place" "$1" "$2" "$verdict"
}

# failed PROPERTY: a client, with its output in $tmp/out.  Ends the server.
failed ()
{
  stop_nbdkit
  row "$1" "fails: $(tail -n 1 "$tmp/out" | cut -c 1-100)" false
}

# left PAGES...: in the page cache.  None is promised.
left ()
{
  local seen=$*

  row left "${seen// /, } pages" [ -z "${seen//[0 ]/}" ]
}

# peak writing|reading PAGES: the maximum in the page cache.  Promised: 32 MiB,
# the requests in flight, and for a reader twice the readahead.
peak ()
{
  local allowed=$((32 * MiB + in_flight))

  [ "$1" = writing ] || [ -z "$read_ahead_of" ] ||
    allowed=$((allowed + connections * 2 * $(read_ahead "$read_ahead_of")))
  row "peak-$1" "$(($2 * page / MiB)) MiB" [ $(($2 * page)) -le $allowed ]
}

# ---- the target and its pages ----

# Does not wait forever, whatever the machine.
patient ()
{
  timeout --foreground -k 5 900 "$@"
}

# make_source: no two blocks of 8 bytes are the same, none is zeroes.
make_source ()
{
  patient nbdcopy -- [ nbdkit --exit-with-parent pattern "$size" ] "$source" ||
    fail "no source"
  printf 'the very first' | dd of="$source" conv=notrunc status=none
}

# fresh: the target is as large as the data, and holes where it can have them.
fresh ()
{
  if [ -b "$target" ]; then
    blkdiscard -f "$target" 2>/dev/null || :
  else
    rm -f "$target"
    truncate -s "$size" "$target"
  fi
  sync
  drop "$target"
}

# filled [FILE...]: the target has old data (the source, if no file is named), all
# of it on the disk and none in memory.
filled ()
{
  local at=0 file

  [ $# -gt 0 ] || set -- "$source"
  [ -b "$target" ] || rm -f "$target"
  for file; do
    dd if="$file" of="$target" bs=1M oflag=seek_bytes seek=$at conv=notrunc \
      status=none
    at=$((at + $(stat -c %s "$file")))
  done
  drop "$target"
}

# mincore(2) and cachestat(2) do not see the same everywhere: the larger.
pages_left ()
{
  local a b

  a=$("$builddir/lib/without-cachestat" "$builddir/lib/residency" "$target")
  b=$("$builddir/lib/residency" "$target")
  echo $((a > b ? a : b))
}

none_left ()
{
  [ "$(pages_left)" = 0 ]
}

# settled: pages that are left in the end.
settled ()
{
  [ "$place" = tmpfs ] || eventually 1 none_left || :
  pages_left
}

# watched COMMAND...: $most is the most pages of the target that were in memory
# while it ran, and $status how it ended.
watched ()
{
  local watch_under=("$builddir/lib/without-cachestat")

  watch_start "$target"
  status=0
  "$@" >"$tmp/out" 2>&1 || status=$?
  watch_end || :
}

# has_data FILE: the target begins with it.
has_data ()
{
  cmp -n "$size" "$1" "$target" >/dev/null
}

# serve [CACHE]
serve ()
{
  start_nbdkit file "$target" "cache=${1:-none}"
}

# ---- properties ----

# Two copies in, with a flush and without, and two out, in large and small
# requests.
property_copy ()
{
  local flush identical=yes high=0 written=() reading

  fresh
  serve
  for flush in --flush ''; do
    watched patient nbdcopy ${flush:+"$flush"} --connections=$connections \
      "$source" "$uri"
    [ "$status" = 0 ] || { failed copy; return; }
    high=$((most > high ? most : high))
    written+=("$(settled)")
    has_data "$source" || identical="in, ${flush:-no flush}: different"
    drop "$target"
  done
  watched patient nbdcopy --connections=$connections "$uri" "$tmp/copy"
  [ "$status" = 0 ] || { failed copy; return; }
  reading=$(settled)
  has_data "$tmp/copy" || identical='out: different'
  rm "$tmp/copy"
  drop "$target"
  patient nbdcopy --request-size=16384 "$uri" null:
  row copy "$identical" [ "$identical" = yes ]
  if [ "$place" = tmpfs ]; then
    row left "$(settled) pages, which are its storage"
  else
    left "${written[@]}" "$reading" "$(settled)"
    peak writing "$high"
    peak reading "$most"
  fi
  stop_nbdkit
}

# preserved: as was promised?  Some machines take pages back on their own, early.
preserved ()
{
  local percent=95

  [ -z "${LAB_DISKS:-}" ] || percent=100
  [ $((stayed * 100)) -ge $((resident * percent)) ] && [ "$added" = 0 ]
}

# half_resident: the first half of the target is in memory, and all that was to
# be read ahead: mincore(2) does not see a page that is on its way.  Before Linux
# 5.16, the read at the end, as cat(1) makes, leaves a page beyond it.
half_resident ()
{
  drop "$target"
  dd if="$target" of=/dev/null bs=1M skip=$((size / MiB)) count=1 status=none
  dd if="$target" of=/dev/null bs=1M count=$((size / MiB / 2)) status=none
  eventually 2 map_repeats "$target" "$tmp/before" ||
    fail "readahead does not end"
}

# Half of it is resident before.
property_preserve ()
{
  local how seen kept=true value=''

  filled
  for how in read write; do
    half_resident
    serve preserve
    if [ $how = read ]; then
      watched patient nbdcopy "$uri" null:
    else
      watched patient nbdcopy --flush "$source" "$uri"
    fi
    stop_nbdkit
    if [ "$status" != 0 ]; then
      seen="refuses to $how" kept=false
    else
      compare_maps "$target" "$tmp/before"
      seen="$how: kept $stayed of $resident, added $added"
      preserved || kept=false
    fi
    value=${value:+$value; }$seen
  done
  row preserve "$value" $kept
}

# quick_writes: small ones in eight ways, through two servers and past them, for 6
# seconds: see stale-map.py.
quick_writes ()
{
  local files=({1..8}) first i

  mkdir -p "$folder/stale"
  for i in "${files[@]}"; do truncate -s 64M "$folder/stale/$i"; done
  start_nbdkit file "dir=$folder/stale" cache=none
  mv "$tmp/sock" "$tmp/other"
  first=$job
  start_nbdkit file "dir=$folder/stale"
  status=0
  timeout --foreground 6 "$srcdir/lib/stale-map.py" 1000000 1 "$tmp/sock" \
    "$tmp/other" "$folder/stale" "${files[@]}" >"$tmp/out" 2>&1 || status=$?
  stop_nbdkit
  kill "$first"
  eventually 20 gone "$first" || fail "the other server does not end"
  rm -r "$folder/stale"
}

property_block-status ()
{
  local out seen kept=true slow='no slow write'

  [ -n "$folder" ] || { row block-status 'no holes'; return; }
  rm -f "$target"
  patient /usr/bin/python3 "$srcdir/serve/slow-writes.py" "$NBDKIT" 6 "$target" \
    >"$tmp/out" 2>&1 || slow=$(tail -n 1 "$tmp/out") kept=false
  quick_writes
  out=$(<"$tmp/out")
  case $status-$out in
    124-) seen='no quick one' ;;
    *'are a hole after '*) seen="a quick one by ${out##* after }" kept=false ;;
    *': only 0 bytes are a hole' | *': trim: '*) seen='no holes by trim' ;;
    *) seen=$(tail -n 1 <<<"$out") kept=false ;;
  esac
  row block-status "$slow, $seen" $kept
}

# One request of 80 MiB over old data (some ways end at 64), and a small one; the
# data behind them stays.  A small write afterwards must not bring back old bytes
# beside it, as it would if the range had been discarded on a thin volume without
# block zeroing.
property_zero ()
{
  local flag more=$tmp/more tail=$tmp/tail zeroes=$((80 * MiB)) value='' kept=true

  head -c $((zeroes - size)) "$source" >"$more"
  head -c 5000 "$source" >"$tail"
  for flag in '' nohole; do
    filled "$source" "$more" "$tail"
    serve
    client_start "$uri"
    ask_any zero 0 $zeroes $flag
    [[ $answer != ok* ]] || ask_any zero $zeroes 1000 $flag
    [[ $answer != ok* ]] || ask_any write 0 4K
    stop_nbdkit
    value+="${value:+; }${flag:-may be a hole}: "
    if [[ $answer = ok* ]] &&
      cmp -i 4096 -n $((zeroes - 3096)) "$target" /dev/zero >"$tmp/out" 2>&1 &&
      cmp -n 4000 -i $((zeroes + 1000)):1000 "$target" "$tail"; then
      value+='to the last byte'
    else
      value+="$answer, $(sed 's/.*: //' "$tmp/out")"
      kept=false
    fi
  done
  row zero "$value" $kept
}

# Half of it is trimmed, and the other half zeroed where holes are allowed.
property_space ()
{
  local before trimmed zeroed promised=()

  filled
  before=$(used)
  [ -n "$before" ] || { row space -; return; }
  serve
  client_start "$uri"
  ask_any trim 0 $((size / 2))
  ask_any flush
  trimmed=$(used)
  ask_any zero $((size / 2)) $((size / 2))
  ask_any flush
  zeroed=$(used)
  stop_nbdkit
  trimmed=$((before - trimmed)) zeroed=$((before - trimmed - zeroed))
  ! can_give_back ||
    promised=(test $((trimmed < zeroed ? trimmed : zeroed)) -ge 30)
  row space "$trimmed of 32 MiB by trim, $zeroed by zero" "${promised[@]}"
}
