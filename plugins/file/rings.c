/* The rings of a disk against the kernel: one step of eviction at a time.
 *
 * The lock is never held across a system call on the file.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "clock.h"
#include "rings.h"

/* The page cache of the whole file is counted once in this many full windows.
 */
#define WINDOWS_PER_COUNT 2

/* What would not go is tried again, a bit sooner with each count. */
#define COUNTS_PER_TRY 4096

void
rings_init (struct rings *rs, int fd, const char *name,
            const struct evictor_config *config)
{
  rs->name = name;
  rs->config = config;
  pthread_mutex_init (&rs->lock, NULL);
  ring_init (&rs->reads, config->window_size);
  ring_init (&rs->writes, config->window_size);
  rs->claims.preserve = config->preserve;
  rs->claims.fd = fd;
  rs->claims.pages = config->pages;
  rs->claims.lock = &rs->lock;
  rs->claims.reads = &rs->reads;
  rs->claims.writes = &rs->writes;
  claims_init (&rs->claims);
  flow_init (&rs->flow, config->windows * config->window_size);
  rs->bytes_to_count = WINDOWS_PER_COUNT * config->window_size;
  rs->wb.fd = fd;
  rs->wb.name = name;
  rs->wb.pages = config->pages;
  rs->wb.errors = config->errors;
  rs->wb.stats = config->stats;
  rs->wb.seen = &rs->seen;
  atomic_init (&rs->seen, wberr_now (config->errors));
  writeback_init (&rs->wb);
  sweep_init (&rs->sweep);
}

void
rings_free (struct rings *rs)
{
  ring_free (&rs->reads);
  ring_free (&rs->writes);
  claims_free (&rs->claims);
  flow_free (&rs->flow);
  sweep_free (&rs->sweep);
  pthread_mutex_destroy (&rs->lock);
}

/* ---- evicting; the lock is held, but not across system calls ---- */

static void
drop_window (struct rings *rs, const struct window *w, const char *kind)
{
  const bool overflowed = claims_overflowed (&rs->claims);

  rings_unlock (rs);
  if (overflowed)
    nbdkit_error (
      "%s: there is no memory to record what must be kept in the "
      "page cache (up to %d ranges): nothing of this disk is dropped "
      "until it is idle, or if writeback failed, until its clients "
      "have disconnected",
      rs->name, MAX_KEPT);
  if (!w->started) /* which told of it */
    writeback_debug (&rs->wb, "sealed", kind, w);
  writeback_drop (&rs->wb, &w->set);
  writeback_debug (&rs->wb, "evicted", kind, w);
  pthread_mutex_lock (&rs->lock);
  claim_dropped (&rs->claims, &w->set);
}

static void
count_window (struct rings *rs, const struct window *w)
{
  stats_add (rs->config->stats, STATS_WINDOWS, 1);
  stats_add (rs->config->stats, STATS_WINDOW_REQUESTS, w->requests);
  stats_add (rs->config->stats, STATS_WINDOW_EXTENTS, w->set.nr);
}

/* Drop the oldest window of reads, which must exist. */
static void
evict_read (struct rings *rs)
{
  struct window *w = ring_take (&rs->reads);

  count_window (rs, w);
  rings_unlock (rs);
  writeback_learn (&rs->wb, &w->set);
  pthread_mutex_lock (&rs->lock);
  claim_widen_to_folios (&rs->claims, &w->set);
  /* What is also being written is dropped when it is known to be safe. */
  if (claim_spare_unsafe (&rs->claims, &w->set, NULL) == -1)
    extent_set_clear (&w->set);
  drop_window (rs, w, "read");
  ring_give_back (&rs->reads, w);
}

/* A window that was taken, for what writeback calls without the lock. */
struct taken {
  struct rings *rs;
  struct window *w;
};

/* Of writeback_wait. */
static void
hand_back (void *arg, uint64_t bytes)
{
  struct taken *t = arg;

  pthread_mutex_lock (&t->rs->lock);
  flow_hand_back (&t->rs->flow, ring_release (&t->rs->writes, t->w, bytes));
  rings_unlock (t->rs);
}

/* Of writeback_look_back. */
static int
spare (void *arg, struct extent_set *set)
{
  struct taken *t = arg;
  int r;

  pthread_mutex_lock (&t->rs->lock);
  ring_subtract_from (&t->rs->reads, set, NULL);
  r = claim_spare_unsafe (&t->rs->claims, set, t->w);
  rings_unlock (t->rs);
  return r;
}

