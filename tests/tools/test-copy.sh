#!/usr/bin/env bash
# tools/copy copies files, block devices and exports, and leaves no page of
# either file.  It makes a missing target and removes it if the copy fails,
# refuses in one line what cannot be copied, and says why pages are left.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need cachestats nbdcopy nbdinfo script

tool=$(cd "$srcdir/.." && pwd)/tools/copy
export NBDKIT
cd "$tmp"

# copies SOURCE TARGET [OPTION...]: the last line is in $tmp/out.
copies ()
{
  limited "$tool" "$@" >"$tmp/out" 2>"$tmp/err" ||
    fail "copy $*: status $?: $(<"$tmp/err")"
}

# says LINE: exactly.
says ()
{
  [ "$(<"$tmp/out")" = "$1" ] || fail "$(<"$tmp/out"), not $1"
}

# refused STATUS MESSAGE ARGUMENT...: the message is all of stderr.  $with is its
# environment.
with=()
refused ()
{
  local got=0

  limited env "${with[@]}" "$tool" "${@:3}" >"$tmp/out" 2>"$tmp/err" || got=$?
  [ "$got" = "$1" ] || fail "copy ${*:3}: status $got, not $1"
  [ ! -s "$tmp/out" ] || fail "copy ${*:3}: $(<"$tmp/out")"
  [ "$(<"$tmp/err")" = "copy: $2" ] || fail "copy ${*:3}: $(<"$tmp/err")"
}

# none_left WHEN FILE...
none_left ()
{
  local file

  for file in "${@:2}"; do empty_now "$file" "$1"; done
}

# A size that is no multiple of a page; all of the source is in the page cache.
random_file in.img 67108863
[ "$(resident in.img)" -gt 1000 ] || fail 'the source is not in the page cache'
copies in.img out.img
none_left 'a new file' in.img out.img
same in.img out.img
says 'in.img -> out.img: 64.0 MiB copied, 0 pages of either file left in memory'
[ ! -s err ] || fail "it is not silent: $(<err)"

# A target of the same size gets the data; the rest of a larger one stays.
random_file old 80M
cp old larger
drop larger        # as nobody uses the rest of it
truncate -s 67108863 zero
copies zero out.img -- --synchronous
none_left 'a file that was there' zero out.img
same zero out.img
copies in.img larger
none_left 'a larger file' in.img larger
same <(head -c 67108863 larger) in.img
same <(tail -c +67108864 larger) <(tail -c +67108864 old)

# Names that nbdkit or nbdcopy would take for something else, and an empty file.
cp in.img 'a=b c'
copies 'a=b c' ']'
same 'a=b c' ']'
: >empty
copies empty new-empty
says 'empty -> new-empty: 0 bytes copied, 0 pages of either file left in memory'
cmp empty new-empty || fail 'an empty file'

# The copy is no more readable than the source.
cp in.img private
chmod 400 private
copies private new-private
[ "$(stat -c %a new-private)" = 600 ] || fail "$(ls -l new-private)"
refused 2 'with this option nbdcopy copies nothing: ask nbdcopy itself; see copy --help' \
  in.img none -- --version

# The command that it prints, which can be pasted.
rm out.img
copies --print in.img 'out 2' -- -C 2
[ ! -e 'out 2' ] || fail '--print makes the target'
printf '%s\n' "truncate -s 67108863 -- 'out 2'" "nbdcopy --flush -C 2 -- \
[ $NBDKIT --exit-with-parent -r windowed-file in.img cache=none ] \
[ $NBDKIT --exit-with-parent windowed-file 'out 2' cache=none ]" |
  diff - out >&2 || fail '--print'
bash -e out || fail 'what it prints cannot be run'
same in.img 'out 2'
copies --print nbd+unix:///?socket=none out.img
head -n 1 out | grep -qxF \
  "truncate -s \"\$(nbdinfo --size 'nbd+unix:///?socket=none')\" -- out.img" ||
  fail "--print of a URI: $(<out)"

# On a terminal nbdcopy shows its progress.
script -qec "$(printf '%q ' "$tool" in.img out.img)" screen >/dev/null ||
  fail "on a terminal: $(<screen)"
grep -q '100%' screen || fail "no progress: $(<screen)"
! grep -q -- --progress err || fail 'progress, but no terminal'

