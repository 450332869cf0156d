#include "partial_sums.h"

#include <utility>

namespace kitsune {

PartialSums::PartialSums(const Queue &queue, int64_t replicas) : add_(queue.add) {
  for (int64_t i = 0; i < replicas; ++i)
    sums_.push_back(Sum{Memory(queue.tile_bytes), Memory(queue.tile_bytes)});
}

void PartialSums::reset() {
  for (Sum &sum : sums_)
    sum.current.clear();
  std::lock_guard lock(mutex_);
  finished_ = 0;
  totalled_ = false;
}

void PartialSums::add(int64_t replica, const std::byte *term) { add(sums_[replica], term); }

void PartialSums::add(Sum &sum, const std::byte *term) {
  const void *const pointers[] = {sum.current.data(), term, sum.next.data()};
  add_(const_cast<void *const *>(pointers));
  std::swap(sum.current, sum.next);
}

void PartialSums::finish() {
  {
    std::lock_guard lock(mutex_);
    ++finished_;
  }
  changed_.notify_all();
}

std::byte *PartialSums::total() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return finished_ == static_cast<int64_t>(sums_.size()); });
  if (!totalled_) // several stages may take the total
    for (size_t i = 1; i < sums_.size(); ++i)
      add(sums_[0], sums_[i].current.data());
  totalled_ = true;
  return sums_[0].current.data();
}

} // namespace kitsune
