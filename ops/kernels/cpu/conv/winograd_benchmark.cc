// Winograd's convolution beside oneDNN's on the 3x3 layers of VGG-19 and ResNet-50: forward with
// constant filters, and the gradient of the input with filters that change. Both run in turn, A B A
// B, on the same operands, and their results are compared first.
//
//   bazel run //ops/kernels/cpu/conv:winograd_benchmark --
//   --benchmark_filter=vgg.*batch:1/threads:1
//
// Counters: `gain` is oneDNN's time by ours (the median of pairs), `rate` and `onednn` are
// FLOP/s by the definition of the convolution (effective, for Winograd), `tile` is what the rule
// chooses (1: oneDNN), `forced` is the tile that was run.
#include <algorithm>
#include <cmath>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "ops/concrete_node.h"
#include "ops/kernels/cpu/conv/conv_onednn.h"
#include "ops/kernels/cpu/conv/winograd.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft {
namespace {

using testing::OpCase;
using testing::RandomTensor;

struct Layer {
  const char* name;
  int64_t input_channels;
  int64_t output_channels;
  int64_t size;
};

constexpr Layer kLayers[] = {
    {"vgg/1_2", 64, 64, 224},    {"vgg/2_1", 64, 128, 112},   {"vgg/2_2", 128, 128, 112},
    {"vgg/3_1", 128, 256, 56},   {"vgg/3_2", 256, 256, 56},   {"vgg/4_1", 256, 512, 28},
    {"vgg/4_2", 512, 512, 28},   {"vgg/5_1", 512, 512, 14},   {"resnet/2", 64, 64, 56},
    {"resnet/3", 128, 128, 28},  {"resnet/4", 256, 256, 14},  {"resnet/5", 512, 512, 7},
    {"small/16", 16, 16, 56},    {"small/32", 32, 32, 56},    {"small/32x28", 32, 32, 28},
    {"small/16x64", 16, 64, 56}, {"small/64x16", 64, 16, 56}, {"cifar/64", 64, 64, 32},
    {"cifar/128", 128, 128, 16}, {"cifar/256", 256, 256, 8},  {"cifar/512", 512, 512, 4}};

// The node, not in a strict run.
class Context final : public PrepareContext {
 public:
  Context(const ConcreteNode& node, bool constant) : node_(node), constant_(constant) {}
  const Node& node() const override { return node_.node(); }
  const Shape& InputShape(int i) const override { return node_.InputShape(i); }
  const Shape& OutputShape(int i) const override { return node_.OutputShape(i); }
  DType InputDType(int i) const override { return node_.InputDType(i); }
  DType OutputDType(int i) const override { return node_.OutputDType(i); }
  const Tensor* InputValue(int i) const override { return node_.InputValue(i); }
  const OperandSlice& InputSlice(int i) const override { return node_.InputSlice(i); }
  const OperandSlice& OutputSlice(int i) const override { return node_.OutputSlice(i); }
  Device& device() const override { return node_.device(); }
  int threads() const override { return node_.threads(); }
  bool strict() const override { return false; }
  bool InputIsConstant(int i) const override { return constant_ && i == 1; }

