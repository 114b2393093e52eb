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
 * type, and that the kernel can restrict symbolic links.  "key" and "value" are
 * the parameter that named it.  Returns 0, or -1 with nbdkit_error called.
 */
int exports_check (const char *key, const char *value);

/* An export that is open. */
struct exported {
  int fd;        /* of a regular file or block device, for this client alone:
                  * readahead state, and writeback errors, are kept per
                  * description */
  bool shared;   /* the file of fd= cannot be opened again, so all clients have
                  * its description */
  bool writable; /* false if "readonly", or if writing is not permitted */
  char *name;    /* for messages: the escaped export name or path */
  char *path;    /* for statistics: where the file is, not escaped */
};

/* Open the file that the client asks for, and fill in *e.  With dir= and dirfd=
 * the file is the export name of the connection, which is then the only name in
 * messages: since nbdkit 1.42 clients receive the text of nbdkit_error.  With
 * file= and fd= the connection is not used: since nbdkit 1.44 the ext2 filter
 * opens the plugin without a connection.
 *
 * The call waits 0.5 s at most until other processes have given up their leases
 * of the file; after that it fails.  Nothing shares the file description where
 * that is possible.  Returns 0, or -1 with nbdkit_error
 * called.  The caller calls exports_close in both cases.
 */
int exports_open (bool readonly, struct exported *e);

/* Close the descriptor and free the names. */
void exports_close (struct exported *e);

/* List the export names that a client may open.  A callback of nbdkit: returns
 * 0, or -1 with nbdkit_error called.
 */
int exports_list (int readonly, int is_tls, struct nbdkit_exports *exports);

#endif /* FILE_EXPORTS_H */