static void
look_back (struct rings *rs, struct taken *t)
{
  struct extent_set failed;

  rings_unlock (rs);
  extent_set_init (&failed, MAX_KEPT);
  writeback_look_back (&rs->wb, &t->w->set, spare, t, &failed);
  pthread_mutex_lock (&rs->lock);
  claim_keep (&rs->claims, &rs->claims.failed, &failed);
  extent_set_free (&failed);
}

/* Wait for the oldest written window, which must exist, and drop it.  Role
 * held.
 */
static void
evict_written (struct rings *rs)
{
  struct window *w = ring_take (&rs->writes);
  struct taken t = { rs, w };
  const uint64_t began = nanoseconds_now (), bytes = w->held;
  struct extent_set all;
  bool failed;
  int err;

  count_window (rs, w);
  extent_set_init (&all, SIZE_MAX);
  if (extent_set_copy (&all, &w->set) == -1) /* not to know what failed */
    rs->claims.keep_for_good = true;
  /* What was written again since is waited for with its new window: it would be
   * written back twice.
   */
  ring_subtract_from (&rs->writes, &w->set, w);
  rings_unlock (rs);
  err = writeback_wait (&rs->wb, w, hand_back, &t);
  /* The kernel says that something failed, not what: all that was begun before
   * that was heard, by whomever, is suspected.
   */
  failed = err || w->epoch < wberr_now (rs->config->errors);
  if (failed)
    writeback_debug (&rs->wb, "kept", "write", w);
  pthread_mutex_lock (&rs->lock);
  flow_hand_back (&rs->flow, ring_release (&rs->writes, w, UINT64_MAX));
  claim_settle (&rs->claims, w, failed ? &all : NULL);
  extent_set_free (&all);
  drop_window (rs, w, "write");
  look_back (rs, &t);
  flow_worked (&rs->flow, bytes, nanoseconds_now () - began);
  ring_give_back (&rs->writes, w);
}

/* Role held, so that the window stays where it is. */
static void
start_window (struct rings *rs, struct window *w)
{
  const uint64_t began = nanoseconds_now ();

  w->started = true;
  rings_unlock (rs);
  writeback_start (&rs->wb, w);
  pthread_mutex_lock (&rs->lock);
  flow_worked (&rs->flow, 0, nanoseconds_now () - began);
}

/* ---- sweeping; the role is held, and the lock but for system calls ---- */

/* Drop the next piece of the file, and with "ahead" spare what readers may be
 * about to read.
 */
static void
sweep_next (struct rings *rs, bool ahead)
{
  const uint64_t reading = atomic_load (&rs->reading);
  const uint64_t coming = 2 * rs->readers * rs->config->read_ahead;
  struct extent_set spared;

  extent_set_init (&spared, 2 * MAX_KEPT);
  if (claim_spared (&rs->claims, &spared) == -1 ||
      (ahead &&
       claim_spare_ahead (&rs->claims, &spared, reading, coming) == -1))
    sweep_end (&rs->sweep);
  rings_unlock (rs);
  if (sweep_goes_on (&rs->sweep))
    sweep_piece (&rs->sweep, rs->config->pages, rs->wb.fd, &spared);
  pthread_mutex_lock (&rs->lock);
  extent_set_free (&spared);
}

static void
begin_sweep (struct rings *rs, bool all)
{
  stats_add (rs->config->stats, STATS_SWEEPS, 1);
  sweep_begin (&rs->sweep, all);
}

/* The bytes of page cache that are as they should be: what is in windows or on
 * its way into one, what has failed, and the readahead of every reader, which
 * the kernel may double; and a bit more, as the count is a moment older.
 */
static uint64_t
allowance (struct rings *rs)
{
  return rs->reads.bytes + atomic_load (&rs->reading) + rs->flow.used +
         rs->claims.failed.bytes + 2 * rs->readers * rs->config->read_ahead +
         flow_share (&rs->flow) / 4;
}

/* Sweep if the file has more resident than windows and readahead explain.
 * Where that cannot be counted, sweep as rarely as once a ring.
 */
