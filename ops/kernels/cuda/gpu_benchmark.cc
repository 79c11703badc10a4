// How fast kernels are on a GPU: those that move memory, and chains of nodes fused to one kernel,
// as a share of what a copy on the device moves; updates of many parameters, as one kernel;
// products, against the fastest algorithm of cuBLASLt called directly; products with an epilogue,
// against the same nodes one by one;
// convolutions, attention, its gradient and normalizations through cuDNN, against our own. Of what
// has no such measure the rate alone. A program of its own:
//   gpu_benchmark [--device cuda:0] [--json FILE] [--quick]
// The last line sums up. The exit code is 1 when a case could not be run.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "ops/concrete_node.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/dnn/dnn.h"
#include "ops/kernels/cuda/fusion/kernel_compiler.h"
#include "ops/kernels/cuda/fusion/testing/fused_chains.h"
#include "ops/kernels/cuda/linear/testing/direct_cublaslt.h"
#include "ops/kernels/cuda/linear/testing/joined_products.h"
#include "ops/kernels/cuda/testing/benchmark_cases.h"
#include "ops/memory_work.h"
#include "ops/testing/op_case.h"
#include "ops/testing/test_tensors.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "platform/status_macros.h"
#include "tensor/cuda/cuda_libraries.h"
#include "tensor/device_id.h"
#include "tensor/lookup/device_lookup.h"

namespace weft::cuda {
namespace {

using testing::BenchmarkCase;
using testing::OpCase;
using testing::RandomTensor;
using testing::Uninitialized;

constexpr absl::Duration kDeadline = absl::Minutes(1);
constexpr char kOurConvolutions[] = "our convolutions";
constexpr char kOurNormalizations[] = "our normalizations";
constexpr char kNodesOneByOne[] = "its nodes";
constexpr char kOurAttention[] = "our attention";
constexpr char kNothing[] = "";  // there is nothing to compare with
constexpr int64_t kPatternElements = int64_t{1} << 20;

// What one case gave. `share` is of the bandwidth of a copy, or of the library's speed.
struct Figure {
  std::string name;
  std::string type;
  double seconds = 0;
  double rate = 0;  // bytes or floating-point operations per second
  double share = 0;
  bool is_product = false;
  std::string of = "a copy";  // what the share is of
  std::string error = {};     // why there is none
};

// A stream, and how it is timed.
class Timer {
 public:
  Timer(Stream& stream, int rounds) : stream_(stream), rounds_(rounds) {}

  // Median seconds of one run of each work. They take turns, so that all see the same clocks; a
  // measurement is ten launches or more, and one wait of the host.
  absl::StatusOr<std::vector<double>> Seconds(const std::vector<Work>& works) {
    std::vector<int> launches;
    for (const Work& work : works) {
      WEFT_RETURN_IF_ERROR(Measure(work, 1).status());  // not counted: libraries load code
      WEFT_ASSIGN_OR_RETURN(const double once, Measure(work, 1));
      launches.push_back(static_cast<int>(std::clamp(0.005 / once, 10.0, 1000.0)));
    }
    std::vector<std::vector<double>> measured(works.size());
    for (int round = 0; round < rounds_; ++round) {
      for (size_t i = 0; i < works.size(); ++i) {
        WEFT_ASSIGN_OR_RETURN(const double seconds, Measure(works[i], launches[i]));
        measured[i].push_back(seconds / launches[i]);
      }
    }
    std::vector<double> medians;
    for (std::vector<double>& seconds : measured) {
      std::sort(seconds.begin(), seconds.end());
      medians.push_back(seconds[seconds.size() / 2]);
    }
    return medians;
  }

 private:
  absl::StatusOr<double> Measure(const Work& work, int launches) {
    const int64_t begin = RealClock().MonotonicNanos();
    for (int i = 0; i < launches; ++i) WEFT_RETURN_IF_ERROR(stream_.Enqueue(work));
    WEFT_RETURN_IF_ERROR(stream_.Synchronize(kDeadline));
    return static_cast<double>(RealClock().MonotonicNanos() - begin) * 1e-9;
  }

  Stream& stream_;
  const int rounds_;
};

// A kernel with operands on the device. Borrows device and stream.
class DeviceCase {
 public:
  // Inputs of floats get random values in [low, 1), whatever the case's hold; the others are copied
  // from it.
  static absl::StatusOr<std::unique_ptr<DeviceCase>> Create(OpCase op_case, double low,
                                                            Device& device, Stream& stream,
                                                            bool uses_cudnn = false) {
    auto made = std::unique_ptr<DeviceCase>(new DeviceCase(std::move(op_case), device, stream));
    WEFT_RETURN_IF_ERROR(made->Prepare(low, uses_cudnn));
    return made;
  }

