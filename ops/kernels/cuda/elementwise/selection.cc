// Where; Sum, Mean, Max and Min of any number of operands.
#include <cstdint>
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

const void* Element(const void* data, int64_t i, int64_t bytes) {
  return static_cast<const char*>(data) + i * bytes;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareWhere(const PrepareContext& context) {
  const int bits = DTypeBits(context.InputDType(1));
  const WhereLaunch launch = FindWhere(bits);
  if (launch.launch == nullptr) return context.Unimplemented("no kernel for elements of this size");
  WEFT_ASSIGN_OR_RETURN(std::vector<BroadcastPiece> pieces, PiecesOfInputs(context));
  std::vector<WhereCall> calls;
  for (const BroadcastPiece& piece : pieces) {
    WhereCall& call = calls.emplace_back();
    call.count = static_cast<int32_t>(piece.plan.elements);
    call.has_packets = piece.plan.HasPackets(launch.width);
    call.map = piece.plan.Map<3>();
  }
  return MakeKernel([=, bytes = int64_t{bits / 8}, pieces = std::move(pieces),
                     calls = std::move(calls)](const KernelContext& run) {
    for (size_t i = 0; i < calls.size(); ++i) {
      WhereCall call = calls[i];
      call.queue = QueueOf(run);
      call.condition = Element(run.inputs[0], pieces[i].operands[0], 1);
      call.a = Element(run.inputs[1], pieces[i].operands[1], bytes);
      call.b = Element(run.inputs[2], pieces[i].operands[2], bytes);
      call.y = static_cast<char*>(run.outputs[0]) + pieces[i].output * bytes;
      const absl::Status status = LaunchStatus(launch.launch(call), "Where");
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  });
}
WEFT_REGISTER_KERNEL("", "Where", DeviceKind::kCuda, PrepareWhere);

KernelFactory Variadic(Folding folding) {
  return [folding](const PrepareContext& context) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    const DType dtype = context.InputDType(0);
    const VariadicLaunch launch = FindVariadic(folding, dtype);
    if (launch.launch == nullptr) {
      return context.Unimplemented(absl::StrCat("no kernel for ", std::string(DTypeName(dtype))));
    }
    const int operands = context.num_inputs();
    if (operands > kMaxFolded) {
      return context.Unimplemented(
          absl::StrCat("there are ", operands, " operands, the kernel takes ", kMaxFolded));
    }
    WEFT_ASSIGN_OR_RETURN(std::vector<BroadcastPiece> pieces, PiecesOfInputs(context));
    std::vector<VariadicCall> calls;
    for (const BroadcastPiece& piece : pieces) {
      VariadicCall& call = calls.emplace_back();
      call.operands = operands;
      call.count = static_cast<int32_t>(piece.plan.elements);
      call.has_packets = piece.plan.HasPackets(launch.width);
      call.map = piece.plan.Map<kMaxFolded>();
    }
    return MakeKernel([=, bytes = int64_t{DTypeBits(dtype) / 8}, op = context.node().op,
                       pieces = std::move(pieces),
                       calls = std::move(calls)](const KernelContext& run) mutable {
      for (size_t i = 0; i < calls.size(); ++i) {
        VariadicCall& call = calls[i];
        call.queue = QueueOf(run);
        for (int k = 0; k < operands; ++k) {
          call.x[k] = Element(run.inputs[k], pieces[i].operands[k], bytes);
        }
        call.y = static_cast<char*>(run.outputs[0]) + pieces[i].output * bytes;
        const absl::Status status = LaunchStatus(launch.launch(call), op);
        if (!status.ok()) return status;
      }
      return absl::OkStatus();
    });
  };
}
WEFT_REGISTER_KERNEL("", "Sum", DeviceKind::kCuda, Variadic(Folding::kSum));
WEFT_REGISTER_KERNEL("", "Mean", DeviceKind::kCuda, Variadic(Folding::kMean));
WEFT_REGISTER_KERNEL("", "Max", DeviceKind::kCuda, Variadic(Folding::kMax));
WEFT_REGISTER_KERNEL("", "Min", DeviceKind::kCuda, Variadic(Folding::kMin));

}  // namespace
}  // namespace weft::cuda
