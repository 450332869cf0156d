#include "worker.h"

#include <cstring>
#include <utility>

namespace kitsune {

namespace {

bool needs_tile(const Operand &operand) { return operand.kind == KITSUNE_LOAD || operand.kind == KITSUNE_STORE; }

std::byte *row(const Run &run, const Operand &operand, int64_t number) {
  return static_cast<std::byte *>(run.pointers[operand.index]) + number * operand.row_bytes;
}

} // namespace

Worker::Worker(Schedule &schedule, std::vector<const Stage *> stages, int64_t replica, int64_t replicas)
    : schedule_(schedule), replica_(replica), replicas_(replicas) {
  const Plan &plan = schedule.plan_;
  for (size_t q = 0; q < plan.queues.size(); ++q)
    local_.emplace_back(schedule.rings_[q] || schedule.sums_[q] ? 0 : plan.queues[q].tile_bytes);
  for (const Stage *stage : stages) {
    Firing firing{stage, std::vector<void *>(stage->operands.size() + 1), {}, Memory(stage->scratch_bytes)};
    for (const Operand &operand : stage->operands) {
      const bool term = operand.kind == KITSUNE_ACCUMULATE;
      const int64_t bytes = term                   ? plan.queues[operand.index].tile_bytes
                            : needs_tile(operand) ? plan.tile_rows * operand.row_bytes
                                                  : 0;
      firing.tiles.emplace_back(bytes);
    }
    firing.pointers.back() = firing.scratch.data();
    firings_.push_back(std::move(firing));
  }
}

void Worker::run(const Run &run) {
  const int64_t tiles = run.tiles();
  for (int64_t tile = replica_; tile < tiles; tile += replicas_)
    for (Firing &firing : firings_)
      if (!firing.stage->fires_once())
        fire(firing, run, tile);
  for (Firing &firing : firings_)
    for (const Operand &operand : firing.stage->operands)
      if (operand.kind == KITSUNE_ACCUMULATE)
        schedule_.sums_[operand.index]->finish();
  if (replica_ == 0)
    for (Firing &firing : firings_)
      if (firing.stage->fires_once())
        fire_once(firing, run);
}

void Worker::fire(Firing &firing, const Run &run, int64_t tile) {
  valid_ = run.valid(tile);
  const std::vector<Operand> &operands = firing.stage->operands;
  for (size_t i = 0; i < operands.size(); ++i)
    firing.pointers[i] = before(operands[i], firing.tiles[i], run, tile);
  firing.stage->function(firing.pointers.data());
  for (size_t i = 0; i < operands.size(); ++i)
    after(operands[i], firing.tiles[i], run, tile);
}

void Worker::fire_once(Firing &firing, const Run &run) {
  const std::vector<Operand> &operands = firing.stage->operands;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Operand &operand = operands[i];
    const bool sum = operand.kind == KITSUNE_REDUCE;
    firing.pointers[i] = sum ? schedule_.sums_[operand.index]->total() : run.pointers[operand.index];
  }
  firing.stage->function(firing.pointers.data());
}

// The address that the stage function gets for an operand. Waits where the operand is on a ring.
void *Worker::before(const Operand &operand, Memory &own, const Run &run, int64_t tile) {
  const int64_t first = tile * run.tile_rows;
  const bool whole = valid_ == run.tile_rows;
  switch (operand.kind) {
  case KITSUNE_LOAD: {
    if (whole)
      return row(run, operand, first);
    std::memcpy(own.data(), row(run, operand, first), valid_ * operand.row_bytes);
    // Rows past the end repeat a real one: made-up values could trap, as in a division by zero.
    for (int64_t r = valid_; r < run.tile_rows; ++r)
      std::memcpy(own.data() + r * operand.row_bytes, own.data(), operand.row_bytes);
    return own.data();
  }
  case KITSUNE_STORE:
    return whole ? row(run, operand, first) : own.data();
  case KITSUNE_GET:
    if (Ring *ring = schedule_.rings_[operand.index].get())
      return ring->wait(tile);
    return local_[operand.index].data();
  case KITSUNE_PUT:
    if (Ring *ring = schedule_.rings_[operand.index].get())
      return ring->acquire(tile);
    return local_[operand.index].data();
  case KITSUNE_ACCUMULATE:
    return own.data();
  case KITSUNE_VALID:
    return &valid_;
  default:
    return run.pointers[operand.index];
  }
}

void Worker::after(const Operand &operand, Memory &own, const Run &run, int64_t tile) {
  Ring *ring = nullptr;
  if (operand.kind == KITSUNE_GET || operand.kind == KITSUNE_PUT)
    ring = schedule_.rings_[operand.index].get();
  if (operand.kind == KITSUNE_STORE && valid_ < run.tile_rows)
    std::memcpy(row(run, operand, tile * run.tile_rows), own.data(), valid_ * operand.row_bytes);
  else if (operand.kind == KITSUNE_PUT && ring)
    ring->publish(tile);
  else if (operand.kind == KITSUNE_GET && ring)
    ring->release(tile);
  else if (operand.kind == KITSUNE_ACCUMULATE)
    schedule_.sums_[operand.index]->add(replica_, own.data());
}

} // namespace kitsune
