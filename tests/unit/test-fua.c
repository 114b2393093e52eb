/* Two FUA writes that are in progress at once sync descriptions of their own.
 * The kernel reports an error once on each, so each of them fails for it.
 *
 * So that they meet, the plugin is loaded here, in place of nbdkit, and finds
 * the fdatasync below before that of the C library.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "unit.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#define PLUGIN "../plugins/file/.libs/nbdkit-file-plugin.so"

static struct nbdkit_plugin *plugin;
static pthread_barrier_t both_sync;
static atomic_uint syncs;
static int synced[16]; /* descriptors */

int
fdatasync (int fd)
{
  const unsigned n = atomic_fetch_add (&syncs, 1);

  synced[n % COUNT (synced)] = fd;
  if (n == 1 || n == 2)
    pthread_barrier_wait (&both_sync);
  return 0;
}

static void *
write_fua (void *h)
{
  return plugin->pwrite (h, "data", 4, 0, NBDKIT_FLAG_FUA) == 0 ? NULL : h;
}

static void
each_syncs_its_own (void **state)
{
  void *h = plugin->open (0), *failed;
  pthread_t other;

  assert_non_null (h);
  assert_int_equal (plugin->can_write (h), 1);
  pthread_barrier_init (&both_sync, NULL, 2);
  assert_null (write_fua (h)); /* which leaves its description for the next */
  assert_int_equal (pthread_create (&other, NULL, write_fua, h), 0);
  assert_null (write_fua (h));
  pthread_join (other, &failed);
  assert_null (failed);
  assert_int_equal (plugin->flush (h, 0), 0);
  assert_int_equal (syncs, 4);
  assert_int_not_equal (synced[1], synced[2]);
  assert_int_not_equal (synced[1], synced[3]);
  assert_int_not_equal (synced[2], synced[3]);
  plugin->close (h);
  plugin->unload ();
}

int
main (void)
{
  const struct CMUnitTest tests[] = { cmocka_unit_test (each_syncs_its_own) };
  const char *folder = getenv ("TMPDIR");
  struct nbdkit_plugin *(*init) (void);
  char file_name[4096];
  int status;
  void *so;

  snprintf (file_name, sizeof file_name, "%s/test-fua-XXXXXX",
            folder ? folder : "/var/tmp");
  if (mkstemp (file_name) == -1 || truncate (file_name, MiB) == -1) {
    perror (file_name);
    return EXIT_FAILURE;
  }
  so = dlopen (PLUGIN, RTLD_NOW);
  init = so ? (struct nbdkit_plugin * (*) (void) ) dlsym (so, "plugin_init")
            : NULL;
  if (init == NULL) {
    fprintf (stderr, "%s\n", dlerror ());
    return EXIT_FAILURE;
  }
  plugin = init ();
  if (plugin->config ("file", file_name) == -1 ||
      plugin->config_complete () == -1)
    return EXIT_FAILURE;
  alarm (60);
  status = cmocka_run_group_tests (tests, NULL, NULL);
  unlink (file_name);
  return status;
}