static void
count_and_sweep (struct rings *rs)
{
  const int64_t resident = claims_resident (&rs->claims);

  rs->bytes_to_count = WINDOWS_PER_COUNT * rs->reads.window_size;
  rs->stubborn -= rs->stubborn / COUNTS_PER_TRY;
  if (resident == -1)
    rs->bytes_to_count = rs->config->windows * rs->reads.window_size;
  else if ((uint64_t) resident <= allowance (rs) + rs->stubborn)
    return;
  begin_sweep (rs, false);
  if (!file_debug_evict)
    return;
  rings_unlock (rs);
  nbdkit_debug ("%s: sweeping: %" PRIi64 " bytes are resident", rs->name,
                resident);
  pthread_mutex_lock (&rs->lock);
}

/* What did not go, because others map it, is allowed from now on; but not what
 * may be readahead, which is allowed for already.
 */
static void
end_of_sweep (struct rings *rs)
{
  const int64_t resident = claims_resident (&rs->claims);
  const bool too_much = resident > (int64_t) allowance (rs);

  rs->stubborn = sweep_left (&rs->sweep, too_much);
}

/* In between writers may wait for a disk that is slow, so pieces that take
 * nothing are not enough for a turn: readers bring in more meanwhile.
 */
#define TURN_NS (20 * UINT64_C (1000000))

static void
sweep_for_a_while (struct rings *rs)
{
  const uint64_t began = nanoseconds_now ();

  do
    sweep_next (rs, true);
  while (sweep_goes_on (&rs->sweep) && nanoseconds_now () < began + TURN_NS);
  if (!sweep_goes_on (&rs->sweep))
    end_of_sweep (rs);
}

/* ---- steps; lock and role are held ---- */

/* Half of a ring stays in use: by the time a window is waited for, its
 * writeback has normally finished, and there is room for what the clients
 * write meanwhile.
 */
static bool
is_over_half (struct rings *rs, const struct ring *r)
{
  return ring_oldest (r) && ring_sealed_bytes (r) > flow_share (&rs->flow) / 2;
}

/* Readers may fill their ring for as long as they like: writers have their
 * turn, and sweeps, without which readahead that no request used adds up.
 */
bool
rings_step (struct rings *rs)
{
  struct window *unstarted = ring_unstarted (&rs->writes);
  const bool writers_wait = flow_is_short (&rs->flow) &&
                            ring_oldest (&rs->writes);
  const bool readers_wait = is_over_half (rs, &rs->reads);
  const bool sweeping = sweep_goes_on (&rs->sweep);

  if (unstarted)
    start_window (rs, unstarted);
  else if (rs->writers_turn && writers_wait) {
    rs->writers_turn = false;
    evict_written (rs);
  }
  else if (rs->bytes_to_count == 0 && !sweeping) /* or it would never end */
    count_and_sweep (rs);
  else if (sweeping && (rs->sweeps_turn || !readers_wait)) {
    rs->writers_turn = true;
    rs->sweeps_turn = false;
    sweep_for_a_while (rs);
  }
  else if (readers_wait) {
    rs->writers_turn = rs->sweeps_turn = true;
    evict_read (rs);
  }
  else if (is_over_half (rs, &rs->writes) || ring_is_flushed (&rs->writes))
    evict_written (rs);
  else if (!flow_is_short (&rs->flow)) /* readers may go past it then */
    return ring_seal_at_rest (&rs->writes, nanoseconds_now ());
  else if (ring_oldest (&rs->writes))
    evict_written (rs);
  else /* what is not in the ring yet is about to be */
    return ring_seal (&rs->writes);
  return true;
}

/* ---- adding; the lock is held ---- */

/* No window is larger than its share of what the rings may hold now. */
static void
size_windows (struct rings *rs)
{
  const uint64_t even = flow_share (&rs->flow) / rs->config->windows /
                        FLOW_LEAST_WINDOW * FLOW_LEAST_WINDOW;
  const uint64_t size = even > FLOW_LEAST_WINDOW ? even : FLOW_LEAST_WINDOW;

  rs->reads.window_size = rs->writes.window_size = size;
}

static enum ring_result
add (struct rings *rs, struct ring *r, uint64_t offset, uint64_t length,
     uint64_t epoch)
{
  const uint64_t before = r->bytes;
  const enum ring_result result = ring_add (r, offset, length, epoch);
  const uint64_t more = r->bytes - before;

  rs->bytes_to_count -= more < rs->bytes_to_count ? more : rs->bytes_to_count;
  return result;
}

