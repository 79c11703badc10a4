// BatchNormalization and its gradient, channel by channel.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/widened.h"
#include "ops/kernels/cpu/normalization/normalization_math.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

using BatchTypes = TypeList<float, double>;

// X as [samples, channels, plane].
struct Planes {
  int64_t samples = 0;
  int64_t channels = 0;
  int64_t size = 0;  // of a plane
  double epsilon = 0;
  bool training = false;
  int threads = 1;

  int64_t per_channel() const { return samples * size; }
  int64_t offset(int64_t sample, int64_t channel) const {
    return (sample * channels + channel) * size;
  }
  // The body gets each channel once.
  template <typename Fn>
  void ForEachChannel(double nanoseconds_per_element, Fn body) const {
    ParallelFor(threads, channels, nanoseconds_per_element * static_cast<double>(per_channel()), 1,
                [&](int64_t begin, int64_t end) {
                  for (int64_t channel = begin; channel < end; ++channel) body(channel);
                });
  }
};

Planes PlanesOf(const PrepareContext& context, const Shape& x) {
  return Planes{x.dim(0),
                x.dim(1),
                x.ProductOf(2, x.rank()),
                context.attributes().Float("epsilon", 1e-5f),
                context.attributes().Int("training_mode", 0) != 0,
                context.threads()};
}

struct Moments {
  double mean = 0;
  double variance = 0;  // of the population
};

// Of the samples of one channel; zeros when there are none.
template <typename T>
Moments MomentsOf(const Planes& planes, const T* x, int64_t channel) {
  Moments moments;
  if (planes.per_channel() == 0) return moments;
  const double count = static_cast<double>(planes.per_channel());
  for (int64_t n = 0; n < planes.samples; ++n) {
    moments.mean += SumOf(x + planes.offset(n, channel), planes.size);
  }
  moments.mean /= count;
  for (int64_t n = 0; n < planes.samples; ++n) {
    moments.variance += SumOfSquaredDeviations(x + planes.offset(n, channel), planes.size,
                                               static_cast<T>(moments.mean));
  }
  moments.variance /= count;
  return moments;
}

// Running statistics: of no samples, they stay.
template <typename T>
void UpdateRunning(const KernelContext& run, const Planes& planes, double momentum,
                   const Moments& moments, bool has_mean, bool has_variance, int64_t channel) {
  const double keep = planes.per_channel() == 0 ? 1.0 : momentum;
  if (has_mean) {
    Output<T>(run, 1)[channel] =
        static_cast<T>(keep * Input<T>(run, 3)[channel] + (1 - keep) * moments.mean);
  }
  if (has_variance) {
    Output<T>(run, 2)[channel] =
        static_cast<T>(keep * Input<T>(run, 4)[channel] + (1 - keep) * moments.variance);
  }
}

template <typename T>
std::unique_ptr<Kernel> MakeBatchNormalization(const PrepareContext& context,
                                               const Planes& planes) {
  const double momentum = context.attributes().Float("momentum", 0.9f);
  const bool has_mean = context.HasOutput(1);
  const bool has_variance = context.HasOutput(2);
  return MakeKernel([=](const KernelContext& run) {
    planes.ForEachChannel(0.3, [&](int64_t channel) {
      const T* x = Input<T>(run, 0);
      Moments moments;
      if (planes.training) {
        moments = MomentsOf(planes, x, channel);
        UpdateRunning<T>(run, planes, momentum, moments, has_mean, has_variance, channel);
      } else {
        moments = {Input<T>(run, 3)[channel], Input<T>(run, 4)[channel]};
      }
      const double factor =
          Input<T>(run, 1)[channel] / std::sqrt(moments.variance + planes.epsilon);
      const double addend = Input<T>(run, 2)[channel] - moments.mean * factor;
      for (int64_t n = 0; n < planes.samples; ++n) {
        const int64_t offset = planes.offset(n, channel);
        ScaleAndShift(x + offset, planes.size, static_cast<T>(factor), static_cast<T>(addend),
                      Output<T>(run, 0) + offset);
      }
    });
    return absl::OkStatus();
  });
}

