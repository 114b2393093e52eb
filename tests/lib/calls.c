/* fsync(2) and fdatasync(2) write the pages of the file and wait for them, but
 * neither commit a journal nor flush the disk.
 *
 *   LD_PRELOAD=calls.so nbdkit ...
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include <config.h>

#include <fcntl.h>
#include <unistd.h>

int
fdatasync (int fd)
{
  return sync_file_range (fd, 0, 0,
                          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                            SYNC_FILE_RANGE_WAIT_AFTER);
}

int
fsync (int fd)
{
  return fdatasync (fd);
}
