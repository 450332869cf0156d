// A placed pipeline as plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "kitsune_runtime.h"

namespace kitsune {

struct Operand {
  kitsune_operand kind;
  int64_t index;
  int64_t row_bytes;
};

struct Stage {
  kitsune_stage_function function;
  int64_t role;
  int64_t replicas;
  int64_t scratch_bytes;
  std::vector<Operand> operands;

  bool fires_once() const {
    for (const Operand &operand : operands)
      if (operand.kind == KITSUNE_REDUCE)
        return true;
    return false;
  }
};

struct Queue {
  int64_t tile_bytes;
  int64_t depth;
  kitsune_stage_function add; // null: the queue carries tiles; else partial sums
};

struct Plan {
  int64_t tile_rows;
  int64_t pointers;
  std::vector<Queue> queues;
  std::vector<Stage> stages; // in program order
};

// Whether every index lies in range, every queue has one producer, producers stand before consumers, and stages that
// fire once have whole operands alone.
bool is_sound(const Plan &plan);

} // namespace kitsune
