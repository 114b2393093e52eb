/* Included before each file of the engine when it is compiled for the
 * simulator: each access to an atomic is a point where another coroutine may
 * run, and allocations may fail and are counted.
 *
 * Copyright (C) 2026 The nbdkit-windowed-file authors
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef SIM_ENGINE_H
#define SIM_ENGINE_H

#include <stdatomic.h>
#include <stdlib.h>

void sim_yield (void);
void *sim_calloc (size_t nr, size_t size);
void *sim_malloc (size_t size);
void sim_free (void *p);

#undef atomic_load
#undef atomic_store
#undef atomic_exchange
#undef atomic_fetch_add
#undef atomic_compare_exchange_strong
#define atomic_load(p)                                                         \
  (sim_yield (), atomic_load_explicit (p, memory_order_seq_cst))
#define atomic_store(p, v)                                                     \
  (sim_yield (), atomic_store_explicit (p, v, memory_order_seq_cst))
#define atomic_exchange(p, v)                                                  \
  (sim_yield (), atomic_exchange_explicit (p, v, memory_order_seq_cst))
#define atomic_fetch_add(p, v)                                                 \
  (sim_yield (), atomic_fetch_add_explicit (p, v, memory_order_seq_cst))

#define atomic_compare_exchange_strong(p, old, v)                              \
  (sim_yield (), atomic_compare_exchange_strong_explicit (                     \
                   p, old, v, memory_order_seq_cst, memory_order_seq_cst))

#define calloc(nr, size) sim_calloc (nr, size)
#define malloc(size) sim_malloc (size)
#define free(p) sim_free (p)

/* With the parameter few_cells, and two windows beside the three spare ones,
 * the pool has six cells, and a request waits if all are in use.
 */
#include "eviction/page_map.h"

int sim_cells (int usual, int few);
enum { USUAL_WINDOW_CELLS = WINDOW_CELLS };
enum { USUAL_READ_CELLS = READ_CELLS, USUAL_CALL_CELLS = CALL_CELLS };

#undef WINDOW_CELLS
#undef READ_CELLS
#undef CALL_CELLS
#define WINDOW_CELLS sim_cells (USUAL_WINDOW_CELLS, 2)
#define READ_CELLS (unsigned) sim_cells (USUAL_READ_CELLS, 1)
#define CALL_CELLS sim_cells (USUAL_CALL_CELLS, 5 - 5 * 2)

#endif /* SIM_ENGINE_H */
