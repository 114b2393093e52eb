/* Each of two FUA writes that meet an error fails, and the data that they
 * wrote stays in memory.
 *
 * The kernel reports an error once on each description, so each request needs
 * one of its own.  So that the requests meet, the calls that the plugin makes
 * are our own: it is loaded here, in place of nbdkit, and finds them before
 * those of the C library.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cmocka.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#define PLUGIN "../plugins/file/.libs/nbdkit-file-plugin.so"

#define COUNT 65536
#define ONE 0         /* offset of one write */
#define OTHER 1048576 /* and of the other one */
#define FILE_SIZE (2 * OTHER)

#define MAX_FD 1024

static struct nbdkit_plugin *plugin;
static char file_name[4096];
static int file;        /* our own description */
static unsigned before; /* threads, without a connection */

/* The error, or 0; which descriptors have told of it. */
static _Atomic int lost;
static _Atomic bool told[MAX_FD];

/* Both syncs wait for each other while there is an error. */
static pthread_barrier_t both_sync;

/* ---- what the plugin calls ---- */

static bool
tells (int fd)
{
  if (lost == 0 || fd >= MAX_FD || told[fd])
    return false;
  told[fd] = true;
  errno = lost;
  return true;
}

/* All is on the disk in truth, so that it can be dropped. */
int
fdatasync (int fd)
{
  if (fsync (fd) == -1)
    return -1;
  if (lost == 0)
    return 0;
  pthread_barrier_wait (&both_sync);
  return tells (fd) ? -1 : 0;
}

int
sync_file_range (int fd, off_t offset, off_t count, unsigned flags)
{
  return (flags & SYNC_FILE_RANGE_WAIT_BEFORE) && tells (fd) ? -1 : 0;
}

/* As before Linux 5.14: nothing is written once more at the close. */
int
madvise (void *at, size_t length, int advice)
{
  errno = EINVAL;
  return -1;
}

/* ---- the writes ---- */

static int
write_fua (void *h, uint64_t offset)
{
  static const char data[COUNT] = "data";

  return plugin->pwrite (h, data, COUNT, offset, NBDKIT_FLAG_FUA);
}

static void *
write_other (void *h)
{
  return write_fua (h, OTHER) == -1 ? h : NULL;
}

static unsigned
resident (uint64_t offset)
{
  const unsigned pages = COUNT / sysconf (_SC_PAGESIZE);
  unsigned char in[COUNT / 4096];
  unsigned n = 0, i;
  void *map = mmap (NULL, COUNT, PROT_READ, MAP_SHARED, file, offset);

  assert_true (map != MAP_FAILED);
  assert_int_equal (mincore (map, COUNT, in), 0);
  munmap (map, COUNT);
  for (i = 0; i < pages; i++)
    n += in[i] & 1;
  return n;
}

static void *
open_connection (void)
{
  void *h = plugin->open (0);

  assert_non_null (h);
  assert_int_equal (plugin->can_write (h), 1);
  return h;
}

static unsigned
threads (void)
{
  struct stat st;

  assert_int_equal (stat ("/proc/self/task", &st), 0);
  return st.st_nlink;
}

/* The last connection ends, and the thread that empties the disk. */
static void
close_connection (void *h)
{
  unsigned ms;

  plugin->close (h);
  for (ms = 0; threads () > before; ms++) {
    assert_true (ms < 30000);
    usleep (1000);
  }
}

static void *
end_at_once (void *arg)
{
  return arg;
}

/* Otherwise the rest would prove nothing. */
static void
without_an_error_nothing_stays (void **state)
{
  pthread_t thread;
  void *h;

  /* ThreadSanitizer starts a thread of its own with the first one. */
  assert_int_equal (pthread_create (&thread, NULL, end_at_once, NULL), 0);
  assert_int_equal (pthread_join (thread, NULL), 0);
  before = threads ();
  h = open_connection ();
  assert_int_equal (write_fua (h, ONE), 0);
  assert_int_equal (write_fua (h, OTHER), 0);
  close_connection (h);
  assert_int_equal (resident (ONE), 0);
  assert_int_equal (resident (OTHER), 0);
}

static void
both_stay (int err)
{
  const unsigned all = COUNT / sysconf (_SC_PAGESIZE);
  void *h = open_connection (), *failed;
  pthread_t other;
  int i;

  for (i = 0; i < MAX_FD; i++)
    told[i] = false;
  lost = err;
  assert_int_equal (pthread_create (&other, NULL, write_other, h), 0);
  assert_int_equal (write_fua (h, ONE), -1);
  pthread_join (other, &failed);
  assert_non_null (failed);
  lost = 0;
  close_connection (h);
  assert_int_equal (resident (ONE), all);
  assert_int_equal (resident (OTHER), all);
}

static void
both_stay_that_may_be_lost (void **state)
{
  both_stay (EIO);
}

static void
both_stay_whose_blocks_were_not_there (void **state)
{
  both_stay (ENOSPC);
}

/* ---- the plugin ---- */

static int
load (void **state)
{
  struct nbdkit_plugin *(*init) (void);
  void *so = dlopen (PLUGIN, RTLD_NOW);

  if (so == NULL)
    fail_msg ("%s", dlerror ());
  init = (struct nbdkit_plugin * (*) (void) ) dlsym (so, "plugin_init");
  assert_non_null (init);
  plugin = init ();
  assert_int_equal (plugin->config ("file", file_name), 0);
  assert_int_equal (plugin->config ("cache", "none"), 0);
  assert_int_equal (plugin->config_complete (), 0);
  pthread_barrier_init (&both_sync, NULL, 2);
  return 0;
}

static int
unload (void **state)
{
  plugin->unload ();
  unlink (file_name);
  return 0;
}

int
main (void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test (without_an_error_nothing_stays),
    cmocka_unit_test (both_stay_that_may_be_lost),
    cmocka_unit_test (both_stay_whose_blocks_were_not_there),
  };
  const char *folder = getenv ("TMPDIR");
  struct statfs fs;

  snprintf (file_name, sizeof file_name, "%s/test-fua-errors-XXXXXX",
            folder ? folder : "/var/tmp");
  file = mkstemp (file_name);
  if (file == -1 || ftruncate (file, FILE_SIZE) == -1 ||
      fstatfs (file, &fs) == -1) {
    perror (file_name);
    return EXIT_FAILURE;
  }
  if (fs.f_type == TMPFS_MAGIC) {
    printf ("SKIP: %s is on tmpfs, where nothing can be dropped\n", file_name);
    unlink (file_name);
    return 77;
  }
  return cmocka_run_group_tests (tests, load, unload);
}
