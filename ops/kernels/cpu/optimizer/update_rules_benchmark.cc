// Optimizer updates of arrays that fit the second-level cache and of those that do not; the rate is
// bytes read plus bytes written.
//   bazel run //ops:kernels/cpu/update_rules_benchmark
#include <vector>

#include "benchmark/benchmark.h"
#include "ops/kernels/cpu/optimizer/update_rules.h"

namespace weft::cpu {
namespace {

void BM_SgdMomentum(benchmark::State& state) {
  const int64_t count = state.range(0);
  std::vector<float> w(count, 1), g(count, 0.01f), v(count, 0);
  const SgdRule<float> rule{.learning_rate = 1e-6f, .momentum = 0.9f};
  for (auto _ : state) {
    SgdUpdate(rule, {w.data(), g.data(), v.data(), w.data(), v.data()}, 0, count);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(5 * 4 * count * static_cast<int64_t>(state.iterations()));
}
BENCHMARK(BM_SgdMomentum)->Arg(20'000)->Arg(10'000'000);

void BM_Adam(benchmark::State& state) {
  const int64_t count = state.range(0);
  std::vector<float> w(count, 1), g(count, 0.01f), m(count, 0), v(count, 0);
  const AdamRule<float> rule{.beta1 = 0.9f,
                             .gradient_share = 0.1f,
                             .beta2 = 0.999f,
                             .square_share = 0.001f,
                             .epsilon = 1e-8f,
                             .step_size = 1e-6f};
  for (auto _ : state) {
    AdamUpdate(rule, {w.data(), g.data(), m.data(), v.data(), w.data(), m.data(), v.data()}, 0,
               count);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(7 * 4 * count * static_cast<int64_t>(state.iterations()));
}
BENCHMARK(BM_Adam)->Arg(20'000)->Arg(10'000'000);

}  // namespace
}  // namespace weft::cpu

BENCHMARK_MAIN();
