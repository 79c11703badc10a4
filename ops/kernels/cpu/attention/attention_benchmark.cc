// Attention in blocks against the general path, which has a matrix of queries and keys in memory
// and here also gives it. Both run on one thread in turn, and the counters are medians: the
// milliseconds of either, their ratio, and the rate of the blocks, in FLOP/s of all scores (also
// those that causal attention leaves out).
//
//   bazel run //ops/kernels/cpu/attention:attention_benchmark
#include <algorithm>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "ops/concrete_node.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft {
namespace {

using testing::OpCase;
using testing::RandomTensor;

// A kernel with operands of its own.
class PreparedNode {
 public:
  explicit PreparedNode(OpCase op_case)
      : case_(std::move(op_case)), single_(testing::MakeSingleNodeGraph(case_)) {}

  absl::Status Prepare() {
    auto node = ConcreteNode::Create(single_.graph->node(single_.node), case_.inputs, {});
    if (!node.ok()) return node.status();
    auto kernel = node->Prepare();
    if (!kernel.ok()) return kernel.status();
    kernel_ = *std::move(kernel);
    for (const Tensor& input : case_.inputs) {
      inputs_.push_back(input.valid() ? input.raw_data() : nullptr);
    }
    auto outputs = node->AllocateOutputs();
    if (!outputs.ok()) return outputs.status();
    tensors_ = *std::move(outputs);
    for (Tensor& output : tensors_) {
      outputs_.push_back(output.valid() ? output.raw_data() : nullptr);
    }
    auto workspace =
        Tensor::Zeros(DType::kUint8,
                      Shape{static_cast<int64_t>(std::max<size_t>(kernel_->workspace_bytes(), 1))});
    if (!workspace.ok()) return workspace.status();
    workspace_ = *std::move(workspace);
    context_.inputs = inputs_.data();
    context_.outputs = outputs_.data();
    context_.workspace = workspace_.raw_data();
    return absl::OkStatus();
  }
  absl::Status Run() { return kernel_->Run(context_); }

 private:
  const OpCase case_;
  testing::SingleNodeGraph single_;
  std::unique_ptr<Kernel> kernel_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  std::vector<Tensor> tensors_;
  Tensor workspace_;
  KernelContext context_;
};

// Nodes that run one after another.
class Nodes {
 public:
  absl::Status Prepare(std::vector<OpCase> cases) {
    for (OpCase& op_case : cases) {
      nodes_.push_back(std::make_unique<PreparedNode>(std::move(op_case)));
      if (const absl::Status status = nodes_.back()->Prepare(); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
  // Milliseconds of the processor; negative after an error.
  double Time() {
    const std::clock_t begin = std::clock();
    for (const auto& node : nodes_) {
      if (!node->Run().ok()) return -1;
    }
    return 1000.0 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  }

 private:
  std::vector<std::unique_ptr<PreparedNode>> nodes_;
};

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

struct Sizes {
  std::string name;
  int64_t batch, heads, kv_heads, length, size;
  bool causal = false;
  bool masked = false;  // of each query and key
};

void Compare(benchmark::State& state, const std::vector<OpCase>& general,
             const std::vector<OpCase>& blocks, double flops) {
  Nodes before, after;
  for (const absl::Status& status : {before.Prepare(general), after.Prepare(blocks)}) {
    if (!status.ok()) return state.SkipWithError(std::string(status.message()).c_str());
  }
  before.Time();
  after.Time();
  std::vector<double> slow, fast, ratios;
  for (auto _ : state) {
    slow.push_back(before.Time());
    fast.push_back(after.Time());
    ratios.push_back(slow.back() / fast.back());
    state.SetIterationTime(fast.back() / 1000);
  }
  state.counters["general_ms"] = Median(slow);
  state.counters["blocks_ms"] = Median(fast);
  state.counters["ratio"] = Median(ratios);
  state.counters["FLOP/s"] = flops / (Median(fast) / 1000);
}

OpCase AttentionOf(const Sizes& s, std::vector<bool> outputs) {
  OpCase made{
      .op = "Attention",
      .attributes = {{"is_causal", int64_t{s.causal}}, {"qk_matmul_output_mode", int64_t{3}}},
      .inputs = {RandomTensor({s.batch, s.heads, s.length, s.size}, 1),
                 RandomTensor({s.batch, s.kv_heads, s.length, s.size}, 2),
                 RandomTensor({s.batch, s.kv_heads, s.length, s.size}, 3)},
      .outputs = std::move(outputs)};
  if (s.masked) made.inputs.push_back(RandomTensor({s.length, s.length}, 4));
  return made;
}

void Register(const Sizes& s) {
  const double product =
      2.0 * static_cast<double>(s.batch * s.heads * s.length * s.length * s.size);
  benchmark::RegisterBenchmark((s.name + "/forward").c_str(), [=](benchmark::State& state) {
    Compare(state, {AttentionOf(s, {true, false, false, true})}, {AttentionOf(s, {true})},
            2 * product);
  })->UseManualTime();
}

void RegisterAll() {
  Register({"bert", 8, 12, 12, 128, 64});
  Register({"bert/mask", 8, 12, 12, 128, 64, false, true});
  Register({"vit", 4, 12, 12, 197, 64});
  Register({"gpt/32/128", 8, 8, 8, 128, 32, true});
  Register({"gpt/64/128", 8, 8, 8, 128, 64, true});
  Register({"gpt/64/256", 4, 8, 8, 256, 64, true});
  Register({"gpt/64/512", 2, 8, 8, 512, 64, true});
  Register({"gpt/32/1024", 1, 8, 8, 1024, 32, true});
  Register({"gpt/64/1024", 1, 8, 8, 1024, 64, true});
  Register({"llama/128/512", 1, 16, 4, 512, 128, true});
  Register({"long/64/4096", 1, 2, 2, 4096, 64, true});
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  weft::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
}
