/* The nbdkit callbacks and their registration.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <dlfcn.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <nbdkit-plugin.h>

#include "connection.h"
#include "exports.h"
#include "eviction/throttle.h"
#include "options.h"
#include "stats.h"
#include "version.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

/* ---- the plugin ---- */

/* nbdkit does not close connections that are open when a signal ends it, but
 * by now none of its threads uses them.
 */
static void
file_unload (void)
{
  connection_free_all ();
  disk_free_all ();
  stats_finish ();
  options_free ();
}

static struct nbdkit_plugin plugin;

/* Let messages and --version have the name that the user has typed: that of the
 * file from which nbdkit has loaded the plugin.
 */
static void __attribute__ ((constructor)) take_name (void)
{
  Dl_info info;

  if (dladdr (&plugin, &info) &&
      strstr (info.dli_fname, "windowed-file-plugin"))
    plugin.name = "windowed-file";
}

static int
file_config_complete (void)
{
  nbdkit_debug ("nbdkit-windowed-file %s", VERSION_WITH_COMMIT);
  if (options_check () == -1)
    return -1;
  if (options.cache_key == NULL && strcmp (plugin.name, "file") != 0)
    fprintf (stderr,
             "nbdkit: %s: what is copied stays in the page cache: with "
             "cache=none it does not\n",
             plugin.name);
  throttle_set_budget (options.cache_limit);
  return stats_open ();
}

/* A write beyond RLIMIT_FSIZE fails, and does not end the server.  A command of
 * --run has been started before.
 */
static int
file_after_fork (void)
{
  signal (SIGXFSZ, SIG_IGN);
  return stats_start ();
}

/* Which features were compiled in: all of them, always, on Linux. */
static void
file_dump_plugin (void)
{
  puts ("file_block_size=yes\n"
        "file_blkdiscard=yes\n"
        "file_blkrotational=yes\n"
        "file_blksszget=yes\n"
        "file_blkzeroout=yes\n"
        "file_extents=yes\n"
        "file_falloc_fl_punch_hole=yes\n"
        "file_falloc_fl_zero_range=yes\n"
        "file_windowed=yes");
}

/* ---- properties of a connection ---- */

/* Requests of any size and alignment are served.  libnbd refuses requests below
 * an advertised minimum, so the minimum is 1, also where sectors are larger.
 */
static int
file_block_size (void *handle, uint32_t *minimum, uint32_t *preferred,
                 uint32_t *maximum)
{
  const struct connection *c = handle;

  *preferred = c->disk->preferred_io;
  *minimum = *preferred ? 1 : 0; /* 0 = not known */
  *maximum = *preferred ? 0xffffffff : 0;
  return 0;
}

static int
file_is_rotational (void *handle)
{
  struct connection *c = handle;

  return c->disk->id.is_block &&
         device_property (c->file.fd, BLKROTATIONAL) > 0;
}

static int
file_can_write (void *handle)
{
  struct connection *c = handle;

  return c->file.writable;
}

static int
file_can_extents (void *handle)
{
  struct connection *c = handle;

  return c->disk->can_seek_hole;
}

/* Whether a flush on one connection covers the writes of all.  A FUSE server,
 * such as sshfs, may keep a write that has returned, and its error, for the
 * handle that wrote.  And two connections may be to different files.
 */
static int
file_can_multi_conn (void *handle)
{
  const struct connection *c = handle;

  return c->disk->id.serial == 0;
}

/* For .can_trim, and .can_fast_zero: a request that would not be fast fails
 * with EOPNOTSUPP.
 */
static int
always (void *handle)
{
  return 1;
}

static int
file_can_fua (void *handle)
{
  return NBDKIT_FUA_NATIVE;
}

static int
file_can_cache (void *handle)
{
  return NBDKIT_CACHE_NATIVE;
}

static struct nbdkit_plugin plugin = {
  .name = "file",
  .longname = "nbdkit file plugin, windowed",
  .version = VERSION_WITH_COMMIT,
  .description = "Serves files and block devices, keeping them out of the "
                 "page cache with cache=none.",
  .unload = file_unload,
  .config = options_set,
  .config_complete = file_config_complete,
  .config_help = options_help,
  .magic_config_key = "file",
  .after_fork = file_after_fork,
  .dump_plugin = file_dump_plugin,
  .list_exports = exports_list,
  .open = connection_open,
  .close = connection_close,
  .get_size = connection_size,
  .block_size = file_block_size,
  .is_rotational = file_is_rotational,
  .can_write = file_can_write,
  .can_extents = file_can_extents,
  .can_trim = always,
  .can_multi_conn = file_can_multi_conn,
  .can_fast_zero = always,
  .can_fua = file_can_fua,
  .can_cache = file_can_cache,
  .pread = connection_read,
  .pwrite = connection_write,
  .flush = connection_flush,
  .trim = connection_trim,
  .zero = connection_zero,
  .extents = connection_extents,
  .cache = connection_prefetch,
  .errno_is_preserved = 1,
};

/* The macro declares no prototype, which clang warns of. */
struct nbdkit_plugin *plugin_init (void);
NBDKIT_REGISTER_PLUGIN (plugin)
