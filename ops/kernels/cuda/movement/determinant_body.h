// Bodies of Det and DetGrad: a block for each matrix, in double.
#ifndef WEFT_OPS_KERNELS_CUDA_MOVEMENT_DETERMINANT_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_MOVEMENT_DETERMINANT_BODY_H_

#include <cmath>
#include <cstdint>

#include "ops/kernels/cuda/language/scalar.h"
#include "ops/kernels/cuda/movement/determinant_launch.h"

namespace weft::cuda {

inline constexpr int kDeterminantThreads = 128;

// The number below `count` whose magnitude(number) is largest, the first of equals, for every
// thread of the block. Ends with a barrier.
template <class Gpu, typename Magnitude>
WEFT_GPU int64_t FirstLargest(Gpu& gpu, int64_t count, Magnitude magnitude) {
  const auto sizes = gpu.template Shared<0, double, kWarp>();
  const auto places = gpu.template Shared<1, int64_t, kWarp>();
  double largest = -1;
  int64_t place = 0;
  for (int64_t i = gpu.thread(); i < count; i += gpu.threads()) {
    const double size = magnitude(i);
    if (size > largest) {
      largest = size;
      place = i;
    }
  }
  const auto take = [&](double size, int64_t at) {
    if (size > largest || (size == largest && at < place)) {
      largest = size;
      place = at;
    }
  };
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const double size = gpu.ShuffleXor(largest, mask);
    const int64_t at = gpu.ShuffleXor(place, mask);
    take(size, at);
  }
  if (gpu.lane() == 0) {
    sizes[gpu.warp()] = largest;
    places[gpu.warp()] = place;
  }
  gpu.Barrier();
  for (int warp = 0; warp < gpu.warps(); ++warp) take(sizes[warp], places[warp]);
  gpu.Barrier();
  return place;
}

// Elimination with row pivots.
template <typename T>
struct DeterminantBody {
  const T* x;
  T* y;
  double* workspace;
  int64_t matrices;
  int64_t n;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    for (int64_t m = gpu.block(); m < matrices; m += gpu.blocks()) {
      const double determinant = Of(gpu, m);
      if (gpu.thread() == 0) gpu.Global(y)[m] = Narrow<T>(static_cast<Compute<T>>(determinant));
    }
  }

 private:
  template <class Gpu>
  WEFT_GPU double Of(Gpu& gpu, int64_t m) const {
    const auto from = gpu.Global(x) + m * n * n;
    const auto a = gpu.Global(workspace) + gpu.block() * n * n;
    for (int64_t i = gpu.thread(); i < n * n; i += gpu.threads()) {
      const T value = from[i];
      a[i] = static_cast<double>(Widen(value));
    }
    gpu.Barrier();
    double determinant = 1;
    for (int64_t c = 0; c < n; ++c) {
      const int64_t pivot = c + FirstLargest(gpu, n - c, [&](int64_t r) {
                              const double value = a[(c + r) * n + c];
                              return std::fabs(value);
                            });
      if (pivot != c) {
        for (int64_t i = c + gpu.thread(); i < n; i += gpu.threads()) {
          const double above = a[c * n + i];
          const double below = a[pivot * n + i];
          a[c * n + i] = below;
          a[pivot * n + i] = above;
        }
        determinant = -determinant;
      }
      gpu.Barrier();
      const double diagonal = a[c * n + c];
      determinant *= diagonal;
      if (diagonal == 0) {
        determinant = 0;
        break;  // all threads have the same
      }
      const int64_t rest = n - c - 1;
      for (int64_t i = gpu.thread(); i < rest * rest; i += gpu.threads()) {
        const int64_t row = c + 1 + i / rest;
        const int64_t column = c + 1 + i % rest;
        const double factor = a[row * n + c] / diagonal;
        const double above = a[c * n + column];
        const double own = a[row * n + column];
        if (factor != 0) a[row * n + column] = own - factor * above;
      }
      gpu.Barrier();
    }
    gpu.Barrier();  // before the next matrix is written here
    return determinant;
  }
};

