/* A disk in memory of any speed and latency: a FUSE file system with the file
 * "disk", on which a loop device can be made.
 *
 *   slow-disk MOUNTPOINT MIB MB_PER_S LATENCY_US
 *
 * The disk takes one request after the other, at MB_PER_S, and replies to each
 * LATENCY_US after it has taken it.  Up to 1,024 requests are in flight, while
 * nbdfuse with --filter=delay replies to few at a time: it waits in one thread
 * for each connection.  The program ends when the file system is unmounted.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#define FUSE_USE_VERSION 34

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <time.h>

#include <fuse_lowlevel.h>

#define DISK 2 /* inode number */
#define FOREVER 1e6
#define S_IN_NS INT64_C (1000000000)

static char *memory;
static size_t size;
static double bytes_per_ns;
static int64_t latency_ns;

/* A request that the disk has taken.  Freed when it was replied to. */
struct taken {
  STAILQ_ENTRY (taken) next;
  fuse_req_t request;
  int64_t reply_at;
  size_t length;
  const char *data; /* of a read */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
/* lock: */
static STAILQ_HEAD (, taken) line = STAILQ_HEAD_INITIALIZER (line);

static int64_t free_at; /* session loop */

static int64_t
nanoseconds_now (void)
{
  struct timespec t;

  clock_gettime (CLOCK_MONOTONIC, &t);
  return t.tv_sec * S_IN_NS + t.tv_nsec;
}

static void
take (fuse_req_t request, size_t length, const char *data)
{
  const int64_t now = nanoseconds_now ();
  struct taken *t = malloc (sizeof *t);

  if (!t) {
    fuse_reply_err (request, ENOMEM);
    return;
  }
  free_at = (free_at > now ? free_at : now) + length / bytes_per_ns;
  *t = (struct taken){ .request = request,
                       .reply_at = free_at + latency_ns,
                       .length = length,
                       .data = data };
  pthread_mutex_lock (&lock);
  STAILQ_INSERT_TAIL (&line, t, next);
  pthread_cond_signal (&more);
  pthread_mutex_unlock (&lock);
}

static void *
reply_to_all (void *unused)
{
  for (;;) {
    struct timespec until;
    struct taken *t;

    pthread_mutex_lock (&lock);
    while (STAILQ_EMPTY (&line))
      pthread_cond_wait (&more, &lock);
    t = STAILQ_FIRST (&line);
    STAILQ_REMOVE_HEAD (&line, next);
    pthread_mutex_unlock (&lock);

    until.tv_sec = t->reply_at / S_IN_NS;
    until.tv_nsec = t->reply_at % S_IN_NS;
    clock_nanosleep (CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    if (t->data)
      fuse_reply_buf (t->request, t->data, t->length);
    else
      fuse_reply_write (t->request, t->length);
    free (t);
  }
  return NULL;
}

/* ---- the file system ---- */

static struct stat
status (fuse_ino_t inode)
{
  if (inode == DISK)
    return (struct stat){
      .st_ino = DISK, .st_mode = S_IFREG | 0600, .st_nlink = 1, .st_size = size
    };
  return (struct stat){ .st_ino = FUSE_ROOT_ID,
                        .st_mode = S_IFDIR | 0700,
                        .st_nlink = 2 };
}

static void
init (void *unused, struct fuse_conn_info *connection)
{
  connection->max_background = 1024;
  connection->congestion_threshold = 1024;
}

static void
lookup (fuse_req_t request, fuse_ino_t parent, const char *name)
{
  const struct fuse_entry_param entry = { .ino = DISK,
                                          .attr = status (DISK),
                                          .attr_timeout = FOREVER,
                                          .entry_timeout = FOREVER };

  if (strcmp (name, "disk") == 0)
    fuse_reply_entry (request, &entry);
  else
    fuse_reply_err (request, ENOENT);
}

static void
get_attributes (fuse_req_t request, fuse_ino_t inode,
                struct fuse_file_info *file)
{
  const struct stat s = status (inode);

  fuse_reply_attr (request, &s, FOREVER);
}

static void
open_file (fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *file)
{
  file->direct_io = 1;
  fuse_reply_open (request, file);
}

static void
read_file (fuse_req_t request, fuse_ino_t inode, size_t length, off_t offset,
           struct fuse_file_info *file)
{
  const size_t rest = (size_t) offset < size ? size - offset : 0;

  take (request, length < rest ? length : rest, memory + offset);
}

static void
write_file (fuse_req_t request, fuse_ino_t inode, const char *data,
            size_t length, off_t offset, struct fuse_file_info *file)
{
  if ((size_t) offset > size || length > size - offset) {
    fuse_reply_err (request, ENOSPC);
    return;
  }
  memcpy (memory + offset, data, length);
  take (request, length, NULL);
}

static void
sync_file (fuse_req_t request, fuse_ino_t inode, int only_data,
           struct fuse_file_info *file)
{
  fuse_reply_err (request, 0);
}

static int
serve (const char *mountpoint)
{
  static const struct fuse_lowlevel_ops operations = {
    .init = init,
    .lookup = lookup,
    .getattr = get_attributes,
    .open = open_file,
    .read = read_file,
    .write = write_file,
    .fsync = sync_file,
  };
  char *no_arguments[] = { "slow-disk", NULL };
  struct fuse_args arguments = FUSE_ARGS_INIT (1, no_arguments);
  struct fuse_session *session;
  int r;

  session = fuse_session_new (&arguments, &operations, sizeof operations, NULL);
  if (!session || fuse_set_signal_handlers (session) != 0 ||
      fuse_session_mount (session, mountpoint) != 0)
    return EXIT_FAILURE;
  r = fuse_session_loop (session);
  fuse_session_unmount (session);
  return r == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int
main (int argc, char *argv[])
{
  pthread_t replier;

  if (argc != 5 || atol (argv[2]) <= 0 || atof (argv[3]) <= 0 ||
      atol (argv[4]) < 0) {
    fprintf (stderr, "usage: slow-disk MOUNTPOINT MIB MB_PER_S LATENCY_US\n");
    return 2;
  }
  size = (size_t) atol (argv[2]) << 20;
  bytes_per_ns = atof (argv[3]) / 1000;
  latency_ns = INT64_C (1000) * atol (argv[4]);
  memory = malloc (size);
  if (!memory) {
    perror ("slow-disk: malloc");
    return EXIT_FAILURE;
  }
  memset (memory, 0, size); /* no page faults later */
  if (pthread_create (&replier, NULL, reply_to_all, NULL) != 0) {
    fprintf (stderr, "slow-disk: no thread\n");
    return EXIT_FAILURE;
  }
  return serve (argv[1]);
}
