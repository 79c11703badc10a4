// Reference kernels of the reductions and of what undoes broadcasting.
#include <cmath>
#include <limits>

#include "ops/axes.h"
#include "ops/kernels/reference/reference.h"
#include "platform/status_macros.h"
#include "tensor/tensor.h"

namespace weft::cpu {
namespace {

absl::StatusOr<std::vector<bool>> Reduced(const ReferenceCall& call, int rank, int axes_input) {
  const bool noop = call.attributes().Int("noop_with_empty_axes", 0) != 0;
  if (!call.has_input(axes_input)) return ReducedAxes(rank, nullptr, noop);
  const ReferenceOperand& operand = call.input(axes_input);
  const Tensor axes = Tensor::Of<double>(operand.shape, operand.values);
  return ReducedAxes(rank, &axes, noop);
}

// For each element of `big`, in order: fn(its offset, the offset of the element of the reduced
// operand that it belongs to).
template <typename Fn>
void ForEachElement(const Shape& big, const std::vector<bool>& reduced, Fn fn) {
  const Shape small = ReducedShape(big, reduced, /*keepdims=*/true);
  for (int64_t i = 0; i < big.num_elements(); ++i) fn(i, BroadcastOffset(small, big, i));
}

absl::Status Sum(ReferenceCall& call, bool mean) {
  const ReferenceOperand& x = call.input(0);
  ReferenceOperand& y = call.output(0);
  WEFT_ASSIGN_OR_RETURN(const std::vector<bool> reduced, Reduced(call, x.shape.rank(), 1));
  ForEachElement(x.shape, reduced, [&](int64_t big, int64_t small) { y[small] += x[big]; });
  if (!mean) return absl::OkStatus();
  const double count = static_cast<double>(ReducedCount(x.slice.global_shape, reduced));
  for (double& value : y.values) {
    value /= count;
    if (IsInteger(y.dtype)) value = std::trunc(value);
  }
  return absl::OkStatus();
}

// Folds the elements that belong to each element of the output, which begins as `initial`, and
// finishes it.
absl::Status Fold(ReferenceCall& call, double initial, double (*fold)(double total, double x),
                  double (*finish)(double total)) {
  const ReferenceOperand& x = call.input(0);
  ReferenceOperand& y = call.output(0);
  WEFT_ASSIGN_OR_RETURN(const std::vector<bool> reduced, Reduced(call, x.shape.rank(), 1));
  y.values.assign(y.values.size(), initial);
  ForEachElement(x.shape, reduced,
                 [&](int64_t big, int64_t small) { y[small] = fold(y[small], x[big]); });
  for (double& value : y.values) {
    value = finish(value);
    if (IsInteger(y.dtype)) value = std::trunc(value);
  }
  return absl::OkStatus();
}

double Larger(double total, double x) { return x > total || std::isnan(x) ? x : total; }
double Smaller(double total, double x) { return x < total || std::isnan(x) ? x : total; }
double Itself(double total) { return total; }

KernelFactory ReferenceFold(double initial, double (*fold)(double total, double x),
                            double (*finish)(double total)) {
  return ReferenceKernel([=](ReferenceCall& call) { return Fold(call, initial, fold, finish); });
}

absl::Status BroadcastReduced(ReferenceCall& call) {
  const ReferenceOperand& small = call.input(0);
  ReferenceOperand& big = call.output(0);
  WEFT_ASSIGN_OR_RETURN(const std::vector<bool> reduced, Reduced(call, big.shape.rank(), 2));
  double divisor = 1;
  if (call.attributes().Int("mean", 0) != 0) {
    divisor = static_cast<double>(ReducedCount(big.slice.global_shape, reduced));
  }
  ForEachElement(big.shape, reduced,
                 [&](int64_t to, int64_t from) { big[to] = small[from] / divisor; });
  return absl::OkStatus();
}

absl::Status SumToShape(ReferenceCall& call) {
  const ReferenceOperand& x = call.input(0);
  ReferenceOperand& y = call.output(0);
  for (int64_t i = 0; i < x.size(); ++i) y[BroadcastOffset(y.shape, x.shape, i)] += x[i];
  return absl::OkStatus();
}

WEFT_REGISTER_REFERENCE_KERNEL("", "ReduceSum", ReferenceKernel([](ReferenceCall& call) {
                                 return Sum(call, /*mean=*/false);
                               }));
WEFT_REGISTER_REFERENCE_KERNEL("", "ReduceMean", ReferenceKernel([](ReferenceCall& call) {
                                 return Sum(call, /*mean=*/true);
                               }));
constexpr double kInfinity = std::numeric_limits<double>::infinity();
WEFT_REGISTER_REFERENCE_KERNEL("", "ReduceMax", ReferenceFold(-kInfinity, Larger, Itself));
WEFT_REGISTER_REFERENCE_KERNEL("", "ReduceMin", ReferenceFold(kInfinity, Smaller, Itself));
WEFT_REGISTER_REFERENCE_KERNEL("", "ReduceProd",
                               ReferenceFold(
                                   1, [](double t, double x) { return t * x; }, Itself));
WEFT_REGISTER_REFERENCE_KERNEL("", "ReduceL1",
                               ReferenceFold(
                                   0, [](double t, double x) { return t + std::abs(x); }, Itself));
WEFT_REGISTER_REFERENCE_KERNEL("", "ReduceSumSquare",
                               ReferenceFold(
                                   0, [](double t, double x) { return t + x * x; }, Itself));
WEFT_REGISTER_REFERENCE_KERNEL("", "ReduceL2",
                               ReferenceFold(
                                   0, [](double t, double x) { return t + x * x; },
                                   [](double t) { return std::sqrt(t); }));
WEFT_REGISTER_REFERENCE_KERNEL("", "ReduceLogSum",
                               ReferenceFold(
                                   0, [](double t, double x) { return t + x; },
                                   [](double t) { return std::log(t); }));
WEFT_REGISTER_REFERENCE_KERNEL("", "ReduceLogSumExp",
                               ReferenceFold(
                                   0, [](double t, double x) { return t + std::exp(x); },
                                   [](double t) { return std::log(t); }));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "BroadcastReduced", ReferenceKernel(BroadcastReduced));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "SumToShape", ReferenceKernel(SumToShape));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "ElementCount", ReferenceKernel([](ReferenceCall& call) {
                                 call.output(0)[0] = static_cast<double>(call.input(0).size());
                                 return absl::OkStatus();
                               }));

}  // namespace
}  // namespace weft::cpu
