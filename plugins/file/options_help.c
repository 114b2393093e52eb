/* The parameters in "nbdkit file --help", a few lines each.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include "options.h"

const char options_help[] =
  "[file=]FILENAME            The file or block device to serve.\n"
  "dir=DIRECTORY, directory=DIRECTORY\n"
  "                           A directory of files to serve, by export name.\n"
  "fd=FD                      An inherited file descriptor to serve.\n"
  "dirfd=FD                   An inherited directory to serve.\n"
  "symlinks=follow|beneath|refuse\n"
  "                           Which symbolic links in DIRECTORY are served:\n"
  "                           all (default), those that stay inside, or none.\n"
  "cache=default|none|preserve\n"
  "                           none: nothing of the file is left in the page\n"
  "                           cache at the end, and little while it is used.\n"
  "                           preserve: as none, but pages that were there\n"
  "                           before stay there.  default: the kernel keeps\n"
  "                           what it can.\n"
  "reduce-memory-pressure=BOOL\n"
  "                           The same as cache=none.\n"
  "fadvise=normal|random|sequential\n"
  "                           Hint to the kernel's readahead.\n"
  "cache-windows=N            Windows of a disk's ring (default 8).\n"
  "cache-window-size=SIZE     Size of a window (default 2M).\n"
  "cache-limit=SIZE           Page cache of all disks together (default "
  "128M).\n"
  "stats=FILE                 Write statistics of each disk as JSON at the\n"
  "                           start, at the end, and on SIGUSR1 (\"-\": to\n"
  "                           the log).\n"
  "stats-interval=SECONDS     Also write them every SECONDS seconds.";
