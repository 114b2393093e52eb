/* Run a command as on a kernel that has no cachestat(2), before Linux 6.5:
 *
 *   without-cachestat COMMAND [ARGUMENT]...
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <sys/prctl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#define NR_CACHESTAT 451 /* on all architectures but alpha */

int
main (int argc, char *argv[])
{
  struct sock_filter filter[] = {
    BPF_STMT (BPF_LD | BPF_W | BPF_ABS, offsetof (struct seccomp_data, nr)),
    BPF_JUMP (BPF_JMP | BPF_JEQ | BPF_K, NR_CACHESTAT, 0, 1),
    BPF_STMT (BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
    BPF_STMT (BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog program = {
    .len = sizeof filter / sizeof filter[0],
    .filter = filter,
  };

  if (argc < 2) {
    fprintf (stderr, "usage: without-cachestat COMMAND [ARGUMENT]...\n");
    return 2;
  }
  if (prctl (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1 ||
      prctl (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == -1) {
    perror ("without-cachestat: seccomp");
    return 1;
  }
  execvp (argv[1], argv + 1);
  perror (argv[1]);
  return 1;
}
