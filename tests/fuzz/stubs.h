/* What the fuzz target has in place of nbdkit.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef FUZZ_STUBS_H
#define FUZZ_STUBS_H

#include <stdbool.h>
#include <stdint.h>

/* Called for each extent that the plugin adds.  Returns 0, or -1. */
extern int (*extent_added) (uint64_t offset, uint64_t length, uint32_t type);

/* Print what is wrong, and end the target. */
void broken (const char *what) __attribute__ ((noreturn));

#endif /* FUZZ_STUBS_H */
