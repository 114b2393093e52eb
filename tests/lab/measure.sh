# What the contract promises of a place, measured: each property_NAME SERVER
# sets $value, what was seen, and $kept, whether that is as promised (yes, no,
# or nothing if there is nothing to promise).
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
stock=${NBDKIT_SYSTEM:-$(PATH=/usr/sbin:/usr/bin type -p nbdkit)}
ours=$NBDKIT
source=/dev/shm/windowed-lab-$$
undo rm -f "$source"

# Whatever the machine, it is not waited for in vain.
patient ()
{
  timeout --foreground -k 5 240 "$@"
}

# The data: no two blocks of 8 bytes are the same, none is zeroes.
make_source ()
{
  patient nbdcopy -- [ "$stock" --exit-with-parent pattern "$size" ] \
    "$source" || fail "no source"
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

# filled [FILE...]: it has old data (once if nothing is said), all on the disk,
# none of it in memory.
filled ()
{
  local file at=0

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

# settled: pages that are left in the end.  The promise is 2 seconds, of a
# machine that is not emulated.
settled ()
{
  if [ "$NBDKIT" = "$ours" ] && [ "$place" != tmpfs ]; then
    eventually 1 none_left || :
  else
    sleep 1
  fi
  pages_left
}

# mebibytes PAGES
mebibytes ()
{
  awk -v n="$1" -v page="$page" 'BEGIN { printf "%.1f MiB\n", n * page / 1048576 }'
}

# read_ahead_below: bytes, of the device below.
read_ahead_below ()
{
  if [ -n "$read_ahead_of" ]; then read_ahead "$read_ahead_of"; else echo 0; fi
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

# as_promised COMMAND...: it is if the command succeeds.
as_promised ()
{
  if "$@"; then kept=yes; else kept=no; fi
}

failed ()
{
  kept=no
  value="fails: $(tail -n 1 "$tmp/out" | cut -c 1-100)"
}

# has_data FILE: the target begins with it.
has_data ()
{
  cmp -n "$size" "$1" "$target" >/dev/null
}

serve ()
{
  NBDKIT=$1
  start_nbdkit file "$target" "cache=${2:-none}"
}

# stock_serves: does it?  If not, $refused says why.
stock_serves ()
{
  refused=
  fresh
  serve "$stock"
  patient nbdinfo --size "$uri" >"$tmp/out" 2>&1 ||
    refused="does not serve it ($(tail -n 1 "$tmp/log" |
      sed 's/.*error: //' | cut -c 1-100))"
  stop_nbdkit
  [ -z "$refused" ] || say "stock $refused"
  [ -z "$refused" ]
}

# One copy in with a flush and one without, and two out; what is seen of them is
# several properties.  $copied tells whether they came to their end.
copies ()
{
  local bytes

  copied=''
  fresh
  serve "$1"
  watched patient nbdcopy --flush --connections=$connections "$source" "$uri"
  [ "$status" = 0 ] || { failed; stop_nbdkit; return 1; }
  peak_writing=$most
  left_writing=$(settled)
  if has_data "$source"; then identical=yes; else identical='in: different'; fi
  drop "$target"
  watched patient nbdcopy --connections=$connections "$source" "$uri"
  [ "$status" = 0 ] || { failed; stop_nbdkit; return 1; }
  peak_writing=$((most > peak_writing ? most : peak_writing))
  left_unflushed=$(settled)
  has_data "$source" || identical='in, no flush: different'
  drop "$target"

  watched patient nbdcopy --connections=$connections "$uri" "$tmp/copy"
  [ "$status" = 0 ] || { failed; stop_nbdkit; return 1; }
  peak_reading=$most
  left_reading=$(settled)
  has_data "$tmp/copy" || identical='out: different'
  rm "$tmp/copy"

  drop "$target"
  patient nbdcopy --request-size=16384 "$uri" null:
  bytes=$(settled)
  left_reading=$((bytes > left_reading ? bytes : left_reading))
  stop_nbdkit
  copied=yes
}

property_copy ()
{
  copies "$1" || return 0
  value=$identical
  as_promised [ "$value" = yes ]
}

# Of what the copies have seen.
property_left ()
{
  [ -n "$copied" ] || { value=-; kept=; return; }
  value="$left_writing written, $left_unflushed without a flush"
  value+=", $left_reading read"
  as_promised [ $((left_writing + left_unflushed + left_reading)) = 0 ]
}

in_flight=$((connections * threads * request))

property_peak-writing ()
{
  [ -n "$copied" ] || { value=-; kept=; return; }
  value=$(mebibytes "$peak_writing")
  as_promised [ $((peak_writing * page)) -le $((32 * MiB + in_flight)) ]
}

property_peak-reading ()
{
  [ -n "$copied" ] || { value=-; kept=; return; }
  value=$(mebibytes "$peak_reading")
  as_promised [ $((peak_reading * page)) -le \
    $((32 * MiB + in_flight + connections * 2 * $(read_ahead_below))) ]
}

# preserved: as was promised?  Some machines take pages back on their own, early.
preserved ()
{
  local percent=95

  [ -z "${LAB_DISKS:-}" ] || percent=100
  [ $((stayed * 100)) -ge $((resident * percent)) ] && [ "$added" = 0 ]
}

# half_resident: the first half of the target is in memory, and all that was to
# be read ahead: mincore(2) does not see a page that is on its way.
half_resident ()
{
  drop "$target"
  dd if="$target" of=/dev/null bs=1M count=$((size / MiB / 2)) status=none
  eventually 2 map_repeats "$target" "$tmp/before" ||
    fail "readahead does not end"
}

# plain_writes_keep: does what was in memory stay when others write the file
# without a server, each time?  Several at once, since NFS 3 may take the answers
# to writes that are on their way together for changes by another machine.
plain_writes_keep ()
{
  local i try writers

  for try in {1..5}; do
    half_resident
    writers=()
    for i in {0..3}; do
      dd if="$source" of="$target" bs=256K skip=$((i * 64)) seek=$((i * 64)) \
        count=64 conv=notrunc,fsync status=none &
      writers+=($!)
    done
    wait "${writers[@]}"
    compare_maps "$target" "$tmp/before"
    say "plain write $try: kept $stayed of $resident"
    [ $((stayed * 100)) -ge $((resident * 95)) ] || return 1
  done
}

# Half of it is resident before.  The stock plugin has no such mode.
property_preserve ()
{
  local how seen

  value=-
  [ "$1" = "$ours" ] || return 0
  filled
  value=
  kept=yes
  for how in read write; do
    half_resident
    serve "$1" preserve
    if [ $how = read ]; then
      watched patient nbdcopy "$uri" null:
    else
      watched patient nbdcopy --flush "$source" "$uri"
    fi
    stop_nbdkit
    if [ "$status" != 0 ]; then
      value=${value:+$value; }"refuses to $how"
      grep -q 'cache=preserve' "$tmp/log" || failed
      continue
    fi
    compare_maps "$target" "$tmp/before"
    seen="$how: kept $stayed of $resident, added $added"
    if preserved; then
      :
    elif [ $how = write ] && ! plain_writes_keep; then
      seen="a plain write: kept $stayed of $resident"
    else
      kept=no
    fi
    value=${value:+$value; }$seen
  done
}

# preallocated: the target is empty, and the same file as before.
preallocated ()
{
  : >"$target"
  fallocate -l 32M "$target" 2>/dev/null || truncate -s 32M "$target"
}

# calls_hole FROM COUNT: does block status, of the client that is connected?
calls_hole ()
{
  local at=$1 extent

  ask extents "$1" "$2"
  for extent in $answer; do
    [ "$at" -lt $(($1 + $2)) ] || break
    [ "${extent#*:}" = 0 ] || return 0
    at=$((at + ${extent%:*}))
  done
  return 1
}

# A write of 16 MiB by somebody else is in progress while holes are asked about;
# when it has ended, none of it is one.
slow_writes ()
{
  local i writer

  wrong=0
  rm -f "$target"
  preallocated
  serve "$1"
  client_start "$uri"
  for i in {1..6}; do
    preallocated
    dd if="$source" of="$target" bs=16M count=1 seek=$((i % 2)) \
      conv=notrunc status=none &
    writer=$!
    while kill -0 "$writer" 2>/dev/null; do ask extents 0 32M; done
    wait "$writer" || fail "dd"
    ! calls_hole $((i % 2 * 16 * MiB)) $((16 * MiB)) || wrong=$((wrong + 1))
  done
  client_stop
  stop_nbdkit
}

# Small ones in eight ways, through two servers and past them, for 6 seconds: see
# stale-map.py.
quick_writes ()
{
  local files=({1..8}) first i

  mkdir -p "$folder/stale"
  for i in "${files[@]}"; do truncate -s 64M "$folder/stale/$i"; done
  NBDKIT=$1
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
  local out

  [ -n "$folder" ] || { value='no holes'; kept=; return; }
  slow_writes "$1"
  value="$wrong of 6 slow writes"
  as_promised [ $wrong = 0 ]
  quick_writes "$1"
  out=$(<"$tmp/out")
  case $status-$out in
    124-) value+=', no quick one' ;;
    *'a hole, although'*)
      value+=", a quick one by ${out##*written by }"
      kept=no ;;
    *'all was trimmed'* | *': trim: '*) value+=', no holes by trim' ;;
    *) value+=", $(tail -n 1 <<<"$out")"; kept=no ;;
  esac
}

