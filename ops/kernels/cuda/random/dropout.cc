// Dropout and DropoutGrad. Ratio and mode stay on the device: the host does not wait for them.
#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/random/places.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

// What the operands ratio and training_mode, from input `first` on, say.
class ModeOperands {
 public:
  static absl::StatusOr<ModeOperands> Make(const PrepareContext& context, int first) {
    ModeOperands operands;
    operands.first_ = first;
    operands.has_ratio_ = context.HasInput(first);
    operands.has_training_ = context.HasInput(first + 1);
    operands.source_ = absl::StrCat(
        context.node().op, " '", context.node().name,
        "': the ratio, expected in [0, 1), with 1 for what is above and -1 for others,");
    if (!operands.has_ratio_) return operands;
    operands.type_ = context.InputDType(first);
    switch (operands.type_) {
      case DType::kFloat32:
      case DType::kFloat64:
      case DType::kFloat16:
      case DType::kBfloat16:
        return operands;
      default:
        return context.Unimplemented(
            absl::StrCat("no kernel for a ratio of ", std::string(DTypeName(operands.type_))));
    }
  }

  DropoutMode Of(const KernelContext& run) const {
    DropoutMode mode;
    mode.ratio = has_ratio_ ? run.inputs[first_] : nullptr;
    mode.training = has_training_ ? static_cast<const uint8_t*>(run.inputs[first_ + 1]) : nullptr;
    mode.ratio_type = type_;
    mode.report = {run.stream->fault(), source_.c_str(), 0, 1};
    return mode;
  }

 private:
  ModeOperands() = default;
  int first_ = 0;
  bool has_ratio_ = false;
  bool has_training_ = false;
  DType type_ = DType::kFloat32;
  std::string source_;
};

// With the attribute `seed`, the first step draws what ONNX's reference does (a Mersenne twister's
// numbers); all else is a function of seed, node, step and place. As on the CPU.
class DropoutKernel final : public StepReadingKernel {
 public:
  static absl::StatusOr<std::unique_ptr<Kernel>> Make(const PrepareContext& context) {
    const DType dtype = context.InputDType(0);
    const DropoutLaunch launch = FindDropout(dtype);
    if (launch == nullptr) {
      return context.Unimplemented(absl::StrCat("no kernel for ", std::string(DTypeName(dtype))));
    }
    WEFT_ASSIGN_OR_RETURN(const ModeOperands mode, ModeOperands::Make(context, 1));
    const Shape& shape = context.InputShape(0);
    const OperandSlice& slice = context.InputSlice(0);
    WEFT_ASSIGN_OR_RETURN(const PlaceMap places, PlacesOf(context, shape, slice));
    auto kernel = std::make_unique<DropoutKernel>(KeyOfNode(context), mode);
    kernel->launch_ = launch;
    kernel->places_ = places;
    kernel->global_ = slice.global_shape;
    kernel->count_ = shape.num_elements();
    kernel->has_mask_ = context.HasOutput(1);
    const int64_t seed = context.attributes().Int("seed", -1);
    kernel->twists_ = context.attributes().Has("seed") && seed >= 0 &&
                      seed <= std::numeric_limits<uint32_t>::max();
    TwisterCall& twister = kernel->twister_;
    twister.seed = static_cast<uint32_t>(seed);
    twister.rank = shape.rank();
    twister.count = slice.global_shape.num_elements();
    for (int d = 0; d < shape.rank(); ++d) {
      twister.global[d] = slice.global_shape.dim(d);
      twister.local[d] = shape.dim(d);
      twister.offset[d] = slice.offset[static_cast<size_t>(d)];
    }
    return kernel;
  }

  DropoutKernel(const RandomKey& key, const ModeOperands& mode) : key_(key), mode_(mode) {}

  // What the twister keeps, where no mask is wanted.
  size_t workspace_bytes() const override {
    return twists_ && !has_mask_ ? static_cast<size_t>(count_) : 0;
  }

  absl::Status Run(const KernelContext& run) override {
    if (count_ == 0) return absl::OkStatus();
    DropoutCall call;
    call.queue = QueueOf(run);
    call.key = StepKeyOf(key_, run);
    call.places = places_;
    call.places.first += FirstPlace(run, global_);
    call.mode = mode_.Of(run);
    call.x = run.inputs[0];
    call.y = run.outputs[0];
    call.mask = has_mask_ ? static_cast<uint8_t*>(run.outputs[1]) : nullptr;
    call.count = count_;
    // A recording has both, and its kernels look which step it is.
    if (twists_ && (run.step_on_device != nullptr || run.step == 0)) {
      twister_.queue = call.queue;
      twister_.step = run.step_on_device;
      twister_.mode = call.mode;
      twister_.first_place = FirstPlace(run, global_);
      twister_.kept = has_mask_ ? call.mask : static_cast<uint8_t*>(run.workspace);
      call.kept = twister_.kept;
      WEFT_RETURN_IF_ERROR(LaunchStatus(LaunchTwister(twister_), "Dropout"));
    }
    return LaunchStatus(launch_(call), "Dropout");
  }

 private:
  RandomKey key_;
  ModeOperands mode_;
  DropoutLaunch launch_ = nullptr;
  PlaceMap places_;
  Shape global_;
  int64_t count_ = 0;
  bool has_mask_ = false;
  bool twists_ = false;
  TwisterCall twister_;
};
WEFT_REGISTER_KERNEL("", "Dropout", DeviceKind::kCuda, DropoutKernel::Make);

absl::StatusOr<std::unique_ptr<Kernel>> PrepareDropoutGrad(const PrepareContext& context) {
  const DType dtype = context.InputDType(0);
  const DropoutGradLaunch launch = FindDropoutGrad(dtype);
  if (launch == nullptr) {
    return context.Unimplemented(absl::StrCat("no kernel for ", std::string(DTypeName(dtype))));
  }
  WEFT_ASSIGN_OR_RETURN(const ModeOperands mode, ModeOperands::Make(context, 2));
  const int64_t count = context.InputShape(0).num_elements();
  return MakeKernel([=](const KernelContext& run) {
    return LaunchStatus(launch({QueueOf(run), mode.Of(run), run.inputs[0],
                                static_cast<const uint8_t*>(run.inputs[1]), run.outputs[0], count}),
                        "DropoutGrad");
  });
}
WEFT_REGISTER_KERNEL(kWeftDomain, "DropoutGrad", DeviceKind::kCuda, PrepareDropoutGrad);

}  // namespace
}  // namespace weft::cuda
