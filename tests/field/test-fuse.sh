#!/usr/bin/env bash
# On FUSE neither a server without a working fsync, nor one that is interrupted,
# nor one that refuses readers what it permits to writers, makes a copy fail that
# the stock plugin completes: no copy needs an fsync that its client did not ask
# for.
#
#   test-fuse.sh [CASE...]    of the functions case_* (all)
#
# Without the kernel's writeback cache no page of such a file is ever dirty, so
# none has to stay.
#
# Copyright (C) 2026 The nbdkit-windowed-file authors
# SPDX-License-Identifier: BSD-3-Clause

# shellcheck source=../lib/lib.sh
. "${srcdir:-.}/lib/lib.sh" || exit
need nbdcopy nbdinfo cmp

serve_it ()
{
  start_nbdkit file "$tmp/disk" cache=none
}

# copy [OPTION...]: with nbdcopy, whose status is $copied.
copy ()
{
  copied=0
  limited nbdcopy "$@" "$tmp/src" "$uri" 2>"$tmp/said" || copied=$?
}

is_stored ()
{
  cmp -n "$(stat -c %s "$tmp/src")" "$tmp/src" "$tmp/backing" >&2 ||
    fail "$1: the data is not stored"
}

end ()
{
  stop_nbdkit
  umount "$tmp/disk"
  eventually 5 gone "$fuse_server" || fail 'the FUSE server does not end'
}