  Work work() { return Work{&RunKernel, this}; }
  // Of all operands, each once.
  int64_t bytes() const { return bytes_; }
  const KernelContext& context() const { return context_; }
  Kernel& kernel() { return *kernel_; }
  const std::vector<const void*>& inputs() const { return inputs_; }
  const std::vector<void*>& outputs() const { return outputs_; }

 private:
  DeviceCase(OpCase op_case, Device& device, Stream& stream)
      : op_case_(std::move(op_case)), device_(device), stream_(stream) {}

  absl::Status Prepare(double low, bool uses_cudnn) {
    single_ = testing::MakeSingleNodeGraph(op_case_);
    NodeRunOptions options;
    options.device = &device_;
    options.strict = false;
    options.tf32 = op_case_.tf32;
    options.uses_cudnn = uses_cudnn;
    WEFT_ASSIGN_OR_RETURN(
        const ConcreteNode node,
        ConcreteNode::Create(single_.graph->node(single_.node), op_case_.inputs, options));
    for (const Tensor& input : op_case_.inputs) {
      if (!input.valid()) {
        inputs_.push_back(nullptr);
        continue;
      }
      WEFT_ASSIGN_OR_RETURN(void* const data, Allocate(input.bytes()));
      inputs_.push_back(data);
      bytes_ += static_cast<int64_t>(input.bytes());
      if (IsFloatingPoint(input.dtype())) {
        WEFT_RETURN_IF_ERROR(Fill(data, input, low));
      } else {
        WEFT_RETURN_IF_ERROR(device_.CopyFromHost(stream_, input.raw_data(), data, input.bytes()));
      }
    }
    WEFT_ASSIGN_OR_RETURN(kernel_, node.Prepare());
    for (int i = 0; i < node.num_outputs(); ++i) {
      outputs_.push_back(nullptr);
      if (!node.HasOutput(i)) continue;
      const int64_t size = DTypeBytes(node.OutputDType(i), node.OutputShape(i).num_elements());
      WEFT_ASSIGN_OR_RETURN(outputs_.back(), Allocate(static_cast<size_t>(size)));
      bytes_ += size;
    }
    WEFT_ASSIGN_OR_RETURN(context_.workspace, Allocate(kernel_->workspace_bytes()));
    context_.inputs = inputs_.data();
    context_.outputs = outputs_.data();
    context_.stream = &stream_;
    context_.step = 1;
    return stream_.Synchronize(kDeadline);
  }

  absl::StatusOr<void*> Allocate(size_t bytes) {
    WEFT_ASSIGN_OR_RETURN(buffers_.emplace_back(), device_.Allocate(bytes));
    return buffers_.back()->data();
  }

  // A random begin from the host, doubled on the device as often as it takes.
  absl::Status Fill(void* data, const Tensor& like, double low) {
    const int64_t elements = std::min(like.num_elements(), kPatternElements);
    const Tensor pattern = RandomTensor(Shape{elements}, 1, low, 1, like.dtype());
    char* const begin = static_cast<char*>(data);
    WEFT_RETURN_IF_ERROR(device_.CopyFromHost(stream_, pattern.raw_data(), begin, pattern.bytes()));
    for (size_t filled = pattern.bytes(); filled < like.bytes();) {
      const size_t more = std::min(filled, like.bytes() - filled);
      WEFT_RETURN_IF_ERROR(device_.CopyOnDevice(stream_, begin, begin + filled, more));
      filled += more;
    }
    // The pattern is read until here.
    return stream_.Synchronize(kDeadline);
  }

  static absl::Status RunKernel(void* argument, Stream& /*stream*/) {
    auto& self = *static_cast<DeviceCase*>(argument);
    return self.kernel_->Run(self.context_);
  }

