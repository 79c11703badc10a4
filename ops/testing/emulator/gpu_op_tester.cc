#include "ops/testing/emulator/gpu_op_tester.h"

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "ops/testing/op_tester.h"
#include "platform/status_macros.h"
#include "tensor/device_id.h"
#include "tensor/lookup/device_lookup.h"

namespace weft::testing {
namespace {

constexpr absl::Duration kRunDeadline = absl::Minutes(2);

// The device that WEFT_TEST_DEVICE names, "cuda:0": then these tests hold the kernels of a build
// with CUDA on a real GPU. Null where the variable is not set.
absl::StatusOr<Device*> RealDevice() {
  const char* const name = std::getenv("WEFT_TEST_DEVICE");
  if (name == nullptr) return nullptr;
  WEFT_ASSIGN_OR_RETURN(const DeviceId id, ParseDevice(name));
  return FindDevice(id.kind, id.index);
}

// The device's side of one case.
class CaseOnGpu {
 public:
  // `emulated` is the device, or null where it is a real one.
  CaseOnGpu(Device& device, EmulatedDevice* emulated, const ConcreteNode& node, Kernel& kernel)
      : device_(device), emulated_(emulated), node_(node), kernel_(kernel) {}

  absl::Status Prepare() {
    WEFT_ASSIGN_OR_RETURN(stream_, device_.NewStream("node"));
    WEFT_ASSIGN_OR_RETURN(outputs_, node_.AllocateOutputs());
    for (size_t i = 0; i < node_.inputs().size(); ++i) {
      const Tensor& input = node_.inputs()[i];
      input_data_.push_back(nullptr);
      if (!input.valid()) continue;
      WEFT_ASSIGN_OR_RETURN(void* const data,
                            Allocate(input.bytes(), absl::StrCat("input ", i), true));
      input_data_.back() = data;
      WEFT_RETURN_IF_ERROR(device_.CopyFromHost(*stream_, input.raw_data(), data, input.bytes()));
    }
    return absl::OkStatus();
  }

  // In fresh memory; `at_once`: calls the kernel here, not through Enqueue.
  absl::Status Run(bool at_once) {
    std::vector<void*> output_data;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      output_data.push_back(nullptr);
      if (!outputs_[i].valid()) continue;
      WEFT_ASSIGN_OR_RETURN(output_data.back(),
                            Allocate(outputs_[i].bytes(), absl::StrCat("output ", i), false));
    }
    context_.inputs = input_data_.data();
    context_.outputs = output_data.data();
    WEFT_ASSIGN_OR_RETURN(context_.workspace,
                          Allocate(kernel_.workspace_bytes(), "workspace", false));
    context_.stream = stream_.get();
    if (at_once) {
      WEFT_RETURN_IF_ERROR(kernel_.Run(context_));
    } else {
      WEFT_RETURN_IF_ERROR(stream_->Enqueue(Work{&RunKernel, this}));
    }
    // Where kernels report bad data, outputs may be unwritten.
    WEFT_RETURN_IF_ERROR(stream_->Synchronize(kRunDeadline));
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (!outputs_[i].valid()) continue;
      WEFT_RETURN_IF_ERROR(device_.CopyToHost(*stream_, output_data[i], outputs_[i].raw_data(),
                                              outputs_[i].bytes()));
    }
    return stream_->Synchronize(kRunDeadline);
  }

  std::vector<Tensor> TakeOutputs() { return std::move(outputs_); }

 private:
  static absl::Status RunKernel(void* argument, Stream& /*stream*/) {
    auto& self = *static_cast<CaseOnGpu*>(argument);
    return self.kernel_.Run(self.context_);
  }

  absl::StatusOr<void*> Allocate(size_t bytes, const std::string& name, bool read_only) {
    WEFT_ASSIGN_OR_RETURN(buffers_.emplace_back(), device_.Allocate(bytes));
    if (emulated_ == nullptr) {
      // NaN and other nonsense, where a kernel writes nothing.
      const std::vector<std::byte>& poison =
          *poisons_.emplace_back(std::make_unique<std::vector<std::byte>>(bytes, std::byte{0xff}));
      WEFT_RETURN_IF_ERROR(
          device_.CopyFromHost(*stream_, poison.data(), buffers_.back()->data(), bytes));
    }
    if (emulated_ != nullptr) emulated_->Describe(buffers_.back()->data(), name, read_only);
    return buffers_.back()->data();
  }

  Device& device_;
  EmulatedDevice* const emulated_;
  const ConcreteNode& node_;
  Kernel& kernel_;
  KernelContext context_;
  std::vector<const void*> input_data_;
  std::vector<Tensor> outputs_;
  std::vector<std::shared_ptr<Buffer>> buffers_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> poisons_;
  // Last: ending it waits for work that uses the above.
  std::unique_ptr<Stream> stream_;
};