absl::Status CheckOneType(const PrepareContext& context) {
  for (int i = 1; i < context.num_inputs(); ++i) {
    if (!context.HasInput(i) || context.InputDType(i) == context.InputDType(0)) continue;
    return context.Unimplemented("all inputs must have the type of the first");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareBatchNormalization(const PrepareContext& context) {
  WEFT_RETURN_IF_ERROR(CheckOneType(context));
  const Planes planes = PlanesOf(context, context.InputShape(0));
  return PrepareByDType(context, context.InputDType(0), BatchTypes{},
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          return MakeBatchNormalization<decltype(zero)>(context, planes);
                        });
}

// With given statistics dX = dY scale / deviation. With the samples' own (m of them),
//   dX = scale / deviation (dY - sum(dY) / m - xhat sum(dY xhat) / m):
// Ioffe and Szegedy, Batch Normalization (2015), section 3.
template <typename T>
std::unique_ptr<Kernel> MakeBatchNormalizationGradient(const PrepareContext& context,
                                                       const Planes& planes) {
  const bool has_dx = context.HasOutput(0);
  const bool has_dscale = context.HasOutput(1);
  const bool has_dbias = context.HasOutput(2);
  return MakeKernel([=](const KernelContext& run) {
    planes.ForEachChannel(0.6, [&](int64_t channel) {
      const T* dy = Input<T>(run, 0);
      const T* x = Input<T>(run, 1);
      const Moments moments = planes.training
                                  ? MomentsOf(planes, x, channel)
                                  : Moments{Input<T>(run, 3)[channel], Input<T>(run, 4)[channel]};
      const double inverse = 1.0 / std::sqrt(moments.variance + planes.epsilon);
      const Statistics<T> statistics{static_cast<T>(moments.mean), static_cast<T>(inverse)};
      double sum = 0;
      double sum_xhat = 0;
      for (int64_t n = 0; n < planes.samples; ++n) {
        const int64_t offset = planes.offset(n, channel);
        const GradientSums<T> sums = SumGradientRow(dy + offset, x + offset, planes.size,
                                                    statistics, static_cast<const T*>(nullptr));
        sum += sums.g;
        sum_xhat += sums.g_xhat;
      }
      if (has_dscale) Output<T>(run, 1)[channel] = static_cast<T>(sum_xhat);
      if (has_dbias) Output<T>(run, 2)[channel] = static_cast<T>(sum);
      if (!has_dx) return;
      const double a = Input<T>(run, 2)[channel] * inverse;
      const double count =
          planes.training ? std::max<double>(static_cast<double>(planes.per_channel()), 1) : 0;
      const double b = planes.training ? -a * inverse * sum_xhat / count : 0;
      const double c = planes.training ? -a * sum / count - b * moments.mean : 0;
      for (int64_t n = 0; n < planes.samples; ++n) {
        const int64_t offset = planes.offset(n, channel);
        CombineLinear(dy + offset, x + offset, planes.size, static_cast<T>(a), static_cast<T>(b),
                      static_cast<T>(c), Output<T>(run, 0) + offset);
      }
    });
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareBatchNormalizationGradient(
    const PrepareContext& context) {
  WEFT_RETURN_IF_ERROR(CheckOneType(context));
  if (!(context.InputShape(0) == context.InputShape(1))) {
    return context.InvalidArgument("dY and X must have the same shape");
  }
  const Planes planes = PlanesOf(context, context.InputShape(1));
  return PrepareByDType(context, context.InputDType(0), BatchTypes{},
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          return MakeBatchNormalizationGradient<decltype(zero)>(context, planes);
                        });
}

}  // namespace

WEFT_REGISTER_KERNEL("", "BatchNormalization", DeviceKind::kCpu,
                     Widened(PrepareBatchNormalization));
WEFT_REGISTER_KERNEL("ai.weft", "BatchNormalizationGrad", DeviceKind::kCpu,
                     PrepareBatchNormalizationGradient);

}  // namespace weft::cpu
