// Runs small pipelines under every schedule and compares with plain loops. Meant for -fsanitize=thread too.
//
//   source -> (multicast) -> twice, square -> join -> store; and a sum of the squares over all rows.

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "../kitsune_runtime.h"

namespace {

constexpr int64_t tile_rows = 4, columns = 3;

const double *in(void *const *p, int i) { return static_cast<const double *>(p[i]); }
double *out(void *const *p, int i) { return static_cast<double *>(p[i]); }

void source(void *const *p) {
  for (int i = 0; i < tile_rows * columns; ++i)
    out(p, 1)[i] = in(p, 0)[i] + 1;
}

void twice(void *const *p) {
  for (int i = 0; i < tile_rows * columns; ++i)
    out(p, 1)[i] = 2 * in(p, 0)[i];
}

void square(void *const *p) {
  const int64_t valid = *static_cast<const int64_t *>(p[1]);
  double *sum = out(p, 3);
  for (int c = 0; c < columns; ++c)
    sum[c] = 0;
  for (int i = 0; i < tile_rows * columns; ++i) {
    out(p, 2)[i] = in(p, 0)[i] * in(p, 0)[i];
    if (i / columns < valid)
      sum[i % columns] += out(p, 2)[i];
  }
}

void join(void *const *p) { // skip connection: the source's tile comes along
  double *scratch = out(p, 4);
  for (int i = 0; i < tile_rows * columns; ++i) {
    scratch[i] = in(p, 0)[i] + in(p, 1)[i];
    out(p, 3)[i] = scratch[i] + in(p, 2)[i];
  }
}

void total(void *const *p) {
  for (int c = 0; c < columns; ++c)
    out(p, 1)[c] = in(p, 0)[c];
}

void add(void *const *p) {
  for (int c = 0; c < columns; ++c)
    out(p, 2)[c] = in(p, 0)[c] + in(p, 1)[c];
}

void require(bool holds, const char *what) {
  if (!holds) {
    std::printf("FAILED: %s\n", what);
    std::exit(1);
  }
}

void *describe(int64_t replicas, int64_t depth, bool one_role) {
  constexpr int64_t row = columns * sizeof(double), tile = tile_rows * row;
  void *p = kitsune_pipeline_create(tile_rows, 3);
  for (int i = 0; i < 3; ++i)
    require(kitsune_pipeline_add_queue(p, tile, depth, nullptr) == i, "queue");
  require(kitsune_pipeline_add_queue(p, row, depth, add) == 3, "accumulating queue");
  const kitsune_stage_function functions[] = {source, twice, square, join, total};
  for (int s = 0; s < 5; ++s) {
    const int64_t role = s == 4 ? 9 : one_role ? 0 : s;
    const int64_t n = s == 4 ? 1 : one_role ? replicas : 1 + (replicas + s) % 3;
    require(kitsune_pipeline_add_stage(p, functions[s], role, n, tile) == s, "stage");
  }
  const int64_t operands[][4] = {
      {0, KITSUNE_LOAD, 0, row}, {0, KITSUNE_PUT, 0, 0},         {1, KITSUNE_GET, 0, 0},  {1, KITSUNE_PUT, 1, 0},
      {2, KITSUNE_GET, 0, 0},    {2, KITSUNE_VALID, 0, 0},       {2, KITSUNE_PUT, 2, 0},  {2, KITSUNE_ACCUMULATE, 3, 0},
      {3, KITSUNE_GET, 1, 0},    {3, KITSUNE_GET, 2, 0},         {3, KITSUNE_GET, 0, 0},  {3, KITSUNE_STORE, 1, row},
      {4, KITSUNE_REDUCE, 3, 0}, {4, KITSUNE_WHOLE, 2, 0},
  };
  for (const auto &o : operands)
    require(kitsune_pipeline_add_operand(p, o[0], o[1], o[2], o[3]), "operand");
  return p;
}

void check(void *pipeline, int64_t rows) {
  std::vector<double> x(rows * columns), y(rows * columns, -1), sums(columns, -1), expected(columns, 0);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<double>(i % 17);
  void *pointers[] = {x.data(), y.data(), sums.data()};
  require(kitsune_pipeline_run(pipeline, pointers, rows), "run");
  for (size_t i = 0; i < x.size(); ++i) {
    const double h = x[i] + 1;
    require(y[i] == 2 * h + h * h + h, "stored rows");
    expected[i % columns] += h * h;
  }
  require(sums == expected, "sum over rows");
}

} // namespace

int main() {
  for (bool one_role : {false, true})
    for (int64_t replicas : {1, 2, 3})
      for (int64_t depth : {1, 2, 5}) {
        void *pipeline = describe(replicas, depth, one_role);
        for (int64_t threads : {0, 1, 2, 4}) {
          require(kitsune_pipeline_schedule(pipeline, threads), "schedule");
          for (int64_t rows : {0, 1, 3, 4, 5, 64, 203})
            for (int repeat = 0; repeat < 3; ++repeat)
              check(pipeline, rows);
        }
        kitsune_pipeline_destroy(pipeline);
      }
  void *broken = describe(1, 1, false);
  require(kitsune_pipeline_add_operand(broken, 0, KITSUNE_GET, 2, 0), "operand");
  require(!kitsune_pipeline_schedule(broken, 0), "a consumer before its producer is refused");
  kitsune_pipeline_destroy(broken);
  std::puts("all schedules agree");
}
