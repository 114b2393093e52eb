/* Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef SIM_CHECK_H
#define SIM_CHECK_H

#include "../../plugins/file/eviction/engine.h"

/* End the process unless all sums agree.  The time grows with the cells. */
void engine_check (const struct engine *e);

#endif /* SIM_CHECK_H */
