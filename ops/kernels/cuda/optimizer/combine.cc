// Scale, AddN, TrustRatio and RateFactor.
#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/defs/optimizer/rate_schedule.h"
#include "ops/defs/optimizer/update_operands.h"
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/optimizer/joined_kernel.h"
#include "ops/kernels/cuda/optimizer/update_calls.h"

namespace weft::cuda {
namespace {

// One Scale.
struct ScalePart {
  using Item = ScaleItem;

  std::string key;
  int num_inputs = 2;
  int num_outputs = 1;
  DType dtype = DType::kFloat32;
  int64_t count = 0;

  ScaleItem ItemOf(const void* const* inputs, void* const* outputs) const {
    return {inputs[0], inputs[1], outputs[0], count};
  }
  absl::Status Launch(const KernelContext& run, const ScaleItem* items, int items_count) const {
    return LaunchStatus(LaunchScales(QueueOf(run), dtype, items, items_count), "Scale");
  }
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareScale(const PrepareContext& context) {
  ScalePart part;
  part.dtype = context.InputDType(0);
  part.count = context.InputShape(0).num_elements();
  part.key = absl::StrCat("CUDA Scale ", std::string(DTypeName(part.dtype)));
  if (context.InputDType(1) != part.dtype) {
    return context.Unimplemented("the scale must have the type of what is scaled");
  }
  return PrepareByElement(
      context, part.dtype, FloatElements(),
      [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> { return NewJoinedKernel(part); });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareAddN(const PrepareContext& context) {
  AddCall call;
  call.addends = context.num_inputs();
  call.dtype = context.OutputDType(0);
  call.count = context.OutputShape(0).num_elements();
  if (call.addends > kMaxAddends) {
    return context.Unimplemented(absl::StrCat("no kernel for CUDA devices adds ", call.addends,
                                              " tensors at once; the limit is ", kMaxAddends));
  }
  return PrepareByElement(context, call.dtype, NumberElements(),
                          [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                            return MakeKernel([call](const KernelContext& run) mutable {
                              std::copy_n(run.inputs, call.addends, call.x);
                              call.y = run.outputs[0];
                              return LaunchStatus(LaunchAdd(QueueOf(run), call), "AddN");
                            });
                          });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareTrustRatio(const PrepareContext& context) {
  if (context.InputShape(0) != context.InputShape(1)) {
    return context.InvalidArgument("both norms must have one shape");
  }
  const Attributes& attributes = context.attributes();
  const double coefficient = Hyperparameter(attributes, "coefficient", 1);
  const double weight_decay = Hyperparameter(attributes, "weight_decay");
  const double epsilon = Hyperparameter(attributes, "epsilon");
  const int64_t count = context.OutputShape(0).num_elements();
  const DType dtype = context.InputDType(0);
  return PrepareByElement(
      context, dtype, Elements<float, double>(),
      [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([=](const KernelContext& run) {
          return LaunchStatus(
              LaunchTrustRatio(QueueOf(run), dtype, run.inputs[0], run.inputs[1], run.outputs[0],
                               count, coefficient, weight_decay, epsilon),
              "TrustRatio");
        });
      });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareRateFactor(const PrepareContext& context) {
  static const auto* const kCurves = new std::map<std::string, RateCurve>{
      {"constant", RateCurve::kConstant},       {"step", RateCurve::kStep},
      {"exponential", RateCurve::kExponential}, {"linear", RateCurve::kLinear},
      {"cosine", RateCurve::kCosine},           {"polynomial", RateCurve::kPolynomial},
      {"one_cycle", RateCurve::kOneCycle}};
  const RateSchedule schedule = RateScheduleOf(context.attributes());
  if (const absl::Status status = ValidateRateSchedule(schedule); !status.ok()) {
    return context.InvalidArgument(std::string(status.message()));
  }
  const auto curve = kCurves->find(schedule.kind);
  if (curve == kCurves->end()) {
    return context.Unimplemented(
        absl::StrCat("no kernel for CUDA devices has the schedule '", schedule.kind, "'"));
  }
  RateCall call;
  call.curve = curve->second;
  call.warmup = schedule.warmup;
  call.total = schedule.total;
  call.every = schedule.every;
  call.gamma = schedule.gamma;
  call.power = schedule.power;
  call.end = schedule.end;
  call.count = context.OutputShape(0).num_elements();
  return MakeKernel([call](const KernelContext& run) mutable {
    call.step = In<int64_t>(run, 0);
    call.factor = Out<float>(run, 0);
    return LaunchStatus(LaunchRateFactor(QueueOf(run), call), "RateFactor");
  });
}

WEFT_REGISTER_KERNEL("ai.weft", "Scale", DeviceKind::kCuda, PrepareScale);
WEFT_REGISTER_KERNEL("ai.weft", "AddN", DeviceKind::kCuda, PrepareAddN);
WEFT_REGISTER_KERNEL("ai.weft", "TrustRatio", DeviceKind::kCuda, PrepareTrustRatio);
WEFT_REGISTER_KERNEL("ai.weft", "RateFactor", DeviceKind::kCuda, PrepareRateFactor);

}  // namespace
}  // namespace weft::cuda
