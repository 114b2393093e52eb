# What every test script here begins with: one temporary folder, servers,
# clients, mounts and loop devices that all go away when the script ends, and
# the ways to pass, fail and skip.  bats and shunit2 have assertions and reports,
# and leave all of that to each test.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash

set -euo pipefail

# Numbers have a point, which awk expects a comma for in other locales.
export LC_ALL=C.UTF-8
# mkfs and others are in folders that a user's PATH may lack.
PATH=$PATH:/usr/sbin:/sbin
NBDKIT=${NBDKIT:-nbdkit}
srcdir=${srcdir:-.}
builddir=${builddir:-.}

# nbdkit has 16 threads for each connection, whose stacks are in 3 GiB on 32-bit
# machines.
[ "$(getconf LONG_BIT)" = 64 ] || ulimit -s 1024

# shellcheck source=tests/lib/own-mounts.sh
. "$srcdir/lib/own-mounts.sh"

pids=()        # processes to end
mounts=()      # folders that may be mounted
under_pids=()  # processes that mounts are on
immutable=()   # files to make changeable again
own_pid=$BASHPID
under=()       # a command to run the server under, such as strace
client_up=
served=
tmp=

say ()
{
  printf '%s\n' "$*" >&2
}

# fail MESSAGE: the property does not hold.
fail ()
{
  say "FAIL: $*"
  if [ -s "$tmp/log" ]; then
    say "the end of the log of \"nbdkit $served\":"
    tail -n 20 "$tmp/log" >&2
  fi
  exit 1
}

# skip MESSAGE: the kernel lacks what the test is about.
skip ()
{
  say "SKIP: $*"
  exit 77
}

# lacks MESSAGE: the kernel could, but this user or machine is not set up for
# it, which on CI (where $CI is set) is a failure.
lacks ()
{
  [ -z "${CI:-}" ] || fail "$*"
  skip "$*"
}

# need PROGRAM...
need ()
{
  local program

  for program; do
    command -v "$program" >/dev/null || lacks "needs the program $program"
  done
}

# need_strace: to trace the server, or to refuse its calls.
need_strace ()
{
  need strace
  strace -o /dev/null true 2>/dev/null || lacks 'needs ptrace'
  # LeakSanitizer is a debugger too, and there can only be one.
  export ASAN_OPTIONS=detect_leaks=0
}

need_root ()
{
  [ "$(id -u)" = 0 ] || lacks "needs root"
}

# tune FILE VALUE: write it to a file of /sys, if that is there, until untune or
# the end of the script.  The settings of a loop device outlive its file: call
# untune before the device goes, or the next user gets them, and loses its own.
tune ()
{
  [ -w "$1" ] || return 0
  echo "$1 $(<"$1")" >>"$tmp/tuned"
  echo "$2" >"$1"
}

# untune [FOLDER]: give all files of /sys the value that they had before this
# script, or the script whose temporary folder this is, has changed them.
untune ()
{
  local folder=${1:-$tmp} file value

  [ -s "$folder/tuned" ] || return 0
  tac "$folder/tuned" | while read -r file value; do
    [ ! -w "$file" ] || echo "$value" >"$file"
  done
  rm "$folder/tuned"
}

# alive PID: a process that this script started still runs.  The number alone
# proves little, because a busy machine reuses it within minutes.  So the
# process must be a child of this script or have its environment.
alive ()
{
  local line state parent

  # PID (NAME) STATE PARENT ..., and the name may be anything.
  read -r line 2>/dev/null <"/proc/$1/stat" || return 1
  read -r state parent _ <<<"${line##*) }"
  [ "$state" != Z ] || return 1
  [ "$parent" = "$own_pid" ] ||
    grep -qsF "WINDOWED_TEST=$own_pid/$tmp" "/proc/$1/environ"
}

# send SIGNAL PID: if the process still runs.  It may end at this moment.
send ()
{
  gone "$2" || kill -s "$1" "$2" 2>/dev/null || gone "$2"
}

