// What preparing a graph costs per node: passes, verifier, specialization. Each block of the
// synthetic model reshapes by shape arithmetic as exporters write it, repeats an expression and
// carries constants.
#include <string>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "graph/passes/pass.h"
#include "graph/testing/test_ops.h"
#include "graph/verifier.h"

namespace weft {
namespace {

using weft::testing::AddInts;
using weft::testing::AddOp;
using weft::testing::Floats;
using weft::testing::FloatsOf;
using weft::testing::TestEvaluator;

constexpr int kNodesPerBlock = 10;

Graph SyntheticModel(int nodes) {
  Graph graph;
  ValueId value = graph.AddInput("x", Floats({"N", 3, 4}));
  for (int i = 0; i < nodes / kNodesPerBlock; ++i) {
    const auto op = [&](const std::string& name, const std::string& op,
                        std::vector<ValueId> inputs) {
      return AddOp(graph, absl::StrCat("block", i, "/", name), op, std::move(inputs));
    };
    const ValueId w = graph.AddVariable(absl::StrCat("block", i, "/w"), Floats({1, 3, 4}),
                                        FloatsOf({1, 3, 4}, 1), true);
    const ValueId sum = op("sum", "Add", {value, w});
    const ValueId shape = op("shape", "Shape", {sum});
    const ValueId batch = op("batch", "Gather", {shape, AddInts(graph, "zero", {0})});
    const ValueId target = op("target", "Concat", {batch, AddInts(graph, "rest", {3, 4})});
    const ValueId reshaped = op("reshaped", "Reshape", {sum, target});
    const ValueId left = op("left", "Negate", {reshaped});
    const ValueId right = op("right", "Negate", {reshaped});
    const ValueId joined = op("joined", "Add", {left, right});
    const ValueId c = op("c", "Negate", {graph.AddConstant("c0", FloatsOf({1, 3, 4}, 2))});
    value = op("out", "Add", {joined, c});
  }
  graph.AddOutput(value);
  return graph;
}

void PerNode(benchmark::State& state, int nodes) {
  state.counters["per_node"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * nodes,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void BM_Build(benchmark::State& state) {
  const int nodes = static_cast<int>(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(SyntheticModel(nodes));
  PerNode(state, nodes);
}

void BM_Clone(benchmark::State& state) {
  const int nodes = static_cast<int>(state.range(0));
  const Graph graph = SyntheticModel(nodes);
  for (auto _ : state) benchmark::DoNotOptimize(graph.Clone());
  PerNode(state, nodes);
}

void BM_Verify(benchmark::State& state) {
  const int nodes = static_cast<int>(state.range(0));
  const Graph graph = SyntheticModel(nodes);
  for (auto _ : state) {
    if (!VerifyGraph(graph).ok()) state.SkipWithError("the verifier refused the graph");
  }
  PerNode(state, nodes);
}

void BM_Simplify(benchmark::State& state) {
  const int nodes = static_cast<int>(state.range(0));
  const Graph graph = SyntheticModel(nodes);
  TestEvaluator evaluator;
  for (auto _ : state) {
    state.PauseTiming();
    Graph copy = graph.Clone();
    state.ResumeTiming();
    if (!SimplifyPipeline(evaluator).Run(copy).ok()) state.SkipWithError("a pass failed");
  }
  PerNode(state, nodes);
}

void BM_Specialize(benchmark::State& state) {
  const int nodes = static_cast<int>(state.range(0));
  const Graph graph = SyntheticModel(nodes);
  TestEvaluator evaluator;
  Specialization specialization;
  specialization.input_shapes["x"] = {8, 3, 4};
  for (auto _ : state) {
    if (!Specialize(graph, specialization, evaluator).ok()) state.SkipWithError("refused");
  }
  PerNode(state, nodes);
}

BENCHMARK(BM_Build)->Arg(1000)->Arg(10000)->Arg(100000)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Clone)->Arg(10000)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Verify)->Arg(10000)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Simplify)->Arg(1000)->Arg(10000)->Arg(100000)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Specialize)->Arg(1000)->Arg(10000)->Arg(100000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace weft

BENCHMARK_MAIN();
