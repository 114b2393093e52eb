/* A disk in memory for tests of what a server loses.
 *
 *   nbdkit ./nbdkit-disk-plugin.so size=SIZE [control=FILE]
 *          [record=FILE [delay=MICROSECONDS]]
 *
 * With control it refuses writes and flushes on demand, and has a volatile
 * write cache, of data only; all else is durable at once.  A flush that is
 * refused loses what the cache holds, and the file system stays intact.
 *
 * With record it appends each write, discard and flush to a file, which may be
 * truncated while no request is in progress.  A request has two entries: one
 * when it arrives, one just before its answer.  A flush covers the requests
 * whose second entry comes before the first entry of the flush, and it covers
 * them once its own second entry is there.  A position is the length of the
 * file in bytes.  Half of the requests take a random time, up to "delay", so
 * that they end in another order than they began, and a flush that is sent
 * before the answers to earlier writes does not cover them by chance.
 *
 * nbdkit's error filter could refuse writes, too, but not distinguish a file's
 * data from the file system's journal, and a file system that cannot write its
 * journal stops at once.  Most failing disks are not so kind.  The kernel's
 * dm-flakey, dm-error and dm-log-writes cannot distinguish them either, and
 * are modules that not every machine has.  nbdkit's log filter has no data.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL
#define PAGE 4096

/* What the disk must refuse: letters, so that a shell script can write them. */
#define REFUSE_NOTHING '-'
#define REFUSE_DATA 'd'  /* what has stamps */
#define REFUSE_ALL 'a'   /* as if the plug had been pulled */
#define REFUSE_FLUSH 'f' /* one: data written since the last one is lost */

#define ACCEPTED_BITS (UINT64_C (1) << 25)

/* Memory that other programs map from the file of control=, see model.py: what
 * the disk must refuse, and what it accepted.
 */
struct control {
  _Atomic char refuse;
  _Atomic uint8_t every;    /* refuse one in this many; 0 is all */
  _Atomic uint64_t refused; /* writes and flushes so far */

  _Atomic bool loses_cache; /* some flushes may be refused */

  /* A Bloom filter of the stamps that were written, and with loses_cache also
   * flushed.  Each sets two bits.
   */
  _Atomic uint8_t accepted[ACCEPTED_BITS / 8];
};

static int64_t size = -1;
static char *control_name, *record_name;
static struct control *control; /* NULL: it refuses nothing */
static unsigned delay;
static int record = -1;
static char *disk;
static _Atomic unsigned considered;

enum record_kind {
  RECORD_WRITE,   /* the entry is followed by the data */
  RECORD_DISCARD, /* afterwards the range is zeroes */
  RECORD_FLUSH,
  RECORD_END, /* the second entry of any of these */
};