# eventually SECONDS COMMAND...: try the command every 20 ms until it succeeds.
# SECONDS is the limit on an idle machine.  The function waits ten times as
# long, because a test proves that something happens, not how soon.
eventually ()
{
  local end=$((${EPOCHREALTIME//[.,]/} + $1 * 10000000))

  shift
  until "$@"; do
    [ "${EPOCHREALTIME//[.,]/}" -lt "$end" ] || return 1
    sleep 0.02
  done
}

gone ()
{
  ! alive "$1"
}

# A child has this script's traps until it executes its program.  A child that
# is killed before must not clean up what the script still uses.
only_the_script ()
{
  [ "$BASHPID" = "$own_pid" ] || exit "$1"
}

# detach FOLDER: the loop devices of files in it.  Each is checked again just
# before, because another test may have got its number.
detach ()
{
  local name

  for name in $(losetup -nlO NAME 2>/dev/null); do
    [[ $(losetup -nO BACK-FILE "$name" 2>/dev/null) != "$1"/* ]] ||
      losetup -d "$name" || :
  done
}

# The script can end before it has recorded a process, mount or loop device.
# The temporary folder identifies these.
cleanup ()
{
  local status=$? i pid

  only_the_script "$status"
  trap '' INT TERM
  set +e
  # A server waits for its clients after SIGTERM.
  if [ -n "$client_up" ]; then
    exec {client_in}>&- {client_out}<&-
    eventually 5 gone "$client_pid" || pids+=("$client_pid")
  fi
  exec 7>&-     # which may be on a file system to be unmounted, see fd=7
  if [ -s "$tmp/pid" ]; then
    pid=$(<"$tmp/pid")
    ! grep -qsF "$tmp" "/proc/$pid/cmdline" || pids+=("$pid")
  fi
  for i in "${pids[@]}"; do send TERM "$i"; done
  for i in "${pids[@]}"; do
    eventually 5 gone "$i" || send KILL "$i"
    eventually 5 gone "$i"
  done
  [ -z "$tmp" ] || untune
  for i in "${immutable[@]}"; do chattr -i "$i" 2>/dev/null; done
  # A loop device that is mounted is detached with its mount.
  detach "$tmp"
  # mountpoint(1) does not recognise the mount of an nbdfuse that has ended.
  for ((i = ${#mounts[@]} - 1; i >= 0; i--)); do
    mountpoint -q "${mounts[i]}" ||
      grep -qF " ${mounts[i]} " /proc/self/mounts || continue
    eventually 5 umount "${mounts[i]}" 2>/dev/null ||
      umount -l "${mounts[i]}"
  done
  # The processes that the mounts were on.
  for i in "${under_pids[@]}"; do
    send TERM "$i"
    eventually 5 gone "$i" || send KILL "$i"
  done
  [ -z "$tmp" ] || rm -rf --one-file-system "$tmp"
  exit "$status"
}

trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Remove what a killed script left in this folder.  Its mounts end with its
# processes, see own-mounts.sh.  The name of a temporary folder has the script's
# process id.
sweep ()
{
  local left owner

  for left in "$1"/windowed-file-*-??????; do
    owner=${left%-*}
    owner=${owner##*-}
    if [ ! -d "$left" ] || [ -e "/proc/$owner" ]; then
      continue
    fi
    say "removing what process $owner left in $left"
    # Not as an argument of grep, which would find itself.
    { grep -lsF -f <(printf '%s/\n' "$left") /proc/[0-9]*/cmdline || :; } |
      while IFS=/ read -r _ _ owner _; do
        kill -KILL "$owner" 2>/dev/null || :
      done
    untune "$left"
    detach "$left"
    rm -rf --one-file-system "$left" || :
  done
}

# is_memory FOLDER: whether nothing can drop the pages of its files, because they
# are on tmpfs, or on overlayfs over tmpfs.
is_memory ()
{
  local file status=1

  file=$(mktemp "$1/windowed-file-$$-XXXXXX")
  echo >"$file"
  dd of="$file" oflag=nocache conv=notrunc,fdatasync count=0 status=none
  [[ $(cachestats "$file" 2>/dev/null) != *': '[1-9]* ]] || status=0
  rm "$file"
  return $status
}

# The temporary folder must be on a file system that has a page cache.
for folder in "${TMPDIR:-/var/tmp}" /var/tmp; do
  if ! is_memory "$folder"; then
    sweep "$folder"
    tmp=$(mktemp -d "$folder/windowed-file-$$-XXXXXX")
    break
  fi
done
[ -n "$tmp" ] || lacks "needs a TMPDIR that is not in memory, as tmpfs is"
export WINDOWED_TEST=$own_pid/$tmp
# The clients in Python share nbd_model.py.
export PYTHONPATH=$srcdir/lib PYTHONDONTWRITEBYTECODE=1

# start_nbdkit ARGUMENT...: serve on a socket in the temporary folder.
# Afterwards $uri is where to reach it, $server its process, $tmp/log what it
# writes to stderr.
start_nbdkit ()
{
  served=$*
  rm -f "$tmp/pid" "$tmp/sock"
  "${under[@]}" "$NBDKIT" -f --exit-with-parent \
    -P "$tmp/pid" -U "$tmp/sock" "$@" 2>"$tmp/log" &
  job=$!
  pids+=("$job")
  eventually 20 started || fail "the server did not start: $*"
  [ -s "$tmp/pid" ] || fail "the server ended as it started: $*"
  server=$(<"$tmp/pid")
  # shellcheck disable=SC2034
  uri="nbd+unix:///?socket=$tmp/sock"
  [ "$server" = "$job" ] || pids=("$server" "${pids[@]}")
}

started ()
{
  [ -s "$tmp/pid" ] || gone "$job"
}

# refuse_now CALL ERRNO: the server's calls fail from now on.
refuse_now ()
{
  strace -f -qq -o /dev/null -p "$server" -e "trace=$1" \
    -e "inject=$1:error=$2" &
  pids+=($!)
  eventually 5 grep -qE '^TracerPid:\s+[1-9]' "/proc/$server/status" ||
    fail 'strace does not begin'
}

# sanitizer_reports: whether the log has a report of a sanitizer.  A leak of
# memory that nbdkit itself allocated (frame #1 called malloc, frame #0) does
# not count: nbdkit does not free connections that are open when it ends.
sanitizer_reports ()
{
  awk '
    / leak of [0-9]+ byte/ { getline; getline; if (!/\/nbdkit\+0x/) found = 1 }
    /ERROR: LeakSanitizer: detected|SUMMARY: .* leaked in / { next }
    /Sanitizer: |Sanitizer:DEADLYSIGNAL|runtime error: / { found = 1 }
    END { exit !found }
  ' "$tmp/log"
}

# start_and_connect ARGUMENT...: the same, with a client, see client_start.
start_and_connect ()
{
  start_nbdkit "$@"
  client_start "$uri"
}

# stop_nbdkit: disconnect the client, end the server with SIGTERM, and check its
# status and its log.
stop_nbdkit ()
{
  client_stop
  if ! alive "$server" && ! aborted; then
    wait "$job" || fail "the server is no longer there, its status was $?"
    fail "the server has ended without a signal"
  fi
  aborted || send TERM "$server"
  # With ThreadSanitizer a process does not always act on its first signal.
  if [ -n "${TSAN_OPTIONS:-}" ] && ! eventually 1 gone "$job"; then
    send TERM "$server"
  fi
  has_ended
}

# aborted: up to 1.34 nbdkit itself may abort, when it has a reply for a connection
# that has just ended.  That is no error of the plugin.
aborted ()
{
  grep -q 'raw_send_socket: Assertion' "$tmp/log"
}

# has_ended: the same for a server that has got SIGTERM already.
has_ended ()
{
  local status=0

  if ! eventually 20 gone "$job"; then
    # What each thread waits for shows a slow disk or a deadlock.
    grep -s . "/proc/$server/task"/*/{comm,syscall,stack} >&2 || :
    fail "the server does not end on SIGTERM"
  fi
  wait "$job" || status=$?
  ! sanitizer_reports || fail "a sanitizer found something"
  if aborted; then
    pids=()
    say "nbdkit aborted: it had a reply for a connection that had ended"
    return
  fi
  [ "$status" = 0 ] || grep -q '^=.*ERROR: LeakSanitizer: ' "$tmp/log" ||
    fail "the server ended with status $status"
  pids=()
}

# limited COMMAND...: with a time limit, for a client that hangs if the server
# does.
limited ()
{
  timeout --foreground -k 5 300 "$@"
}

# need_python_nbd: for the clients in Python, which use the distribution's libnbd.
need_python_nbd ()
{
  /usr/bin/python3 -c 'import nbd' 2>/dev/null ||
    lacks 'needs the module nbd of Python'
}

# entries DIRECTORY: how many there are in that directory of the server's /proc,
# as fd or task.
entries ()
{
  find "/proc/$server/$1" -mindepth 1 -maxdepth 1 | wc -l
}

# soon_at_most DIRECTORY NUMBER WHEN: no more than that number are there, soon.
soon_at_most ()
{
  eventually 10 at_most "$@" ||
    fail "$3: $(entries "$1") in $1, not $2 at most"
}

at_most ()
{
  [ "$(entries "$1")" -le "$2" ]
}

# memory WHAT: of the server, in KiB, as VmRSS.
memory ()
{
  sed -n "s/^$1:[[:space:]]*\([0-9]*\) kB/\1/p" "/proc/$server/status"
}

# is_closed FILE: the server has none open that fits the pattern.
is_closed ()
{
  alive "$server" && [ -z "$(find "/proc/$server/fd" -lname "$1" 2>/dev/null)" ]
}

# log_has NUMBER TEXT: as many lines of the log have it.
log_has ()
{
  local number

  number=$(grep -c -- "$2" "$tmp/log" || :)
  [ "$number" = "$1" ] || fail "\"$2\": logged $number times, not $1"
}

# size_of EXPORT: its name as part of a URI.  Returns 1 if it is refused.
size_of ()
{
  timeout --foreground -k 1 60 \
    nbdinfo --size "nbd+unix:///$1?socket=$tmp/sock" 2>"$tmp/refusal"
}

# lists WHEN NAME...: the server lists these exports, and no others.
lists ()
{
  timeout --foreground -k 1 60 nbdinfo --list "nbd+unix:///?socket=$tmp/sock" \
    >"$tmp/list" || fail "$1: no list of exports"
  sed -n 's/^export="\(.*\)":$/\1/p' "$tmp/list" | LC_ALL=C sort >"$tmp/got"
  printf '%s\n' "${@:2}" | LC_ALL=C sort | diff - "$tmp/got" >&2 ||
    fail "$1: the list of exports"
}

# parameters: the names of the plugin's parameters, which are in one table, in
# that order.
parameters ()
{
  sed -n '/^static struct parameter parameters/,/^};/ s/^  { "\([^"]*\)".*/\1/p' \
    "$srcdir/../plugins/file/options.c"
}

# make_in_build TARGET DESTDIR
make_in_build ()
{
  need make
  env -u MAKEFLAGS -u MAKELEVEL make -C "$builddir/.." "$1" "DESTDIR=$2" \
    >"$tmp/make.log" 2>&1 || fail "make $1: $(<"$tmp/make.log")"
}

# find_stock: $stock is the stock plugin, which our Debian package puts aside.
find_stock ()
{
  local plugins

  plugins=$("$NBDKIT" --dump-config | sed -n 's/^plugindir=//p')
  stock=$plugins/nbdkit-stock-file-plugin.so
  [ -e "$stock" ] || stock=$plugins/nbdkit-file-plugin.so
  [ -e "$stock" ] || lacks "needs the stock plugin, $stock"
}

# client_start URI, or client_start -- NBDKIT -s ...: a connection that stays
# open until client_stop.  With --names URI, several: client.py lists the
# requests.
client_start ()
{
  local in out

  need_python_nbd
  coproc CLIENT { exec "$srcdir/lib/client.py" "$@"; }
  client_pid=$!
  in=${CLIENT[1]}
  out=${CLIENT[0]}
  exec {client_in}>&"$in" {client_out}<&"$out"
  exec {in}>&- {out}<&-
  client_up=1
  [ "$1" = --names ] || ask size
}

# ask REQUEST[, REQUEST]...: must succeed.  $answer is the reply to the last one
# without "ok".
ask ()
{
  local request=()

  while [ $# -gt 0 ]; do
    request+=("${1%,}")
    if [[ $1 = *, ]] || [ $# = 1 ]; then
      ask_any "${request[@]}"
      [[ $answer = ok* ]] || fail "${request[*]}: $answer"
      request=()
    fi
    shift
  done
  answer=${answer#ok}
  answer=${answer# }
}

# ask_error ERRNO REQUEST...: must fail, with an errno that begins so.
ask_error ()
{
  ask_any "${@:2}"
  # shellcheck disable=SC2053
  [[ $answer = "error "$1* ]] || fail "${*:2}: $answer, not error $1"
}

# ask_any REQUEST...: $answer is ok or error with the name of its errno.
ask_any ()
{
  local status=0

  ask_for 60 "$@" || status=$?
  [ $status -le 128 ] || fail "$*: no answer in 60 s"
  [ $status != 0 ] || return 0
  status=0
  wait "$client_pid" || status=$?
  fail "$*: no answer, the client ended with status $status"
}

# ask_for SECONDS REQUEST...: returns more than 128 if there is no answer within
# SECONDS.
ask_for ()
{
  printf '%s\n' "${*:2}" >&"$client_in"
  read -r -t "$1" answer <&"$client_out"
}

# another_client REQUEST...: print the answers that another client gets.
another_client ()
{
  printf '%s\n' "$@" | limited "$srcdir/lib/client.py" "$uri"
}

# latched ERRNO OFFSET WHEN [alone]: each change and each flush fails with that
# errno, for this client and for another one, unless it is alone with its image.
# Nothing at OFFSET may be known to the client's model.
latched ()
{
  local request

  for request in flush "write $2 4K" "write $2 512 fua" "zero $2 4K" \
    "zero $2 4K nohole" "zero $2 4K fast" "trim $2 4K" "trim $2 4K fua" flush; do
    ask_any "$request"
    [[ $answer = "error $1 "* ]] || fail "$3: $request: $answer"
    [ "${4:-}" != alone ] || continue
    answer=$(another_client "$request")
    [[ $answer = "error $1 "* ]] || fail "$3: $request of another one: $answer"
  done
}

# works_again OFFSET WHEN: all clients of a disk whose latch has closed have left,
# and soon another one can write there.  One that comes before the disk is empty
# counts as one of them.
works_again ()
{
  eventually 5 writes_again "$1" || fail "$2: a new client: $answer"
}

writes_again ()
{
  sleep 0.3
  answer=$(another_client "write $1 4K" "read $1 4K" flush)
  [ "$answer" = $'ok\nok\nok' ]
}

client_stop ()
{
  local status=0

  [ -n "$client_up" ] || return 0
  exec {client_in}>&- {client_out}<&-
  client_up=
  wait "$client_pid" || status=$?
  [ "$status" = 0 ] || fail "the client ended with status $status"
}

# residency [OPTION] FILE: see residency.c.
residency ()
{
  "$builddir/lib/residency" "$@"
}

# resident FILE: how many of its pages are in the page cache.
resident ()
{
  local line

  if [ -b "$1" ]; then
    residency "$1"
  else
    line=$(cachestats "$1") || fail "cachestats $1"
    [[ $line =~ ^pages\ in\ cache:\ ([0-9]+)/ ]] || fail "cachestats: $line"
    echo "${BASH_REMATCH[1]}"
  fi
}

is_empty ()
{
  [ "$(resident "$1")" = 0 ]
}

# Seconds that the eviction of pages may take on an idle machine;
# "scripts/bench" measures how long it takes.
patience=2

# empty_now FILE WHEN: no page of it is cached.  empty_soon: soon none is
# cached, without another request.
empty_now ()
{
  local pages

  pages=$(resident "$1")
  [ "$pages" = 0 ] || fail "$2: $pages pages of $1 are cached"
}

empty_soon ()
{
  eventually "$patience" is_empty "$1" || empty_now "$@"
}

# Drop a file's pages, so that the next count has none that a comparison has
# read.
drop ()
{
  sync "$1"
  dd if="$1" iflag=nocache count=0 status=none
}

# allocated FILE: its bytes on the disk.
allocated ()
{
  sync "$1"
  echo $(($(stat -c %b "$1") * 512))
}

same ()
{
  cmp "$1" "$2" >&2 || fail "$1 and $2 differ"
}

# random_file FILE BYTES
random_file ()
{
  head -c "$2" /dev/urandom >"$1"
}

# attach FILE [OPTION...]: as a loop device, $device.
attach ()
{
  # shellcheck disable=SC2034
  device=$(losetup -f --show "${@:2}" "$1") || lacks "needs loop devices"
}

# mount_ext4 FILE: a new ext4 without a journal on it, at $tmp/mounted.
mount_ext4 ()
{
  need mkfs.ext4 losetup
  mkfs.ext4 -q -E nodiscard,lazy_itable_init=1 -O ^has_journal "$1" ||
    fail mkfs
  mkdir -p "$tmp/mounted"
  mounts+=("$tmp/mounted")
  mount -o loop "$1" "$tmp/mounted" || fail mount
}

# mounted TYPE SIZE [OPTION]: a new file system of this type, at $mounted.  That
# of NTFS is FUSE.
mounted ()
{
  local image="$tmp/$1-$2.img" mkfs=("mkfs.$1" -q)
  local mount=(mount -t "$1" -o "loop${3:+,$3}")

  need_root
  if [ "$1" = ntfs ]; then
    mkfs+=(-F -f)
    mount=(ntfs-3g)
    [ -e /dev/fuse ] || lacks 'needs FUSE'
  fi
  need "${mkfs[0]}" "${mount[0]}" losetup
  mounted="$tmp/$1-$2"
  truncate -s "$2" "$image"
  mkdir "$mounted"
  "${mkfs[@]}" "$image" >/dev/null 2>&1 || fail "mkfs.$1"
  mounts+=("$mounted")
  "${mount[@]}" "$image" "$mounted" ||
    skip "the kernel cannot mount $1"
}

# fuse_client URI [OPTION...]: nbdfuse, whose process is $fuse, shows the export
# as $tmp/fuse/disk.
fuse_client ()
{
  mounts+=("$tmp/fuse")
  # In a session of its own: Ctrl-C is for this script, which unmounts first.
  setsid nbdfuse "${@:2}" "$tmp/fuse/disk" "$1" 2>"$tmp/fuse.log" &
  fuse=$!
  under_pids+=("$fuse")
  eventually 20 test -e "$tmp/fuse/disk" || fail "nbdfuse: $(<"$tmp/fuse.log")"
}

# hold_pages HOW ARGUMENT...: a process of its own does so, until let_pages_go:
# holds pages, a lock or a lease, see holder.py.
hold_pages ()
{
  rm -f "$tmp/held"
  /usr/bin/python3 "$srcdir/lib/holder.py" "$@" >"$tmp/held" &
  holder=$!
  under_pids+=("$holder")
  eventually 20 test -s "$tmp/held" || fail "nobody holds: $*"
}

let_pages_go ()
{
  kill "$holder"
  wait "$holder" || :
}

# fuse_file [OPTION=VALUE...]: $tmp/disk is a hole of 64 MiB on FUSE, stored in
# $tmp/backing, until it is unmounted.  fuse-file.py has the options;
# $fuse_server is its process.
fuse_file ()
{
  need_root
  need /usr/bin/python3
  [ -c /dev/fuse ] || lacks 'needs /dev/fuse'
  rm -f "$tmp/backing"
  truncate -s 64M "$tmp/backing"
  touch "$tmp/disk"
  mounts+=("$tmp/disk")
  /usr/bin/python3 "$srcdir/lib/fuse-file.py" "$tmp/backing" "$tmp/disk" "$@" &
  fuse_server=$!
  pids+=("$fuse_server")
  eventually 5 mountpoint -q "$tmp/disk" || fail 'it is not mounted'
}

# fuse_disk [OPTION=VALUE...]: with the writeback cache.  The kernel ignores the
# size that the server reports.
fuse_disk ()
{
  fuse_file writeback=yes "$@"
  truncate -s 64M "$tmp/disk"
}

# mount_overlay FOLDER AT [LOWER]: overlayfs at AT, with the layers FOLDER/lower
# (or LOWER) and FOLDER/upper, to which it writes.  Fails if the kernel does.
mount_overlay ()
{
  local lower=${3:-$1/lower}

  mkdir -p "$lower" "$1/upper" "$1/work" "$2"
  [[ " ${mounts[*]} " = *" $2 "* ]] || mounts+=("$2")
  mount -t overlay -o "lowerdir=$lower,upperdir=$1/upper,workdir=$1/work" \
    none "$2"
}

# overlay TYPE SIZE: overlayfs over a new file system of this type, at $mounted;
# what it writes is in the folder $upper.
overlay ()
{
  local below

  mounted "$1" "$2"
  below=$mounted
  mounted=$tmp/overlay-$1-$2
  # shellcheck disable=SC2034
  upper=$below/upper
  mount_overlay "$below" "$mounted" ||
    skip "the kernel cannot mount overlayfs over $1"
}

# on_each SIZE FUNCTION PLACE...: call it with a folder in each of these places: a
# new file system of this type and size, overlayfs above one (as overlay-xfs), or
# the temporary folder (tmpdir).
on_each ()
{
  local place

  for place in "${@:3}"; do
    if [ "$place" = tmpdir ]; then
      mkdir "$tmp/$place"
      "$2" "$tmp/$place"
      continue
    fi
    if [[ $place = overlay-* ]]; then
      overlay "${place#overlay-}" "$1"
    else
      mounted "$place" "$1"
    fi
    "$2" "$mounted"
    umount "$mounted"
    rmdir "$mounted"
    rm -f "$mounted.img"
  done
}

# read_ahead AT: bytes that the kernel reads ahead in a file, folder or block
# device.  If the device below is unknown, as on btrfs and overlayfs, it is the
# most that any device has, and at least the 4 MiB of btrfs.
read_ahead ()
{
  local format=%Hd:%Ld file

  [ ! -b "$1" ] || format=%Hr:%Lr
  file=/sys/class/bdi/$(stat -L -c "$format" "$1")/read_ahead_kb
  if [ -e "$file" ]; then
    echo $(($(<"$file") * 1024))
    return
  fi
  # A device may go at this moment.
  { cat /sys/class/bdi/*/read_ahead_kb 2>/dev/null || :; } |
    sort -n | awk 'END { print ($1 > 4096 ? $1 : 4096) * 1024 }'
}

# watch_start FILE [PAGES]: count its cached pages until watch_end, see
# "residency -w"; under the command $watch_under, if it is set.
watch_under=()
watch_start ()
{
  "${watch_under[@]}" "$builddir/lib/residency" -w "$@" >"$tmp/most" &
  watcher=$!
  pids+=("$watcher")
  eventually 10 catches_term "$watcher" || fail 'the watcher does not start'
}

# catches_term PID: whether the process handles SIGTERM (bit 15 of 64), which
# "residency -w" does when it has begun to watch.
catches_term ()
{
  local mask

  mask=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$1/status") &&
    (((16#$mask >> 14) & 1))
}

# watch_end: $most is the most pages that were cached.  Returns the status of
# "residency -w".
watch_end ()
{
  local status=0

  kill "$watcher"
  wait "$watcher" || status=$?
  # shellcheck disable=SC2034
  most=$(<"$tmp/most")
  return "$status"
}

# map_at_rest FILE MAP: write the map of resident pages to MAP when readahead
# has completed.  cachestat(2) counts a page that is in flight, and the map
# lacks it.
map_at_rest ()
{
  eventually 20 map_is_stable "$1" "$2" || fail "$1 does not come to rest"
}

# map_repeats FILE MAP: the map of resident pages does not change within 0.3 s.
map_repeats ()
{
  residency -m "$1" >"$2"
  sleep 0.3
  residency -m "$1" | cmp -s - "$2"
}

map_is_stable ()
{
  map_repeats "$@" &&
    (($(residency "$1") <= $(fold -w 1 "$2" | grep -c 1 || :)))
}

# compare_maps FILE MAP: of the pages in the map there were $resident; $stayed
# of them are resident now, and $added others.
compare_maps ()
{
  residency -m "$1" >"$2.after"
  read -r resident stayed added < <(awk '
    { map[NR] = $0 }
    END {
      for (i = length(map[1]); i > 0; i--) {
        was = substr(map[1], i, 1)
        is = substr(map[2], i, 1)
        resident += was; stayed += was * is; added += (1 - was) * is
      }
      print resident + 0, stayed + 0, added + 0
    }' "$2" "$2.after")
}

# as_before FILE MAP WHEN: no page is resident that was not resident then.
# Fails with status 1 and $taken if more than a few pages are missing: some
# kernels reclaim idle pages at any time, or 16 MiB at once.
as_before ()
{
  compare_maps "$1" "$2"
  [ "$added" = 0 ] || fail "$3: $added pages more than before are cached"
  # shellcheck disable=SC2034
  taken="$3: of $resident pages that were cached $stayed are left"
  [ $((stayed * 100)) -ge $((resident * 90)) ]
}
