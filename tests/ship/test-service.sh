#!/usr/bin/env bash
# Under systemd, a file system whose images the service serves cannot be unmounted
# while a client is connected, and can be when none is; what is mounted in its
# place is served from then on, also below the mount point.  A directory that is
# missing for a while, and a server that dies often, do not end the socket.  The
# units allow the system calls that keep the page cache empty.  With the units of
# examples/node-exporter, the statistics of all servers become metrics while these
# run.
#
# systemd runs in a container on this machine's own root, with an overlay over
# it.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need_root
need mountpoint nbdinfo nbdcopy nsenter pgrep systemd-escape systemd-nspawn

root=$tmp/root
unit=nbdkit-windowed-file@
user=nbdkit-windowed-file
container=
trap leave EXIT

# inside COMMAND...: in the container.
inside ()
{
  timeout --foreground -k 5 300 nsenter -t "$init" -a -- "$@"
}

# End the container, and remove what systemd-nspawn leaves: the control groups
# "payload" and "supervisor", in the one of this script, and an empty folder.
leave ()
{
  local status=$? place

  only_the_script "$status"
  trap '' INT TERM
  set +e
  if [ -n "$container" ]; then
    send TERM "$container"
    wait "$container"
    rmdir "/run/systemd/nspawn/propagate/windowed-file-$$" 2>/dev/null
    cut -d : -f 3 /proc/self/cgroup | sort -u | while read -r place; do
      for place in /sys/fs/cgroup{,/*}"$place"/{payload,supervisor}; do
        [ ! -d "$place" ] ||
          find "$place" -depth -type d -exec rmdir {} + 2>/dev/null
      done
    done
  fi
  (exit "$status")
  cleanup
}

# The container's first process is the only child of systemd-nspawn.
has_booted ()
{
  local state

  gone "$container" && return
  init=$(pgrep -P "$container" -x systemd) || return
  state=$(inside systemctl is-system-running 2>/dev/null) || :
  [[ $state = running || $state = degraded ]]
}

boot ()
{
  mkdir "$tmp/over" "$root" "$tmp/disks"
  mounts+=("$tmp/over" "$root")
  mount -t tmpfs over "$tmp/over" || skip 'no mounts'
  mkdir "$tmp/over/upper" "$tmp/over/work"
  mount -t overlay -o "upperdir=$tmp/over/upper,workdir=$tmp/over/work" \
    -o lowerdir=/ root "$root" || skip 'no overlayfs over /'
  make_in_build install "$root"
  [ -n "$(find "$root" -xdev -name "$unit.service" -path '*/system/*')" ] ||
    skip 'was configured to install no units'
  [[ $(ldd "$builddir/../plugins/file/.libs"/*.so) != *lib[at]san* ]] || exit 0
  # Nothing else of this machine is started: no timers, sockets or services.
  systemd-nspawn --quiet --register=no --keep-unit --kill-signal=KILL \
    --directory="$root" --machine="windowed-file-$$" --private-network \
    --bind="$tmp/disks:/srv/real" \
    --boot systemd.unit=sysinit.target \
    >"$tmp/boot.log" 2>&1 </dev/null &
  container=$!
  pids+=("$container")
  if ! eventually 30 has_booted || gone "$container"; then
    cat "$tmp/boot.log" >&2
    skip 'systemd-nspawn does not boot here'
  fi
  inside systemd-sysusers || fail systemd-sysusers
}

# use DIRECTORY: name its units, and where its server is.
use ()
{
  local name

  folder=$1
  name=$(systemd-escape --path "$1")
  service=$unit$name.service
  socket=$unit$name.socket
  at="?socket=/run/nbdkit-windowed-file/${name//\\/%5C}.sock"
}

# new_image NAME: in the directory, which belongs to the server's user.
new_image ()
{
  inside mkdir -p "$folder"
  inside truncate -s 1M "$folder/$1"
  inside chown "$user:" "$folder" "$folder/$1"
}

# shows NAME: the only image that a new client sees.
shows ()
{
  inside nbdinfo --list "nbd+unix:///$at" >"$tmp/list" 2>"$tmp/said" || return
  [ "$(grep '^export=' "$tmp/list")" = "export=\"$1\":" ]
}

must_show ()
{
  shows "$1" || { cat "$tmp/list" "$tmp/said" >&2; fail "$2: not image $1"; }
}

stop_units ()
{
  inside systemctl stop "$socket" "$service" || fail 'systemctl stop'
}

is_over ()
{
  ! inside mountpoint -q /srv/disks || inside umount /srv/disks 2>/dev/null
}

# Each of these file systems has an image of its own name.
replace_file_system ()
{
  use "$1"
  inside mkdir -p /srv/disks
  inside mount -t tmpfs first /srv/disks
  new_image first
  inside systemctl start "$socket"
  must_show first "$1"
  # A client that stays, until the test writes to it.
  mkfifo "$tmp/stay"
  inside nbdcopy - "nbd+unix:///first$at" <"$tmp/stay" 2>"$tmp/said" &
  pids+=("$!")
  exec {stay}>"$tmp/stay"
  eventually 10 has_client || fail "$1: the client does not connect"
  ! inside umount /srv/disks 2>"$tmp/said" ||
    fail "$1: the file system of a connected client was unmounted"
  exec {stay}>&-
  eventually 10 is_over || fail "$1: cannot unmount without clients"
  inside mount -t tmpfs second /srv/disks
  new_image second
  must_show second "$1, mounted again"
  eventually 10 is_over || fail "$1: cannot unmount the second file system"
  [ "$(inside systemctl is-active "$service")" = active ] ||
    fail "$1: the service has ended"
  rm "$tmp/stay"
  stop_units
}

has_client ()
{
  local main

  main=$(inside systemctl show --property=MainPID --value "$service")
  [ -n "$(inside find "/proc/$main/fd" -lname "$folder/first")" ]
}

boot
replace_file_system /srv/disks
replace_file_system /srv/disks/below

# A client comes while there is no directory, and gets what it asked for when
# that is there, however often the server was started in between.
use /srv/late
inside systemctl start "$socket"
inside nbdinfo --list "nbd+unix:///$at" >"$tmp/late" 2>"$tmp/said" &
client=$!
pids+=("$client")
sleep 13 # systemd counts starts within 10 s
[ "$(inside systemctl is-active "$socket")" = active ] ||
  fail 'the socket has ended, because its directory was missing'
new_image late
wait "$client" || { cat "$tmp/said" >&2; fail 'the waiting client failed'; }
grep -q '^export="late":$' "$tmp/late" || fail 'the waiting client: no image'

for _ in 1 2 3 4 5 6 7; do
  inside systemctl kill --signal=KILL "$service"
  eventually 20 shows late || fail 'no server after one has died'
done
stop_units

# Metrics, also of an instance whose name has a backslash.
examples=$srcdir/../examples/node-exporter
metrics=$root/var/lib/prometheus/node-exporter
install -D -m 644 -t "$root/etc/systemd/system/$unit.service.d" \
  "$examples/stats.conf"
install -m 644 -t "$root/etc/systemd/system" \
  "$examples/nbdkit-metrics.service" "$examples/nbdkit-metrics.timer"
mkdir -p "$metrics"
rm -f "$metrics"/*
inside systemctl daemon-reload
for folder in /srv/one /srv/an-other /srv/real; do
  use "$folder"
  new_image disk
  inside systemctl start "$socket"
  must_show disk "$folder, with statistics"
done

# On a file system with a page cache, which no other of these is.
random_file "$tmp/disks/src" 1M
cp "$tmp/disks/src" "$tmp/src"
inside nbdcopy --flush /srv/real/src "nbd+unix:///disk$at" || fail 'copying in'
empty_soon "$tmp/disks/disk" 'after copying in'
inside nbdcopy "nbd+unix:///disk$at" /srv/real/src || fail 'copying out'
empty_soon "$tmp/disks/disk" 'after copying out'
same "$tmp/src" "$tmp/disks/disk"
same "$tmp/src" "$tmp/disks/src"
inside systemctl kill --signal=USR1 "$service"

write_metrics ()
{
  inside systemctl start nbdkit-metrics.service 2>"$tmp/said" || {
    inside journalctl --no-pager -n 20 -u nbdkit-metrics.service >&2 || :
    fail "nbdkit-metrics.service: $(<"$tmp/said")"
  }
}

write_metrics
[ "$(cd "$metrics" && echo *)" = nbdkit.prom ] ||
  fail "in place of nbdkit.prom: $(ls -l "$metrics")"
[ "$(stat -c %a "$metrics/nbdkit.prom")" = 644 ] ||
  fail "the collector cannot read it: $(ls -l "$metrics")"
for server in srv-one srv-anx2dother; do
  grep -q "^nbdkit_file_plugin_info{server=\"$server\"," \
    "$metrics/nbdkit.prom" || fail "no $server: $(<"$metrics/nbdkit.prom")"
done
# systemd 252 does not know the name cachestat, so there it is mincore.
for calls in 'wait",call="sync_file_range' 'count",call="(cachestat|mincore)'; do
  grep -qE "srv-real.*purpose=\"$calls\"" "$metrics/nbdkit.prom" ||
    fail "no $calls: $(<"$metrics/nbdkit.prom")"
done
# Old values would hide an error.
inside sh -c 'echo x >/run/nbdkit-stats/srv-one/x.json'
! inside systemctl start nbdkit-metrics.service 2>"$tmp/said" ||
  fail 'the metrics of a broken file'
[ ! -e "$metrics/nbdkit.prom" ] || fail 'old values stay'
inside rm /run/nbdkit-stats/srv-one/x.json
inside systemctl start nbdkit-metrics.timer
eventually 20 test -s "$metrics/nbdkit.prom" || fail 'the timer writes nothing'
inside systemctl stop nbdkit-metrics.timer
for folder in /srv/one /srv/an-other /srv/real; do
  use "$folder"
  stop_units
done
write_metrics
[ ! -e "$metrics/nbdkit.prom" ] || fail 'metrics of servers that have ended'