  const OpCase op_case_;
  Device& device_;
  Stream& stream_;
  testing::SingleNodeGraph single_;
  std::unique_ptr<Kernel> kernel_;
  std::vector<std::shared_ptr<Buffer>> buffers_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  KernelContext context_;
  int64_t bytes_ = 0;
};

// ---- Copies on the device.

struct CopyWork {
  Device* device;
  const void* from;
  void* to;
  size_t bytes;
  static absl::Status Run(void* argument, Stream& stream) {
    const CopyWork& copy = *static_cast<CopyWork*>(argument);
    return copy.device->CopyOnDevice(stream, copy.from, copy.to, copy.bytes);
  }
};

// Bytes read and written per second.
absl::Status MeasureCopy(Device& device, Timer& timer, Figure& figure) {
  const size_t bytes = size_t{512} << 20;
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<Buffer> from, device.Allocate(bytes));
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<Buffer> to, device.Allocate(bytes));
  CopyWork copy{&device, from->data(), to->data(), bytes};
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> seconds,
                        timer.Seconds({Work{&CopyWork::Run, &copy}}));
  figure = {.name = "copy",
            .type = "bytes",
            .seconds = seconds[0],
            .rate = 2 * static_cast<double>(bytes) / seconds[0],
            .share = 1};
  return absl::OkStatus();
}

// ---- Kernels that move memory.

// Values do not matter, but a mask has to have some.
Tensor OperandOfChain(const Shape& shape, DType dtype) {
  Tensor operand = Uninitialized(shape, dtype);
  if (dtype == DType::kBool) std::memset(operand.raw_data(), 1, operand.bytes());
  return operand;
}

// At least 256 MB each.
absl::StatusOr<std::vector<BenchmarkCase>> FusedCases(DType dtype) {
  std::vector<BenchmarkCase> cases;
  WEFT_ASSIGN_OR_RETURN(const std::vector<testing::FusedChain> chains,
                        testing::FusedChains(65536, 1024, dtype, OperandOfChain));
  for (const testing::FusedChain& chain : chains) {
    cases.push_back({absl::StrCat("fused: ", chain.name), chain.op_case, /*operations=*/0,
                     /*low=*/0.1});
  }
  return cases;
}

absl::Status MeasureMemory(const BenchmarkCase& memory_case, double copy_rate, Device& device,
                           Stream& stream, Timer& timer, Figure& figure) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceCase> on_device,
                        DeviceCase::Create(memory_case.op_case, memory_case.low, device, stream));
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> seconds, timer.Seconds({on_device->work()}));
  figure.seconds = seconds[0];
  figure.rate = static_cast<double>(on_device->bytes()) / figure.seconds;
  figure.share = figure.rate / copy_rate;
  return absl::OkStatus();
}

// Adam's update of one parameter, as MemoryCases has it.
OpCase UpdateOf(const Shape& shape) {
  const auto floats = [&shape] { return Uninitialized(shape, DType::kFloat32); };
  return {.domain = "ai.weft",
          .op = "AdamUpdate",
          .inputs = {floats(), floats(), Uninitialized({}, DType::kFloat32),
                     Tensor::Scalar<int64_t>(3), floats(), floats()},
          .outputs = {true, true, true}};
}

// The updates of the 144 parameters of a GPT's 12 blocks, as the one kernel that a step runs.
absl::Status MeasureUpdates(double copy_rate, Device& device, Stream& stream, Timer& timer,
                            Figure& figure) {
  constexpr int64_t kWidth = 768;
  std::vector<std::unique_ptr<DeviceCase>> parts;
  for (int block = 0; block < 12; ++block) {
    for (const Shape& shape :
         {Shape{kWidth}, Shape{kWidth}, Shape{kWidth, 3 * kWidth}, Shape{3 * kWidth},
          Shape{kWidth, kWidth}, Shape{kWidth}, Shape{kWidth}, Shape{kWidth},
          Shape{kWidth, 4 * kWidth}, Shape{4 * kWidth}, Shape{4 * kWidth, kWidth}, Shape{kWidth}}) {
      WEFT_ASSIGN_OR_RETURN(parts.emplace_back(),
                            DeviceCase::Create(UpdateOf(shape), /*low=*/0.1, device, stream));
    }
  }
  std::vector<JoinableKernel*> members;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  int64_t bytes = 0;
  for (const std::unique_ptr<DeviceCase>& part : parts) {
    members.push_back(dynamic_cast<JoinableKernel*>(&part->kernel()));
    if (members.back() == nullptr) return absl::InternalError("an update cannot be joined");
    inputs.insert(inputs.end(), part->inputs().begin(), part->inputs().end());
    outputs.insert(outputs.end(), part->outputs().begin(), part->outputs().end());
    bytes += part->bytes();
  }
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Kernel> joined, members.front()->Join(members));
  KernelContext context = parts.front()->context();
  context.inputs = inputs.data();
  context.outputs = outputs.data();
  struct Run {
    Kernel* kernel;
    const KernelContext* context;
  } run{joined.get(), &context};
  const Work work{[](void* argument, Stream&) {
                    const Run& own = *static_cast<Run*>(argument);
                    return own.kernel->Run(*own.context);
                  },
                  &run};
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> seconds, timer.Seconds({work}));
  figure.seconds = seconds[0];
  figure.rate = static_cast<double>(bytes) / figure.seconds;
  figure.share = figure.rate / copy_rate;
  return absl::OkStatus();
}