absl::Status RunNode(Device& device, EmulatedDevice* emulated, const ConcreteNode& node, int runs,
                     std::vector<Tensor>& outputs) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Kernel> kernel, node.Prepare());
  CaseOnGpu run(device, emulated, node, *kernel);
  WEFT_RETURN_IF_ERROR(run.Prepare());
  for (int i = 0; i < runs; ++i) WEFT_RETURN_IF_ERROR(run.Run(/*at_once=*/i % 2 != 0));
  outputs = run.TakeOutputs();
  return absl::OkStatus();
}

::testing::AssertionResult FailedOn(const OpCase& op_case, uint64_t seed, const std::string& what) {
  return ::testing::AssertionFailure()
         << op_case.ToString() << " on the emulated GPU with seed " << seed << ": " << what;
}

}  // namespace

bool TestsOnARealGpu() { return std::getenv("WEFT_TEST_DEVICE") != nullptr; }

absl::StatusOr<std::vector<Tensor>> RunOnEmulatedGpu(const OpCase& op_case,
                                                     const EmulatedRunOptions& options,
                                                     std::vector<EmulatedLaunchRecord>* launches) {
  if (options.registry->Find(op_case.domain, op_case.op, DeviceKind::kCuda) == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("no kernel of ", op_case.ToString(), " is registered for CUDA"));
  }
  WEFT_ASSIGN_OR_RETURN(Device* const real, RealDevice());
  std::optional<EmulatedDevice> emulated;
  if (real == nullptr) {
    emulated.emplace(
        EmulatedDeviceOptions{.seed = options.seed, .counts_traffic = options.counts_traffic});
  }
  Device& device = real == nullptr ? *emulated : *real;
  const SingleNodeGraph single = MakeSingleNodeGraph(op_case);
  NodeRunOptions node_options;
  node_options.registry = options.registry;
  node_options.device = &device;
  node_options.strict = false;
  node_options.tf32 = op_case.tf32;
  node_options.input_slices = options.input_slices;
  node_options.output_slices = options.output_slices;
  node_options.uses_cudnn = options.uses_cudnn;
  WEFT_ASSIGN_OR_RETURN(
      const ConcreteNode node,
      ConcreteNode::Create(single.graph->node(single.node), op_case.inputs, node_options));
  std::vector<Tensor> outputs;
  const absl::Status status =
      RunNode(device, emulated ? &*emulated : nullptr, node, options.runs, outputs);
  if (launches != nullptr && emulated) *launches = emulated->launches();
  // A report tells more than what came of it.
  if (emulated) WEFT_RETURN_IF_ERROR(emulated->Verify());
  WEFT_RETURN_IF_ERROR(status);
  return outputs;
}

::testing::AssertionResult CheckOnEmulatedGpu(const OpCase& op_case, const Tolerance& tolerance,
                                              int seeds, const KernelRegistry& registry,
                                              bool uses_cudnn) {
  const absl::StatusOr<std::vector<Tensor>> reference =
      RunOp(InFloat64(op_case), Kernels::kReference);
  if (!reference.ok()) {
    return ::testing::AssertionFailure()
           << op_case.ToString() << " by the reference kernel: " << reference.status();
  }
  std::vector<Tensor> first;
  for (uint64_t seed = 1; seed <= static_cast<uint64_t>(seeds); ++seed) {
    EmulatedRunOptions options;
    options.registry = &registry;
    options.uses_cudnn = uses_cudnn;
    options.seed = seed;
    options.runs = seed == static_cast<uint64_t>(seeds) ? 2 : 1;
    const absl::StatusOr<std::vector<Tensor>> outputs = RunOnEmulatedGpu(op_case, options);
    if (!outputs.ok()) return FailedOn(op_case, seed, outputs.status().ToString());
    for (size_t i = 0; i < reference->size(); ++i) {
      if (!(*reference)[i].valid()) continue;
      const absl::Status near =
          CompareTensors((*outputs)[i], (*reference)[i], tolerance, /*any_dtype=*/true);
      const std::string output = absl::StrCat("output ", i, " ");
      if (!near.ok()) return FailedOn(op_case, seed, output + std::string(near.message()));
      if (seed == 1 || BitwiseEqual((*outputs)[i], first[i])) continue;
      return FailedOn(op_case, seed,
                      absl::StrCat(output, "has other bits than with seed 1: ",
                                   (*outputs)[i].ToString(), " instead of ", first[i].ToString()));
    }
    if (seed == 1) first = *outputs;
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult ExpectErrorOnEmulatedGpu(const OpCase& op_case, absl::StatusCode code,
                                                    const std::vector<std::string>& texts,
                                                    const KernelRegistry& registry) {
  EmulatedRunOptions options;
  options.registry = &registry;
  const absl::Status status = RunOnEmulatedGpu(op_case, options).status();
  if (status.ok()) return ::testing::AssertionFailure() << op_case.ToString() << " did not fail";
  if (status.code() != code) {
    return ::testing::AssertionFailure()
           << "expected " << absl::StatusCodeToString(code) << ", got " << status;
  }
  for (const std::string& text : texts) {
    if (std::string(status.message()).find(text) != std::string::npos) continue;
    return ::testing::AssertionFailure()
           << "the message lacks '" << text << "': " << status.message();
  }
  return ::testing::AssertionSuccess();
}

}  // namespace weft::testing