 private:
  const ConcreteNode& node_;
  const bool constant_;
};

// On one thread the thread's time: other work on the machine does not count.
double Now(int threads) {
  timespec time;
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// A kernel with an output and a workspace of its own.
class Run {
 public:
  Run(std::unique_ptr<Kernel> kernel, const std::vector<Tensor>& inputs, const Shape& y)
      : kernel_(std::move(kernel)), output_(*Tensor::Zeros(DType::kFloat32, y)) {
    for (const Tensor& input : inputs) inputs_.push_back(input.raw_data());
    const int64_t bytes = static_cast<int64_t>(kernel_->workspace_bytes());
    workspace_ = *Tensor::Zeros(DType::kUint8, Shape{bytes});
    outputs_[0] = output_.raw_data();
    context_.inputs = inputs_.data();
    context_.outputs = outputs_;
    context_.workspace = workspace_.raw_data();
  }
  // Of one run.
  double Seconds(int threads) {
    const double start = Now(threads);
    (void)kernel_->Run(context_);
    return Now(threads) - start;
  }
  const Tensor& output() const { return output_; }

 private:
  std::unique_ptr<Kernel> kernel_;
  std::vector<const void*> inputs_;
  void* outputs_[1];
  Tensor output_;
  Tensor workspace_;
  KernelContext context_;
};

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

struct Setting {
  Layer layer;
  bool gradient;  // of the input, whose channels are then layer.output_channels
  int64_t batch;
  int threads;
  int64_t m;
};

OpCase CaseOf(const Setting& setting) {
  const Layer& layer = setting.layer;
  const std::vector<int64_t> x = {setting.batch, layer.input_channels, layer.size, layer.size};
  const std::vector<int64_t> y = {setting.batch, layer.output_channels, layer.size, layer.size};
  const Tensor w = RandomTensor({layer.output_channels, layer.input_channels, 3, 3}, 2);
  OpCase conv{.op = "Conv",
              .attributes = {{"pads", std::vector<int64_t>{1, 1, 1, 1}}},
              .inputs = {RandomTensor(Shape(x), 1), w}};
  if (setting.gradient) {
    conv.domain = std::string(kWeftDomain);
    conv.op = "ConvGradInput";
    conv.attributes.Set("kernel_shape", std::vector<int64_t>{3, 3});
    conv.inputs = {RandomTensor(Shape(y), 1), w, testing::Int64s(x)};
  }
  return conv;
}

cpu::WinogradConv WinogradOf(const Setting& setting) {
  const Layer& layer = setting.layer;
  cpu::WinogradConv conv;
  int64_t from = layer.input_channels;
  int64_t to = layer.output_channels;
  int64_t from_step = 9;
  int64_t to_step = 9 * from;
  if (setting.gradient) {
    std::swap(from, to);
    std::swap(from_step, to_step);
  }
  conv.tiles = {setting.m,  setting.batch, from,       to, layer.size,
                layer.size, layer.size,    layer.size, 1,  1};
  conv.filters = {to, from, to_step, from_step, setting.gradient};
  return conv;
}

void Compare(benchmark::State& state, const Setting& setting) {
  const int threads = setting.threads;
  const OpCase conv = CaseOf(setting);
  const testing::SingleNodeGraph single = testing::MakeSingleNodeGraph(conv);
  NodeRunOptions options;
  options.threads = threads;
  const auto node = ConcreteNode::Create(single.graph->node(single.node), conv.inputs, options);
  const Context context(*node, !setting.gradient);
  const cpu::WinogradConv winograd = WinogradOf(setting);
  auto ours = cpu::MakeWinogradConv(context, winograd);
  auto onednn =
      setting.gradient ? cpu::PrepareOnednnConvGradInput(context) : cpu::PrepareOnednnConv(context);
  if (!ours.ok() || !onednn.ok()) return state.SkipWithError("no kernel");
  const Shape y = node->OutputShape(0);
  Run a(*std::move(ours), conv.inputs, y);
  Run b(*std::move(onednn), conv.inputs, y);
  a.Seconds(threads);
  b.Seconds(threads);
  if (!testing::TensorsNear(a.output(), b.output(), {.of_magnitude = 1e-5})) {
    return state.SkipWithError("the results differ");
  }
  std::vector<double> times_a, times_b, gains;
  for (auto _ : state) {
    times_a.push_back(a.Seconds(threads));
    times_b.push_back(b.Seconds(threads));
    gains.push_back(times_b.back() / times_a.back());
  }
  const double flops =
      2.0 * 9 * static_cast<double>(winograd.tiles.input_channels * y.num_elements());
  state.counters["gain"] = Median(gains);
  state.counters["rate"] = flops / Median(times_a);
  state.counters["onednn"] = flops / Median(times_b);
  state.counters["tile"] = static_cast<double>(
      std::max<int64_t>(1, cpu::ChooseWinogradTile(winograd.tiles, !setting.gradient, false)));
}

void RegisterAll() {
  for (const Layer& layer : kLayers) {
    for (const bool gradient : {false, true}) {
      for (const int64_t batch : {1, 4, 16}) {
        for (const int threads : {1, 2}) {
          for (const int64_t m : {2, 4}) {
            const std::string name = absl::StrCat(layer.name, gradient ? "/gradient" : "/forward",
                                                  "/batch:", batch, "/threads:", threads, "/m:", m);
            const Setting setting{layer, gradient, batch, threads, m};
            benchmark::RegisterBenchmark(name.c_str(),
                                         [=](benchmark::State& state) { Compare(state, setting); })
                ->UseRealTime()
                ->Unit(benchmark::kMillisecond);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  weft::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
}
