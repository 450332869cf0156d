#include "schedule.h"

#include <map>
#include <set>

#include "thread_pool.h"
#include "worker.h"

namespace kitsune {

namespace {

struct Role {
  std::vector<const Stage *> stages;
  int64_t replicas;
};

// The roles as placed, or all stages in one role of `threads` replicas.
std::vector<Role> roles_of(const Plan &plan, int64_t threads) {
  std::map<int64_t, Role> placed;
  for (const Stage &stage : plan.stages) {
    Role &role = placed[stage.role];
    role.stages.push_back(&stage);
    role.replicas = stage.replicas;
  }
  int64_t workers = 0;
  std::vector<Role> roles;
  for (auto &[number, role] : placed) {
    workers += role.replicas;
    roles.push_back(role);
  }
  if (threads == 0 || (threads == workers && threads > 1))
    return roles;
  Role all{{}, threads};
  for (const Stage &stage : plan.stages)
    all.stages.push_back(&stage);
  return {all};
}

// For each queue, the roles that touch it.
struct Ends {
  std::set<size_t> roles;
  int64_t consumers = 0;
  int64_t producer_replicas = 1;
};

std::vector<Ends> ends_of(const Plan &plan, const std::vector<Role> &roles) {
  std::vector<Ends> ends(plan.queues.size());
  for (size_t r = 0; r < roles.size(); ++r)
    for (const Stage *stage : roles[r].stages)
      for (const Operand &operand : stage->operands) {
        const bool takes = operand.kind == KITSUNE_GET || operand.kind == KITSUNE_REDUCE;
        const bool puts = operand.kind == KITSUNE_PUT || operand.kind == KITSUNE_ACCUMULATE;
        if (!takes && !puts)
          continue;
        Ends &end = ends[operand.index];
        end.roles.insert(r);
        end.consumers += takes;
        if (puts)
          end.producer_replicas = roles[r].replicas;
      }
  return ends;
}

} // namespace

Schedule::Schedule(const Plan &plan, int64_t threads) : plan_(plan) {
  const std::vector<Role> roles = roles_of(plan, threads);
  const std::vector<Ends> ends = ends_of(plan, roles);
  rings_.resize(plan.queues.size());
  sums_.resize(plan.queues.size());
  for (size_t q = 0; q < plan.queues.size(); ++q) {
    const Queue &queue = plan.queues[q];
    if (queue.add)
      sums_[q] = std::make_unique<PartialSums>(queue, ends[q].producer_replicas);
    else if (ends[q].roles.size() > 1)
      rings_[q] = std::make_unique<Ring>(queue.tile_bytes, queue.depth, ends[q].consumers);
  }
  for (const Role &role : roles)
    for (int64_t replica = 0; replica < role.replicas; ++replica)
      workers_.push_back(std::make_unique<Worker>(*this, role.stages, replica, role.replicas));
}

Schedule::~Schedule() = default;

void Schedule::run(void *const *pointers, int64_t rows) {
  for (auto &ring : rings_)
    if (ring)
      ring->reset();
  for (auto &sums : sums_)
    if (sums)
      sums->reset();
  const Run run{pointers, rows, plan_.tile_rows};
  if (workers_.size() == 1)
    workers_[0]->run(run);
  else
    ThreadPool::instance().run(workers_.size(), [&](int64_t i) { workers_[i]->run(run); });
}

} // namespace kitsune
