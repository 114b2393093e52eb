/* Writeback errors of a disk: each is told once to every connection.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "wberr.h"

#define ERRNO_BITS 16
#define ERRNO_MASK 0xffff

int
wberr_ask (int fd)
{
  /* There is no page to wait for so far beyond the end of any file.  On
   * 32-bit kernels that is the last page that they can count (16 TiB, which
   * no file reaches): beyond it they return before they look for errors.
   */
  const off_t nowhere = sizeof (long) == 4
                          ? (off_t) UINT32_MAX * sysconf (_SC_PAGESIZE)
                          : INT64_MAX & ~INT64_C (0xffffff);

  return sync_file_range (fd, nowhere, 1, SYNC_FILE_RANGE_WAIT_BEFORE) == -1
           ? errno
           : 0;
}

void
wberr_init (struct wberr *e, int witness)
{
  /* Errors from before our time are not ours.  What is said twice is not one,
   * but that a sandbox forbids to ask.
   */
  if (witness >= 0 && wberr_ask (witness) && wberr_ask (witness)) {
    close (witness);
    witness = -1;
  }
  e->witness = witness;
  atomic_init (&e->witness_hears, false);
  atomic_init (&e->latest, 0);
  atomic_init (&e->told, 0);
  e->suspects = 0;
  e->write_serial = 0;
  e->listener_serial = 0;
  TAILQ_INIT (&e->writes);
  TAILQ_INIT (&e->listeners);
  pthread_mutex_init (&e->asking, NULL);
  pthread_mutex_init (&e->lock, NULL);
  pthread_cond_init (&e->quiet, NULL);
}

void
wberr_free (struct wberr *e)
{
  if (e->witness >= 0)
    close (e->witness);
  pthread_cond_destroy (&e->quiet);
  pthread_mutex_destroy (&e->lock);
  pthread_mutex_destroy (&e->asking);
}

/* ---- hearing ---- */

/* Lock held. */
static void
note_locked (struct wberr *e, int err)
{
  const uint64_t count = (atomic_load (&e->latest) >> ERRNO_BITS) + 1;

  e->suspects = e->write_serial;
  atomic_store (&e->latest, count << ERRNO_BITS | err);
}

void
wberr_note (struct wberr *e, int err)
{
  pthread_mutex_lock (&e->lock);
  note_locked (e, err);
  pthread_mutex_unlock (&e->lock);
}

void
wberr_trust_witness (struct wberr *e)
{
  if (e->witness >= 0)
    atomic_store (&e->witness_hears, true);
}

bool
wberr_listen (struct wberr *e)
{
  int err;

  if (e->witness == -1)
    return false;
  pthread_mutex_lock (&e->asking);
  err = wberr_ask (e->witness);
  if (err) {
    wberr_note (e, err);
    wberr_trust_witness (e);
  }
  pthread_mutex_unlock (&e->asking);
  return err != 0;
}

/* Lock held. */
static void
add_listener (struct wberr *e, struct wberr_listener *l, int fd)
{
  l->fd = fd;
  l->listed = true;
  l->serial = ++e->listener_serial;
  TAILQ_INSERT_TAIL (&e->listeners, l, others);
}

void
wberr_listening_begins (struct wberr *e, struct wberr_listener *l, int fd)
{
  l->listed = false;
  if (atomic_load (&e->witness_hears))
    return;
  pthread_mutex_lock (&e->lock);
  add_listener (e, l, fd);
  pthread_mutex_unlock (&e->lock);
}

static void
remove_listener (struct wberr *e, struct wberr_listener *l)
{
  if (!l->listed)
    return;
  pthread_mutex_lock (&e->lock);
  TAILQ_REMOVE (&e->listeners, l, others);
  pthread_cond_broadcast (&e->quiet);
  pthread_mutex_unlock (&e->lock);
}

void
wberr_listening_ends (struct wberr *e, struct wberr_listener *l, int err,
                      const wberr_cursor *cursor)
{
  if (err && !wberr_listen (e) &&
      (!atomic_load (&e->witness_hears) ||
       (cursor && atomic_load (cursor) == atomic_load (&e->latest))))
    wberr_note (e, err);
  remove_listener (e, l);
}

/* Whether one that began before "last" may have used up what "fd" had to tell.
 * Lock held.
 */
static bool
others_listen (const struct wberr *e, int fd, uint64_t last)
{
  const struct wberr_listener *l;

  TAILQ_FOREACH (l, &e->listeners, others) {
    if (l->serial > last)
      return false;
    if (l->fd == fd || e->witness == -1)
      return true;
  }
  return false;
}

void
wberr_wait_for_listeners (struct wberr *e, int fd)
{
  uint64_t last;

  if (atomic_load (&e->witness_hears))
    return;
  pthread_mutex_lock (&e->lock);
  last = e->listener_serial;
  while (others_listen (e, fd, last))
    pthread_cond_wait (&e->quiet, &e->lock);
  pthread_mutex_unlock (&e->lock);
}

/* ---- telling ---- */

wberr_mark
wberr_sample (struct wberr *e)
{
  wberr_mark latest = atomic_load (&e->latest);

  return latest == atomic_load (&e->told) ? latest : 0;
}

