// What laying out an arena takes per buffer, and how far it is from the most bytes alive at once:
// `bazel run //graph/schedule:memory_plan_benchmark`.
#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "benchmark/benchmark.h"
#include "graph/schedule/memory_plan.h"
#include "graph/schedule/testing/step_layouts.h"

namespace weft {
namespace {

void Plan(benchmark::State& state, const std::vector<BufferLifetime>& buffers) {
  MemoryPlan plan;
  for (auto _ : state) {
    plan = *PlanMemory(buffers);
    benchmark::DoNotOptimize(plan.offsets.data());
  }
  state.counters["per_buffer"] = benchmark::Counter(
      static_cast<double>(buffers.size()),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  state.counters["over_bound_percent"] =
      100.0 * static_cast<double>(plan.arena_bytes - plan.lower_bound_bytes) /
      static_cast<double>(plan.lower_bound_bytes);
}

void BM_DeepStep(benchmark::State& state) {
  Plan(state, testing::DeepStep(static_cast<int>(state.range(0)) / 4));
}
BENCHMARK(BM_DeepStep)->Arg(1000)->Arg(10000)->Arg(100000)->Unit(benchmark::kMicrosecond);

// A step of 1000 buffers again and again.
void BM_MicroBatches(benchmark::State& state) {
  const std::vector<BufferLifetime> one = testing::DeepStep(250);
  std::vector<BufferLifetime> all;
  for (int i = 0; i < static_cast<int>(state.range(0)) / 1000; ++i) {
    for (BufferLifetime buffer : one) {
      buffer.first += 2000 * i;
      buffer.last += 2000 * i;
      all.push_back(buffer);
    }
  }
  Plan(state, all);
}
BENCHMARK(BM_MicroBatches)->Arg(1000)->Arg(10000)->Arg(100000)->Unit(benchmark::kMicrosecond);

// Any sizes at any times: the worst case, in which every way is tried.
void BM_Random(benchmark::State& state) {
  const int count = static_cast<int>(state.range(0));
  std::mt19937 random(1);
  std::vector<BufferLifetime> buffers;
  for (int i = 0; i < count; ++i) {
    const int first = static_cast<int>(random() % count);
    const int last = first + static_cast<int>(random() % (count - first));
    buffers.push_back({64 * static_cast<int64_t>(1 + random() % 5000), first, last});
  }
  Plan(state, buffers);
}
BENCHMARK(BM_Random)->Arg(1000)->Arg(10000)->Arg(100000)->Unit(benchmark::kMicrosecond);

void BM_Gpt(benchmark::State& state) { Plan(state, testing::GptProgram().buffers); }
BENCHMARK(BM_Gpt)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace weft

BENCHMARK_MAIN();
