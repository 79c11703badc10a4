// Operators of two operands that broadcast: arithmetic, comparisons, bits and gradients.
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/blocks/broadcast_plan.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/elementwise/elementwise_launch.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

// A launch for each piece of the output.
class BinaryKernel final : public Kernel {
 public:
  // `swaps`: the functor's first operand is input 1.
  static absl::StatusOr<std::unique_ptr<Kernel>> Make(const PrepareContext& context,
                                                      const BinaryLaunch& launch, bool swaps,
                                                      const FunctionParameters& parameters) {
    if (launch.launch == nullptr) {
      const std::string second =
          context.InputDType(1) == context.InputDType(0)
              ? ""
              : absl::StrCat(" and ", std::string(DTypeName(context.InputDType(1))));
      return context.Unimplemented(
          absl::StrCat("no kernel for ", std::string(DTypeName(context.InputDType(0))), second));
    }
    auto kernel = std::make_unique<BinaryKernel>();
    kernel->op_ = context.node().op;
    kernel->source_ =
        absl::StrCat(context.node().op, " '", context.node().name, "': divisor of whole numbers");
    kernel->launch_ = launch.launch;
    kernel->bytes_[0] = DTypeBits(context.InputDType(0)) / 8;
    kernel->bytes_[1] = DTypeBits(context.InputDType(1)) / 8;
    kernel->output_bytes_ = DTypeBits(context.OutputDType(0)) / 8;
    kernel->first_ = swaps ? 1 : 0;
    WEFT_ASSIGN_OR_RETURN(const std::vector<BroadcastPiece> pieces, PiecesOfInputs(context));
    for (const BroadcastPiece& piece : pieces) {
      Part part{.output = piece.output, .operands = {piece.operands[0], piece.operands[1]}};
      part.call.count = static_cast<int32_t>(piece.plan.elements);
      part.call.has_packets = piece.plan.HasPackets(launch.width);
      part.call.map = piece.plan.Map<2>();
      part.call.parameters = parameters;
      if (swaps) {
        for (auto& strides : part.call.map.strides) std::swap(strides[0], strides[1]);
      }
      kernel->parts_.push_back(part);
    }
    return kernel;
  }

