// LossWeight and CountCorrect.
#include "absl/strings/str_cat.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/loss/loss_samples.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// The samples of labels alone. Without weights any label counts; with them it must have one.
LossSamples SamplesOfLabels(const PrepareContext& context) {
  LossSamples samples;
  samples.label_shape = context.InputShape(0);
  samples.batch = samples.label_shape.num_elements();
  samples.classes = context.HasInput(1) ? context.InputShape(1).num_elements() : 0;
  if (context.attributes().Has("ignore_index")) {
    samples.ignored = context.attributes().Int("ignore_index", 0);
  }
  return samples;
}

template <typename T, typename L>
std::unique_ptr<Kernel> MakeLossWeight(LossSamples samples, bool has_weights) {
  return MakeKernel(
      [samples = std::move(samples), has_weights](const KernelContext& run) -> absl::Status {
        const L* labels = Input<L>(run, 0);
        const T* weights = has_weights ? Input<T>(run, 1) : nullptr;
        if (has_weights) WEFT_RETURN_IF_ERROR(samples.CheckLabels(labels));
        *Output<T>(run, 0) =
            Store<T>(static_cast<ComputeType<T>>(samples.TotalWeight(labels, weights)));
        return absl::OkStatus();
      });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareLossWeight(const PrepareContext& context) {
  if (context.HasInput(1) && context.InputDType(1) != context.OutputDType(0)) {
    return context.InvalidArgument("the weights must have the type that attribute dtype names");
  }
  return PrepareByDType(context, context.OutputDType(0), FloatTypes(), [&](auto weight) {
    return PrepareByDType(context, context.InputDType(0), IndexTypes(),
                          [&](auto label) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                            return MakeLossWeight<decltype(weight), decltype(label)>(
                                SamplesOfLabels(context), context.HasInput(1));
                          });
  });
}

// The first of the largest.
template <typename T>
int64_t BestClass(const T* scores, int64_t classes, int64_t stride) {
  int64_t best = -1;
  for (int64_t k = 0; k < classes; ++k) {
    if (best < 0 || Load(scores[k * stride]) > Load(scores[best * stride])) best = k;
  }
  return best;
}

template <typename T, typename L>
std::unique_ptr<Kernel> MakeCountCorrect(LossSamples samples) {
  return MakeKernel([samples = std::move(samples)](const KernelContext& run) {
    const T* scores = Input<T>(run, 0);
    const L* labels = Input<L>(run, 1);
    int64_t correct = 0;
    for (int64_t s = 0; s < samples.count(); ++s) {
      const int64_t best =
          BestClass(scores + samples.FirstScore(s), samples.classes, samples.inner);
      if (best >= 0 && best == static_cast<int64_t>(labels[s])) ++correct;
    }
    *Output<float>(run, 0) = static_cast<float>(correct);
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareCountCorrect(const PrepareContext& context) {
  const LossSamples samples = LossSamples::Of(context, 0, 1);
  return PrepareByDType(context, context.InputDType(0), FloatTypes(), [&](auto score) {
    return PrepareByDType(context, context.InputDType(1), IndexTypes(),
                          [&](auto label) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                            return MakeCountCorrect<decltype(score), decltype(label)>(samples);
                          });
  });
}

WEFT_REGISTER_KERNEL(kWeftDomain, "LossWeight", DeviceKind::kCpu, PrepareLossWeight);
WEFT_REGISTER_KERNEL(kWeftDomain, "CountCorrect", DeviceKind::kCpu, PrepareCountCorrect);

}  // namespace
}  // namespace weft::cpu