// ---- Products.

struct ProductCase {
  int64_t m, k, n;
  DType dtype;
  bool tf32 = false;
};

std::vector<ProductCase> ProductCases() {
  std::vector<ProductCase> cases;
  struct Form {
    DType dtype;
    bool tf32;
  };
  for (const Form& form :
       {Form{DType::kBfloat16, false}, Form{DType::kFloat32, true}, Form{DType::kFloat32, false}}) {
    const DType dtype = form.dtype;
    const bool tf32 = form.tf32;
    cases.push_back({8192, 8192, 8192, dtype, tf32});
    cases.push_back({4096, 768, 3072, dtype, tf32});
    cases.push_back({4096, 3072, 768, dtype, tf32});
  }
  return cases;
}

// One algorithm of the library, on the operands of our kernel, into a result of its own.
struct LibraryWork {
  testing::DirectCublasLt* library;
  int algorithm;
  const void* const* inputs;
  void* y;
  void* workspace;
  static absl::Status Run(void* argument, Stream& stream) {
    const LibraryWork& work = *static_cast<LibraryWork*>(argument);
    return work.library->Multiply(work.algorithm, work.inputs[0], work.inputs[1], work.y,
                                  work.workspace, stream.native_handle());
  }
};

// The library, opened once more.
absl::StatusOr<std::unique_ptr<testing::DirectCublasLt>> OpenLibrary() {
  WEFT_ASSIGN_OR_RETURN(const CudaLibrary* const file, FindCudaLibrary(CudaLibraryKind::kCublasLt));
  return testing::DirectCublasLt::Open([file](const char* name) { return file->Symbol(name); });
}

// The algorithm that is fastest in a few runs.
absl::StatusOr<int> FastestAlgorithm(LibraryWork work, int algorithms, Timer& timer) {
  int fastest = 0;
  double shortest = 0;
  for (work.algorithm = 0; work.algorithm < algorithms; ++work.algorithm) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<double> seconds,
                          timer.Seconds({Work{&LibraryWork::Run, &work}}));
    if (work.algorithm > 0 && seconds[0] >= shortest) continue;
    shortest = seconds[0];
    fastest = work.algorithm;
  }
  return fastest;
}

absl::StatusOr<std::unique_ptr<DeviceCase>> PrepareOurs(const ProductCase& product, Device& device,
                                                        Stream& stream) {
  return DeviceCase::Create({.op = "MatMul",
                             .inputs = {Uninitialized({product.m, product.k}, product.dtype),
                                        Uninitialized({product.k, product.n}, product.dtype)},
                             .tf32 = product.tf32},
                            /*low=*/-1, device, stream);
}

absl::Status MeasureProduct(const ProductCase& product, Device& device, Stream& stream,
                            Timer& timer, Figure& figure) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceCase> ours,
                        PrepareOurs(product, device, stream));
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<testing::DirectCublasLt> library, OpenLibrary());
  WEFT_ASSIGN_OR_RETURN(const int algorithms, library->Choose({product.dtype, product.tf32,
                                                               product.m, product.n, product.k}));
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<Buffer> workspace,
                        device.Allocate(library->workspace_bytes()));
  WEFT_ASSIGN_OR_RETURN(
      const std::shared_ptr<Buffer> result,
      device.Allocate(static_cast<size_t>(DTypeBytes(product.dtype, product.m * product.n))));
  LibraryWork alone{library.get(), 0, ours->context().inputs, result->data(), workspace->data()};
  Timer quick(stream, /*rounds=*/3);
  WEFT_ASSIGN_OR_RETURN(alone.algorithm, FastestAlgorithm(alone, algorithms, quick));
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> seconds,
                        timer.Seconds({ours->work(), Work{&LibraryWork::Run, &alone}}));
  figure.seconds = seconds[0];
  figure.rate = 2.0 * static_cast<double>(product.m) * static_cast<double>(product.n) *
                static_cast<double>(product.k) / seconds[0];
  figure.share = seconds[1] / seconds[0];
  return absl::OkStatus();
}

// ---- Products with what follows them.