# Exports, whose pages are counted by nobody.
start_nbdkit memory 64M
copies in.img "$uri"
says "in.img -> $uri: 64.0 MiB copied, 0 pages of in.img left in memory"
rm out.img
copies "$uri" out.img
says "$uri -> out.img: 64.0 MiB copied, 0 pages of out.img left in memory"
none_left 'an export' in.img out.img
same <(head -c 67108863 out.img) in.img
copies "$uri" "$uri"
says "$uri -> $uri: 64.0 MiB copied"
stop_nbdkit
rm out.img

# A container is copied, but not silently.
{ printf 'QFI\xfb'; head -c 1M in.img; } >disk.qcow2
copies disk.qcow2 copy.qcow2
[ "$(<err)" = 'disk.qcow2 is a qcow2 container; it is copied as it is' ] ||
  fail "a container: $(<err)"
same disk.qcow2 copy.qcow2

# Pages that another process maps stay, and the copy has succeeded.
hold_pages map in.img
copies in.img out.img
grep -qx 'in.img -> .* copied, [1-9][0-9,]* pages of in.img and 0 pages of out.img left in memory' \
  out || fail "mapped: $(<out)"
tail -n +2 out | grep -qx "in.img: .*mapped by python3 (pid $holder)" ||
  fail "by whom? $(<out)"
let_pages_go

# nbdcopy does not read holes, so what others have read there stays.
head -c 1M in.img >sparse
truncate -s 64M sparse
cat sparse >copy.img
rm copy.img
copies sparse copy.img
same sparse copy.img
tail -n 1 out | grep -q '^sparse: holes' || fail "a hole: $(<out)"
rm copy.img
dd if=sparse iflag=nocache count=0 status=none
head -c 1M sparse >/dev/null
"${tool%copy}cachewatch" --once sparse >out || fail "cachewatch: $(<out)"
! grep holes out || fail 'some of the pages are of data'

# A copy that fails removes what it has made, and nothing else.
status=0
"$tool" in.img new.img -- --no-such-option >out 2>err || status=$?
[ "$status" = 1 ] || fail "status $status of a copy that failed"
[ "$(tail -n 1 err)" = 'copy: the copy failed: new.img was removed' ] ||
  fail "failed: $(<err)"
[ ! -e new.img ] || fail 'the target of a failed copy is left'
! "$tool" in.img out.img -- --no-such-option >out 2>err || fail 'no failure'
[ "$(tail -n 1 err)" = 'copy: the copy failed: out.img may be incomplete' ] ||
  fail "failed: $(<err)"
same in.img out.img
truncate -s 8T huge
for signal in INT QUIT TERM; do
  env "--default-signal=$signal" "$tool" huge new.img -- --no-extents 2>killed &
  copying=$!
  pids+=("$copying")
  eventually 20 test -e new.img || fail 'the copy does not begin'
  sleep 0.2
  read -ra children <"/proc/$copying/task/$copying/children" || :
  pids+=("${children[@]}")
  kill -s "$signal" "$copying"
  status=0
  wait "$copying" || status=$?
  [ "$status" = $((128 + $(kill -l "$signal"))) ] || fail "$signal: $status"
  [ ! -e new.img ] || fail "the target is left after SIG$signal"
done
rm huge

# A server that is being started when the copy is ended does not stay.
cat >slow-nbdkit <<END
#!/bin/sh
case \$* in
  *--dump-plugin) ;;
  *) echo \$\$ >started; sleep 1 ;;
esac
exec "$NBDKIT" "\$@"
END
chmod +x slow-nbdkit
NBDKIT=$tmp/slow-nbdkit "$tool" in.img new.img 2>killed &
copying=$!
pids+=("$copying")
eventually 20 test -s started || fail 'the first server is not started'
kill "$copying"
! wait "$copying" || fail 'a copy that was ended succeeds'
pids+=("$(<started)")
eventually 5 gone "$(<started)" || fail 'a server is left'