# Only a copy that asks for a flush fails, if the kernel tells that no page is
# dirty.
case_fsync_refused ()
{
  local err flush lines

  under=("$builddir/lib/without-cachestat")
  fuse_file fsync=EINVAL
  serve_it
  copy
  eventually "$patience" grep -q 'cannot sync the file' "$tmp/log" ||
    fail 'fsync: EINVAL: no reason in the log'
  end
  under=()

  # The others need cachestat(2).
  case $(uname -r) in 5.* | 6.[0-4].*) return ;; esac
  for err in EIO EINVAL EOPNOTSUPP EROFS EBADF; do
    for flush in '' --flush; do
      fuse_file "fsync=$err"
      serve_it
      copy ${flush:+"$flush"}
      [ $((copied != 0)) = $((${#flush} != 0)) ] ||
        fail "fsync: $err: copy $flush: status $copied: $(<"$tmp/said")"
      is_stored "fsync: $err, copy $flush"
      empty_soon "$tmp/disk" "fsync: $err, after a copy $flush"
      end
      lines=$(wc -l <"$tmp/log")
      [ -n "$flush" ] || [ "$lines" -le 1 ] ||
        fail "fsync: $err: $lines lines in the log"
    done
  done
}

# copies WHAT: with a flush, and nothing is said or left.
copies ()
{
  copy --flush
  [ "$copied" = 0 ] || fail "$1: a copy failed: $(<"$tmp/said")"
  is_stored "$1"
  [[ $served = *cache=default ]] || empty_soon "$tmp/disk" "$1: after a copy"
  [ ! -s "$tmp/log" ] || fail "$1: there is a log"
}

# A descriptor that cannot write has no fsync, as on CIFS.
case_fsync_of_readers ()
{
  local err

  for err in EACCES EBADF; do
    fuse_disk "fsync_reader=$err"
    serve_it
    copies "fsync of readers: $err"
    end

    fuse_disk "fsync_reader=$err"
    mount -o remount,bind,ro "$tmp/disk"
    serve_it
    client_start "$uri"
    limited nbdinfo --is read-only "$uri" >/dev/null || fail 'not read-only'
    ask read 0 1M, flush
    client_stop
    mount -o remount,bind,rw "$tmp/disk"
    copies "fsync of readers: $err, after a reader"
    end
  done

  # Where the kernel does not report that all is clean.
  under=("$builddir/lib/without-cachestat")
  fuse_file fsync_reader=EACCES
  serve_it
  copies 'fsync of readers, without cachestat'
  end
  under=()
}

# A file that has a writer has no readers, as with the share modes of Windows.
case_no_readers ()
{
  local cache

  for cache in none preserve default; do
    fuse_disk reader=EACCES
    start_nbdkit file "$tmp/disk" "cache=$cache"
    copies "no readers, cache=$cache"
    end
  done
}

# The client has answered: $answer.  A read that times out may lose the beginning
# of the answer.
answered ()
{
  sleep 0.05
  read -r -t 0 <&"$answers" && read -r -t 60 answer <&"$answers"
}

# Stop and continue the server, as docker pause does, until each of the first
# fsyncs was interrupted.
case_interrupted ()
{
  local times=0

  fuse_file "counts=$tmp/counts" interrupts=3
  serve_it
  client_start "$uri"
  answers=$client_out
  ask write 0 1M
  echo flush >&"$client_in"
  until answered; do
    times=$((times + 1))
    [ "$times" -lt 2000 ] || fail "no answer: $(<"$tmp/counts")"
    kill -STOP "$server"
    kill -CONT "$server"
  done
  grep -q 'interrupted=[1-9]' "$tmp/counts" || fail 'no fsync was interrupted'
  [[ $answer = ok* ]] || fail "after $(<"$tmp/counts"): flush: $answer"
  ask save "$tmp/model"
  cmp -n 1M "$tmp/model" "$tmp/backing" >&2 || fail 'the data is not stored'
  empty_soon "$tmp/disk" 'after an interrupted flush'
  client_stop
  end
  [ ! -s "$tmp/log" ] || fail 'an interrupted flush: there is a log'
}

case_always_interrupted ()
{
  fuse_file fsync=EINTR
  serve_it
  client_start "$uri"
  ask write 0 1M
  ask_error E flush
  client_stop
  empty_soon "$tmp/disk" 'fsync: EINTR, after the client has left'
  end

  fuse_file write=EINTR
  serve_it
  client_start "$uri"
  ask_error E write 0 1M
  client_stop
  end
}

# A file that cannot be opened for writing is read-only, see
# start/test-read-only.sh; a shortage that passes must not make it so.
case_shortage ()
{
  local err

  for err in EMFILE ENFILE ENOMEM; do
    fuse_file "open=$err"
    serve_it
    ! limited nbdinfo --size "$uri" >/dev/null 2>&1 ||
      fail "open: $err: it is served"
    end
  done
}

writeback_stored ()
{
  cmp -s -n 8M "$tmp/model" "$tmp/backing"
}

# With the writeback cache pages are dirty, so fsync is needed.
case_writeback_cache ()
{
  fuse_disk
  serve_it
  client_start "$uri"
  ask write 0 8M, save "$tmp/model"
  eventually "$patience" writeback_stored ||
    fail 'with the writeback cache, idle: the data is not stored'
  empty_soon "$tmp/disk" 'with the writeback cache, idle'
  client_stop
  end

  # Pages whose writeback failed stay while a client is connected, also when the
  # idle disk is emptied.  The kernel may take single ones: they are clean for it.
  fuse_disk "refuse=$tmp/refuse" refused=ENOSPC
  serve_it
  client_start "$uri"
  touch "$tmp/refuse"
  ask write 0 1M
  ask_error ENOSPC flush
  rm "$tmp/refuse"
  ask read 0 4K
  sleep 1
  [ "$(resident "$tmp/disk")" -ge 128 ] || fail 'its pages were dropped'
  latched ENOSPC 32M 'with the writeback cache' alone
  client_stop
  works_again 32M 'with the writeback cache'
  end

  # No later client finds the disk of one that has left without a flush: the log
  # does not promise that, and nothing stays open.
  fuse_disk "refuse=$tmp/refuse" refused=ENOSPC
  serve_it
  client_start "$uri"
  touch "$tmp/refuse"
  ask write 0 1M
  eventually "$patience" test -s "$tmp/refuse" || fail 'no write is refused'
  client_stop
  eventually "$patience" grep -q 'none has got.*may succeed' "$tmp/log" ||
    fail "the log: $(<"$tmp/log")"
  eventually "$patience" is_closed "$tmp/disk" || fail 'the file stays open'
  rm "$tmp/refuse"
  end
}

# A server that has written behind keeps the error for the handle that wrote.  It
# is its client's: of its flush, or of the close(2) of one that has not flushed,
# which the log gets.  So multi-conn is not offered.
case_write_behind ()
{
  local kind

  for kind in fuse_file fuse_disk; do
    rm -f "$tmp/behind"
    "$kind" "behind=$tmp/behind"
    serve_it
    client_start "$uri"
    ask write 0 1M, flush
    touch "$tmp/behind"
    ask write 0 2M
    ask_error ENOSPC flush
    latched ENOSPC 32M "$kind" alone
    client_stop
    end

    "$kind" "behind=$tmp/behind"
    serve_it
    another_client 'write 0 2M' >"$tmp/said"
    eventually "$patience" grep -q 'none has got.*may succeed' "$tmp/log" ||
      fail "$kind: the log: $(<"$tmp/log")"
    [ "$(limited nbdinfo --can multi-conn "$uri" && echo yes)" = '' ] ||
      fail "$kind: multi-conn is offered"
    end
  done

  # Nor does the close of another client use it up.
  rm "$tmp/behind"
  fuse_file "behind=$tmp/behind"
  exec 7<>"$tmp/disk"
  start_nbdkit file fd=7 cache=none
  exec 7>&-
  client_start "$uri"
  touch "$tmp/behind"
  ask write 0 2M
  limited nbdinfo --size "$uri" >/dev/null || fail 'no other client'
  ask_error ENOSPC flush
  client_stop
  end

  # No error is made up if all was flushed, or has failed: some servers refuse each
  # close.
  fuse_file write=ENOSPC flush=EPERM
  serve_it
  another_client 'write 0 4K' >"$tmp/said"
  grep -q '^error ENOSPC' "$tmp/said" || fail "write: ENOSPC: $(<"$tmp/said")"
  end
  [ "$(wc -l <"$tmp/log")" = 1 ] || fail "write: ENOSPC: $(<"$tmp/log")"
  fuse_file flush=EPERM
  serve_it
  for _ in 1 2 3; do
    [ "$(another_client 'write 0 4K' flush)" = $'ok\nok' ] ||
      fail 'a client fails because of the close of another'
  done
  end
  [ ! -s "$tmp/log" ] || fail "flush: EPERM: $(<"$tmp/log")"
}

# A client that comes after the file was replaced reads and writes the new one, by
# each way of reading, also when the kernel takes it for the old one.
case_replaced ()
{
  local cache file

  random_file "$tmp/new" 64M
  for cache in none preserve default 'none fd' 'preserve fd'; do
    rm -f "$tmp/replaced"
    fuse_file "replaced=$tmp/replaced"
    exec 7<>"$tmp/disk"
    file=$tmp/disk
    [[ $cache != *fd ]] || file=fd=7
    start_nbdkit file "$file" "cache=${cache% *}"
    exec 7>&-
    limited /usr/bin/python3 - "$uri" "$tmp/new" "$tmp/replaced" <<'END' ||
import nbd, os, shutil, sys, time
uri, new, replaced = sys.argv[1:]
old, client = nbd.NBD(), nbd.NBD()
old.connect_uri(uri)
old.pread(1 << 20, 0)
shutil.copy(new, replaced)
client.connect_uri(uri)
old.shutdown()
wanted = bytearray(open(new, "rb").read(8 << 20))
client.cache(1 << 20, 0)
assert client.pread(4 << 20, 0) == wanted[:4 << 20], "reads"
wanted[6 << 20:(6 << 20) + 4096] = bytes(4096)
client.pwrite(bytes(4096), 6 << 20, nbd.CMD_FLAG_FUA)
time.sleep(3)                           # until no page is left
assert client.pread(8 << 20, 0) == wanted, "reads after a write"
assert open(replaced, "rb").read(8 << 20) == wanted, "the file"
client.shutdown()
END
      fail "cache=$cache: a file that was replaced"
    end
  done
}

random_file "$tmp/src" 32M
[ $# -gt 0 ] || set -- fsync_refused fsync_of_readers no_readers interrupted \
  always_interrupted shortage writeback_cache write_behind replaced
for name; do "case_$name"; done
