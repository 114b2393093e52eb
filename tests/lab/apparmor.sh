# A job of the lab: the profile of examples/apparmor is enforced, and the plugin
# keeps what it promises.
#
#   apparmor
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2034,SC2154

place=apparmor
profile=$srcdir/../examples/apparmor/nbdkit-windowed-file
only_in_a_machine
grep -qsx Y /sys/module/apparmor/parameters/enabled ||
  absent 'this kernel has no AppArmor, or it is not in use'
type -P apparmor_parser aa-exec >/dev/null || absent 'the root has no apparmor'
mountpoint -q /sys/kernel/security ||
  mount -t securityfs none /sys/kernel/security
make_place ext4
place=apparmor
make_source

installed=/usr/lib/nbdkit-windowed-file
mkdir -p $installed /srv/nbd /run/nbdkit-windowed-file
cp "$builddir/../plugins/file/.libs/nbdkit-file-plugin.so" $installed/
mount --bind "$folder" /srv/nbd
target=/srv/nbd/disk.img
apparmor_parser --replace --skip-cache "$profile"

# confined PARAMETER...: a server.  Sets $status.
confined ()
{
  rm -f /run/nbdkit-windowed-file/*
  status=0
  aa-exec -p nbdkit-windowed-file -- /usr/bin/nbdkit \
    -U /run/nbdkit-windowed-file/sock -P /run/nbdkit-windowed-file/pid \
    $installed/nbdkit-file-plugin.so "$@" >"$tmp/out" 2>&1 || status=$?
  [ $status != 0 ] || {
    eventually 5 test -s /run/nbdkit-windowed-file/pid || fail 'no PID file'
    server=$(</run/nbdkit-windowed-file/pid)
    undo kill "$server"
  }
}

end_server ()
{
  kill "$server"
  eventually 5 test ! -e "/proc/$server"
}

is_confined ()
{
  [ "$(<"/proc/$server/attr/current")" = 'nbdkit-windowed-file (enforce)' ]
}

# copied CACHE: in and out again, the data is right, and no page is left.
copied ()
{
  local uri='nbd+unix:///disk.img?socket=/run/nbdkit-windowed-file/sock'

  patient nbdcopy --flush "$source" "$uri" >"$tmp/out" 2>&1 &&
    [ "$(settled)" = 0 ] &&
    patient nbdcopy "$uri" "$tmp/back" >"$tmp/out" 2>&1 &&
    [ "$(settled)" = 0 ] && cmp "$source" "$tmp/back" >"$tmp/out" 2>&1
}

# is_refused: what a client asks for, because of its permissions.
is_refused ()
{
  ! nbdinfo --size 'nbd+unix:///?socket=/run/nbdkit-windowed-file/sock' \
    >"$tmp/out" 2>&1
}

for cache in none preserve; do
  fresh
  confined dir=/srv/nbd symlinks=beneath cache=$cache
  row starts "cache=$cache" [ $status = 0 ]
  row confined "cache=$cache" is_confined
  row copy "cache=$cache" copied
  end_server
done

cp "$source" /var/tmp/outside.img
confined /var/tmp/outside.img cache=none
row refused 'an image elsewhere' is_refused
end_server