// Several kernels, one behind the other.
struct PartsWork {
  std::vector<std::unique_ptr<DeviceCase>> parts;
  static absl::Status Run(void* argument, Stream& /*stream*/) {
    for (const std::unique_ptr<DeviceCase>& part : static_cast<PartsWork*>(argument)->parts) {
      WEFT_RETURN_IF_ERROR(part->kernel().Run(part->context()));
    }
    return absl::OkStatus();
  }
};

// The feed-forward layer of a GPT, from 768 to 3,072 columns, for 8,192 tokens.
constexpr int64_t kLayerRows = 8192, kLayerWidth = 768, kLayerWide = 3072;

// The share is how many times as fast as the nodes one by one. Unimplemented where the library has
// no algorithm.
absl::Status MeasureJoined(const testing::JoinedCase& joined_case, bool tf32, Device& device,
                           Stream& stream, Timer& timer, Figure& figure) {
  OpCase op_case = joined_case.joined;
  op_case.tf32 = tf32;
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceCase> joined,
                        DeviceCase::Create(std::move(op_case), /*low=*/-1, device, stream));
  PartsWork apart;
  for (OpCase part : joined_case.parts) {
    part.tf32 = tf32;
    WEFT_ASSIGN_OR_RETURN(apart.parts.emplace_back(),
                          DeviceCase::Create(std::move(part), /*low=*/-1, device, stream));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> seconds,
                        timer.Seconds({joined->work(), Work{&PartsWork::Run, &apart}}));
  figure.seconds = seconds[0];
  figure.rate = 2.0 * static_cast<double>(kLayerRows * kLayerWidth) *
                static_cast<double>(kLayerWide) / seconds[0];
  figure.share = seconds[1] / seconds[0];
  return absl::OkStatus();
}

// ---- What goes through cuDNN.

// Through cuDNN; the share is how many times as fast as our own way.
absl::Status MeasureDnn(const BenchmarkCase& dnn_case, Device& device, Stream& stream, Timer& timer,
                        Figure& figure) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceCase> ours,
                        DeviceCase::Create(dnn_case.op_case, -1, device, stream));
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceCase> by_library,
                        DeviceCase::Create(dnn_case.op_case, -1, device, stream,
                                           /*uses_cudnn=*/true));
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> seconds,
                        timer.Seconds({by_library->work(), ours->work()}));
  figure.seconds = seconds[0];
  figure.rate =
      (figure.is_product ? dnn_case.operations : static_cast<double>(by_library->bytes())) /
      seconds[0];
  figure.share = seconds[1] / seconds[0];
  return absl::OkStatus();
}

// Kernels one after the other.
struct KernelsInOrder {
  std::vector<std::unique_ptr<DeviceCase>> kernels;
  static absl::Status Run(void* argument, Stream& stream) {
    for (const std::unique_ptr<DeviceCase>& kernel :
         static_cast<KernelsInOrder*>(argument)->kernels) {
      const Work work = kernel->work();
      WEFT_RETURN_IF_ERROR(work.run(work.argument, stream));
    }
    return absl::OkStatus();
  }
};

// The one node of cuDNN; the share is how many times as fast as the nodes that the rule makes.
absl::Status MeasureAttentionGradient(DType dtype, Device& device, Stream& stream, Timer& timer,
                                      Figure& figure) {
  WEFT_ASSIGN_OR_RETURN(const testing::AttentionGradientCase gradient,
                        testing::AttentionBackward(dtype));
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceCase> joined,
                        DeviceCase::Create(gradient.joined, -1, device, stream,
                                           /*uses_cudnn=*/true));
  KernelsInOrder own;
  for (const OpCase& node : gradient.own) {
    WEFT_ASSIGN_OR_RETURN(own.kernels.emplace_back(), DeviceCase::Create(node, -1, device, stream));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> seconds,
                        timer.Seconds({joined->work(), Work{&KernelsInOrder::Run, &own}}));
  figure.seconds = seconds[0];
  figure.rate = gradient.operations / seconds[0];
  figure.share = seconds[1] / seconds[0];
  return absl::OkStatus();
}

// What neither memory nor a library is a measure of: its rate alone.
absl::Status MeasureWork(const BenchmarkCase& work_case, Device& device, Stream& stream,
                         Timer& timer, Figure& figure) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceCase> on_device,
                        DeviceCase::Create(work_case.op_case, work_case.low, device, stream));
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> seconds, timer.Seconds({on_device->work()}));
  figure.seconds = seconds[0];
  figure.rate = work_case.operations / figure.seconds;
  return absl::OkStatus();
}

