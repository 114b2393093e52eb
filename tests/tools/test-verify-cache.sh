#!/usr/bin/env bash
# tools/verify-cache fails if a copy leaves pages in the page cache, and
# succeeds if it leaves none.  --which reports the plugin of each server.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need cachestats gnuplot jq nbdcopy

# verify STATUS ARGUMENT...
verify ()
{
  local got=0

  "$srcdir/../tools/verify-cache" "${@:2}" >"$tmp/out" 2>"$tmp/err" ||
    got=$?
  cat "$tmp/out" "$tmp/err" >&2
  [ "$got" = "$1" ] || fail "verify-cache ${*:2}: status $got, not $1"
}

# refused STATUS MESSAGE ARGUMENT...: in one line.
refused ()
{
  verify "$1" "${@:3}"
  [ "$(wc -l <"$tmp/err")" = 1 ] || fail "${*:3}: not one line"
  grep -q -- "$2" "$tmp/err" || fail "${*:3}: the message lacks $2"
}

# So long that a server is seen even if this machine is busy.
random_file "$tmp/in" 64M
truncate -s 64M "$tmp/out.img"
ours=("[" "$NBDKIT" --exit-with-parent file "$tmp/out.img")
source=("[" "$NBDKIT" --exit-with-parent -r file "$tmp/in" cache=none "]")

verify 0 --interval 0.002 --json "$tmp/json" --plot "$tmp/plot.svg" -- \
  nbdcopy -- "${source[@]}" "${ours[@]}" cache=none "]"
jq -e '.[1] | .wrong == "" and .cachestat == 0 and .cachestats == 0 and
       .plugin == "ours" and .of == 16384 and .most > 0 and .reasons == [] and (.samples | length) > 1' \
  "$tmp/json" >/dev/null || fail "$(cat "$tmp/json")"
same "$tmp/in" "$tmp/out.img"
jq -e '.[1].samples[-1][1] == 0' "$tmp/json" >/dev/null ||
  fail 'the samples do not show the end'
jq -r '.[0] | keys[]' "$tmp/json" >"$tmp/keys"
while read -r key; do
  grep -q "^=item .*C<$key>" "$srcdir/../tools/nbdkit-verify-cache.pod" ||
    fail "$key of --json is not in the manual page"
done <"$tmp/keys"
grep -q '<svg' "$tmp/plot.svg" || fail 'the plot is no SVG'

# reason FILE REASON: a line of the report has the pages of the file and, among
# others, this reason.
reason ()
{
  grep -qE "^$1: [0-9,]+ pages left; (.*; )?$2(\$|;)" "$tmp/out" ||
    fail "$1: not \"$2\": $(<"$tmp/out")"
}

# A source that nbdcopy reads itself, without a server.
verify 1 --settle 0 --json "$tmp/json" -- \
  nbdcopy -- "$tmp/in" "${ours[@]}" cache=none "]"
grep -qE '^none +in .* more than 0 pages left$' "$tmp/out" || fail 'no verdict'
reason "$tmp/in" 'it is not served by nbdkit'
jq -e 'length == 2 and (.[1] | .plugin == "none" and .cachestat > 0 and
       .reasons == ["it is not served by nbdkit"])' "$tmp/json" >/dev/null ||
  fail "$(cat "$tmp/json")"
# The command does not name it, but a program opens it; a log is no image.
cat >"$tmp/script" <<END
exec 3<"$tmp/in" 2>"$tmp/log.txt"
head -c 2M /dev/zero >&2
sleep 0.5
END
verify 1 --settle 0 -- "$NBDKIT" -U - file "$tmp/out.img" cache=none \
  --run "bash $tmp/script"
reason "$tmp/in" 'it is not served by nbdkit'
[ "$(grep -c '^none ' "$tmp/out")" = 1 ] || fail 'more than the source'
# --file says which files count.
verify 0 --file "$tmp/out.img" -- nbdcopy -- "$tmp/in" "${ours[@]}" cache=none "]"
! grep -q '^none ' "$tmp/out" || fail '--file, and another file counts'