int
wberr_next (struct wberr *e, wberr_cursor *cursor)
{
  wberr_mark latest = atomic_load (&e->latest);

  /* Nearly always true, and cheaper than an exchange. */
  if (atomic_load (cursor) == latest)
    return 0;
  if (atomic_exchange (cursor, latest) == latest)
    return 0;
  return latest & ERRNO_MASK;
}

wberr_mark
wberr_now (struct wberr *e)
{
  return atomic_load (&e->latest);
}

int
wberr_since (struct wberr *e, wberr_mark mark)
{
  wberr_mark latest = atomic_load (&e->latest);

  return latest == mark ? 0 : latest & ERRNO_MASK;
}

int
wberr_untold (struct wberr *e)
{
  return wberr_since (e, atomic_load (&e->told));
}

/* ---- writes in progress ---- */

void
wberr_write_begins (struct wberr *e, struct wberr_write *w, uint64_t offset,
                    uint64_t length, bool fua)
{
  w->range = (struct extent){ offset, length };
  w->fua = fua;
  pthread_mutex_lock (&e->lock);
  w->serial = ++e->write_serial;
  w->mark = atomic_load (&e->latest);
  TAILQ_INSERT_TAIL (&e->writes, w, others);
  pthread_mutex_unlock (&e->lock);
}

void
wberr_write_at (struct wberr *e, struct wberr_write *w, uint64_t offset,
                uint64_t length)
{
  pthread_mutex_lock (&e->lock);
  w->range = (struct extent){ offset, length };
  pthread_mutex_unlock (&e->lock);
}

void
wberr_write_ends (struct wberr *e, struct wberr_write *w)
{
  pthread_mutex_lock (&e->lock);
  TAILQ_REMOVE (&e->writes, w, others);
  pthread_mutex_unlock (&e->lock);
}

int
wberr_add_writes (struct wberr *e, struct extent_set *set)
{
  const uint64_t mask = sysconf (_SC_PAGESIZE) - 1;
  const struct wberr_write *w;
  int r = 0;

  pthread_mutex_lock (&e->lock);
  TAILQ_FOREACH (w, &e->writes, others) {
    uint64_t start = w->range.offset & ~mask;
    uint64_t end = (extent_end (&w->range) + mask) & ~mask;

    if (w->range.length > 0)
      r = extent_set_add (set, start, end - start);
    if (r == -1)
      break;
  }
  pthread_mutex_unlock (&e->lock);
  return r;
}

bool
wberr_is_written (struct wberr *e, uint64_t offset, uint64_t length)
{
  const struct wberr_write *w;
  bool found = false;

  pthread_mutex_lock (&e->lock);
  TAILQ_FOREACH (w, &e->writes, others) {
    if (w->range.length > 0 && w->range.offset < offset + length &&
        offset < extent_end (&w->range))
      found = true;
  }
  pthread_mutex_unlock (&e->lock);
  return found;
}

/* ---- a flush ---- */

void
wberr_flush_begins (struct wberr *e, struct wberr_flush *f, int fd)
{
  const struct wberr_write *w;

  pthread_mutex_lock (&e->lock);
  f->oldest = e->write_serial + 1;
  TAILQ_FOREACH (w, &e->writes, others) {
    if (!w->fua) {
      f->oldest = w->serial;
      break;
    }
  }
  add_listener (e, &f->listener, fd);
  pthread_mutex_unlock (&e->lock);
}

/* fdatasync reported an error that the witness does not hear now.  If there is
 * one that the connection is about to be told of, its description is its own,
 * and no write is in progress that it may be about, one telling is enough for
 * both.  If not, nobody else knows of it: the witness is deaf, or it was not
 * about pages (a device that could not empty its cache, say).
 */
static void
note_if_new (struct wberr *e, const wberr_cursor *cursor, int err)
{
  const bool hears = atomic_load (&e->witness_hears);

  pthread_mutex_lock (&e->lock);
  if (atomic_load (cursor) == atomic_load (&e->latest) ||
      (!hears && (e->witness == -1 || !TAILQ_EMPTY (&e->writes))))
    note_locked (e, err);
  pthread_mutex_unlock (&e->lock);
}

/* Tell the connection of the latest error that is past its cursor. */
static int
tell (struct wberr *e, const struct wberr_flush *f, wberr_cursor *cursor)
{
  wberr_mark latest;
  bool covered, again;

  if (atomic_load (cursor) == atomic_load (&e->latest))
    return 0;
  pthread_mutex_lock (&e->lock);
  latest = atomic_load (&e->latest);
  covered = f->oldest > e->suspects;
  again = covered && atomic_exchange (cursor, latest) == latest;
  if (covered)
    atomic_store (&e->told, latest);
  pthread_mutex_unlock (&e->lock);
  return again ? 0 : latest & ERRNO_MASK;
}

int
wberr_flush_ends (struct wberr *e, struct wberr_flush *f, wberr_cursor *cursor,
                  int err)
{
  int noted;

  if (!wberr_listen (e) && err)
    note_if_new (e, cursor, err);
  remove_listener (e, &f->listener);
  wberr_wait_for_listeners (e, f->listener.fd);
  noted = tell (e, f, cursor);
  return err ? err : noted;
}