  absl::Status Run(const KernelContext& run) override {
    for (Part& part : parts_) {
      BinaryCall& call = part.call;
      call.queue = QueueOf(run);
      call.a = Operand(run, part, first_);
      call.b = Operand(run, part, 1 - first_);
      call.y = static_cast<char*>(run.outputs[0]) + part.output * output_bytes_;
      call.report = {run.stream->fault(), source_.c_str(), 1, std::numeric_limits<int64_t>::max()};
      call.first_b = part.operands[1 - first_];
      const absl::Status status = LaunchStatus(launch_(call), op_);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  struct Part {
    BinaryCall call = {};
    int64_t output = 0;  // first elements
    int64_t operands[2] = {};
  };

  const void* Operand(const KernelContext& run, const Part& part, int i) const {
    return static_cast<const char*>(run.inputs[i]) + part.operands[i] * bytes_[i];
  }

  std::string op_;
  std::string source_;
  int (*launch_)(const BinaryCall& call) = nullptr;
  int64_t bytes_[2] = {};
  int64_t output_bytes_ = 0;
  int first_ = 0;
  std::vector<Part> parts_;
};

using FindBinary = BinaryLaunch (*)(BinaryFunction function, DType dtype);

KernelFactory Binary(FindBinary find, BinaryFunction function, bool swaps = false) {
  return [=](const PrepareContext& context) {
    return BinaryKernel::Make(context, find(function, context.InputDType(0)), swaps, {});
  };
}
KernelFactory Arithmetic(BinaryFunction function) { return Binary(FindArithmetic, function); }
KernelFactory Bits(BinaryFunction function) { return Binary(FindBits, function); }
KernelFactory Slope(BinaryFunction function) { return Binary(FindSlope, function); }

WEFT_REGISTER_KERNEL("", "Add", DeviceKind::kCuda, Arithmetic(BinaryFunction::kAdd));
WEFT_REGISTER_KERNEL("", "Sub", DeviceKind::kCuda, Arithmetic(BinaryFunction::kSub));
WEFT_REGISTER_KERNEL("", "Mul", DeviceKind::kCuda, Arithmetic(BinaryFunction::kMul));
WEFT_REGISTER_KERNEL("", "Div", DeviceKind::kCuda, Arithmetic(BinaryFunction::kDiv));
WEFT_REGISTER_KERNEL("", "PRelu", DeviceKind::kCuda, Arithmetic(BinaryFunction::kPRelu));
WEFT_REGISTER_KERNEL("", "Mod", DeviceKind::kCuda, [](const PrepareContext& context) {
  const bool truncated = context.attributes().Int("fmod", 0) != 0;
  return Arithmetic(truncated ? BinaryFunction::kTruncatedMod : BinaryFunction::kMod)(context);
});
WEFT_REGISTER_KERNEL("", "SwiGLU", DeviceKind::kCuda, [](const PrepareContext& context) {
  return BinaryKernel::Make(context, FindArithmetic(BinaryFunction::kSwiGlu, context.InputDType(0)),
                            false, {context.attributes().Float("alpha", 1)});
});
WEFT_REGISTER_KERNEL("", "Pow", DeviceKind::kCuda, [](const PrepareContext& context) {
  return BinaryKernel::Make(context, FindPower(context.InputDType(0), context.InputDType(1)), false,
                            {});
});

WEFT_REGISTER_KERNEL("", "And", DeviceKind::kCuda, Bits(BinaryFunction::kBitwiseAnd));
WEFT_REGISTER_KERNEL("", "Or", DeviceKind::kCuda, Bits(BinaryFunction::kBitwiseOr));
WEFT_REGISTER_KERNEL("", "Xor", DeviceKind::kCuda, Bits(BinaryFunction::kBitwiseXor));
WEFT_REGISTER_KERNEL("", "BitwiseAnd", DeviceKind::kCuda, Bits(BinaryFunction::kBitwiseAnd));
WEFT_REGISTER_KERNEL("", "BitwiseOr", DeviceKind::kCuda, Bits(BinaryFunction::kBitwiseOr));
WEFT_REGISTER_KERNEL("", "BitwiseXor", DeviceKind::kCuda, Bits(BinaryFunction::kBitwiseXor));
WEFT_REGISTER_KERNEL("", "BitShift", DeviceKind::kCuda, [](const PrepareContext& context) {
  const bool left = context.attributes().String("direction", "") == "LEFT";
  return Bits(left ? BinaryFunction::kShiftLeft : BinaryFunction::kShiftRight)(context);
});

WEFT_REGISTER_KERNEL("", "Equal", DeviceKind::kCuda,
                     Binary(FindComparison, BinaryFunction::kEqual));
WEFT_REGISTER_KERNEL("", "Less", DeviceKind::kCuda, Binary(FindComparison, BinaryFunction::kLess));
WEFT_REGISTER_KERNEL("", "LessOrEqual", DeviceKind::kCuda,
                     Binary(FindComparison, BinaryFunction::kLessOrEqual));
WEFT_REGISTER_KERNEL("", "Greater", DeviceKind::kCuda,
                     Binary(FindComparison, BinaryFunction::kLess, /*swaps=*/true));
WEFT_REGISTER_KERNEL("", "GreaterOrEqual", DeviceKind::kCuda,
                     Binary(FindComparison, BinaryFunction::kLessOrEqual, /*swaps=*/true));

WEFT_REGISTER_KERNEL(kWeftDomain, "ReluGrad", DeviceKind::kCuda, Slope(BinaryFunction::kReluGrad));
WEFT_REGISTER_KERNEL(kWeftDomain, "SigmoidGrad", DeviceKind::kCuda,
                     Slope(BinaryFunction::kSigmoidGrad));
WEFT_REGISTER_KERNEL(kWeftDomain, "TanhGrad", DeviceKind::kCuda, Slope(BinaryFunction::kTanhGrad));
WEFT_REGISTER_KERNEL(kWeftDomain, "ErfGrad", DeviceKind::kCuda, Slope(BinaryFunction::kErfGrad));
WEFT_REGISTER_KERNEL(kWeftDomain, "GeluGrad", DeviceKind::kCuda, Slope(BinaryFunction::kGeluGrad));
WEFT_REGISTER_KERNEL(kWeftDomain, "TanhGeluGrad", DeviceKind::kCuda,
                     Slope(BinaryFunction::kTanhGeluGrad));
WEFT_REGISTER_KERNEL(kWeftDomain, "SwishGrad", DeviceKind::kCuda,
                     Slope(BinaryFunction::kSwishGrad));

}  // namespace
}  // namespace weft::cuda
