// RandomUniform(Like), RandomNormal(Like), Bernoulli and Multinomial.
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/random/places.h"
#include "ops/kernels/cuda/random/step_kernel.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

KernelFactory RandomTensorOf(Distribution distribution, std::string first_name, float first_default,
                             std::string second_name, float second_default) {
  return [=](const PrepareContext& context) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    const DType dtype = context.OutputDType(0);
    const RandomLaunch launch = FindRandom(distribution, dtype);
    if (launch == nullptr) {
      return context.Unimplemented(absl::StrCat("no kernel for ", std::string(DTypeName(dtype))));
    }
    const OperandSlice slice = context.OutputSlice(0);
    RandomCall call;
    WEFT_ASSIGN_OR_RETURN(call.places, PlacesOf(context, context.OutputShape(0), slice));
    call.count = context.OutputShape(0).num_elements();
    call.a = context.attributes().Float(first_name, first_default);
    call.b = context.attributes().Float(second_name, second_default);
    return MakeDrawingKernel([launch, call, key = KeyOfNode(context), shape = slice.global_shape,
                              op = context.node().op](const KernelContext& run) {
      RandomCall now = call;
      now.queue = QueueOf(run);
      now.key = StepKeyOf(key, run);
      now.places.first += FirstPlace(run, shape);
      now.y = run.outputs[0];
      return LaunchStatus(launch(now), op);
    });
  };
}

WEFT_REGISTER_KERNEL("", "RandomUniform", DeviceKind::kCuda,
                     RandomTensorOf(Distribution::kUniform, "low", 0, "high", 1));
WEFT_REGISTER_KERNEL("", "RandomUniformLike", DeviceKind::kCuda,
                     RandomTensorOf(Distribution::kUniform, "low", 0, "high", 1));
WEFT_REGISTER_KERNEL("", "RandomNormal", DeviceKind::kCuda,
                     RandomTensorOf(Distribution::kNormal, "mean", 0, "scale", 1));
WEFT_REGISTER_KERNEL("", "RandomNormalLike", DeviceKind::kCuda,
                     RandomTensorOf(Distribution::kNormal, "mean", 0, "scale", 1));

// The bits of 1 in a type of up to 64 bits.
uint64_t BitsOfOne(DType dtype) {
  uint64_t bits = 1;
  const float single = 1;
  const double wide = 1;
  if (dtype == DType::kFloat32) {
    std::memcpy(&bits, &single, sizeof(single));
  } else if (dtype == DType::kFloat64) {
    std::memcpy(&bits, &wide, sizeof(wide));
  } else if (dtype == DType::kFloat16) {
    bits = ToFloat16(1).bits;
  } else if (dtype == DType::kBfloat16) {
    bits = ToBfloat16(1).bits;
  }
  return bits;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareBernoulli(const PrepareContext& context) {
  const DType from = context.InputDType(0);
  const DType to = context.OutputDType(0);
  const bool is_real = DispatchDType(to, [](auto) {});
  const BernoulliLaunch launch = is_real ? FindBernoulli(from, DTypeBits(to)) : nullptr;
  if (launch == nullptr) {
    return context.Unimplemented(absl::StrCat("no kernel for ", std::string(DTypeName(from)),
                                              " to ", std::string(DTypeName(to))));
  }
  const OperandSlice slice = context.OutputSlice(0);
  BernoulliCall call;
  WEFT_ASSIGN_OR_RETURN(call.places, PlacesOf(context, context.OutputShape(0), slice));
  call.count = context.OutputShape(0).num_elements();
  call.one = BitsOfOne(to);
  return MakeDrawingKernel(
      [=, key = KeyOfNode(context), shape = slice.global_shape](const KernelContext& run) {
        BernoulliCall now = call;
        now.queue = QueueOf(run);
        now.key = StepKeyOf(key, run);
        now.places.first += FirstPlace(run, shape);
        now.p = run.inputs[0];
        now.y = run.outputs[0];
        return LaunchStatus(launch(now), "Bernoulli");
      });
}
WEFT_REGISTER_KERNEL("", "Bernoulli", DeviceKind::kCuda, PrepareBernoulli);

absl::StatusOr<std::unique_ptr<Kernel>> PrepareMultinomial(const PrepareContext& context) {
  const DType from = context.InputDType(0);
  const DType to = context.OutputDType(0);
  const MultinomialLaunch launch = FindMultinomial(from, to);
  if (launch == nullptr) {
    return context.Unimplemented(absl::StrCat("no kernel for ", std::string(DTypeName(from)),
                                              " to ", std::string(DTypeName(to))));
  }
  const Shape output = context.OutputShape(0);
  MultinomialCall call;
  call.classes = context.InputShape(0).dim(1);
  call.samples = output.dim(1);
  call.count = output.num_elements();
  if (call.classes == 0 && call.count > 0) {
    return context.InvalidArgument("there are no classes to draw from");
  }
  if (call.samples > kDrawLimit) {
    return context.Unimplemented(
        absl::StrCat("the kernel draws ", kDrawLimit, " samples of a row"));
  }
  return MakeDrawingKernel([=, key = KeyOfNode(context)](const KernelContext& run) {
    MultinomialCall now = call;
    now.queue = QueueOf(run);
    now.key = StepKeyOf(key, run);
    now.first_place = FirstPlace(run, output);
    now.logits = run.inputs[0];
    now.y = run.outputs[0];
    return LaunchStatus(launch(now), "Multinomial");
  });
}
WEFT_REGISTER_KERNEL("", "Multinomial", DeviceKind::kCuda, PrepareMultinomial);

}  // namespace
}  // namespace weft::cuda
