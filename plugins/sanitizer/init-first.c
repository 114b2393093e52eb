/* In builds with sanitizers: start the sanitizer before any library of the
 * process is initialised.
 *
 * Otherwise it starts in the first call of malloc.  If that is in newlocale(3),
 * as in libp11-kit, which nbdkit's GnuTLS needs, glibc holds its lock of the
 * locales.  The sanitizer then has glibc translate a message, which unlocks
 * it.  So it is unlocked twice, and nbdkit hangs in exit(3) if two threads have
 * used it.
 *
 * This is linked with -z initfirst, and preloaded after the runtime.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

void __asan_init (void) __attribute__ ((weak));
void __tsan_init (void) __attribute__ ((weak));

__attribute__ ((constructor)) static void
init_first (void)
{
  if (__asan_init)
    __asan_init ();
  if (__tsan_init)
    __tsan_init ();
}
