// Reference kernels of what goes along an axis: ArgMax, ArgMin, Hardmax, CumSum, CumProd, TopK; and
// of what picks by position: Trilu, EyeLike, Det, OneHot.
#include <algorithm>
#include <cmath>

#include "ops/kernels/reference/reference.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// The elements of a tensor along one axis, for each place in the other axes.
struct Lines {
  int64_t outer = 1;
  int64_t size = 1;
  int64_t inner = 1;

  static Lines Make(const Shape& shape, int64_t axis) {
    if (axis < 0) axis += shape.rank();
    const int d = static_cast<int>(axis);
    return {shape.ProductOf(0, d), shape.dim(d), shape.ProductOf(d + 1, shape.rank())};
  }
  template <typename Fn>
  void ForEach(Fn fn) const {
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < inner; ++i) fn(o, i);
    }
  }
  int64_t At(int64_t o, int64_t d, int64_t i) const { return (o * size + d) * inner + i; }
};

KernelFactory Arg(double sign) {
  return ReferenceKernel([sign](ReferenceCall& call) {
    const ReferenceOperand& x = call.input(0);
    const Lines lines = Lines::Make(x.shape, call.attributes().Int("axis", 0));
    const bool last = call.attributes().Int("select_last_index", 0) != 0;
    lines.ForEach([&](int64_t o, int64_t i) {
      int64_t best = 0;
      for (int64_t d = 1; d < lines.size; ++d) {
        const double a = sign * x[lines.At(o, d, i)];
        const double b = sign * x[lines.At(o, best, i)];
        if (a > b || (last && a == b)) best = d;
      }
      call.output(0)[o * lines.inner + i] = static_cast<double>(best);
    });
    return absl::OkStatus();
  });
}
WEFT_REGISTER_REFERENCE_KERNEL("", "ArgMax", Arg(1));
WEFT_REGISTER_REFERENCE_KERNEL("", "ArgMin", Arg(-1));

WEFT_REGISTER_REFERENCE_KERNEL("", "Hardmax", ReferenceKernel([](ReferenceCall& call) {
                                 const ReferenceOperand& x = call.input(0);
                                 const Lines lines =
                                     Lines::Make(x.shape, call.attributes().Int("axis", -1));
                                 lines.ForEach([&](int64_t o, int64_t i) {
                                   int64_t best = 0;
                                   for (int64_t d = 1; d < lines.size; ++d) {
                                     if (x[lines.At(o, d, i)] > x[lines.At(o, best, i)]) best = d;
                                   }
                                   if (lines.size > 0) call.output(0)[lines.At(o, best, i)] = 1;
                                 });
                                 return absl::OkStatus();
                               }));

KernelFactory Cumulative(double initial, double (*join)(double total, double x)) {
  return ReferenceKernel([=](ReferenceCall& call) {
    const ReferenceOperand& x = call.input(0);
    const Lines lines = Lines::Make(x.shape, static_cast<int64_t>(call.input(1)[0]));
    const bool exclusive = call.attributes().Int("exclusive", 0) != 0;
    const bool reverse = call.attributes().Int("reverse", 0) != 0;
    lines.ForEach([&](int64_t o, int64_t i) {
      double total = initial;
      for (int64_t k = 0; k < lines.size; ++k) {
        const int64_t at = lines.At(o, reverse ? lines.size - 1 - k : k, i);
        const double before = total;
        total = join(total, x[at]);
        call.output(0)[at] = exclusive ? before : total;
      }
    });
    return absl::OkStatus();
  });
}
WEFT_REGISTER_REFERENCE_KERNEL("", "CumSum",
                               Cumulative(0, [](double t, double x) { return t + x; }));
WEFT_REGISTER_REFERENCE_KERNEL("", "CumProd",
                               Cumulative(1, [](double t, double x) { return t * x; }));

