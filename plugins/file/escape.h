/* File and export names in messages: a name is any string of bytes, and a
 * message goes to terminals, logs and clients.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FILE_ESCAPE_H
#define FILE_ESCAPE_H

/* Return the name with each byte that is not part of a printable UTF-8
 * character as \xNN and each backslash doubled, so that different names stay
 * different.  The caller frees it.  Returns NULL without memory.
 */
char *escape_name (const char *name);

#endif /* FILE_ESCAPE_H */
