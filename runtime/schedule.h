// Who runs which stage of a plan on which tiles, and the memory for it.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "partial_sums.h"
#include "plan.h"
#include "ring.h"

namespace kitsune {

// The tiles of one run.
struct Run {
  void *const *pointers;
  int64_t rows;
  int64_t tile_rows;

  int64_t tiles() const { return (rows + tile_rows - 1) / tile_rows; }
  int64_t valid(int64_t tile) const { return std::min(tile_rows, rows - tile * tile_rows); }
};

class Worker;

class Schedule {
public:
  // threads: see kitsune_pipeline_schedule. Throws std::bad_alloc.
  Schedule(const Plan &plan, int64_t threads);
  ~Schedule();

  // Throws std::system_error when threads cannot be started.
  void run(void *const *pointers, int64_t rows);

private:
  friend class Worker;

  const Plan &plan_;
  std::vector<std::unique_ptr<Ring>> rings_;       // by queue; null where producer and consumers share a role
  std::vector<std::unique_ptr<PartialSums>> sums_; // by queue; null where the queue carries tiles
  std::vector<std::unique_ptr<Worker>> workers_;
};

} // namespace kitsune