// Sorts whole lines, and takes what is first.
WEFT_REGISTER_REFERENCE_KERNEL("", "TopK", ReferenceKernel([](ReferenceCall& call) {
                                 const ReferenceOperand& x = call.input(0);
                                 const int64_t axis = call.attributes().Int("axis", -1);
                                 const double sign =
                                     call.attributes().Int("largest", 1) != 0 ? -1 : 1;
                                 const Lines lines = Lines::Make(x.shape, axis);
                                 const Lines results = Lines::Make(call.output(0).shape, axis);
                                 lines.ForEach([&](int64_t o, int64_t i) {
                                   std::vector<std::pair<double, int64_t>> order;
                                   for (int64_t d = 0; d < lines.size; ++d)
                                     order.push_back({sign * x[lines.At(o, d, i)], d});
                                   std::sort(order.begin(), order.end());
                                   for (int64_t d = 0; d < results.size; ++d) {
                                     call.output(0)[results.At(o, d, i)] = sign * order[d].first;
                                     if (!call.has_output(1)) continue;
                                     call.output(1)[results.At(o, d, i)] =
                                         static_cast<double>(order[d].second);
                                   }
                                 });
                                 return absl::OkStatus();
                               }));

WEFT_REGISTER_REFERENCE_KERNEL("", "Trilu", ReferenceKernel([](ReferenceCall& call) {
                                 const ReferenceOperand& x = call.input(0);
                                 const int64_t columns = x.shape.dim(x.shape.rank() - 1);
                                 const int64_t rows = x.shape.dim(x.shape.rank() - 2);
                                 const double k = call.has_input(1) ? call.input(1)[0] : 0;
                                 const bool upper = call.attributes().Int("upper", 1) != 0;
                                 for (int64_t i = 0; i < x.size(); ++i) {
                                   const double beside = static_cast<double>(i % columns) -
                                                         static_cast<double>(i / columns % rows);
                                   call.output(0)[i] =
                                       (upper ? beside >= k : beside <= k) ? x[i] : 0;
                                 }
                                 return absl::OkStatus();
                               }));

WEFT_REGISTER_REFERENCE_KERNEL("", "EyeLike", ReferenceKernel([](ReferenceCall& call) {
                                 ReferenceOperand& y = call.output(0);
                                 const int64_t columns = y.shape.dim(1);
                                 const int64_t k = call.attributes().Int("k", 0);
                                 for (int64_t i = 0; i < y.size(); ++i)
                                   y[i] = i % columns - i / columns == k ? 1 : 0;
                                 return absl::OkStatus();
                               }));

// By cofactors of the first row.
double Determinant(const std::vector<double>& a, int64_t n) {
  if (n == 0) return 1;
  double sum = 0;
  for (int64_t c = 0; c < n; ++c) {
    std::vector<double> rest;
    for (int64_t i = n; i < n * n; ++i) {
      if (i % n != c) rest.push_back(a[i]);
    }
    sum += (c % 2 == 0 ? 1 : -1) * a[c] * Determinant(rest, n - 1);
  }
  return sum;
}
WEFT_REGISTER_REFERENCE_KERNEL("", "Det", ReferenceKernel([](ReferenceCall& call) {
                                 const ReferenceOperand& x = call.input(0);
                                 const int64_t n = x.shape.dim(x.shape.rank() - 1);
                                 for (int64_t m = 0; m < call.output(0).size(); ++m) {
                                   const auto first = x.values.begin() + m * n * n;
                                   call.output(0)[m] = Determinant({first, first + n * n}, n);
                                 }
                                 return absl::OkStatus();
                               }));

WEFT_REGISTER_REFERENCE_KERNEL("", "OneHot", ReferenceKernel([](ReferenceCall& call) {
                                 const ReferenceOperand& indices = call.input(0);
                                 ReferenceOperand& y = call.output(0);
                                 const Lines lines =
                                     Lines::Make(y.shape, call.attributes().Int("axis", -1));
                                 lines.ForEach([&](int64_t o, int64_t i) {
                                   double index = indices[o * lines.inner + i];
                                   if (index < 0) index += static_cast<double>(lines.size);
                                   for (int64_t d = 0; d < lines.size; ++d) {
                                     y[lines.At(o, d, i)] =
                                         call.input(2)[static_cast<double>(d) == index ? 1 : 0];
                                   }
                                 });
                                 return absl::OkStatus();
                               }));

}  // namespace
}  // namespace weft::cpu
