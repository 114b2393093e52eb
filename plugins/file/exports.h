/* Exports: which file an export name means, and listing them.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_EXPORTS_H
#define FILE_EXPORTS_H

#include <stdbool.h>

struct nbdkit_exports;

/* Check that what the options say is there, and of the right type.  "key" is
 * the parameter that named it.  Returns 0, or -1 with nbdkit_error called.
 */
int exports_check (const char *key);

/* Open the file that the client's export name means (with file= and fd=
 * the name is ignored), never blocking.  On success returns a descriptor,
 * which is the caller's, of a regular file or block device, on a file
 * description that nothing else shares where that is possible; sets *name
 * to what messages should call it, to be freed by the caller; and
 * *writable, which is false if readonly was asked for or writing is not
 * permitted; and *shared if the description could not be the caller's alone.
 * Returns -1 with nbdkit_error called and errno set.
 */
int exports_open (const char *export_name, bool readonly, char **name,
                  bool *writable, bool *shared);

/* List what a client may ask for.  Returns 0, or -1 with nbdkit_error
 * called.
 */
int exports_list (struct nbdkit_exports *exports);

#endif /* FILE_EXPORTS_H */
