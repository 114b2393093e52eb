/* An NBD connection that a shell script holds open: one request a line on
 * stdin, one line of answer on stdout, "ok ..." or "error ERRNO message".
 *
 *   client URI
 *   client -- COMMAND ARGUMENT...     (a server on stdin and stdout)
 *
 *   write OFFSET COUNT [fua]          random bytes
 *   zero OFFSET COUNT [nohole] [fast] [fua]
 *   trim OFFSET COUNT [fua]
 *   read OFFSET COUNT                 compared with the model
 *   flush
 *   cache OFFSET COUNT
 *   extents OFFSET COUNT [one]        answers LENGTH:FLAGS ...
 *   size
 *   save FILE                         write the model there
 *
 * Numbers may end in K or M.  The model is what the export should hold.  It
 * starts as zeroes.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <stdbool.h>
#include <stdint.h>
#include <inttypes.h>
#include <string.h>
#include <errno.h>

#include <libnbd.h>

#include "pattern.h"

#define MAX_WORDS 8

static struct nbd_handle *nbd;
static unsigned char *model;
static uint64_t size;
static uint64_t seed = 1;

/* One request, taken apart. */
struct request {
  char *word[MAX_WORDS];
  size_t words;
  uint64_t offset, count;
};

static bool
has (const struct request *rq, const char *flag)
{
  size_t i;

  for (i = 1; i < rq->words; ++i) {
    if (strcmp (rq->word[i], flag) == 0)
      return true;
  }
  return false;
}

static uint64_t
number (const char *word)
{
  char *end;
  uint64_t n = strtoull (word, &end, 10);

  if (*end == 'K')
    n <<= 10;
  else if (*end == 'M')
    n <<= 20;
  return n;
}

static void
refuse (const char *why)
{
  printf ("error ECLIENT %s\n", why);
}

/* Answer for a libnbd call that returned r. */
static bool
answer (int r)
{
  const char *name;

  if (r == -1) {
    name = strerrorname_np (nbd_get_errno ());
    printf ("error %s %s\n", name ? name : "?", nbd_get_error ());
    return false;
  }
  printf ("ok\n");
  return true;
}

static void
do_write (const struct request *rq, unsigned char *buf)
{
  uint32_t flags = has (rq, "fua") ? LIBNBD_CMD_FLAG_FUA : 0;

  fill_pattern (buf, rq->count, &seed);
  if (answer (nbd_pwrite (nbd, buf, rq->count, rq->offset, flags)))
    memcpy (model + rq->offset, buf, rq->count);
}

static void
do_zero (const struct request *rq)
{
  uint32_t flags = 0;

  if (has (rq, "nohole"))
    flags |= LIBNBD_CMD_FLAG_NO_HOLE;
  if (has (rq, "fast"))
    flags |= LIBNBD_CMD_FLAG_FAST_ZERO;
  if (has (rq, "fua"))
    flags |= LIBNBD_CMD_FLAG_FUA;
  if (answer (nbd_zero (nbd, rq->count, rq->offset, flags)))
    memset (model + rq->offset, 0, rq->count);
}

/* Trimmed bytes read as what they were or as zeroes. */
static void
do_trim (const struct request *rq, unsigned char *buf)
{
  uint32_t flags = has (rq, "fua") ? LIBNBD_CMD_FLAG_FUA : 0;
  uint64_t i;

  if (nbd_trim (nbd, rq->count, rq->offset, flags) == -1 ||
      nbd_pread (nbd, buf, rq->count, rq->offset, 0) == -1) {
    answer (-1);
    return;
  }
  for (i = 0; i < rq->count; ++i) {
    if (buf[i] != 0 && buf[i] != model[rq->offset + i]) {
      refuse ("trim left neither the old bytes nor zeroes");
      return;
    }
  }
  memcpy (model + rq->offset, buf, rq->count);
  answer (0);
}

static void
do_read (const struct request *rq, unsigned char *buf)
{
  if (nbd_pread (nbd, buf, rq->count, rq->offset, 0) == -1)
    answer (-1);
  else if (memcmp (buf, model + rq->offset, rq->count) != 0)
    refuse ("the data read is not what was written");
  else
    answer (0);
}

static int
print_extents (void *opaque, const char *context, uint64_t offset,
               uint32_t *entries, size_t nr_entries, int *error)
{
  size_t i;

  (void) context;
  (void) offset;
  (void) error;
  *(bool *) opaque = true;
  printf ("ok");
  for (i = 0; i + 1 < nr_entries; i += 2)
    printf (" %" PRIu32 ":%" PRIu32, entries[i], entries[i + 1]);
  printf ("\n");
  return 0;
}

