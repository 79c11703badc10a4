// Trilu, EyeLike and Det.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "ops/kernels/cpu/operand.h"
#include "ops/kernels/cpu/parallel.h"

namespace weft::cpu {
namespace {

// ---- Trilu: moves or clears elements, by their size.

// Column c of row r is kept where c - r >= k (upper) or <= k (lower).
template <typename T>
std::unique_ptr<Kernel> MakeTrilu(const Shape& shape, bool upper, bool has_k, int threads) {
  const int64_t rows = shape.dim(shape.rank() - 2);
  const int64_t columns = shape.dim(shape.rank() - 1);
  const int64_t all_rows = columns == 0 ? 0 : shape.num_elements() / columns;
  return MakeKernel([=](const KernelContext& run) {
    // Any diagonal beyond the corners is like the one just outside of them.
    const int64_t given = has_k ? *Input<int64_t>(run, 1) : 0;
    const int64_t k = std::clamp(given, -rows - 1, columns + 1);
    const T* x = Input<T>(run, 0);
    T* out = Output<T>(run, 0);
    ParallelFor(
        threads, all_rows, 0.3 * static_cast<double>(columns), 1, [&](int64_t begin, int64_t end) {
          for (int64_t r = begin; r < end; ++r) {
            const int64_t diagonal = r % rows + k;
            const int64_t first = upper ? std::clamp<int64_t>(diagonal, 0, columns) : 0;
            const int64_t last = upper ? columns : std::clamp<int64_t>(diagonal + 1, 0, columns);
            const T* from = x + r * columns;
            T* to = out + r * columns;
            std::fill(to, to + first, T{});
            if (to != from) std::copy(from + first, from + last, to + first);
            std::fill(to + last, to + columns, T{});
          }
        });
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareTrilu(const PrepareContext& context) {
  const Shape& shape = context.InputShape(0);
  const bool upper = context.attributes().Int("upper", 1) != 0;
  const bool has_k = context.HasInput(1);
  switch (DTypeBits(context.InputDType(0))) {
    case 8:
      return MakeTrilu<uint8_t>(shape, upper, has_k, context.threads());
    case 16:
      return MakeTrilu<uint16_t>(shape, upper, has_k, context.threads());
    case 32:
      return MakeTrilu<uint32_t>(shape, upper, has_k, context.threads());
    case 64:
      return MakeTrilu<uint64_t>(shape, upper, has_k, context.threads());
    case 128:
      return MakeTrilu<std::array<uint64_t, 2>>(shape, upper, has_k, context.threads());
    default:
      return context.Unimplemented("no kernel for elements of this size");
  }
}
WEFT_REGISTER_KERNEL("", "Trilu", DeviceKind::kCpu, PrepareTrilu);

// ---- EyeLike: ones on the k-th diagonal.

absl::StatusOr<std::unique_ptr<Kernel>> PrepareEyeLike(const PrepareContext& context) {
  const int64_t rows = context.OutputShape(0).dim(0);
  const int64_t columns = context.OutputShape(0).dim(1);
  const int64_t k =
      std::clamp(context.attributes().Int("k", 0), -rows, columns);  // beyond: no ones
  return PrepareByDType(context, context.OutputDType(0), RealTypes(),
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          return MakeKernel([=](const KernelContext& run) {
                            T* out = Output<T>(run, 0);
                            std::fill(out, out + rows * columns, T{});
                            for (int64_t r = std::max<int64_t>(0, -k); r < rows && r + k < columns;
                                 ++r) {
                              out[r * columns + r + k] = Store<T>(static_cast<ComputeType<T>>(1));
                            }
                            return absl::OkStatus();
                          });
                        });
}
WEFT_REGISTER_KERNEL("", "EyeLike", DeviceKind::kCpu, PrepareEyeLike);

// ---- Det: elimination with row pivots, in double.

// Destroys `a`, an n x n matrix.
double Determinant(double* a, int64_t n) {
  double determinant = 1;
  for (int64_t c = 0; c < n; ++c) {
    int64_t pivot = c;
    for (int64_t r = c + 1; r < n; ++r) {
      if (std::abs(a[r * n + c]) > std::abs(a[pivot * n + c])) pivot = r;
    }
    if (pivot != c) {
      std::swap_ranges(a + c * n, a + (c + 1) * n, a + pivot * n);
      determinant = -determinant;
    }
    const double diagonal = a[c * n + c];
    determinant *= diagonal;
    if (diagonal == 0) return 0;
    for (int64_t r = c + 1; r < n; ++r) {
      const double factor = a[r * n + c] / diagonal;
      if (factor == 0) continue;
      for (int64_t i = c + 1; i < n; ++i) a[r * n + i] -= factor * a[c * n + i];
    }
  }
  return determinant;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareDet(const PrepareContext& context) {
  const Shape& shape = context.InputShape(0);
  const int64_t n = shape.dim(shape.rank() - 1);
  const int64_t matrices = context.OutputShape(0).num_elements();
  return PrepareByDType(context, context.InputDType(0), FloatTypes(),
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          return MakeKernel(
                              [=](const KernelContext& run) {
                                const T* x = Input<T>(run, 0);
                                T* out = Output<T>(run, 0);
                                double* a = static_cast<double*>(run.workspace);
                                for (int64_t m = 0; m < matrices; ++m) {
                                  for (int64_t i = 0; i < n * n; ++i) a[i] = Load(x[m * n * n + i]);
                                  out[m] = Store<T>(static_cast<ComputeType<T>>(Determinant(a, n)));
                                }
                                return absl::OkStatus();
                              },
                              static_cast<size_t>(n * n) * sizeof(double));
                        });
}
WEFT_REGISTER_KERNEL("", "Det", DeviceKind::kCpu, PrepareDet);

}  // namespace
}  // namespace weft::cpu