// Into an accumulator of gradients, as micro-batches are summed.
absl::Status MeasureSum(double copy_rate, Device& device, Timer& timer, Figure& figure) {
  const int64_t elements = int64_t{64} << 20;
  const MemoryWork* const works = FindMemoryWork(device.info().kind);
  if (works == nullptr) return absl::InternalError("this build has no sums for the device");
  const size_t bytes = static_cast<size_t>(elements) * sizeof(float);
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<Buffer> from, device.Allocate(bytes));
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<Buffer> into, device.Allocate(bytes));
  SumArguments sum{DType::kFloat32, elements, from->data(), into->data()};
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> seconds, timer.Seconds({Work{works->sum, &sum}}));
  figure.seconds = seconds[0];
  figure.rate = 3 * static_cast<double>(bytes) / figure.seconds;
  figure.share = figure.rate / copy_rate;
  return absl::OkStatus();
}

// ---- What is printed.

std::string TableRow(const Figure& figure) {
  if (!figure.error.empty()) {
    return absl::StrFormat("%-30s %-9s %s", figure.name, figure.type, figure.error);
  }
  const std::string rate = figure.is_product ? absl::StrFormat("%7.1f TFLOP/s", figure.rate * 1e-12)
                                             : absl::StrFormat("%7.0f GB/s   ", figure.rate * 1e-9);
  const std::string row = absl::StrFormat("%-30s %-9s %10.1f us %s", figure.name, figure.type,
                                          figure.seconds * 1e6, rate);
  return figure.of == kNothing ? row
                               : absl::StrFormat("%s %6.3f of %s", row, figure.share, figure.of);
}

std::string JsonText(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return quoted + "\"";
}

std::string Json(const std::vector<Figure>& figures, const std::string& device) {
  std::string rows;
  for (const Figure& figure : figures) {
    absl::StrAppend(&rows, rows.empty() ? "" : ",", "\n    {\"case\": ", JsonText(figure.name),
                    ", \"type\": ", JsonText(figure.type));
    if (figure.error.empty()) {
      absl::StrAppendFormat(&rows, ", \"seconds\": %.6g, \"%s\": %.6g", figure.seconds,
                            figure.is_product ? "flops_per_second" : "bytes_per_second",
                            figure.rate);
      if (figure.of != kNothing) absl::StrAppendFormat(&rows, ", \"share\": %.4g", figure.share);
      rows += "}";
    } else {
      absl::StrAppend(&rows, ", \"error\": ", JsonText(figure.error), "}");
    }
  }
  return absl::StrCat("{\n  \"device\": ", JsonText(device), ",\n  \"cases\": [", rows,
                      "\n  ]\n}\n");
}

// "lowest share 0.81 (Transpose bfloat16)"; "" where there is no figure.
std::string Lowest(const std::vector<Figure>& figures, const std::string& of) {
  const Figure* lowest = nullptr;
  for (const Figure& figure : figures) {
    if (!figure.error.empty() || figure.of != of) continue;
    if (figure.name == "copy") continue;
    if (lowest == nullptr || figure.share < lowest->share) lowest = &figure;
  }
  if (lowest == nullptr) return "";
  return absl::StrFormat("; lowest share of %s %.3f (%s %s)", of == "a copy" ? "it" : of,
                         lowest->share, lowest->name, lowest->type);
}

// Prints each figure as it comes.
class Report {
 public:
  void Add(Figure figure, const absl::Status& status) {
    if (!status.ok()) figure.error = status.ToString();
    std::cout << TableRow(figure) << std::endl;
    if (!status.ok()) ++errors_;
    rows_.push_back(std::move(figure));
  }
  int errors() const { return errors_; }
  const std::vector<Figure>& figures() const { return rows_; }

 private:
  std::vector<Figure> rows_;
  int errors_ = 0;
};

struct Arguments {
  std::string device = "cuda:0";
  std::string json_file;
  bool quick = false;
};

// Measures one case on a stream of its own: the error of a stream stays with it.
template <typename Measure>
absl::Status OnStream(Device& device, int rounds, const Measure& measure) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device.NewStream("benchmark"));
  Timer timer(*stream, rounds);
  return measure(*stream, timer);
}