static void
do_extents (const struct request *rq)
{
  bool printed = false;
  nbd_extent_callback callback = { .callback = print_extents,
                                   .user_data = &printed };
  uint32_t flags = has (rq, "one") ? LIBNBD_CMD_FLAG_REQ_ONE : 0;
  int r = nbd_block_status (nbd, rq->count, rq->offset, callback, flags);

  if (!printed) {
    if (r == -1)
      answer (-1);
    else
      refuse ("no extents");
  }
}

static void
do_save (const char *name)
{
  FILE *fp = fopen (name, "w");

  if (fp == NULL || fwrite (model, 1, size, fp) != size || fclose (fp) == EOF)
    refuse (strerror (errno));
  else
    answer (0);
}

/* A request that names a range. */
static void
do_range (const struct request *rq)
{
  const char *verb = rq->word[0];
  unsigned char *buf;

  if (rq->words < 3 || rq->count == 0 || rq->offset + rq->count > size) {
    refuse ("not a request, or not inside the export");
    return;
  }
  buf = malloc (rq->count);
  if (buf == NULL)
    refuse ("out of memory");
  else if (strcmp (verb, "write") == 0)
    do_write (rq, buf);
  else if (strcmp (verb, "zero") == 0)
    do_zero (rq);
  else if (strcmp (verb, "trim") == 0)
    do_trim (rq, buf);
  else if (strcmp (verb, "read") == 0)
    do_read (rq, buf);
  else if (strcmp (verb, "cache") == 0)
    answer (nbd_cache (nbd, rq->count, rq->offset, 0));
  else if (strcmp (verb, "extents") == 0)
    do_extents (rq);
  else
    refuse ("unknown request");
  free (buf);
}

static void
obey (char *line)
{
  struct request rq = { .words = 0 };
  char *save, *word;

  for (word = strtok_r (line, " \n", &save);
       word != NULL && rq.words < MAX_WORDS;
       word = strtok_r (NULL, " \n", &save))
    rq.word[rq.words++] = word;
  if (rq.words == 0)
    return;
  rq.offset = rq.words > 1 ? number (rq.word[1]) : 0;
  rq.count = rq.words > 2 ? number (rq.word[2]) : 0;

  if (strcmp (rq.word[0], "flush") == 0)
    answer (nbd_flush (nbd, 0));
  else if (strcmp (rq.word[0], "size") == 0)
    printf ("ok %" PRIu64 "\n", size);
  else if (strcmp (rq.word[0], "save") == 0 && rq.words == 2)
    do_save (rq.word[1]);
  else
    do_range (&rq);
}

static int
connect_to (char **argv)
{
  if (strcmp (argv[0], "--") == 0)
    return nbd_connect_command (nbd, argv + 1);
  return nbd_connect_uri (nbd, argv[0]);
}

int
main (int argc, char *argv[])
{
  char *line = NULL;
  size_t allocated = 0;
  int64_t r;

  if (argc < 2) {
    fprintf (stderr, "usage: client URI | client -- COMMAND ...\n");
    exit (EXIT_FAILURE);
  }
  nbd = nbd_create ();
  /* libnbd does not send requests smaller than the advertised block size; the
   * server serves them.
   */
  if (nbd == NULL ||
      nbd_set_strict_mode (nbd, nbd_get_strict_mode (nbd) &
                                  ~(unsigned) LIBNBD_STRICT_ALIGN) == -1 ||
      nbd_add_meta_context (nbd, LIBNBD_CONTEXT_BASE_ALLOCATION) == -1 ||
      connect_to (argv + 1) == -1 || (r = nbd_get_size (nbd)) == -1) {
    fprintf (stderr, "client: %s\n", nbd_get_error ());
    exit (EXIT_FAILURE);
  }
  size = r;
  model = calloc (1, size ? size : 1);
  if (model == NULL) {
    perror ("client: calloc");
    exit (EXIT_FAILURE);
  }

  setvbuf (stdout, NULL, _IOLBF, 0);
  while (getline (&line, &allocated, stdin) != -1)
    obey (line);

  if (nbd_shutdown (nbd, 0) == -1) {
    fprintf (stderr, "client: %s\n", nbd_get_error ());
    exit (EXIT_FAILURE);
  }
  nbd_close (nbd);
  free (line);
  free (model);
  exit (EXIT_SUCCESS);
}
