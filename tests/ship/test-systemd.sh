#!/usr/bin/env bash
# systemd accepts the installed units, rates them as well hardened, and allows
# all system calls that the server makes.  The command line in them serves a
# folder by socket activation.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdcopy nbdinfo cmp systemd-analyze systemd-socket-activate
need_strace

name=nbdkit-windowed-file@
make_in_build install "$tmp/root"
unit=$(find "$tmp/root" -name "$name.service")
[ -n "$unit" ] || skip 'was configured to install no units'

# They make openat2 fail, without which there is no symlinks=beneath.
! grep -E '^(RestrictSUIDSGID|DynamicUser)=' "$unit" >&2 ||
  fail 'the unit takes openat2 away'

# In tenths; systemd 252 and 257 rate it 0.4.
threshold=15
folder=${unit%/*}
for kind in service socket; do
  systemd-analyze verify --man=no --recursive-errors=no "$folder/$name.$kind" \
    >"$tmp/log" 2>&1 || fail "verify: $kind"
  [ ! -s "$tmp/log" ] || fail "verify says something of the $kind"
done

systemd-analyze security --offline=true --no-pager --threshold=$threshold \
  "$unit" >"$tmp/log" 2>&1 || fail "security: exposed more than $threshold / 10"

# ------------------------------------------------------------ what it starts

setting ()
{
  sed -n "s/^$1=//p" "$unit"
}

plugin=$(setting ExecStart | grep -o '[^ ]*/nbdkit-windowed-file-plugin\.so') ||
  fail 'no plugin in ExecStart'
[ -f "$tmp/root$plugin" ] || fail "$plugin is not where the unit expects it"
libraries=$(ldd "$tmp/root$plugin")
[[ $libraries != *lib[at]san* ]] || exit 0

mkdir "$tmp/disks"
size=$((40 * 1048576))
random_file "$tmp/src" $size
truncate -s $size "$tmp/disks/a"
truncate -s 1M "$tmp/disks/b"

command=$(setting ExecStart)
command=${command//%f/$tmp/disks}
command=${command//$plugin/$tmp/root$plugin}
for variable in $(setting Environment); do
  # OPTIONS= PARAMETERS=cache=none: what systemd puts in their places.
  command=${command//\$${variable%%=*}/${variable#*=}}
done
read -ra command <<<"$command"

systemd-socket-activate -l "$tmp/sock" \
  strace -D -f -qq -o "$tmp/trace" "${command[@]}" 2>"$tmp/log" &
job=$! server=$!
pids+=("$job")
eventually 20 grep -qs Listening "$tmp/log" || fail 'no socket'
listed=$(limited nbdinfo --list "nbd+unix:///?socket=$tmp/sock" |
  grep '^export=' | sort | tr -d '\n') || fail 'cannot list the exports'
[ "$listed" = 'export="a":export="b":' ] || fail "listed: $listed"
limited nbdcopy --flush "$tmp/src" "nbd+unix:///a?socket=$tmp/sock" ||
  fail 'cannot copy in'
empty_soon "$tmp/disks/a" 'after copying in'
limited nbdcopy "nbd+unix:///a?socket=$tmp/sock" "$tmp/back" ||
  fail 'cannot copy out'
empty_soon "$tmp/disks/a" 'after copying out'
stop_nbdkit
same "$tmp/src" "$tmp/disks/a"
same "$tmp/src" "$tmp/back"

# -------------------------------------------------------------- system calls

# members NAME...: of sets (@NAME) all that is in them, and in sets in them.
members ()
{
  local name inner

  for name; do
    if [[ $name = @* ]]; then
      mapfile -t inner < <(systemd-analyze syscall-filter "$name" |
        sed -n 's/^ *\([@a-z_][a-z0-9_-]*\)$/\1/p' | grep -vxF -e "$name")
      members "${inner[@]}"
    else
      echo "$name"
    fi
  done
}

declare -A allowed=()
while read -ra names; do
  case ${names[0]} in
    '~'*)
      names[0]=${names[0]#'~'}
      for call in $(members "${names[@]}"); do unset "allowed[$call]"; done
      ;;
    *) for call in $(members "${names[@]}"); do allowed[$call]=1; done ;;
  esac
done < <(setting SystemCallFilter)

# strace of Debian 12 does not know the name of cachestat.
sed -n 's/^[0-9]* *\([a-z0-9_]*\)(.*/\1/p' "$tmp/trace" |
  sed 's/^syscall_0x1c3$/cachestat/' | sort -u >"$tmp/made"
grep -qx pwrite64 "$tmp/made" || fail 'strace has seen nothing'
# And the calls that it makes rarely.
printf '%s\n' cachestat fadvise64 mincore openat2 sync_file_range >>"$tmp/made"
while read -r call; do
  [ -n "${allowed[$call]:-}" ] || fail "the unit does not allow $call"
done <"$tmp/made"
