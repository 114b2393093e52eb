/* The nbdkit callbacks and their registration.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <stdio.h>

#define NBDKIT_API_VERSION 2
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

static int
file_config_complete (void)
{
  nbdkit_debug ("nbdkit-windowed-file %s", VERSION_WITH_COMMIT);
  if (options_check () == -1)
    return -1;
  throttle_set_limit (options.cache_limit);
  return stats_open ();
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

static int
file_list_exports (int readonly, int is_tls, struct nbdkit_exports *exports)
{
  return exports_list (exports);
}

/* ---- a connection ---- */

static void *
file_open (int readonly)
{
  return connection_new (readonly);
}

static void
file_close (void *handle)
{
  connection_free (handle);
}

static int64_t
file_get_size (void *handle)
{
  struct connection *c = handle;

  return disk_size (c->disk, c->file.fd, c->file.name);
}

/* Requests of any size and alignment are served.  libnbd refuses requests below
 * an advertised minimum, so the minimum is 1, also where sectors are larger.
 */
static int
file_block_size (void *handle, uint32_t *minimum, uint32_t *preferred,
                 uint32_t *maximum)
{
  struct connection *c = handle;

  *minimum = *preferred = *maximum = 0;
  if (c->disk->preferred_io == 0)
    return 0;
  *minimum = 1;
  *preferred = c->disk->preferred_io;
  *maximum = 0xffffffff;
  return 0;
}

static int
file_is_rotational (void *handle)
{
  struct connection *c = handle;

  return c->disk->rotational;
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

/* For .can_multi_conn: a flush on one connection covers the writes of all.  For
 * .can_fast_zero: a request that would not be fast fails with EOPNOTSUPP.
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

/* ---- a request ---- */

/* Count a request of "bytes" bytes that returned r, which is passed on. */
static int
counted (struct connection *c, enum stats_request what, uint32_t bytes, int r)
{
  struct stats *s = c->stats;

  if (s)
    stats_add_request (s, what, bytes, r == -1);
  return r;
}

static int
file_pread (void *handle, void *buf, uint32_t count, uint64_t offset,
            uint32_t flags)
{
  return counted (handle, STATS_READ, count,
                  connection_read (handle, buf, count, offset));
}

static int
file_pwrite (void *handle, const void *buf, uint32_t count, uint64_t offset,
             uint32_t flags)
{
  return counted (
    handle, STATS_WRITE, count,
    connection_write (handle, buf, count, offset, flags & NBDKIT_FLAG_FUA));
}

static int
file_flush (void *handle, uint32_t flags)
{
  return counted (handle, STATS_FLUSH, 0, connection_flush (handle));
}

static int
file_trim (void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
  return counted (handle, STATS_TRIM, count,
                  connection_trim (handle, count, offset, flags));
}

static int
file_zero (void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
  return counted (handle, STATS_ZERO, count,
                  connection_zero (handle, count, offset, flags));
}

static int
file_extents (void *handle, uint32_t count, uint64_t offset, uint32_t flags,
              struct nbdkit_extents *extents)
{
  return counted (handle, STATS_BLOCK_STATUS, 0,
                  connection_extents (handle, count, offset,
                                      flags & NBDKIT_FLAG_REQ_ONE, extents));
}

static int
file_cache (void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
  connection_prefetch (handle, count, offset);
  return counted (handle, STATS_PREFETCH, count, 0);
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
  .after_fork = stats_start,
  .dump_plugin = file_dump_plugin,
  .list_exports = file_list_exports,
  .open = file_open,
  .close = file_close,
  .get_size = file_get_size,
  .block_size = file_block_size,
  .is_rotational = file_is_rotational,
  .can_write = file_can_write,
  .can_extents = file_can_extents,
  .can_multi_conn = always,
  .can_fast_zero = always,
  .can_fua = file_can_fua,
  .pread = file_pread,
  .pwrite = file_pwrite,
  .flush = file_flush,
  .trim = file_trim,
  .zero = file_zero,
  .extents = file_extents,
  .cache = file_cache,
  .errno_is_preserved = 1,
};

NBDKIT_REGISTER_PLUGIN (plugin)