verify 1 --settle 0 -- nbdcopy -- "${source[@]}" "${ours[@]}" "]"
reason "$tmp/out.img" 'its server was not given cache=none'
grep -q 'more than 0 pages left' "$tmp/out" || fail 'what is wrong?'
verify 0 --max-pages 16384 -- nbdcopy -- "$tmp/in" "${ours[@]}" "]"
# The file is not always the next word.
verify 0 -- nbdcopy -- "${source[@]}" [ "$NBDKIT" --exit-with-parent file cache=none \
  "$tmp/out.img" ]
grep -q ' out.img .* ok$' "$tmp/out" || fail 'the file behind a parameter'
# A copy that serves both.
ln -s "$(cd "$srcdir/.." && pwd)/tools/copy" "$tmp/nbdkit-copy"
NBDKIT=$NBDKIT verify 0 --interval 0.002 -- "$tmp/nbdkit-copy" "$tmp/in" "$tmp/out.img" -- -C 1
[ "$(grep -cE '^ours +(in|out\.img) .* ok$' "$tmp/out")" = 2 ] ||
  fail "nbdkit-copy: $(<"$tmp/out")"
refused 2 'say which files' -- "$NBDKIT" file cache=none "dir=$tmp" --run true
# A name that is not UTF-8.
cp "$tmp/in" "$tmp/"$'\xff'
PYTHONIOENCODING=utf-8 verify 0 --max-pages 16384 --file "$tmp/"$'\xff' -- true
grep -q ' \\xff ' "$tmp/out" || fail "the name: $(<"$tmp/out")"
rm "$tmp/"$'\xff'
# A command that replaces its file: the old one has pages, the new one none.
truncate -s 64M "$tmp/old.img"
cat "$tmp/in" >"$tmp/old.img"
truncate -s 64M "$tmp/new.img"
verify 0 --max-running 1 --file "$tmp/old.img" -- \
  sh -c "sleep 0.1; mv $tmp/new.img $tmp/old.img; sleep 0.1"
verify 1 --settle 0 --max-pages 16384 --max-running 16383 --file "$tmp/in" \
  -- cat "$tmp/in" "$tmp/in"
grep -q 'more than 16383 pages while it ran' "$tmp/out" || fail 'what is wrong?'

# which STATUS WHO PLUGIN COMMAND...: what --which prints of a command.
which ()
{
  verify "$1" --which --json "$tmp/json" -- "${@:4}"
  grep -q "^$2	.*/$3	.*$tmp/out.img" "$tmp/out" || fail "not $2, $3: $(cat "$tmp/out")"
  jq -e --arg who "$2" 'length > 0 and all(.who == $who and .pid > 1)' \
    "$tmp/json" >/dev/null || fail "$(cat "$tmp/json")"
}

so=nbdkit-file-plugin.so
which 0 ours $so "$NBDKIT" -U - file "$tmp/out.img" --run 'sleep 0.5'
[ "$(wc -l <"$tmp/out")" = 1 ] || fail "more than one line: $(cat "$tmp/out")"
# Under the name that it is installed with.
cp "$builddir/../plugins/file/.libs/$so" "$tmp/nbdkit-windowed-file-plugin.so"
which 0 ours nbdkit-windowed-file-plugin.so "$NBDKIT" -U - \
  "$tmp/nbdkit-windowed-file-plugin.so" "$tmp/out.img" --run 'sleep 0.5'
which 0 ours $so "$NBDKIT" -U - windowed-file "$tmp/out.img" --run 'sleep 0.5'
# One that goes to the background, and is not a child of the command any more.
which 0 ours $so bash -c "'$NBDKIT' -P '$tmp/pid' -U '$tmp/sock' file \
  '$tmp/out.img' && sleep 0.5 && kill \"\$(cat '$tmp/pid')\""
