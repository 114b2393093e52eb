/* Run a command as on a kernel, in a sandbox or on a file system that lacks
 * something:
 *
 *   without-cachestat COMMAND [ARGUMENT]...   before Linux 6.5
 *   without-direct COMMAND [ARGUMENT]...      O_DIRECT fails with EINVAL
 *   without-statx COMMAND [ARGUMENT]...       a sandbox that refuses statx
 *
 * The program's name chooses what is missing.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#define NR_CACHESTAT 451 /* on all architectures but alpha */

static const struct lack {
  const char *name;
  uint32_t call;
  uint32_t flags; /* refuse if the third argument has one of these; 0: always */
  int err;
} lacks[] = {
  { "cachestat", NR_CACHESTAT, 0, ENOSYS },
  { "direct", SYS_openat, O_DIRECT, EINVAL },
  { "statx", SYS_statx, 0, EPERM },
};

/* Only the lower half of an argument counts: flags are an int, which is at the
 * lower address on the machines that this is for.
 */
static int
forbid (const struct lack *l)
{
  struct sock_filter filter[] = {
    BPF_STMT (BPF_LD | BPF_W | BPF_ABS, offsetof (struct seccomp_data, nr)),
    BPF_JUMP (BPF_JMP | BPF_JEQ | BPF_K, l->call, 0, 3),
    BPF_STMT (BPF_LD | BPF_W | BPF_ABS,
              offsetof (struct seccomp_data, args[2])),
    BPF_JUMP (BPF_JMP | BPF_JSET | BPF_K, l->flags, 0, 1),
    BPF_STMT (BPF_RET | BPF_K, SECCOMP_RET_ERRNO | l->err),
    BPF_STMT (BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog program = {
    .len = sizeof filter / sizeof filter[0],
    .filter = filter,
  };

  if (l->flags == 0) /* whatever its arguments */
    filter[3] = (struct sock_filter) BPF_STMT (BPF_MISC | BPF_TAX, 0);
  if (prctl (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1)
    return -1;
  return prctl (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int
main (int argc, char *argv[])
{
  const char *name = strstr (argv[0], "without-");
  size_t i;

  for (i = 0; name && argc > 1 && i < sizeof lacks / sizeof lacks[0]; i++) {
    if (strcmp (strchr (name, '-') + 1, lacks[i].name) != 0)
      continue;
    if (forbid (&lacks[i]) == -1) {
      perror ("without: seccomp");
      return 1;
    }
    execvp (argv[1], argv + 1);
    perror (argv[1]);
    return 1;
  }
  fprintf (stderr, "usage: without-cachestat|-direct|-statx COMMAND...\n");
  return 2;
}
