/* Exports: which file an export name means, and listing them.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_EXPORTS_H
#define FILE_EXPORTS_H

#include <stdbool.h>

struct nbdkit_exports;

/* Check that the file or folder of the options exists and has the right type.
 * "key" and "value" are the parameter that named it.  Returns 0, or -1 with
 * nbdkit_error called.
 */
int exports_check (const char *key, const char *value);

/* An export that is open. */
struct exported {
  int fd;        /* of a regular file or block device; the caller closes it */
  bool writable; /* false if "readonly" or if writing is not permitted */
  bool shared;   /* the description could not be the caller's alone */
  char *name;    /* for messages: the escaped export name or path */
  char *path;    /* for statistics: where the file is, not escaped */
};

/* Open the file that the client asks for.  With dir= and dirfd= this is the
 * export name of the connection, which is then the only name in messages:
 * since nbdkit 1.42 clients receive the text of nbdkit_error.  With file= and
 * fd= the connection is not used: since nbdkit 1.44 the ext2 filter opens the
 * plugin without one.
 *
 * Never blocks, except on a lease of another process.  The file description is
 * not shared with anything where that is possible.  Returns 0, or -1 with
 * nbdkit_error called.
 */
int exports_open (bool readonly, struct exported *e);

/* Free the names. */
void exports_free (struct exported *e);

/* List the export names that a client may open.  Returns 0, or -1 with
 * nbdkit_error called.
 */
int exports_list (struct nbdkit_exports *exports);

#endif /* FILE_EXPORTS_H */
