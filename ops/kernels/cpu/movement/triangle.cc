// Trilu, EyeLike and Det.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/workspace.h"

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

// ---- DetGrad: cofactors, of singular matrices too. With rows and columns exchanged A = L U, and
// the adjugate of a product is that of its factors, exchanged: adj A = adj U adj L. The pivot is
// the largest element of what is left, so that a matrix that lacks one rank has its zero in the
// last place of U = [V c; 0 u], and adj U = det V [u V^-1, -V^-1 c; 0, 1]. What lacks more ranks
// has no cofactors.

// A matrix in elimination: rows and columns[i] is the one of X that row and column i came from.
struct Elimination {
  int64_t n = 0;
  double* a = nullptr;         // [n, n]: U, and below it L
  int64_t* rows = nullptr;     // [n]
  int64_t* columns = nullptr;  // [n]
  double sign = 1;

  double& At(int64_t r, int64_t c) const { return a[r * n + c]; }

  void Exchange(int64_t k) {
    int64_t row = k;
    int64_t column = k;
    for (int64_t r = k; r < n; ++r) {
      for (int64_t c = k; c < n; ++c) {
        if (std::abs(At(r, c)) <= std::abs(At(row, column))) continue;
        row = r;
        column = c;
      }
    }
    if (row != k) {
      std::swap_ranges(&At(row, 0), &At(row, 0) + n, &At(k, 0));
      std::swap(rows[row], rows[k]);
      sign = -sign;
    }
    if (column == k) return;
    for (int64_t r = 0; r < n; ++r) std::swap(At(r, column), At(r, k));
    std::swap(columns[column], columns[k]);
    sign = -sign;
  }

  // False when more than the last pivot is zero.
  bool Run() {
    for (int64_t k = 0; k < n; ++k) rows[k] = columns[k] = k;
    for (int64_t k = 0; k < n; ++k) {
      Exchange(k);
      if (At(k, k) == 0) return k == n - 1;
      for (int64_t r = k + 1; r < n; ++r) {
        At(r, k) /= At(k, k);
        for (int64_t c = k + 1; c < n; ++c) At(r, c) -= At(r, k) * At(k, c);
      }
    }
    return true;
  }
};

// Column `j` of adj U adj L (of the exchanged matrix) into `v`: L v = the unit vector, then U.
void AdjugateColumn(const Elimination& e, int64_t j, double product, double* v) {
  const int64_t n = e.n;
  for (int64_t r = 0; r < n; ++r) {
    v[r] = r == j ? 1 : 0;
    for (int64_t c = j; c < r; ++c) v[r] -= e.At(r, c) * v[c];
  }
  // V x = u (v without its last element) - c (its last element), times det V.
  const double last = v[n - 1];
  for (int64_t r = n - 2; r >= 0; --r) {
    double sum = e.At(n - 1, n - 1) * v[r] - e.At(r, n - 1) * last;
    for (int64_t c = r + 1; c < n - 1; ++c) sum -= e.At(r, c) * v[c];
    v[r] = sum / e.At(r, r);
  }
  for (int64_t r = 0; r < n - 1; ++r) v[r] *= product;
  v[n - 1] = last * product;
}

// cofactors[r][c] of x, [n, n], n > 0.
void Cofactors(Elimination& e, double* v, double* cofactors) {
  const int64_t n = e.n;
  e.sign = 1;
  if (!e.Run()) {
    std::fill_n(cofactors, n * n, 0.0);
    return;
  }
  double product = e.sign;  // det V
  for (int64_t k = 0; k + 1 < n; ++k) product *= e.At(k, k);
  for (int64_t j = 0; j < n; ++j) {
    AdjugateColumn(e, j, product, v);
    for (int64_t i = 0; i < n; ++i) cofactors[e.rows[j] * n + e.columns[i]] = v[i];
  }
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareDetGrad(const PrepareContext& context) {
  const Shape& shape = context.InputShape(1);
  const int64_t n = shape.dim(shape.rank() - 1);
  const int64_t matrices = context.InputShape(0).num_elements();
  WorkspaceLayout layout;
  const size_t matrix = layout.Add(n * n * sizeof(double));
  const size_t cofactors = layout.Add(n * n * sizeof(double));
  const size_t line = layout.Add(n * sizeof(double));
  const size_t orders = layout.Add(2 * n * sizeof(int64_t));
  return PrepareByDType(
      context, context.InputDType(1), FloatTypes(),
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        return MakeKernel(
            [=](const KernelContext& run) {
              Elimination e;
              e.n = n;
              e.a = static_cast<double*>(At(run.workspace, matrix));
              e.rows = static_cast<int64_t*>(At(run.workspace, orders));
              e.columns = e.rows + n;
              double* const minors = static_cast<double*>(At(run.workspace, cofactors));
              for (int64_t m = 0; n > 0 && m < matrices; ++m) {
                const T* x = Input<T>(run, 1) + m * n * n;
                for (int64_t i = 0; i < n * n; ++i) e.a[i] = Load(x[i]);
                Cofactors(e, static_cast<double*>(At(run.workspace, line)), minors);
                const double dy = Load(Input<T>(run, 0)[m]);
                T* const dx = Output<T>(run, 0) + m * n * n;
                for (int64_t i = 0; i < n * n; ++i) {
                  dx[i] = Store<T>(static_cast<ComputeType<T>>(dy * minors[i]));
                }
              }
              return absl::OkStatus();
            },
            layout.total());
      });
}
WEFT_REGISTER_KERNEL("ai.weft", "DetGrad", DeviceKind::kCpu, PrepareDetGrad);

}  // namespace
}  // namespace weft::cpu