# One request of 80 MiB over old data (some ways end at 64), and a small one;
# what follows stays.
# A small write afterwards must not bring back old bytes beside it, as it would
# if the range had been discarded on a thin volume without block zeroing.
property_zero ()
{
  local flag more=$tmp/more tail=$tmp/tail zeroes=$((80 * MiB))

  value=
  kept=yes
  head -c $((zeroes - size)) "$source" >"$more"
  head -c 5000 "$source" >"$tail"
  for flag in '' nohole; do
    filled "$source" "$more" "$tail"
    serve "$1"
    client_start "$uri"
    ask_any zero 0 $zeroes $flag
    [[ $answer != ok* ]] || ask_any zero $zeroes 1000 $flag
    [[ $answer != ok* ]] || ask_any write 0 4K
    client_stop
    stop_nbdkit
    value+="${value:+; }${flag:-may be a hole}: "
    if [[ $answer != ok* ]]; then
      value+=$answer
      kept=no
    elif cmp -i 4096 -n $((zeroes - 3096)) "$target" /dev/zero \
           >"$tmp/out" 2>&1 &&
         cmp -n 4000 -i $((zeroes + 1000)):1000 "$target" "$tail"; then
      value+='to the last byte'
    else
      value+="wrong ($(sed 's/.*: //' "$tmp/out"))"
      kept=no
    fi
  done
}