void RunMemory(const std::vector<BenchmarkCase>& cases, DType dtype, Device& device, int rounds,
               Report& report) {
  const double copy_rate = report.figures()[0].rate;
  for (const BenchmarkCase& memory_case : cases) {
    Figure figure{.name = memory_case.name, .type = std::string(DTypeName(dtype))};
    const absl::Status status = OnStream(device, rounds, [&](Stream& stream, Timer& timer) {
      return MeasureMemory(memory_case, copy_rate, device, stream, timer, figure);
    });
    report.Add(std::move(figure), status);
  }
}

// Skipped aloud where there is no NVRTC.
absl::Status RunFused(Device& device, int rounds, Report& report) {
  const absl::StatusOr<KernelCompiler*> compiler = KernelCompilerOf(device);
  if (!compiler.ok()) {
    std::cout << "fused kernels: skipped: no NVRTC: " << compiler.status().message() << std::endl;
    return absl::OkStatus();
  }
  for (const DType dtype : {DType::kFloat32, DType::kBfloat16}) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<BenchmarkCase> cases, FusedCases(dtype));
    RunMemory(cases, dtype, device, rounds, report);
  }
  return absl::OkStatus();
}

// What the library has no algorithm for is said, and is no error: a step keeps its nodes then.
absl::Status RunJoined(Device& device, int rounds, Report& report) {
  struct Form {
    DType dtype;
    bool tf32;
  };
  for (const Form& form :
       {Form{DType::kBfloat16, false}, Form{DType::kFloat32, true}, Form{DType::kFloat32, false}}) {
    const DType dtype = form.dtype;
    const bool tf32 = form.tf32;
    WEFT_ASSIGN_OR_RETURN(
        const std::vector<testing::JoinedCase> cases,
        testing::JoinedCasesOfLayer(kLayerRows, kLayerWidth, kLayerWide, dtype, Uninitialized));
    for (const testing::JoinedCase& joined_case : cases) {
      Figure figure{.name = absl::StrCat("product, ", joined_case.name),
                    .type = tf32 ? "tf32" : std::string(DTypeName(dtype)),
                    .is_product = true,
                    .of = kNodesOneByOne};
      const absl::Status status = OnStream(device, rounds, [&](Stream& stream, Timer& timer) {
        return MeasureJoined(joined_case, tf32, device, stream, timer, figure);
      });
      if (absl::IsUnimplemented(status)) {
        std::cout << figure.name << " " << figure.type << ": skipped: " << status.message()
                  << std::endl;
      } else {
        report.Add(std::move(figure), status);
      }
    }
  }
  return absl::OkStatus();
}

void RunWork(DType dtype, Device& device, int rounds, Report& report) {
  for (const BenchmarkCase& work_case : testing::WorkCases(dtype)) {
    Figure figure{.name = work_case.name,
                  .type = std::string(DTypeName(dtype)),
                  .is_product = true,
                  .of = kNothing};
    const absl::Status status = OnStream(device, rounds, [&](Stream& stream, Timer& timer) {
      return MeasureWork(work_case, device, stream, timer, figure);
    });
    report.Add(std::move(figure), status);
  }
}

void RunDnn(const std::vector<BenchmarkCase>& cases, DType dtype, const char* of, Device& device,
            int rounds, Report& report) {
  for (const BenchmarkCase& dnn_case : cases) {
    Figure figure{.name = dnn_case.name,
                  .type = std::string(DTypeName(dtype)),
                  .is_product = dnn_case.operations > 0,
                  .of = of};
    const absl::Status status = OnStream(device, rounds, [&](Stream& stream, Timer& timer) {
      return MeasureDnn(dnn_case, device, stream, timer, figure);
    });
    report.Add(std::move(figure), status);
  }
}

void RunAttention(Device& device, int rounds, Report& report) {
  const DType dtype = DType::kBfloat16;
  RunDnn({testing::AttentionForward(dtype)}, dtype, kOurAttention, device, rounds, report);
  Figure figure{.name = "its gradient",
                .type = std::string(DTypeName(dtype)),
                .is_product = true,
                .of = kOurAttention};
  const absl::Status status = OnStream(device, rounds, [&](Stream& stream, Timer& timer) {
    return MeasureAttentionGradient(dtype, device, stream, timer, figure);
  });
  report.Add(std::move(figure), status);
}

