// Threads that outlive a call, so that running a pipeline starts none.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

namespace kitsune {

// Runs a job's parts all at once, each on a thread of its own (they wait for each other).
class ThreadPool {
public:
  // The pool of this process. A forked child gets a new one: threads do not survive a fork.
  static ThreadPool &instance();

  // Calls part(0) .. part(count - 1) at the same time, part(0) in the calling thread, and returns when
  // all have. Jobs of several callers run one after another. `part` must not throw. Throws
  // std::system_error when no thread can be started; then no part has run.
  void run(int64_t count, const std::function<void(int64_t)> &part);

private:
  void grow(int64_t threads);
  void serve(int64_t number, int64_t seen);

  std::mutex callers_; // held for a whole job
  std::mutex mutex_;   // guards what follows
  std::condition_variable started_, finished_;
  const std::function<void(int64_t)> *part_ = nullptr;
  int64_t count_ = 0;   // parts of the current job
  int64_t running_ = 0; // of them, on pool threads and not yet finished
  int64_t job_ = 0;     // number of the current job
  int64_t threads_ = 0;
};

} // namespace kitsune
