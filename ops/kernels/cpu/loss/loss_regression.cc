// MeanSquaredError, SquaredErrorSum and their backward kernel.
#include <algorithm>
#include <type_traits>

#include "ops/kernels/cpu/blocks/elementwise_loop.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/elementwise/elementwise_simd.h"
#include "ops/kernels/cpu/reduction/reduce_simd.h"

namespace weft::cpu {
namespace {

// Partial sums of so many elements each are added in order, so that threads do not change bits.
constexpr int64_t kChunk = 1 << 16;

template <typename T>
double SumOfSquares(const T* a, const T* b, int64_t count) {
  if constexpr (std::is_same_v<T, float>) {
    return SumOfSquaredDifferences(a, b, count);
  } else {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      const double difference = static_cast<double>(Load(a[i])) - static_cast<double>(Load(b[i]));
      sum += difference * difference;
    }
    return sum;
  }
}

template <typename T>
std::unique_ptr<Kernel> MakeSquaredError(int64_t elements, double divisor, int threads) {
  const int64_t chunks = (elements + kChunk - 1) / kChunk;
  return MakeKernel(
      [=](const KernelContext& run) {
        const T* a = Input<T>(run, 0);
        const T* b = Input<T>(run, 1);
        double* partial = static_cast<double*>(run.workspace);
        const double cost = kArithmeticNanoseconds * static_cast<double>(kChunk);
        ParallelFor(threads, chunks, cost, 1, [&](int64_t begin, int64_t end) {
          for (int64_t c = begin; c < end; ++c) {
            const int64_t first = c * kChunk;
            partial[c] = SumOfSquares(a + first, b + first, std::min(kChunk, elements - first));
          }
        });
        double total = 0;
        for (int64_t c = 0; c < chunks; ++c) total += partial[c];
        *Output<T>(run, 0) = Store<T>(static_cast<ComputeType<T>>(total / divisor));
        return absl::OkStatus();
      },
      chunks * sizeof(double));
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareSquaredError(const PrepareContext& context,
                                                            double divisor) {
  const int64_t elements = context.InputShape(0).num_elements();
  return PrepareByDType(context, context.InputDType(0), FloatTypes(),
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          return MakeSquaredError<decltype(zero)>(elements, divisor,
                                                                  context.threads());
                        });
}

// 2 dy (a - b)
template <typename T>
void GradientOfRun(T dy, const T* a, const T* b, T* out, int64_t count) {
  if constexpr (std::is_same_v<T, float>) {
    constexpr int64_t kBlock = 1024;  // stays in the nearest cache between the two passes
    const float factor = 2 * dy;
    for (int64_t i = 0; i < count; i += kBlock) {
      const int64_t n = std::min(kBlock, count - i);
      BinaryFloat(BinaryOp::kSub, BinaryOperands::kArrays, a + i, b + i, out + i, n);
      BinaryFloat(BinaryOp::kMul, BinaryOperands::kScalarB, out + i, &factor, out + i, n);
    }
  } else {
    const auto factor = 2 * Load(dy);
    for (int64_t i = 0; i < count; ++i) {
      out[i] = Store<T>((Load(a[i]) - Load(b[i])) * factor);
    }
  }
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareSquaredErrorGrad(const PrepareContext& context) {
  const int64_t elements = context.OutputShape(0).num_elements();
  const int threads = context.threads();
  return PrepareByDType(context, context.InputDType(1), FloatTypes(),
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          return MakeKernel([=](const KernelContext& run) {
                            const T* a = Input<T>(run, 1);
                            const T* b = Input<T>(run, 2);
                            T* out = Output<T>(run, 0);
                            const T dy = *Input<T>(run, 0);
                            ParallelFor(threads, elements, kArithmeticNanoseconds, kElementGrain,
                                        [&](int64_t begin, int64_t end) {
                                          GradientOfRun<T>(dy, a + begin, b + begin, out + begin,
                                                           end - begin);
                                        });
                            return absl::OkStatus();
                          });
                        });
}

WEFT_REGISTER_KERNEL(kWeftDomain, "SquaredErrorSum", DeviceKind::kCpu,
                     [](const PrepareContext& context) { return PrepareSquaredError(context, 1); });
// Divides by the global count, so that the results of shards add up.
WEFT_REGISTER_KERNEL(kWeftDomain, "MeanSquaredError", DeviceKind::kCpu,
                     [](const PrepareContext& context) {
                       const Shape& global = context.InputSlice(0).global_shape;
                       return PrepareSquaredError(context,
                                                  static_cast<double>(global.num_elements()));
                     });
WEFT_REGISTER_KERNEL(kWeftDomain, "SquaredErrorGrad", DeviceKind::kCpu, PrepareSquaredErrorGrad);

}  // namespace
}  // namespace weft::cpu