# A target that another file replaces during the copy may have no copy, and the
# other file stays, also if the copy is ended.
# replaced_while_copying STATUS [SIGNAL]
replaced_while_copying ()
{
  local status=0

  rm started
  NBDKIT=$tmp/slow-nbdkit "$tool" in.img new.img 2>err &
  copying=$!
  pids+=("$copying")
  eventually 20 test -s started || fail 'the next copy does not begin'
  eventually 20 test -e new.img || fail 'the target is not made'
  mv new.img elsewhere.img
  truncate -r elsewhere.img new.img
  [ $# = 1 ] || kill -s "$2" "$copying"
  wait "$copying" || status=$?
  [ "$status" = "$1" ] || fail "status $status of a copy into a lost file"
  [ -e new.img ] || fail 'the file in place of the target was removed'
  rm new.img elsewhere.img
}

replaced_while_copying 1
grep -q 'new.img was removed or replaced' err || fail "replaced: $(<err)"
replaced_while_copying 143 TERM

# The status is that of the copy, whatever becomes of the report.
if [ -e /dev/full ]; then
  env -u PYTHONUNBUFFERED "$tool" in.img new.img >/dev/full 2>err ||
    fail "status $? of a copy whose report is lost"
  [ "$(<err)" = 'copy: all was copied, but standard output: No space left on device' ] ||
    fail "lost: $(<err)"
  same in.img new.img
  rm new.img
fi
"$tool" in.img new.img >out 2>&- || fail 'no copy without standard error'
same in.img new.img
rm new.img
PYTHONIOENCODING=ascii copies in.img "new$(printf '\303\274').img"
tail -n 1 out | grep -q '^in.img -> new?.img: ' || fail "ascii: $(<out)"
rm new?*.img

ln in.img link.img
mkdir folder
mkfifo fifo
head -c 1M in.img >small
refused 2 'in.img and link.img are the same file' in.img link.img
refused 2 'folder: it is a folder' folder out.img
refused 2 'folder: it is a folder' in.img folder
refused 2 'none/out.img: there is no folder none' in.img none/out.img
refused 2 'none.img: No such file or directory' none.img out.img
refused 2 'fifo: neither a regular file nor a block device' fifo out.img
refused 2 'fifo: neither a regular file nor a block device' in.img fifo
refused 2 'small has 1,048,576 bytes, fewer than the 67,108,863 of in.img: enlarge it, or remove it' \
  in.img small
truncate -r in.img locked
with=(flock locked)
refused 1 'locked: another program has locked it (flock), perhaps another copy that writes to it' \
  in.img locked
with=()
refused 2 'give one SOURCE and one TARGET, not in.img; see copy --help' in.img
refused 2 'give one SOURCE and one TARGET; see copy --help' -- in.img out.img
! "$tool" nbd+unix:///?socket=none new.img 2>err || fail 'no server'
[ "$(grep -c '^copy: nbd+unix:///?socket=none: .*No such file' err) $(wc -l <err)" = '1 1' ] ||
  fail "no server: $(<err)"
[ ! -e new.img ] || fail 'the target of a missing export is left'

# Without the programs.
mkdir bin
with=("PATH=$tmp/bin" NBDKIT=nbdkit)
refused 1 \
  'nbdcopy is not installed: install the package libnbd-bin (Fedora: libnbd)' \
  in.img new.img
ln -s "$(command -v nbdcopy)" bin/
refused 1 'nbdkit is not installed: install the package nbdkit' in.img new.img
with=()
[ ! -e new.img ] || fail 'a target without a copy'

# A source whose pages the kernel does not count for this user.
else=(setpriv --reuid=65534 --regid=65534 --clear-groups)
if [ "$(id -u)" = 0 ] && "${else[@]}" "$tool" --help >/dev/null 2>&1 &&
  "${else[@]}" "$NBDKIT" --version >/dev/null 2>&1; then
  chmod a+x "$tmp"
  chmod a+r in.img
  mkdir -m 777 theirs
  "${else[@]}" "$tool" in.img theirs/out.img >out 2>err || fail "$(<err)"
  printf '%s\n' 'in.img -> theirs/out.img: 64.0 MiB copied, 0 pages of theirs/out.img left in memory' \
    'in.img: only its owner, users who may write to it, and root may count its pages' |
    diff - out >&2 || fail 'a file of another user'
  chmod go-x "$tmp"
fi

# Block devices, which may have two nodes.
if [ "$(id -u)" = 0 ]; then
  rm -f larger old
  random_file source 32M
  truncate -s 32M target
  attach source
  from=$device
  attach target
  copies "$from" "$device"
  says "$from -> $device: 32.0 MiB copied, 0 pages of either file left in memory"
  none_left 'block devices' "$from" "$device"
  sync target
  same source target
  IFS=: read -r major minor <"/sys/block/${device##*/}/dev"
  mknod node b "$major" "$minor"
  refused 2 "$device and node are the same file" "$device" node
fi
