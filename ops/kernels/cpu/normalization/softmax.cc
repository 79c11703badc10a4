// Softmax, LogSoftmax and their backward kernels.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/normalization/softmax_simd.h"

namespace weft::cpu {
namespace {

// The tensor as outer x size x inner, normalized over `size`.
struct View {
  int64_t outer = 1;
  int64_t size = 1;
  int64_t inner = 1;
};

View ViewOf(const PrepareContext& context) {
  const Shape& shape = context.InputShape(0);
  if (shape.rank() == 0) return View();
  const int64_t given = context.attributes().Int("axis", -1);
  const int axis = static_cast<int>(given < 0 ? given + shape.rank() : given);
  return {shape.ProductOf(0, axis), shape.dim(axis), shape.ProductOf(axis + 1, shape.rank())};
}

constexpr double kNanosecondsPerElement = 0.6;
constexpr int64_t kColumnsPerTask = 256;

void RunFloat(SoftmaxOp op, const View& view, int threads, const float* a, const float* b,
              float* out) {
  if (view.size == 0) return;
  if (view.inner == 1) {
    const double cost = 10 + kNanosecondsPerElement * static_cast<double>(view.size);
    ParallelFor(threads, view.outer, cost, 1, [&](int64_t begin, int64_t end) {
      const int64_t first = begin * view.size;
      SoftmaxRows(op, a + first, b == nullptr ? nullptr : b + first, out + first, end - begin,
                  view.size);
    });
    return;
  }
  const int64_t tiles = (view.inner + kColumnsPerTask - 1) / kColumnsPerTask;
  const double cost = kNanosecondsPerElement * static_cast<double>(view.size * kColumnsPerTask);
  ParallelFor(threads, view.outer * tiles, cost, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t column = t % tiles * kColumnsPerTask;
      const int64_t first = t / tiles * view.size * view.inner + column;
      SoftmaxColumns(op, a + first, b == nullptr ? nullptr : b + first, out + first,
                     std::min(kColumnsPerTask, view.inner - column), view.size, view.inner);
    }
  });
}

double RoundToFloat16(double value) { return ToFloat(ToFloat16(static_cast<float>(value))); }

// One row or column of any floating type, computed in double. The softmax of float16 is rounded
// after each step of the function by which the standard defines it (ReduceMax, Sub, Exp, ReduceSum,
// Div), so that a model that spells these out, and Attention, give the same numbers. bfloat16 has
// too few bits for that and is rounded once.
template <typename T>
class PlainRow {
 public:
  PlainRow(const T* a, const T* b, T* out, int64_t size, int64_t stride)
      : a_(a), b_(b), out_(out), size_(size), stride_(stride) {}

  void Run(SoftmaxOp op) {
    if (std::is_same_v<T, Float16> && op == SoftmaxOp::kSoftmax) {
      ForwardInSteps();
    } else if (op == SoftmaxOp::kSoftmax || op == SoftmaxOp::kLogSoftmax) {
      Forward(op == SoftmaxOp::kLogSoftmax);
    } else {
      Backward(op == SoftmaxOp::kLogSoftmaxGrad);
    }
  }

 private:
  static double At(const T* from, int64_t offset) {
    return static_cast<double>(Load(from[offset]));
  }
  void Set(int64_t offset, double value) {
    out_[offset] = Store<T>(static_cast<ComputeType<T>>(value));
  }

  double Largest() const {
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t k = 0; k < size_; ++k) largest = std::max(largest, At(a_, k * stride_));
    return largest;
  }

  void ForwardInSteps() {
    const double largest = Largest();
    const auto power = [&](int64_t k) {
      return RoundToFloat16(std::exp(RoundToFloat16(At(a_, k * stride_) - largest)));
    };
    double sum = 0;
    for (int64_t k = 0; k < size_; ++k) sum += power(k);
    const double rounded = RoundToFloat16(sum);
    if (std::isfinite(rounded)) sum = rounded;  // a long row may have more than float16 holds
    for (int64_t k = 0; k < size_; ++k) Set(k * stride_, power(k) / sum);
  }

  void Forward(bool log) {
    const double largest = Largest();
    double sum = 0;
    for (int64_t k = 0; k < size_; ++k) sum += std::exp(At(a_, k * stride_) - largest);
    const double log_sum = std::log(sum);
    for (int64_t k = 0; k < size_; ++k) {
      const double shifted = At(a_, k * stride_) - largest;
      Set(k * stride_, log ? shifted - log_sum : std::exp(shifted) / sum);
    }
  }

  void Backward(bool log) {
    double sum = 0;
    for (int64_t k = 0; k < size_; ++k) {
      sum += At(a_, k * stride_) * (log ? 1 : At(b_, k * stride_));
    }
    for (int64_t k = 0; k < size_; ++k) {
      const double dy = At(a_, k * stride_);
      const double y = At(b_, k * stride_);
      Set(k * stride_, log ? dy - std::exp(y) * sum : y * (dy - sum));
    }
  }

  const T* a_;
  const T* b_;
  T* out_;
  int64_t size_;
  int64_t stride_;
};

template <typename T>
void RunPlain(SoftmaxOp op, const View& view, int threads, const T* a, const T* b, T* out) {
  const double cost = 20.0 * static_cast<double>(view.size);
  ParallelFor(threads, view.outer * view.inner, cost, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t first = r / view.inner * view.size * view.inner + r % view.inner;
      PlainRow<T>(a + first, b == nullptr ? nullptr : b + first, out + first, view.size, view.inner)
          .Run(op);
    }
  });
}

template <SoftmaxOp op>
absl::StatusOr<std::unique_ptr<Kernel>> Prepare(const PrepareContext& context) {
  const View view = ViewOf(context);
  const int threads = context.threads();
  const bool is_backward = context.num_inputs() > 1;
  return PrepareByDType(context, context.InputDType(0), FloatTypes(),
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          return MakeKernel([=](const KernelContext& run) {
                            const T* a = Input<T>(run, 0);
                            const T* b = is_backward ? Input<T>(run, 1) : nullptr;
                            T* out = Output<T>(run, 0);
                            if constexpr (std::is_same_v<T, float>) {
                              RunFloat(op, view, threads, a, b, out);
                            } else {
                              RunPlain<T>(op, view, threads, a, b, out);
                            }
                            return absl::OkStatus();
                          });
                        });
}

WEFT_REGISTER_KERNEL("", "Softmax", DeviceKind::kCpu, Prepare<SoftmaxOp::kSoftmax>);
WEFT_REGISTER_KERNEL("", "LogSoftmax", DeviceKind::kCpu, Prepare<SoftmaxOp::kLogSoftmax>);
WEFT_REGISTER_KERNEL(kWeftDomain, "SoftmaxGrad", DeviceKind::kCpu,
                     Prepare<SoftmaxOp::kSoftmaxGrad>);
WEFT_REGISTER_KERNEL(kWeftDomain, "LogSoftmaxGrad", DeviceKind::kCpu,
                     Prepare<SoftmaxOp::kLogSoftmaxGrad>);

}  // namespace
}  // namespace weft::cpu
