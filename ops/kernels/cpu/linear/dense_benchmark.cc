// Speed of the dense kernels on the shapes of LeNet (batch 64), ResNet-18 (32x32 images, batch 8)
// and gpt_char (batch 8, 128 tokens), prepared once and run on one thread. Rates are FLOP/s by the
// schemas' cost functions; bytes/s counts each operand once.
//
//   bazel run //ops:kernels/cpu/dense_benchmark -- --benchmark_repetitions=5
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

using testing::Int64s;
using testing::OpCase;
using testing::RandomTensor;
using Ints = std::vector<int64_t>;

// A kernel with operands of its own.
class PreparedCase {
 public:
  static absl::StatusOr<std::unique_ptr<PreparedCase>> Create(const OpCase& op_case) {
    auto prepared = std::make_unique<PreparedCase>(op_case);
    const absl::Status status = prepared->Prepare();
    if (!status.ok()) return status;
    return prepared;
  }

  explicit PreparedCase(const OpCase& op_case)
      : case_(op_case), single_(testing::MakeSingleNodeGraph(case_)) {}

  absl::Status Run() { return kernel_->Run(context_); }
  const Cost& cost() const { return cost_; }

 private:
  absl::Status Prepare() {
    const Node& node = single_.graph->node(single_.node);
    NodeRunOptions options;
    options.strict = false;
    auto concrete = ConcreteNode::Create(node, case_.inputs, options);
    if (!concrete.ok()) return concrete.status();
    auto kernel = KernelRegistry::Global().Prepare(*concrete);
    if (!kernel.ok()) return kernel.status();
    kernel_ = *std::move(kernel);
    for (const Tensor& input : case_.inputs) {
      inputs_.push_back(input.valid() ? input.raw_data() : nullptr);
    }
    for (int i = 0; i < concrete->num_outputs(); ++i) {
      Tensor& output = tensors_.emplace_back();
      if (concrete->HasOutput(i)) {
        auto allocated = Tensor::Zeros(concrete->OutputDType(i), concrete->OutputShape(i));
        if (!allocated.ok()) return allocated.status();
        output = *std::move(allocated);
      }
      outputs_.push_back(output.valid() ? output.raw_data() : nullptr);
    }
    const int64_t bytes = static_cast<int64_t>(kernel_->workspace_bytes());
    auto workspace = Tensor::Zeros(DType::kUint8, Shape{bytes});
    if (!workspace.ok()) return workspace.status();
    workspace_ = *std::move(workspace);
    context_.inputs = inputs_.data();
    context_.outputs = outputs_.data();
    context_.workspace = workspace_.raw_data();
    cost_ = node.schema->cost()(*concrete);
    return absl::OkStatus();
  }

  const OpCase case_;
  testing::SingleNodeGraph single_;
  std::unique_ptr<Kernel> kernel_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  std::vector<Tensor> tensors_;
  Tensor workspace_;
  KernelContext context_;
  Cost cost_;
};

void RunCase(benchmark::State& state, const OpCase& op_case) {
  const auto prepared = PreparedCase::Create(op_case);
  if (!prepared.ok()) {
    state.SkipWithError(std::string(prepared.status().message()).c_str());
    return;
  }
  for (auto _ : state) {
    const absl::Status status = (*prepared)->Run();
    if (!status.ok()) {
      state.SkipWithError(std::string(status.message()).c_str());
      return;
    }
  }
  const double runs = static_cast<double>(state.iterations());
  state.counters["FLOP/s"] =
      benchmark::Counter(runs * (*prepared)->cost().flops, benchmark::Counter::kIsRate);
  state.counters["bytes/s"] =
      benchmark::Counter(runs * (*prepared)->cost().bytes, benchmark::Counter::kIsRate);
}

OpCase Weft(const std::string& op, Attributes attributes, std::vector<Tensor> inputs,
            std::vector<bool> outputs = {true}) {
  return {std::string(kWeftDomain), op, std::move(attributes), std::move(inputs),
          std::move(outputs)};
}

void Register(const std::string& name, OpCase op_case) {
  benchmark::RegisterBenchmark(name.c_str(), [op_case =
                                                  std::move(op_case)](benchmark::State& state) {
    RunCase(state, op_case);
  })->Unit(benchmark::kMicrosecond);
}

// Forward, and both gradients.
void RegisterConv(const std::string& name, const Shape& x, const Shape& w, const Shape& y,
                  int64_t pad, int64_t stride, bool bias) {
  const Attributes attributes = {{"kernel_shape", Ints{w.dim(2), w.dim(3)}},
                                 {"pads", Ints{pad, pad, pad, pad}},
                                 {"strides", Ints{stride, stride}}};
  const Tensor image = RandomTensor(x, 1);
  const Tensor weights = RandomTensor(w, 2);
  const Tensor dy = RandomTensor(y, 3);
  OpCase forward{.op = "Conv", .attributes = attributes, .inputs = {image, weights}};
  if (bias) forward.inputs.push_back(RandomTensor({w.dim(0)}, 4));
  Register(name + "/forward", forward);
  Register(name + "/input_gradient",
           Weft("ConvGradInput", attributes,
                {dy, weights, Int64s(Ints(x.dims().begin(), x.dims().end()))}));
  Register(name + "/weight_gradient",
           Weft("ConvGradWeights", attributes, {image, dy}, {true, bias}));
}

