// Optimizer updates of arrays that fit the second-level cache and of those that do not; the rate is
// bytes read plus bytes written. On one thread.
//   bazel run //ops/kernels/cpu/optimizer:update_benchmark
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "ops/concrete_node.h"
#include "ops/testing/op_case.h"

namespace weft {
namespace {

// Runs the op on `states` states of `count` elements, in place.
void RunUpdate(benchmark::State& state, const std::string& op, Attributes attributes, int states) {
  const int64_t count = state.range(0);
  const Tensor array = *Tensor::Zeros(DType::kFloat32, {count});
  testing::OpCase op_case{.domain = "ai.weft",
                          .op = op,
                          .attributes = std::move(attributes),
                          .inputs = {array, array, Tensor::Scalar<float>(1e-6f)}};
  if (op == "AdamUpdate") op_case.inputs.push_back(Tensor::Scalar<int64_t>(1));
  for (int i = 0; i < states; ++i) op_case.inputs.push_back(*array.Clone());
  op_case.outputs.assign(1 + states, true);
  const testing::SingleNodeGraph graph = testing::MakeSingleNodeGraph(op_case);
  const auto node = ConcreteNode::Create(graph.graph->node(graph.node), op_case.inputs);
  if (!node.ok()) return state.SkipWithError(node.status().ToString().c_str());
  const auto kernel = node->Prepare();
  if (!kernel.ok()) return state.SkipWithError(kernel.status().ToString().c_str());
  std::vector<const void*> inputs;
  for (const Tensor& input : op_case.inputs) inputs.push_back(input.raw_data());
  std::vector<void*> outputs = {array.raw_data()};
  for (size_t i = inputs.size() - states; i < inputs.size(); ++i) {
    outputs.push_back(op_case.inputs[i].raw_data());
  }
  KernelContext context;
  context.inputs = inputs.data();
  context.outputs = outputs.data();
  for (auto _ : state) {
    benchmark::DoNotOptimize((*kernel)->Run(context));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed((3 + 2 * states) * 4 * count * static_cast<int64_t>(state.iterations()));
}

void BM_SgdMomentum(benchmark::State& state) {
  RunUpdate(state, "SgdUpdate", {{"momentum", 0.9f}}, 1);
}
BENCHMARK(BM_SgdMomentum)->Arg(20'000)->Arg(10'000'000);

void BM_Adam(benchmark::State& state) {
  RunUpdate(state, "AdamUpdate", {{"beta1", 0.9f}, {"beta2", 0.999f}, {"epsilon", 1e-8f}}, 2);
}
BENCHMARK(BM_Adam)->Arg(100)->Arg(20'000)->Arg(10'000'000);

}  // namespace
}  // namespace weft

BENCHMARK_MAIN();
