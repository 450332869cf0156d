#include "thread_pool.h"

#include <atomic>
#include <thread>
#include <unistd.h>

namespace kitsune {

ThreadPool &ThreadPool::instance() {
  struct Owned {
    pid_t process;
    ThreadPool *pool;
  };
  // No mutex: a child forked while another thread holds it would wait for ever. Pools are never destroyed: their
  // threads may still wait in them while the process ends.
  static std::atomic<Owned *> current{nullptr};
  Owned *found = current.load();
  while (!found || found->process != getpid()) {
    auto *own = new Owned{getpid(), new ThreadPool};
    if (current.compare_exchange_strong(found, own))
      return *own->pool;
    delete own->pool; // another thread was first
    delete own;
  }
  return *found->pool;
}

void ThreadPool::run(int64_t count, const std::function<void(int64_t)> &part) {
  std::lock_guard caller(callers_);
  grow(count - 1);
  {
    std::lock_guard lock(mutex_);
    part_ = &part;
    count_ = count;
    running_ = count - 1;
    ++job_;
  }
  started_.notify_all();
  part(0);
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return running_ == 0; });
  part_ = nullptr;
}

void ThreadPool::grow(int64_t threads) {
  std::lock_guard lock(mutex_);
  for (; threads_ < threads; ++threads_)
    std::thread(&ThreadPool::serve, this, threads_ + 1, job_).detach();
}

// Thread `number` runs part `number` of every job after `seen` that has so many.
void ThreadPool::serve(int64_t number, int64_t seen) {
  std::unique_lock lock(mutex_);
  while (true) {
    started_.wait(lock, [&] { return job_ != seen; });
    seen = job_;
    if (number >= count_ || !part_)
      continue;
    const auto &part = *part_;
    lock.unlock();
    part(number);
    lock.lock();
    if (--running_ == 0)
      finished_.notify_all();
  }
}

} // namespace kitsune