// Skipped aloud where there is no cuDNN. The log says which nodes do not go through it; their share
// is 1.
absl::Status RunAllDnn(Device& device, int rounds, Report& report) {
  const absl::StatusOr<Dnn*> library = DnnOf(device);
  if (!library.ok()) {
    std::cout << "convolutions, attention and normalizations: skipped: no cuDNN: "
              << library.status().message() << std::endl;
    return absl::OkStatus();
  }
  const LogLevel level = CurrentLogLevel();
  SetLogLevel(LogLevel::kInfo);
  RunAttention(device, rounds, report);
  for (const DType dtype : {DType::kBfloat16, DType::kFloat32}) {
    RunDnn(testing::ConvolutionCases(dtype), dtype, kOurConvolutions, device, rounds, report);
    RunDnn(testing::NormalizationCases(dtype), dtype, kOurNormalizations, device, rounds, report);
  }
  SetLogLevel(level);
  return absl::OkStatus();
}

absl::Status RunAll(const Arguments& arguments, Report& report) {
  WEFT_ASSIGN_OR_RETURN(const DeviceId id, ParseDevice(arguments.device));
  WEFT_ASSIGN_OR_RETURN(Device* const device, FindDevice(id.kind, id.index));
  const int rounds = arguments.quick ? 5 : 20;
  Figure copy;
  WEFT_RETURN_IF_ERROR(OnStream(*device, rounds, [&](Stream& /*stream*/, Timer& timer) {
    return MeasureCopy(*device, timer, copy);
  }));
  report.Add(copy, absl::OkStatus());
  for (const DType dtype : {DType::kFloat32, DType::kBfloat16}) {
    RunMemory(testing::MemoryCases(dtype), dtype, *device, rounds, report);
    RunWork(dtype, *device, rounds, report);
  }
  Figure sum{.name = "sum into a gradient", .type = "float32"};
  const absl::Status summed = OnStream(*device, rounds, [&](Stream& /*stream*/, Timer& timer) {
    return MeasureSum(copy.rate, *device, timer, sum);
  });
  report.Add(std::move(sum), summed);
  Figure updates{.name = "144 AdamUpdates as one", .type = "float32"};
  const absl::Status updated = OnStream(*device, rounds, [&](Stream& stream, Timer& timer) {
    return MeasureUpdates(copy.rate, *device, stream, timer, updates);
  });
  report.Add(std::move(updates), updated);
  WEFT_RETURN_IF_ERROR(RunFused(*device, rounds, report));
  for (const ProductCase& product : ProductCases()) {
    Figure figure{.name = absl::StrCat("MatMul ", product.m, "x", product.k, "x", product.n),
                  .type = product.tf32 ? "tf32" : std::string(DTypeName(product.dtype)),
                  .is_product = true,
                  .of = "cuBLASLt"};
    const absl::Status status = OnStream(*device, rounds, [&](Stream& stream, Timer& timer) {
      return MeasureProduct(product, *device, stream, timer, figure);
    });
    report.Add(std::move(figure), status);
  }
  WEFT_RETURN_IF_ERROR(RunJoined(*device, rounds, report));
  return RunAllDnn(*device, rounds, report);
}

absl::Status ReadArguments(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--quick") {
      arguments.quick = true;
    } else if ((flag == "--device" || flag == "--json") && i + 1 < argc) {
      (flag == "--device" ? arguments.device : arguments.json_file) = argv[++i];
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown or incomplete argument '", flag,
                       "'; usage: gpu_benchmark [--device cuda:0] [--json FILE] [--quick]"));
    }
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Arguments arguments;
  const absl::Status understood = ReadArguments(argc, argv, arguments);
  if (!understood.ok()) {
    std::cerr << "error: " << understood.message() << "\n";
    return 2;
  }
  Report report;
  const absl::Status ran = RunAll(arguments, report);
  if (!ran.ok()) std::cerr << "error: " << ran.message() << "\n";
  if (!arguments.json_file.empty()) {
    std::ofstream file(arguments.json_file);
    file << Json(report.figures(), arguments.device);
    file.close();
    if (!file) {
      std::cerr << "error: '" << arguments.json_file << "' cannot be written\n";
      return 1;
    }
  }
  if (!ran.ok()) return 1;
  std::cout << absl::StrFormat("copy %.0f GB/s", report.figures()[0].rate * 1e-9)
            << Lowest(report.figures(), "a copy") << Lowest(report.figures(), "cuBLASLt")
            << Lowest(report.figures(), kNodesOneByOne)
            << Lowest(report.figures(), kOurConvolutions) << Lowest(report.figures(), kOurAttention)
            << Lowest(report.figures(), kOurNormalizations);
  if (report.errors() > 0) std::cout << "; " << report.errors() << " cases could not be run";
  std::cout << std::endl;
  return report.errors() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace weft::cuda

int main(int argc, char** argv) { return weft::cuda::Main(argc, argv); }
