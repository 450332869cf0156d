// The carrier of an accumulating queue: each producer replica sums its own terms; one stage takes the total.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "memory.h"
#include "plan.h"

namespace kitsune {

class PartialSums {
public:
  PartialSums(const Queue &queue, int64_t replicas);

  // All sums are zero again, which all element types write as zero bytes.
  void reset();

  // Adds the term to the replica's own sum.
  void add(int64_t replica, const std::byte *term);

  // The replica has no more terms.
  void finish();

  // Waits until all replicas have finished and gives the total, summed in the order of the replicas.
  std::byte *total();

private:
  struct Sum {
    Memory current, next;
  };

  void add(Sum &sum, const std::byte *term);

  const kitsune_stage_function add_;
  std::vector<Sum> sums_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t finished_ = 0;
  bool totalled_ = false;
};

} // namespace kitsune
