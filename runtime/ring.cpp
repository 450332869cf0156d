#include "ring.h"

namespace kitsune {

Ring::Ring(size_t tile_bytes, int64_t depth, int64_t consumers) : consumers_(consumers) {
  slots_.reserve(depth);
  for (int64_t i = 0; i < depth; ++i)
    slots_.push_back(Slot{Memory(tile_bytes), i, false, 0});
}

void Ring::reset() {
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].expected = static_cast<int64_t>(i);
    slots_[i].full = false;
  }
}

std::byte *Ring::acquire(int64_t tile) {
  std::unique_lock lock(mutex_);
  Slot &own = slot(tile);
  changed_.wait(lock, [&] { return own.expected == tile && !own.full; });
  return own.memory.data();
}

void Ring::publish(int64_t tile) {
  {
    std::lock_guard lock(mutex_);
    slot(tile).full = true;
    slot(tile).readers = consumers_;
  }
  changed_.notify_all();
}

std::byte *Ring::wait(int64_t tile) {
  std::unique_lock lock(mutex_);
  Slot &own = slot(tile);
  changed_.wait(lock, [&] { return own.expected == tile && own.full; });
  return own.memory.data();
}

void Ring::release(int64_t tile) {
  {
    std::lock_guard lock(mutex_);
    Slot &own = slot(tile);
    if (--own.readers > 0)
      return;
    own.full = false;
    own.expected += static_cast<int64_t>(slots_.size());
  }
  changed_.notify_all();
}

} // namespace kitsune
