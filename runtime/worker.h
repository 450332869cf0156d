// One replica of a role: runs the role's stages in program order on every n-th tile.
#pragma once

#include <vector>

#include "schedule.h"

namespace kitsune {

class Worker {
public:
  Worker(Schedule &schedule, std::vector<const Stage *> stages, int64_t replica, int64_t replicas);

  void run(const Run &run);

private:
  // A stage with memory for its operands; tile memory is used where a tile is not whole, or is a term.
  struct Firing {
    const Stage *stage;
    std::vector<void *> pointers; // one for each operand, then the scratch space
    std::vector<Memory> tiles;
    Memory scratch;
  };

  void fire(Firing &firing, const Run &run, int64_t tile);
  void fire_once(Firing &firing, const Run &run);
  void *before(const Operand &operand, Memory &own, const Run &run, int64_t tile);
  void after(const Operand &operand, Memory &own, const Run &run, int64_t tile);

  Schedule &schedule_;
  const int64_t replica_, replicas_;
  std::vector<Firing> firings_;
  std::vector<Memory> local_; // by queue: the buffer where producer and consumers are all in this thread
  int64_t valid_ = 0;
};

} // namespace kitsune
