// Sum, Mean, Max, Min of any number of operands, in one pass over the output.
#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

#include "ops/kernels/cpu/blocks/elementwise_loop.h"
#include "ops/kernels/cpu/blocks/operand.h"

namespace weft::cpu {
namespace {

// How a loop walks any number of operands that broadcast to one output: rows of `inner` contiguous
// elements of it. Axes along which every operand goes on as before are merged.
class VariadicPlan {
 public:
  static VariadicPlan Make(const Shape& output, const std::vector<Shape>& operands) {
    VariadicPlan plan;
    plan.operands_ = operands.size();
    for (int d = 0; d < output.rank(); ++d) {
      if (output.dim(d) == 1) continue;
      plan.AddAxis(output.dim(d), StridesAlong(output, operands, d));
    }
    if (!plan.axes_.empty()) {
      plan.inner_ = plan.axes_.back();
      plan.axes_.pop_back();
    } else {
      plan.inner_.strides.assign(operands.size(), 0);
    }
    for (const Axis& axis : plan.axes_) plan.rows_ *= axis.size;
    return plan;
  }

  int64_t rows() const { return rows_; }
  int64_t inner() const { return inner_.size; }
  int64_t inner_stride(size_t operand) const { return inner_.strides[operand]; }
  int64_t RowOffset(size_t operand, int64_t row) const {
    int64_t offset = 0;
    for (auto axis = axes_.rbegin(); axis != axes_.rend(); ++axis) {
      offset += row % axis->size * axis->strides[operand];
      row /= axis->size;
    }
    return offset;
  }
  size_t operands() const { return operands_; }

 private:
  struct Axis {
    int64_t size = 1;
    std::vector<int64_t> strides;
  };

  static std::vector<int64_t> StridesAlong(const Shape& output, const std::vector<Shape>& operands,
                                           int d) {
    std::vector<int64_t> strides;
    for (const Shape& operand : operands) {
      const int axis = d - (output.rank() - operand.rank());
      const bool broadcast = axis < 0 || operand.dim(axis) == 1;
      strides.push_back(broadcast ? 0 : operand.ProductOf(axis + 1, operand.rank()));
    }
    return strides;
  }

  void AddAxis(int64_t size, std::vector<int64_t> strides) {
    if (!axes_.empty()) {
      Axis& last = axes_.back();
      bool continues = true;
      for (size_t i = 0; i < strides.size(); ++i) {
        continues = continues && last.strides[i] == strides[i] * size;
      }
      if (continues) {
        last = {last.size * size, std::move(strides)};
        return;
      }
    }
    axes_.push_back({size, std::move(strides)});
  }

  std::vector<Axis> axes_;  // major first, without the inner one
  Axis inner_;
  int64_t rows_ = 1;
  size_t operands_ = 0;
};

struct SumFold {
  template <typename C>
  static C Of(C a, C b) {
    return a + b;
  }
};
// NaN wins, as in every reduction here.
struct MaxFold {
  template <typename C>
  static C Of(C a, C b) {
    return b > a || b != b ? b : a;
  }
};
struct MinFold {
  template <typename C>
  static C Of(C a, C b) {
    return b < a || b != b ? b : a;
  }
};

constexpr int64_t kPiece = 256;

// `count` <= kPiece elements of the output from element `first` of `row` on.
template <typename Fold, typename T>
void FoldPiece(const VariadicPlan& plan, const KernelContext& context, int64_t row, int64_t first,
               int64_t count, double divisor, T* out) {
  using C = ComputeType<T>;
  C totals[kPiece];
  for (size_t k = 0; k < plan.operands(); ++k) {
    const int64_t step = plan.inner_stride(k);
    const T* x = Input<T>(context, static_cast<int>(k)) + plan.RowOffset(k, row) + first * step;
    if (k == 0) {
      for (int64_t i = 0; i < count; ++i) totals[i] = Load(x[i * step]);
    } else if (step == 1) {
      for (int64_t i = 0; i < count; ++i) totals[i] = Fold::template Of<C>(totals[i], Load(x[i]));
    } else {
      for (int64_t i = 0; i < count; ++i) {
        totals[i] = Fold::template Of<C>(totals[i], Load(x[i * step]));
      }
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    out[i] = Store<T>(divisor == 1 ? totals[i] : static_cast<C>(totals[i] / divisor));
  }
}

template <typename Fold, typename T>
std::unique_ptr<Kernel> MakeVariadic(VariadicPlan plan, int64_t elements, double divisor,
                                     int threads) {
  return MakeKernel([=, plan = std::move(plan)](const KernelContext& context) {
    if (elements == 0) return absl::OkStatus();
    T* out = Output<T>(context, 0);
    const int64_t pieces = (plan.inner() + kPiece - 1) / kPiece;
    const double cost = 0.3 * static_cast<double>(plan.operands()) *
                        static_cast<double>(std::min(kPiece, plan.inner()));
    ParallelFor(threads, plan.rows() * pieces, 10 + cost, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        const int64_t row = p / pieces;
        const int64_t first = p % pieces * kPiece;
        const int64_t count = std::min(kPiece, plan.inner() - first);
        FoldPiece<Fold, T>(plan, context, row, first, count, divisor,
                           out + row * plan.inner() + first);
      }
    });
    return absl::OkStatus();
  });
}

template <typename Fold, typename Types>
KernelFactory Variadic(bool mean = false) {
  return [mean](const PrepareContext& context) {
    std::vector<Shape> shapes;
    for (int i = 0; i < context.num_inputs(); ++i) shapes.push_back(context.InputShape(i));
    VariadicPlan plan = VariadicPlan::Make(context.OutputShape(0), shapes);
    const int64_t elements = context.OutputShape(0).num_elements();
    const double divisor = mean ? static_cast<double>(shapes.size()) : 1;
    return PrepareByDType(context, context.InputDType(0), Types(),
                          [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                            return MakeVariadic<Fold, decltype(zero)>(std::move(plan), elements,
                                                                      divisor, context.threads());
                          });
  };
}

WEFT_REGISTER_KERNEL("", "Sum", DeviceKind::kCpu, (Variadic<SumFold, FloatTypes>()));
WEFT_REGISTER_KERNEL("", "Mean", DeviceKind::kCpu, (Variadic<SumFold, FloatTypes>(/*mean=*/true)));
WEFT_REGISTER_KERNEL("", "Max", DeviceKind::kCpu, (Variadic<MaxFold, NumericTypes>()));
WEFT_REGISTER_KERNEL("", "Min", DeviceKind::kCpu, (Variadic<MinFold, NumericTypes>()));

}  // namespace
}  // namespace weft::cpu
