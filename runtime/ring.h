// A bounded queue between threads: tiles in slots, delivered in tile order to every consumer.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "memory.h"

namespace kitsune {

// Tile t lies in slot t mod depth. Any number of producer and consumer threads may share a ring, as long
// as each tile is put by one thread and taken by one thread of each consumer. A slot is handed on to tile
// t + depth when all consumers have released tile t, so tiles never overtake each other.
class Ring {
public:
  Ring(size_t tile_bytes, int64_t depth, int64_t consumers);

  // Empties the ring for a run that starts at tile 0.
  void reset();

  // Waits until tile's slot is free and gives its memory; `publish` lets the consumers have it.
  std::byte *acquire(int64_t tile);
  void publish(int64_t tile);

  // Waits until the tile is there and gives its memory; `release` says that one consumer is done with it.
  std::byte *wait(int64_t tile);
  void release(int64_t tile);

private:
  struct Slot {
    Memory memory;
    int64_t expected; // the tile that this slot takes next, or holds
    bool full;
    int64_t readers; // consumers that have not yet released it
  };

  Slot &slot(int64_t tile) { return slots_[tile % slots_.size()]; }

  const int64_t consumers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Slot> slots_;
};

} // namespace kitsune