// dx = dy times the cofactors, of singular matrices too. With rows and columns exchanged A = L U,
// and the adjugate of a product is that of its factors, exchanged: adj A = adj U adj L. The pivot
// is the largest element of what is left, so that a matrix that lacks one rank has its zero in the
// last place of U = [V c; 0 u], and adj U = det V [u V^-1, -V^-1 c; 0, 1]. What lacks more ranks
// has no cofactors.
template <typename T>
struct DeterminantGradBody {
  const T* x;
  const T* dy;
  T* dx;
  double* workspace;  // for each block a matrix, its solutions, then the orders as whole numbers
  int64_t matrices;
  int64_t n;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int64_t own = gpu.block() * (2 * n * n + 2 * n);
    const auto a = gpu.Global(workspace) + own;
    const auto v = a + n * n;
    const auto rows = v + n * n;  // where rows and columns came from
    const auto columns = rows + n;
    for (int64_t m = gpu.block(); m < matrices; m += gpu.blocks()) {
      const auto from = gpu.Global(x) + m * n * n;
      const auto to = gpu.Global(dx) + m * n * n;
      for (int64_t i = gpu.thread(); i < n * n; i += gpu.threads()) {
        const T value = from[i];
        a[i] = static_cast<double>(Widen(value));
      }
      for (int64_t i = gpu.thread(); i < n; i += gpu.threads()) {
        rows[i] = static_cast<double>(i);
        columns[i] = static_cast<double>(i);
      }
      gpu.Barrier();
      double product = 1;  // det V, with the sign of the exchanges
      const bool has_cofactors = Eliminate(gpu, a, rows, columns, product);
      const T slope = gpu.Global(dy)[m];
      for (int64_t j = gpu.thread(); j < n; j += gpu.threads()) {
        if (has_cofactors) SolveColumn(a, v, j);
        const int64_t row = static_cast<int64_t>(static_cast<double>(rows[j]));
        for (int64_t i = 0; i < n; ++i) {
          const int64_t column = static_cast<int64_t>(static_cast<double>(columns[i]));
          double cofactor = 0;
          if (has_cofactors) cofactor = static_cast<double>(v[i * n + j]) * product;
          const double result = static_cast<double>(Widen(slope)) * cofactor;
          to[row * n + column] = Narrow<T>(static_cast<Compute<T>>(result));
        }
      }
      gpu.Barrier();
    }
  }

 private:
  // False when more than the last pivot is zero. `product`: of all pivots but the last.
  template <class Gpu, typename Memory>
  WEFT_GPU bool Eliminate(Gpu& gpu, const Memory& a, const Memory& rows, const Memory& columns,
                          double& product) const {
    for (int64_t k = 0; k < n; ++k) {
      const int64_t rest = n - k;
      const int64_t place = FirstLargest(gpu, rest * rest, [&](int64_t i) {
        const double value = a[(k + i / rest) * n + k + i % rest];
        return std::fabs(value);
      });
      Exchange(gpu, a, rows, k, k + place / rest, n, 1, product);
      Exchange(gpu, a, columns, k, k + place % rest, 1, n, product);
      const double diagonal = a[k * n + k];
      if (diagonal == 0) return k == n - 1;
      if (k == n - 1) return true;
      product *= diagonal;
      for (int64_t r = k + 1 + gpu.thread(); r < n; r += gpu.threads()) {
        const double below = a[r * n + k];
        a[r * n + k] = below / diagonal;
      }
      gpu.Barrier();
      for (int64_t i = gpu.thread(); i < (rest - 1) * (rest - 1); i += gpu.threads()) {
        const int64_t r = k + 1 + i / (rest - 1);
        const int64_t c = k + 1 + i % (rest - 1);
        const double factor = a[r * n + k];
        const double above = a[k * n + c];
        const double value = a[r * n + c];
        a[r * n + c] = value - factor * above;
      }
      gpu.Barrier();
    }
    return true;
  }

  // Lines `k` and `other`, which lie `step` apart, with elements `inner` apart.
  template <class Gpu, typename Memory>
  WEFT_GPU void Exchange(Gpu& gpu, const Memory& a, const Memory& order, int64_t k, int64_t other,
                         int64_t step, int64_t inner, double& product) const {
    if (other != k) {
      for (int64_t i = gpu.thread(); i < n; i += gpu.threads()) {
        const double one = a[k * step + i * inner];
        const double two = a[other * step + i * inner];
        a[k * step + i * inner] = two;
        a[other * step + i * inner] = one;
      }
      if (gpu.thread() == 0) {
        const double one = order[k];
        const double two = order[other];
        order[k] = two;
        order[other] = one;
      }
      product = -product;
    }
    gpu.Barrier();
  }

  // Column j of adj U adj L / det V: L v = the unit vector, then U.
  template <typename Memory>
  WEFT_GPU void SolveColumn(const Memory& a, const Memory& v, int64_t j) const {
    for (int64_t r = 0; r < n; ++r) {
      double sum = r == j ? 1 : 0;
      for (int64_t c = j; c < r; ++c) {
        sum -= static_cast<double>(a[r * n + c]) * static_cast<double>(v[c * n + j]);
      }
      v[r * n + j] = sum;
    }
    // V x = u (v without its last element) - c (its last element).
    const double last = v[(n - 1) * n + j];
    const double corner = a[n * n - 1];
    for (int64_t r = n - 2; r >= 0; --r) {
      double sum =
          corner * static_cast<double>(v[r * n + j]) - static_cast<double>(a[r * n + n - 1]) * last;
      for (int64_t c = r + 1; c < n - 1; ++c) {
        sum -= static_cast<double>(a[r * n + c]) * static_cast<double>(v[c * n + j]);
      }
      v[r * n + j] = sum / static_cast<double>(a[r * n + r]);
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_MOVEMENT_DETERMINANT_BODY_H_
