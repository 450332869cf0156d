// The C interface of the CPU runtime: a placed pipeline is described once, then run many times.
//
// A call that fails (out of memory, an index out of range) returns 0 / a null pointer; none throws or aborts.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Native code of one stage: the addresses of its inputs, outputs and scratch space, in that order.
typedef void (*kitsune_stage_function)(void *const *pointers);

enum kitsune_operand {
  KITSUNE_RESIDENT = 0,   // index: which of the pipeline's pointers; the whole tensor
  KITSUNE_LOAD = 1,       // index: pointer; the row tile of an argument
  KITSUNE_GET = 2,        // index: queue
  KITSUNE_REDUCE = 3,     // index: queue; the sum of all partial sums
  KITSUNE_VALID = 4,      // the tile's valid rows, one int64
  KITSUNE_PUT = 5,        // index: queue
  KITSUNE_STORE = 6,      // index: pointer; the row tile of a result
  KITSUNE_ACCUMULATE = 7, // index: queue; a term of the partial sum
  KITSUNE_WHOLE = 8,      // index: pointer; a whole result, written by a stage that fires once
};

// tile_rows: rows of a tile. pointers: arguments and results together, as kitsune_pipeline_run gets them.
void *kitsune_pipeline_create(int64_t tile_rows, int64_t pointers);
void kitsune_pipeline_destroy(void *pipeline);

// Returns the queue's index, or -1. `add` is null but for an accumulating queue: a stage function of
// (sum, term) -> new sum.
int64_t kitsune_pipeline_add_queue(void *pipeline, int64_t tile_bytes, int64_t depth, kitsune_stage_function add);

// In program order, in which a queue's producer stands before its consumers. scratch_bytes: memory that
// each replica's calls may write. Returns the stage's index, or -1.
int64_t kitsune_pipeline_add_stage(void *pipeline, kitsune_stage_function function, int64_t role, int64_t replicas,
                                   int64_t scratch_bytes);

// Operands in the order of the stage function's pointers. row_bytes: of KITSUNE_LOAD and KITSUNE_STORE.
int64_t kitsune_pipeline_add_operand(void *pipeline, int64_t stage, int64_t kind, int64_t index, int64_t row_bytes);

// Once, after the description and before the first run, and again to change the number of threads.
// threads: 0 runs every role on its replicas, as placed; 1 runs tile by tile in the calling thread; n > 1
// runs all stages of every n-th tile on one of n threads, unless n is what the placement has.
int64_t kitsune_pipeline_schedule(void *pipeline, int64_t threads);

// Streams `rows` rows. Not to be called twice at once for one pipeline.
int64_t kitsune_pipeline_run(void *pipeline, void *const *pointers, int64_t rows);

#ifdef __cplusplus
}
#endif
