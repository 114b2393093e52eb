/* In builds with sanitizers: the wrapper preloads the sanitizer's runtime
 * into nbdkit, and this keeps it out of the programs that nbdkit runs.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <stdlib.h>

/* Runs when nbdkit loads the plugin: before --run, before any thread. */
__attribute__ ((constructor)) static void
forget_preload (void)
{
  unsetenv ("LD_PRELOAD");
}