// y = x w^T + b with x [m, k] and w [n, k], and both gradients.
void RegisterLinear(const std::string& name, int64_t m, int64_t n, int64_t k) {
  const Tensor x = RandomTensor({m, k}, 1);
  const Tensor w = RandomTensor({n, k}, 2);
  const Tensor dy = RandomTensor({m, n}, 3);
  const int64_t one = 1;
  Register(name + "/forward",
           {.op = "Gemm", .attributes = {{"transB", one}}, .inputs = {x, w, RandomTensor({n}, 4)}});
  Register(name + "/input_gradient", Weft("MatMul", {}, {dy, w}));
  Register(name + "/weight_gradient", Weft("MatMul", {{"transA", one}}, {dy, x}));
}

void RegisterLeNet() {
  RegisterConv("lenet/conv1", {64, 1, 28, 28}, {6, 1, 5, 5}, {64, 6, 28, 28}, 2, 1, true);
  RegisterConv("lenet/conv2", {64, 6, 14, 14}, {16, 6, 5, 5}, {64, 16, 10, 10}, 0, 1, true);
  const Attributes halves = {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}};
  const Tensor x = RandomTensor({64, 6, 28, 28}, 1);
  const Tensor y = RandomTensor({64, 6, 14, 14}, 2);
  Register("lenet/pool1/forward", {.op = "MaxPool", .attributes = halves, .inputs = {x}});
  Register("lenet/pool1/gradient", Weft("MaxPoolGrad", halves, {x, y, y}));
  RegisterLinear("lenet/fc1", 64, 120, 400);
  RegisterLinear("lenet/fc2", 64, 84, 120);
  RegisterLinear("lenet/fc3", 64, 10, 84);
}

void RegisterResNet() {
  RegisterConv("resnet/first", {8, 3, 32, 32}, {64, 3, 3, 3}, {8, 64, 32, 32}, 1, 1, false);
  RegisterConv("resnet/64", {8, 64, 32, 32}, {64, 64, 3, 3}, {8, 64, 32, 32}, 1, 1, false);
  RegisterConv("resnet/128s2", {8, 64, 32, 32}, {128, 64, 3, 3}, {8, 128, 16, 16}, 1, 2, false);
  RegisterConv("resnet/1x1s2", {8, 64, 32, 32}, {128, 64, 1, 1}, {8, 128, 16, 16}, 0, 2, false);
  RegisterConv("resnet/512", {8, 512, 4, 4}, {512, 512, 3, 3}, {8, 512, 4, 4}, 1, 1, false);
  const Tensor x = RandomTensor({8, 64, 32, 32}, 1);
  const Tensor channel = RandomTensor({64}, 2, 0.5, 1);
  const std::vector<Tensor> inputs = {x, channel, channel, channel, channel};
  Register("resnet/batch_norm/forward", {.op = "BatchNormalization",
                                         .attributes = {{"training_mode", int64_t{1}}},
                                         .inputs = inputs,
                                         .outputs = {true, true, true}});
  Register("resnet/batch_norm/gradient",
           Weft("BatchNormalizationGrad", {{"training_mode", int64_t{1}}}, {x, x, channel},
                {true, true, true}));
}

void RegisterGpt() {
  const Tensor x = RandomTensor({8, 128, 128}, 1);
  const Tensor w = RandomTensor({128, 384}, 2);
  const Tensor dy = RandomTensor({8, 128, 384}, 3);
  Register("gpt/qkv/forward", {.op = "MatMul", .inputs = {x, w}});
  Register("gpt/qkv/input_gradient", Weft("MatMul", {{"transB", int64_t{1}}}, {dy, w}));
  Register("gpt/qkv/weight_gradient", Weft("MatMulReduceBatch", {}, {x, dy}));
  const Tensor q = RandomTensor({8, 4, 128, 32}, 4);
  const Tensor k = RandomTensor({8, 4, 32, 128}, 5);
  Register("gpt/scores/forward", {.op = "MatMul", .inputs = {q, k}});
  Register("gpt/scores/key_gradient",
           Weft("MatMul", {{"transA", int64_t{1}}}, {q, RandomTensor({8, 4, 128, 128}, 6)}));
  const Tensor scale = RandomTensor({128}, 7);
  const Tensor statistics = RandomTensor({8, 128, 1}, 8, 0.5, 1);
  Register(
      "gpt/layer_norm/forward",
      {.op = "LayerNormalization", .inputs = {x, scale, scale}, .outputs = {true, true, true}});
  Register("gpt/layer_norm/gradient",
           Weft("LayerNormalizationGrad", {}, {x, x, scale, statistics, statistics},
                {true, true, true}));
}

void RegisterLstm() {
  Register("lstm/forward", {.op = "LSTM",
                            .inputs = {RandomTensor({28, 64, 28}, 1), RandomTensor({1, 256, 28}, 2),
                                       RandomTensor({1, 256, 64}, 3), RandomTensor({1, 512}, 4)},
                            .outputs = {false, true}});
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  weft::RegisterLeNet();
  weft::RegisterResNet();
  weft::RegisterGpt();
  weft::RegisterLstm();
  benchmark::RunSpecifiedBenchmarks();
}
