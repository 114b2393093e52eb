#!/usr/bin/env bash
# Where several names of a folder are one file, each client's errors and
# statistics have the export name that this client asked for.
#
# The text of an error is sent to the client by nbdkit 1.42 and later, so the
# name of another export must not be in it.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need jq
/usr/bin/python3 -c 'import nbd' 2>/dev/null || lacks "needs libnbd for Python"

mkdir "$tmp/dir"
head -c 1M /dev/zero >"$tmp/dir/alpha"
ln "$tmp/dir/alpha" "$tmp/dir/beta"
ln -s alpha "$tmp/dir/gamma"

# A write above 512 KiB fails with EFBIG.
# shellcheck disable=SC2016
under=(bash -c 'trap "" XFSZ; ulimit -f 512; exec "$@"' bash)

# Three clients, connected at the same time; each makes another number of reads.
# "go" on stdin lets the next step begin, and each step prints a line.
cat >"$tmp/clients.py" <<'PYTHON'
import sys
import nbd

names = ["alpha", "beta", "gamma"]
clients = {}
for name in names:
    clients[name] = nbd.NBD()
    clients[name].set_export_name(name)
    clients[name].connect_unix(sys.argv[1])


def step(what):
    print(what, flush=True)
    sys.stdin.readline()


def fails(what, call):
    for name in names:
        try:
            call(clients[name])
            sys.exit(f"{what} of {name}: succeeded")
        except nbd.Error:
            step(f"{what} {name}")


for number, name in enumerate(names):
    for i in range(3 + number):
        clients[name].pread(4096, i * 8192)
    for i in range(6 + number):
        clients[name].pwrite(b"x" * 4096, i * 8192)
    for i in range(9 + number):
        clients[name].flush()
step("done")
fails("write", lambda h: h.pwrite(b"x" * 4096, 768 << 10))
step("truncate")
fails("read", lambda h: h.pread(4096, 32768))
PYTHON

start_nbdkit file "dir=$tmp/dir" cache=none stats="$tmp/stats"
coproc CLIENTS { exec /usr/bin/python3 "$tmp/clients.py" "$tmp/sock"; }
clients=$CLIENTS_PID
pids+=("$clients")
exec {from}<&"${CLIENTS[0]}" {to}>&"${CLIENTS[1]}"

# next_step: what was done last, $step.
next_step ()
{
  read -r -t 60 step <&"$from" || fail 'the clients have ended'
}

# numbers KIND: of each disk, by name.
numbers ()
{
  jq -r ".disks[] | \"\\(.name | sub(\".*/\"; \"\")) \\(.$1)\"" \
    "$tmp/stats" 2>/dev/null | sort | tr '\n' ' '
}

has_numbers ()
{
  [ "$(numbers reads)" = 'alpha 3 beta 4 gamma 5 ' ] &&
    [ "$(numbers writes)" = 'alpha 6 beta 7 gamma 8 ' ] &&
    [ "$(numbers flushes)" = 'alpha 9 beta 10 gamma 11 ' ]
}

wrong=0
next_step
[ "$step" = 'done' ] || fail "$step"
kill -USR1 "$server"
if ! eventually 2 has_numbers; then
  say "statistics: reads: $(numbers reads), writes: $(numbers writes)," \
    "flushes: $(numbers flushes)"
  wrong=1
fi

lines=0
echo go >&"$to"
for step_wanted in {write,read}' '{alpha,beta,gamma}; do
  next_step
  if [ "$step" = truncate ]; then
    truncate -s 4096 "$tmp/dir/alpha"
    echo go >&"$to"
    next_step
  fi
  [ "$step" = "$step_wanted" ] || fail "$step, not $step_wanted"
  text=$(tail -n "+$((lines + 1))" "$tmp/log")
  lines=$(wc -l <"$tmp/log")
  own=${step#* }
  [ -n "$text" ] || fail "$step: there is no message"
  for name in alpha beta gamma; do
    if [ "$name" != "$own" ] && [[ $text = *"$name"* ]]; then
      say "$step: the message has the name $name: $text"
      wrong=1
    fi
  done
  if [[ $text != *"$own"* ]]; then
    say "$step: the message lacks the name: $text"
    wrong=1
  fi
  echo go >&"$to"
done
wait "$clients" || fail 'the clients fail'
exec {from}<&- {to}>&-
stop_nbdkit
[ "$wrong" = 0 ] || fail 'names of other exports, see above'
