// Pools of float32 with the windows of well-known models, prepared once, on one thread; two with
// /threads:2. bytes/s counts each operand once, to be held against `copy`.
//
//   bazel run //ops/kernels/cpu/pool:pool_benchmark -- --benchmark_repetitions=5
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "ops/concrete_node.h"
#include "ops/kernel.h"
#include "ops/testing/op_case.h"
#include "ops/testing/test_tensors.h"

namespace weft {
namespace {

using testing::Int64s;
using testing::OpCase;
using testing::RandomTensor;
using Ints = std::vector<int64_t>;

void RunCase(benchmark::State& state, const OpCase& op_case, int threads) {
  const testing::SingleNodeGraph single = testing::MakeSingleNodeGraph(op_case);
  NodeRunOptions options;
  options.threads = threads;
  const auto node = ConcreteNode::Create(single.graph->node(single.node), op_case.inputs, options);
  if (!node.ok()) return state.SkipWithError(std::string(node.status().message()).c_str());
  const auto kernel = KernelRegistry::Global().Prepare(*node);
  if (!kernel.ok()) return state.SkipWithError(std::string(kernel.status().message()).c_str());
  std::vector<const void*> inputs;
  std::vector<Tensor> tensors;
  std::vector<void*> outputs;
  double bytes = 0;
  for (const Tensor& input : op_case.inputs) {
    inputs.push_back(input.raw_data());
    bytes += static_cast<double>(input.bytes());
  }
  for (int i = 0; i < node->num_outputs(); ++i) {
    tensors.push_back(*Tensor::Zeros(node->OutputDType(i), node->OutputShape(i)));
    outputs.push_back(tensors.back().raw_data());
    bytes += static_cast<double>(tensors.back().bytes());
  }
  const auto workspace =
      *Tensor::Zeros(DType::kUint8, Shape{static_cast<int64_t>((*kernel)->workspace_bytes())});
  KernelContext context;
  context.inputs = inputs.data();
  context.outputs = outputs.data();
  context.workspace = workspace.raw_data();
  for (auto _ : state) {
    const absl::Status status = (*kernel)->Run(context);
    if (!status.ok()) return state.SkipWithError(std::string(status.message()).c_str());
  }
  state.counters["bytes/s"] = benchmark::Counter(bytes * static_cast<double>(state.iterations()),
                                                 benchmark::Counter::kIsRate);
}

void Register(const std::string& name, const OpCase& op_case) {
  for (const int threads : {1, 2}) {
    const std::string full = name + (threads == 1 ? "" : "/threads:2");
    benchmark::RegisterBenchmark(
        full.c_str(),
        [op_case, threads](benchmark::State& state) { RunCase(state, op_case, threads); })
        ->Unit(benchmark::kMicrosecond)
        ->UseRealTime();
  }
}

// The shape of what a pool makes.
Shape OutputOf(const OpCase& op_case) {
  const testing::SingleNodeGraph single = testing::MakeSingleNodeGraph(op_case);
  return ConcreteNode::Create(single.graph->node(single.node), op_case.inputs)->OutputShape(0);
}

OpCase Weft(const std::string& op, const Attributes& attributes, std::vector<Tensor> inputs) {
  return {.domain = std::string(kWeftDomain),
          .op = op,
          .attributes = attributes,
          .inputs = std::move(inputs)};
}

void RegisterMax(const std::string& name, const Shape& shape, const Attributes& window) {
  const Tensor x = RandomTensor(shape, 1);
  OpCase forward{.op = "MaxPool", .attributes = window, .inputs = {x}};
  Register("max/" + name, forward);
  const Tensor dy = RandomTensor(OutputOf(forward), 2);
  const auto y = testing::RunCase(forward, {});
  Register("max_grad/" + name, Weft("MaxPoolGrad", window, {x, (*y)[0], dy}));
  forward.outputs = {true, true};
  Register("max_indices/" + name, forward);
}

void RegisterAverage(const std::string& name, const Shape& shape, const Attributes& window) {
  const OpCase forward{
      .op = "AveragePool", .attributes = window, .inputs = {RandomTensor(shape, 1)}};
  Register("average/" + name, forward);
  const Tensor dy = RandomTensor(OutputOf(forward), 2);
  Register("average_grad/" + name, Weft("AveragePoolGrad", window,
                                        {dy, Int64s({shape.dims().begin(), shape.dims().end()})}));
}

void RegisterGlobal(const std::string& name, const Shape& shape) {
  const Tensor x = RandomTensor(shape, 1);
  Register("global_average/" + name, {.op = "GlobalAveragePool", .inputs = {x}});
  Register("global_max/" + name, {.op = "GlobalMaxPool", .inputs = {x}});
  Register("global_average_grad/" + name,
           Weft("GlobalAveragePoolGrad", {},
                {RandomTensor({shape.dim(0), shape.dim(1), 1, 1}, 2),
                 Int64s({shape.dims().begin(), shape.dims().end()})}));
}

Attributes Square(int64_t size, int64_t stride, int64_t pad) {
  return {{"kernel_shape", Ints{size, size}},
          {"strides", Ints{stride, stride}},
          {"pads", Ints{pad, pad, pad, pad}}};
}

void Copy(benchmark::State& state) {
  const Tensor from = RandomTensor({state.range(0)}, 1);
  Tensor to = *Tensor::Zeros(DType::kFloat32, from.shape());
  for (auto _ : state) {
    std::memcpy(to.raw_data(), from.raw_data(), from.bytes());
    benchmark::ClobberMemory();
  }
  state.counters["bytes/s"] = benchmark::Counter(
      2.0 * static_cast<double>(from.bytes()) * static_cast<double>(state.iterations()),
      benchmark::Counter::kIsRate);
}

void RegisterAll() {
  benchmark::RegisterBenchmark("copy", Copy)
      ->Arg(64 * 111 * 111 / 2)
      ->Arg(1 << 24)
      ->Unit(benchmark::kMicrosecond);
  RegisterMax("squeezenet_111", {1, 64, 111, 111}, Square(3, 2, 0));
  RegisterMax("squeezenet_55", {1, 128, 55, 55}, Square(3, 2, 0));
  RegisterMax("squeezenet_27", {1, 256, 27, 27}, Square(3, 2, 0));
  RegisterMax("resnet_112", {1, 64, 112, 112}, Square(3, 2, 1));
  RegisterMax("shufflenet_112", {1, 24, 112, 112}, Square(3, 2, 1));
  RegisterMax("vgg_224", {1, 64, 224, 224}, Square(2, 2, 0));
  for (const int64_t size : {5, 9, 13}) {
    RegisterMax("yolox_" + std::to_string(size), {1, 256, 20, 20}, Square(size, 1, size / 2));
  }
  RegisterMax("stride_3", {1, 64, 96, 96}, Square(3, 3, 0));
  RegisterAverage("shufflenet_56", {1, 24, 56, 56}, Square(3, 2, 1));
  RegisterAverage("inception_35", {1, 192, 35, 35}, Square(3, 1, 1));
  RegisterAverage("densenet_56", {1, 128, 56, 56}, Square(2, 2, 0));
  RegisterAverage("whole_7", {1, 1024, 7, 7}, Square(7, 1, 0));
  RegisterGlobal("resnet_7", {1, 2048, 7, 7});
  RegisterGlobal("squeezenet_13", {1, 1000, 13, 13});
  RegisterGlobal("large_112", {1, 64, 112, 112});
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  weft::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