# Half of it is trimmed, and the other half zeroed where holes are allowed.
property_space ()
{
  local before trimmed zeroed

  filled
  before=$(used)
  [ -n "$before" ] || { value='-'; kept=; return; }
  serve "$1"
  client_start "$uri"
  ask_any trim 0 $((size / 2))
  value="trim: ${answer#ok}"
  ask_any flush
  trimmed=$(used)
  ask_any zero $((size / 2)) $((size / 2))
  ask_any flush
  zeroed=$(used)
  client_stop
  stop_nbdkit
  value="$((before - trimmed)) of 32 MiB by trim"
  value+=", $((trimmed - zeroed)) by zero"
  if can_give_back; then
    as_promised [ $((before - trimmed < trimmed - zeroed ?
      before - trimmed : trimmed - zeroed)) -ge 30 ]
  else
    kept=
  fi
}

# dontcache SERVER REQUEST-SIZE: write the data, through the plugin or, in place
# of the stock plugin, with RWF_DONTCACHE and without a server.  Then $n is how
# many pages stay.
dontcache ()
{
  fresh
  if [ "$1" = "$ours" ]; then
    serve "$ours"
    patient nbdcopy --flush --request-size="$2" "$source" "$uri" \
      >"$tmp/out" 2>&1
    stop_nbdkit
  else
    patient xfs_io -c "pwrite -V 1 -U -b $2 -i $source 0 $size" \
      -c fdatasync "$target" >"$tmp/out" 2>&1
  fi
  n=$(pages_left)
  has_data "$source"
}

property_dontcache ()
{
  local bytes n

  value=
  for bytes in 4096 1048576; do
    dontcache "$1" $bytes || { failed; return 0; }
    value+="${value:+, }$n with $((bytes / 1024))K"
  done
  as_promised [ "$value" = '0 with 4K, 0 with 1024K' ]
}