struct record_entry {
  uint64_t kind;
  uint64_t id; /* the same in both entries of a request */
  uint64_t offset, count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t last_id; /* guarded by the lock, as all below */
static bool *unflushed;  /* the blocks whose data was not flushed, */
static char *before;     /* and what they held before */

static int
disk_config (const char *key, const char *value)
{
  if (strcmp (key, "size") == 0) {
    size = nbdkit_parse_size (value);
    return size == -1 ? -1 : 0;
  }
  if (strcmp (key, "delay") == 0)
    return nbdkit_parse_unsigned (key, value, &delay);
  if (strcmp (key, "control") == 0)
    return (control_name = nbdkit_realpath (value)) ? 0 : -1;
  if (strcmp (key, "record") == 0)
    return (record_name = nbdkit_absolute_path (value)) ? 0 : -1;
  nbdkit_error ("unknown parameter: %s", key);
  return -1;
}

/* Returns NULL after reporting the error. */
static void *
map (size_t length, int flags, int fd)
{
  void *p = mmap (NULL, length, PROT_READ | PROT_WRITE, flags, fd, 0);

  if (p != MAP_FAILED)
    return p;
  nbdkit_error ("mmap: %m");
  return NULL;
}

static int
disk_config_complete (void)
{
  int fd;

  if (size == -1) {
    nbdkit_error ("size= is needed");
    return -1;
  }
  if (control_name) {
    fd = open (control_name, O_RDWR | O_CLOEXEC);
    control = map (sizeof *control, MAP_SHARED, fd);
    close (fd);
    if (control == NULL)
      return -1;
  }
  if (record_name) {
    record = open (record_name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC,
                   0644);
    if (record == -1) {
      nbdkit_error ("%s: %m", record_name);
      return -1;
    }
  }
  disk = map (size, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
  before = map (size, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
  unflushed = calloc (size / PAGE + 1, sizeof *unflushed);
  return disk && before && unflushed ? 0 : -1;
}

static void *
disk_open (int readonly)
{
  return NBDKIT_HANDLE_NOT_NEEDED;
}

static int64_t
disk_get_size (void *handle)
{
  return size;
}

static int
disk_can_multi_conn (void *handle)
{
  return 1;
}

static int
disk_pread (void *handle, void *buf, uint32_t count, uint64_t offset,
            uint32_t flags)
{
  memcpy (buf, disk + offset, count);
  return 0;
}

/* ---- data ----
 *
 * The rig's data is recognised by its stamps, words of 8 bytes with a mark.
 */

static bool
is_stamp (uint64_t word)
{
  return (word & 0xffff) == 0x7ada;
}

/* Whether there are stamps in a block: four in a row.  Fewer are not enough:
 * three times of an inode stand side by side on XFS, and two words with times
 * on ext4, and they change together.
 */
static bool
has_stamps (const char *buf, size_t count)
{
  uint64_t word;
  unsigned in_a_row = 0;

  for (; count >= sizeof word; buf += sizeof word, count -= sizeof word) {
    memcpy (&word, buf, sizeof word);
    in_a_row = is_stamp (word) ? in_a_row + 1 : 0;
    if (in_a_row == 4)
      return true;
  }
  return false;
}

static void
set_accepted (uint64_t word)
{
  const uint64_t bits[] = { (word >> 16) % ACCEPTED_BITS,
                            (word >> 40) % ACCEPTED_BITS };
  unsigned i;

  for (i = 0; i < 2; i++)
    atomic_fetch_or_explicit (&control->accepted[bits[i] / 8], 1 << bits[i] % 8,
                              memory_order_relaxed);
}

static void
note_accepted (const char *buf, uint32_t count)
{
  uint64_t word;

  for (; count >= sizeof word; buf += sizeof word, count -= sizeof word) {
    memcpy (&word, buf, sizeof word);
    if (is_stamp (word))
      set_accepted (word);
  }
}

/* ---- refusing ---- */

static char
refuses_now (void)
{
  return control ? atomic_load (&control->refuse) : REFUSE_NOTHING;
}

/* Nothing of what is refused is written. */
static bool
refuses (const void *buf, uint32_t count)
{
  const char refuse = refuses_now ();
  unsigned every;

  if (refuse != REFUSE_ALL &&
      !(refuse == REFUSE_DATA && has_stamps (buf, count)))
    return false;
  every = atomic_load (&control->every);
  if (every > 1 && atomic_fetch_add (&considered, 1) % every != 0)
    return false;
  atomic_fetch_add (&control->refused, 1);
  return true;
}

/* ---- the record ---- */

/* Returns 0, or -1 after reporting why the entry is not complete. */
static int
append_locked (const struct record_entry *entry, const void *buf)
{
  const struct iovec iov[] = {
    { .iov_base = (void *) entry, .iov_len = sizeof *entry },
    { .iov_base = (void *) buf, .iov_len = buf ? entry->count : 0 },
  };
  const ssize_t length = iov[0].iov_len + iov[1].iov_len;

  if (record == -1 || writev (record, iov, 2) == length)
    return 0;
  nbdkit_error ("%s: cannot append an entry: %m", record_name);
  return -1;
}

/* A request arrives.  Returns 0 with the lock, or -1 after reporting the error.
 */
static int
begin (struct record_entry *entry, enum record_kind kind, const void *buf,
       uint32_t count, uint64_t offset)
{
  unsigned pause;
  int r;

  pthread_mutex_lock (&lock);
  *entry = (struct record_entry){ kind, ++last_id, offset, count };
  r = append_locked (entry, buf);
  pause = random () % 2 ? random () % (delay + 1) : 0;
  if (r == 0 && pause == 0)
    return 0;
  pthread_mutex_unlock (&lock);
  usleep (pause);
  if (r == 0)
    pthread_mutex_lock (&lock);
  return r;
}

/* It is about to be answered. */
static int
end (struct record_entry *entry)
{
  int r;

  entry->kind = RECORD_END;
  r = append_locked (entry, NULL);
  pthread_mutex_unlock (&lock);
  return r;
}

/* ---- the write cache ---- */

/* A block is about to be written with data, or without: then it is durable at
 * once, and its data was accepted, if the file system did that by mistake.
 */
static void
keep_locked (uint64_t block, bool data)
{
  if (data && !unflushed[block])
    memcpy (before + block * PAGE, disk + block * PAGE, PAGE);
  if (!data && unflushed[block])
    note_accepted (disk + block * PAGE, PAGE);
  unflushed[block] = data;
}

static void
write_locked (const char *buf, uint32_t count, uint64_t offset)
{
  uint32_t n;

  for (; count > 0; buf += n, offset += n, count -= n) {
    n = PAGE - offset % PAGE;
    if (n > count)
      n = count;
    keep_locked (offset / PAGE, control && has_stamps (buf, n));
    memcpy (disk + offset, buf, n);
    if (control && !atomic_load (&control->loses_cache))
      note_accepted (buf, n);
  }
}

static void
flush_locked (bool refused)
{
  int64_t block;

  for (block = 0; block <= size / PAGE; block++) {
    if (unflushed[block] && refused)
      memcpy (disk + block * PAGE, before + block * PAGE, PAGE);
    else if (unflushed[block])
      note_accepted (disk + block * PAGE, PAGE);
    unflushed[block] = false;
  }
}

/* Discarded ranges read as zeroes, and take no memory. */
static void
discard_locked (uint64_t offset, uint64_t limit)
{
  uint64_t first = (offset + PAGE - 1) / PAGE * PAGE, block;
  const uint64_t last = limit / PAGE * PAGE;

  for (block = offset / PAGE; block * PAGE < limit; block++)
    keep_locked (block, false);
  if (first >= last || madvise (disk + first, last - first, MADV_DONTNEED)) {
    memset (disk + offset, 0, limit - offset);
    return;
  }
  memset (disk + offset, 0, first - offset);
  memset (disk + last, 0, limit - last);
}

/* ---- requests ---- */

static int
refused (int err)
{
  nbdkit_set_error (err);
  return -1;
}

static int
disk_pwrite (void *handle, const void *buf, uint32_t count, uint64_t offset,
             uint32_t flags)
{
  struct record_entry entry;

  if (refuses (buf, count))
    return refused (EIO);
  if (begin (&entry, RECORD_WRITE, buf, count, offset) == -1)
    return -1;
  write_locked (buf, count, offset);
  return end (&entry);
}

static int
disk_flush (void *handle, uint32_t flags)
{
  struct record_entry entry;
  char refuse = REFUSE_FLUSH;
  bool fails;

  if (begin (&entry, RECORD_FLUSH, NULL, 0, 0) == -1)
    return -1;
  fails = control && atomic_compare_exchange_strong (&control->refuse, &refuse,
                                                     REFUSE_NOTHING);
  if (fails)
    atomic_fetch_add (&control->refused, 1);
  flush_locked (fails);
  return end (&entry) == -1 || fails ? refused (EIO) : 0;
}

static int
disk_trim (void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
  struct record_entry entry;

  if (refuses_now () == REFUSE_ALL)
    return refused (EIO);
  if (begin (&entry, RECORD_DISCARD, NULL, count, offset) == -1)
    return -1;
  discard_locked (offset, offset + count);
  return end (&entry);
}

static struct nbdkit_plugin plugin = {
  .name = "disk",
  .version = "0",
  .config = disk_config,
  .config_complete = disk_config_complete,
  .open = disk_open,
  .get_size = disk_get_size,
  .can_multi_conn = disk_can_multi_conn,
  .pread = disk_pread,
  .pwrite = disk_pwrite,
  .flush = disk_flush,
  .trim = disk_trim,
  .zero = disk_trim,
};

struct nbdkit_plugin *plugin_init (void); /* for clang, as in file.c */
NBDKIT_REGISTER_PLUGIN (plugin)
