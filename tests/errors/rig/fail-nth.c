/* Fail some of the plugin's allocations, descriptors or threads.
 *
 *   FAIL_NTH=CONTROL LD_PRELOAD=fail-nth.so nbdkit ...
 *
 * CONTROL is a file with a struct fail_nth.  Only calls by the plugin count,
 * and calls that libc makes for it: asprintf calls malloc.  nbdkit's own calls
 * always succeed.
 *
 * strace can inject errors into the nth system call, but counts nbdkit's calls,
 * too, and has no allocations; libfiu fails calls at random.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

/* Fortified headers define inline functions with the names defined here. */
#undef _FORTIFY_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/syscall.h>

#include "fail-nth.h"

/* glibc's own: dlsym(3) allocates memory. */
extern void *__libc_malloc (size_t);
extern void *__libc_calloc (size_t, size_t);
extern void *__libc_realloc (void *, size_t);
extern void *__libc_memalign (size_t, size_t);

/* The addresses of a loaded object. */
struct object {
  uintptr_t start, end;
};

static struct fail_nth *control;
static struct object plugin, libc, self;
static _Thread_local bool inside; /* a call of this library's own */

/* The next definition of a function. */
#define NEXT(function) ((__typeof__ (&function)) dlsym (RTLD_NEXT, #function))

/* With offsets of 64 bits, also where a long has 32. */
#define NEXT_64(function)                                                      \
  ((__typeof__ (&function)) dlsym (RTLD_NEXT, #function "64"))

static bool
has (const struct object *o, uintptr_t address)
{
  return address >= o->start && address < o->end;
}

static struct object
loaded (const struct dl_phdr_info *info)
{
  struct object o = { UINTPTR_MAX, 0 };
  int i;

  for (i = 0; i < info->dlpi_phnum; i++) {
    const ElfW (Phdr) *p = &info->dlpi_phdr[i];
    uintptr_t start = info->dlpi_addr + p->p_vaddr;

    if (p->p_type != PT_LOAD)
      continue;
    if (start < o.start)
      o.start = start;
    if (start + p->p_memsz > o.end)
      o.end = start + p->p_memsz;
  }
  return o;
}

static int
note_object (struct dl_phdr_info *info, size_t size, void *opaque)
{
  struct object o = loaded (info);

  (void) size;
  (void) opaque;
  if (has (&o, (uintptr_t) note_object))
    self = o;
  else if (has (&o, (uintptr_t) abort))
    libc = o;
  else if (strstr (info->dlpi_name, "/nbdkit-file-plugin.so"))
    plugin = o;
  return 0;
}

__attribute__ ((constructor)) static void
map_control (void)
{
  const char *name = getenv ("FAIL_NTH");
  void *frame, *map;
  int fd;

  if (name == NULL)
    return;
  fd = NEXT_64 (open) (name, O_RDWR | O_CLOEXEC);
  if (fd == -1)
    abort ();
  map = mmap (NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close (fd);
  if (map == MAP_FAILED)
    abort ();
  backtrace (&frame, 1); /* The first one loads a library. */
  control = map;
}

/* Return the address in the plugin of a call that returns to "address", which
 * is in the plugin or in a libc function that the plugin called.  Return 0 for
 * a call by nbdkit or another library.
 */
static uintptr_t
caller_in_plugin (uintptr_t address)
{
  void *frames[24];
  int n, i;

  if (has (&plugin, address))
    return address;
  if (!has (&libc, address))
    return 0;
  n = backtrace (frames, sizeof frames / sizeof frames[0]);
  for (i = 0; i < n; i++) {
    uintptr_t frame = (uintptr_t) frames[i];

    if (!has (&self, frame) && !has (&libc, frame))
      return has (&plugin, frame) ? frame : 0;
  }
  return 0;
}

static bool
count_call (uint32_t kind, uintptr_t caller)
{
  uint64_t call, failed;

  if (caller == 0 || !(control->kinds & kind) || control->paused)
    return false;
  call = atomic_fetch_add (&control->calls, 1) + 1;
  if (call < control->first || call > control->last)
    return false;
  failed = atomic_fetch_add (&control->failed, 1);
  if (failed < FAIL_PLACES)
    control->places[failed] = caller - plugin.start;
  return true;
}

/* Return true if the call that returns to "address" must fail. */
static bool
fails (uint32_t kind, void *address)
{
  bool r;

  if (control == NULL || inside)
    return false;
  inside = true;
  if (plugin.end == 0)
    dl_iterate_phdr (note_object, NULL);
  r = plugin.end != 0 &&
      count_call (kind, caller_in_plugin ((uintptr_t) address));
  inside = false;
  return r;
}

/* Make the function set errno and return "result" if this call must fail. */
#define FAIL(kind, err, result)                                                \
  do {                                                                         \
    if (fails (kind, __builtin_return_address (0))) {                          \
      errno = err;                                                             \
      return result;                                                           \
    }                                                                          \
  } while (0)

void *
malloc (size_t size)
{
  FAIL (FAIL_ALLOC, ENOMEM, NULL);
  return __libc_malloc (size);
}

void *
calloc (size_t n, size_t size)
{
  FAIL (FAIL_ALLOC, ENOMEM, NULL);
  return __libc_calloc (n, size);
}

void *
realloc (void *p, size_t size)
{
  FAIL (FAIL_ALLOC, ENOMEM, NULL);
  return __libc_realloc (p, size);
}

void *
aligned_alloc (size_t alignment, size_t size)
{
  FAIL (FAIL_ALLOC, ENOMEM, NULL);
  return __libc_memalign (alignment, size);
}

int
posix_memalign (void **p, size_t alignment, size_t size)
{
  if (fails (FAIL_ALLOC, __builtin_return_address (0)))
    return ENOMEM;
  *p = __libc_memalign (alignment, size);
  return *p ? 0 : ENOMEM;
}

/* Without O_CREAT or O_TMPFILE the caller passes no mode; the kernel ignores
 * the value that va_arg returns.
 */
int
open (const char *name, int flags, ...)
{
  va_list args;
  mode_t mode;

  FAIL (FAIL_FD, EMFILE, -1);
  va_start (args, flags);
  mode = va_arg (args, mode_t);
  va_end (args);
  return NEXT_64 (open) (name, flags, mode);
}

int
openat (int dir, const char *name, int flags, ...)
{
  va_list args;
  mode_t mode;

  FAIL (FAIL_FD, EMFILE, -1);
  va_start (args, flags);
  mode = va_arg (args, mode_t);
  va_end (args);
  return NEXT_64 (openat) (dir, name, flags, mode);
}

int
fcntl (int fd, int command, ...)
{
  va_list args;
  void *arg;

  if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)
    FAIL (FAIL_FD, EMFILE, -1);
  va_start (args, command);
  arg = va_arg (args, void *);
  va_end (args);
  return NEXT_64 (fcntl) (fd, command, arg);
}

/* For openat2(2), for which libc has no function. */
long
syscall (long number, ...)
{
  va_list args;
  long a[6];
  size_t i;

  if (number == SYS_openat2)
    FAIL (FAIL_FD, EMFILE, -1);
  va_start (args, number);
  for (i = 0; i < 6; i++)
    a[i] = va_arg (args, long);
  va_end (args);
  return NEXT (syscall) (number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int
pthread_create (pthread_t *thread, const pthread_attr_t *attr,
                void *(*start) (void *), void *arg)
{
  if (fails (FAIL_THREAD, __builtin_return_address (0)))
    return EAGAIN;
  return NEXT (pthread_create) (thread, attr, start, arg);
}
