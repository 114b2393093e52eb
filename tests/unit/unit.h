/* What each unit test includes.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef UNIT_H
#define UNIT_H

#include <config.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* cmocka 2 has renamed it. */
#ifndef assert_uint_in_range
#define assert_uint_in_range assert_in_range
#endif

#define MiB (UINT64_C (1024) * 1024)
#define COUNT(array) (sizeof (array) / sizeof (array)[0])

#endif /* UNIT_H */