folder=$(nbdkit --dump-config | sed -n 's/^plugindir=//p')
for stock in nbdkit-stock-file-plugin.so $so; do
  if [ -e "$folder/$stock" ] && ! grep -q file_windowed= "$folder/$stock"; then
    which 1 stock "$stock" nbdkit -U - "$folder/$stock" "$tmp/out.img" \
      --run 'sleep 0.5'
  fi
done
refused 3 'started no nbdkit' --which -- true
verify 3 --which -- "$NBDKIT" file --dump-plugin
grep -q 'started no nbdkit' "$tmp/err" || fail '--dump-plugin counts as a server'
verify 3 --which -- "$NBDKIT" -U - file "$tmp/out.img" --run 'sleep 0.5; false'
grep -q ^ours "$tmp/out" || fail 'the command failed, but it had a server'
refused 2 'there is no command after --' --which

refused 2 'say which files' -- true
refused 2 'max-pages: x: not a number' --max-pages x -- true
refused 2 'settle: -1' --settle=-1 -- true
refused 2 'should end in .svg or .png' --plot x.gif -- true
refused 2 "there is no folder $tmp/missing" --json "$tmp/missing/x" -- true
refused 2 "$tmp: it is a folder" --json "$tmp" -- true
verify 0 --json /dev/stdout --max-pages 16384 --file "$tmp/in" -- true
refused 3 'status 1: nothing verified' --file "$tmp/in" -- false
refused 3 'No such file' --file "$tmp/in" -- "$tmp/no-program"
refused 3 'not there after the command' --file "$tmp/none" -- true
refused 2 'put -- before the command: verify-cache -- nbdcopy --flush -- in out' \
  nbdcopy --flush -- in out
refused 2 'unrecognized arguments: --no-such' --no-such -- true
refused 2 'there is no command after --' --max-pages 0 --
verify 2
grep -q '^usage: tools/verify-cache ' "$tmp/err" || fail 'no usage'

# It ends with its command, which can clean up.  The terminal's Ctrl-C is for both.
cat >"$tmp/script" <<END
trap 'sleep 0.5; rm "$tmp/begun"; exit 1' INT TERM
echo \$\$ >"$tmp/pid"
mv "$tmp/pid" "$tmp/begun"
while :; do sleep 0.1; done
END
for signal in INT TERM; do
  env --default-signal=INT "$srcdir/../tools/verify-cache" --file "$tmp/in" -- \
    bash "$tmp/script" &
  verifying=$!
  pids+=("$verifying")
  eventually 5 test -e "$tmp/begun" || fail 'the command does not begin'
  command=$(<"$tmp/begun")
  kill -s "$signal" "$verifying"
  [ "$signal" = TERM ] || kill -s INT "$command"
  status=0
  wait "$verifying" || status=$?
  [ "$status" = $((128 + $(kill -l "$signal"))) ] || fail "$signal: $status"
  [ ! -e "$tmp/begun" ] || fail "$signal: the command could not clean up"
done

# Why pages stay: a process that maps the file, and one that has it open.
hold_pages map "$tmp/in"
mapping=$holder
hold_pages LOCK_SH "$tmp/in"
verify 0 --max-pages 16384 --file "$tmp/in" -- true
reason "$tmp/in" "open in python3 \\(pid $holder\\)"
reason "$tmp/in" "mapped by python3 \\(pid $mapping\\)"
let_pages_go
holder=$mapping
let_pages_go

# A copy to a loop device leaves pages of the file below.
if [ "$(id -u)" = 0 ]; then
  attach "$tmp/in"
  cat "$tmp/in" >/dev/null
  verify 0 --max-pages 16384 --file "$device" -- true
  grep -q "^$device is a loop device on $tmp/in, of which [1-9][0-9]* pages" \
    "$tmp/out" || fail 'nothing of the file below the loop device'
fi
