#include "kitsune_runtime.h"

#include <memory>
#include <utility>

#include "schedule.h"
#include "worker.h"

namespace {

struct Pipeline {
  kitsune::Plan plan;
  std::unique_ptr<kitsune::Schedule> schedule;
};

Pipeline &at(void *pipeline) { return *static_cast<Pipeline *>(pipeline); }

// No exception may cross the C interface.
template <typename Result, typename Body> Result guarded(Result failed, Body body) noexcept {
  try {
    return body();
  } catch (...) {
    return failed;
  }
}

} // namespace

void *kitsune_pipeline_create(int64_t tile_rows, int64_t pointers) {
  return guarded(static_cast<void *>(nullptr),
                 [&] { return static_cast<void *>(new Pipeline{{tile_rows, pointers, {}, {}}, nullptr}); });
}

void kitsune_pipeline_destroy(void *pipeline) { delete static_cast<Pipeline *>(pipeline); }

int64_t kitsune_pipeline_add_queue(void *pipeline, int64_t tile_bytes, int64_t depth, kitsune_stage_function add) {
  return guarded(int64_t{-1}, [&]() -> int64_t {
    if (tile_bytes < 0 || depth < 1)
      return -1;
    auto &queues = at(pipeline).plan.queues;
    queues.push_back({tile_bytes, depth, add});
    return static_cast<int64_t>(queues.size()) - 1;
  });
}

int64_t kitsune_pipeline_add_stage(void *pipeline, kitsune_stage_function function, int64_t role, int64_t replicas,
                                   int64_t scratch_bytes) {
  return guarded(int64_t{-1}, [&]() -> int64_t {
    auto &stages = at(pipeline).plan.stages;
    stages.push_back({function, role, replicas, scratch_bytes, {}});
    return static_cast<int64_t>(stages.size()) - 1;
  });
}

int64_t kitsune_pipeline_add_operand(void *pipeline, int64_t stage, int64_t kind, int64_t index, int64_t row_bytes) {
  return guarded(int64_t{0}, [&]() -> int64_t {
    auto &stages = at(pipeline).plan.stages;
    if (stage < 0 || stage >= static_cast<int64_t>(stages.size()) || kind < KITSUNE_RESIDENT || kind > KITSUNE_WHOLE)
      return 0;
    stages[stage].operands.push_back({static_cast<kitsune_operand>(kind), index, row_bytes});
    return 1;
  });
}

int64_t kitsune_pipeline_schedule(void *pipeline, int64_t threads) {
  return guarded(int64_t{0}, [&]() -> int64_t {
    Pipeline &own = at(pipeline);
    if (threads < 0 || !kitsune::is_sound(own.plan))
      return 0;
    own.schedule = std::make_unique<kitsune::Schedule>(own.plan, threads);
    return 1;
  });
}

int64_t kitsune_pipeline_run(void *pipeline, void *const *pointers, int64_t rows) {
  return guarded(int64_t{0}, [&]() -> int64_t {
    Pipeline &own = at(pipeline);
    if (!own.schedule || rows < 0)
      return 0;
    own.schedule->run(pointers, rows);
    return 1;
  });
}