bool
rings_add_read (struct rings *rs, uint64_t offset, uint64_t length)
{
  bool sealed = false;

  size_windows (rs);
  while (length > 0) {
    const uint64_t size = rs->reads.window_size;
    uint64_t n = size - offset % size;
    enum ring_result result;

    if (n > length)
      n = length;
    result = add (rs, &rs->reads, offset, n, 0);
    if (result != RING_NO_MEMORY)
      extent_set_remove (&rs->claims.loose, offset, n);
    sealed |= result == RING_SEALED;
    offset += n;
    length -= n;
  }
  /* The thread is waiting for the disk, or there is none. */
  while (ring_oldest (&rs->reads) &&
         ring_sealed_bytes (&rs->reads) > flow_share (&rs->flow))
    evict_read (rs);
  return sealed;
}

struct window *
rings_add_write (struct rings *rs, uint64_t offset, uint64_t length,
                 uint64_t credit)
{
  const uint64_t before = rs->writes.bytes;
  const wberr_mark now = wberr_now (rs->config->errors);
  enum ring_result result;
  uint64_t used;

  size_windows (rs);
  result = add (rs, &rs->writes, offset, length, now);
  if (result == RING_NO_MEMORY) /* a sweep would not know of it */
    rs->claims.keep_all = true;
  used = rs->writes.bytes - before;
  if (used > credit)
    flow_charge (&rs->flow, used - credit);
  else
    flow_hand_back (&rs->flow, credit - used);
  return result == RING_NO_MEMORY ? NULL : ring_pin (&rs->writes);
}

/* ---- emptying; role and lock are held ---- */

/* Large folios that span windows could not be dropped with any of them, and
 * have gathered here: so first, all that is together is dropped together.  They
 * stay in "loose" until they are in a window.
 */
static void
drop_loose (struct rings *rs)
{
  struct extent_set safe;
  size_t i;

  if (rs->claims.loose.nr == 0)
    return;
  extent_set_init (&safe, MAX_KEPT);
  if (extent_set_copy (&safe, &rs->claims.loose) == 0 &&
      claim_spare_unsafe (&rs->claims, &safe, NULL) == 0) {
    rings_unlock (rs);
    writeback_drop (&rs->wb, &safe);
    pthread_mutex_lock (&rs->lock);
    for (i = 0; i < safe.nr; i++)
      rings_add_read (rs, safe.v[i].offset, safe.v[i].length);
  }
  extent_set_free (&safe);
}

/* Without memory to record a write, nothing was dropped.  Once all is on the
 * disk that is no longer needed.
 */
static void
sync_unrecorded (struct rings *rs)
{
  const wberr_mark before = wberr_now (rs->config->errors);
  int err;

  if (!rs->claims.keep_all || !ring_is_empty (&rs->writes))
    return;
  rs->claims.keep_all = false; /* a write from now on may set it again */
  rings_unlock (rs);
  err = writeback_sync (&rs->wb);
  pthread_mutex_lock (&rs->lock);
  if (err || wberr_now (rs->config->errors) != before)
    rs->claims.keep_for_good = true;
  else if (!rs->claims.keep_all)
    rs->claims.keep_told = false;
}

void
rings_empty (struct rings *rs)
{
  uint64_t last;

  drop_loose (rs);
  ring_seal (&rs->writes);
  ring_seal (&rs->reads);

  /* Windows sealed from now on are not waited for, or a disk that has become
   * busy again would keep us, and those who want the role, for ever.
   */
  last = rs->writes.serial;
  while (ring_unstarted (&rs->writes))
    start_window (rs, ring_unstarted (&rs->writes));
  while (ring_oldest (&rs->writes) && ring_oldest (&rs->writes)->serial <= last)
    evict_written (rs);
  last = rs->reads.serial;
  while (ring_oldest (&rs->reads) && ring_oldest (&rs->reads)->serial <= last)
    evict_read (rs);
  sync_unrecorded (rs);
  rs->stubborn = 0;
  begin_sweep (rs, true);
}

bool
rings_sweep_on (struct rings *rs)
{
  if (sweep_goes_on (&rs->sweep))
    sweep_next (rs, false);
  return sweep_goes_on (&rs->sweep);
}

void
rings_trim (struct rings *rs)
{
  ring_trim (&rs->reads);
  ring_trim (&rs->writes);
}
