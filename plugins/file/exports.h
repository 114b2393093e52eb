/* Exports: which file an export name means, and listing them.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_EXPORTS_H
#define FILE_EXPORTS_H

#include <stdbool.h>

struct nbdkit_exports;

/* Check that the file or directory of the options exists and has the right
 * type.  "key" and "value" are the parameter that named it.  Returns 0, or -1
 * with nbdkit_error called.
 */
int exports_check (const char *key, const char *value);

/* An export that is open. */
struct exported {
  int fd;        /* of a regular file or block device; the caller's */
  bool writable; /* false if "readonly", or if writing is not permitted */
  bool shared;   /* "fd" shares its description with another descriptor */
  char *name;    /* for messages: the escaped export name or path */
  char *path;    /* for statistics: where the file is, not escaped */
};

/* Open the file that the client asks for, and fill in *e.  With dir= and dirfd=
 * the file is the export name of the connection, which is then the only name in
 * messages: since nbdkit 1.42 clients receive the text of nbdkit_error.  With
 * file= and fd= the connection is not used: since nbdkit 1.44 the ext2 filter
 * opens the plugin without a connection.
 *
 * The call blocks only on a lease of another process.  Nothing shares the file
 * description where that is possible.  The caller closes e->fd and calls
 * exports_free.  Returns 0, or -1 with nbdkit_error called and nothing to free.
 */
int exports_open (bool readonly, struct exported *e);

/* Free the names.  Does not close e->fd. */
void exports_free (struct exported *e);

/* List the export names that a client may open.  Returns 0, or -1 with
 * nbdkit_error called.
 */
int exports_list (struct nbdkit_exports *exports);

#endif /* FILE_EXPORTS_H */
