#include "plan.h"

namespace kitsune {

bool is_sound(const Plan &plan) {
  std::vector<int> producers(plan.queues.size(), 0);
  const auto queue_count = static_cast<int64_t>(plan.queues.size());
  for (const Stage &stage : plan.stages) {
    if (!stage.function || stage.role < 0 || stage.replicas < 1 || stage.scratch_bytes < 0)
      return false;
    for (const Operand &operand : stage.operands) {
      const bool on_queue = operand.kind == KITSUNE_GET || operand.kind == KITSUNE_PUT ||
                            operand.kind == KITSUNE_REDUCE || operand.kind == KITSUNE_ACCUMULATE;
      const int64_t bound = operand.kind == KITSUNE_VALID ? 1 : on_queue ? queue_count : plan.pointers;
      if (operand.index < 0 || operand.index >= bound || operand.row_bytes < 0)
        return false;
      const bool once = operand.kind == KITSUNE_RESIDENT || operand.kind == KITSUNE_REDUCE;
      if (stage.fires_once() ? !once && operand.kind != KITSUNE_WHOLE : operand.kind == KITSUNE_WHOLE)
        return false; // a stage that fires once has no tile, one that fires for each has no whole result
      if (!on_queue)
        continue;
      const Queue &queue = plan.queues[operand.index];
      const bool sums = operand.kind == KITSUNE_REDUCE || operand.kind == KITSUNE_ACCUMULATE;
      if (sums != (queue.add != nullptr))
        return false;
      int &produced = producers[operand.index];
      const bool puts = operand.kind == KITSUNE_PUT || operand.kind == KITSUNE_ACCUMULATE;
      if (puts ? ++produced != 1 : produced != 1)
        return false;
    }
  }
  return plan.tile_rows > 0;
}

} // namespace kitsune
