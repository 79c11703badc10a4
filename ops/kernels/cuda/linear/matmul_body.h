// Bodies of matrix products: what is added to one, and products of whole numbers.
#ifndef WEFT_OPS_KERNELS_CUDA_LINEAR_MATMUL_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_LINEAR_MATMUL_BODY_H_

#include <cstdint>
#include <type_traits>

#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/scalar.h"
#include "ops/kernels/cuda/linear/matmul_launch.h"

namespace weft::cuda {

// SpreadAddend. Index is wide enough for the elements of Y.
template <typename T, typename Index>
struct SpreadAddendBody {
  SpreadAddend of;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto y = gpu.Global(static_cast<T*>(of.y));
    const auto c = gpu.Global(static_cast<const T*>(of.c));
    const Index count = static_cast<Index>(of.rows * of.columns);
    const Index columns = static_cast<Index>(of.columns);
    const auto factor = static_cast<Compute<T>>(of.factor);
    for (Index i = static_cast<Index>(gpu.index()); i < count;
         i += static_cast<Index>(gpu.stride())) {
      if (of.c == nullptr) {
        y[i] = Narrow<T>(Compute<T>{0});
        continue;
      }
      const Index row = i / columns;
      const Index column = i - row * columns;
      const T addend =
          c[static_cast<int64_t>(row) * of.c_row + static_cast<int64_t>(column) * of.c_column];
      y[i] = Narrow<T>(factor * Widen(addend));
    }
  }
};

// WholeProduct. A block computes squares of kSide elements of Y in turns, a thread an element of
// it, from squares of A and B that lie in shared memory.
template <typename T>
struct WholeProductBody {
  static constexpr int kSide = 16;
  // Narrow factors would be signed before they are multiplied.
  using Sum = std::conditional_t<(sizeof(T) < sizeof(uint32_t)), uint32_t, std::make_unsigned_t<T>>;

  WholeProduct of;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int64_t across = (of.n + kSide - 1) / kSide;
    const int64_t down = (of.m + kSide - 1) / kSide;
    for (int64_t tile = gpu.block(); tile < of.batches * down * across; tile += gpu.blocks()) {
      const int64_t matrix = tile / (down * across);
      const int64_t of_matrix = tile - matrix * down * across;
      const int64_t row = of_matrix / across * kSide + gpu.thread() / kSide;
      const int64_t column = of_matrix % across * kSide + gpu.thread() % kSide;
      const Sum sum = Contract(gpu, matrix, row, column);
      if (row < of.m && column < of.n) Finish(gpu, matrix, row, column, sum);
    }
  }

 private:
  template <class Gpu>
  WEFT_GPU Sum Contract(Gpu& gpu, int64_t matrix, int64_t row, int64_t column) const {
    const auto a = gpu.Global(static_cast<const T*>(of.a)) + matrix * of.a_batch;
    const auto b = gpu.Global(static_cast<const T*>(of.b)) + matrix * of.b_batch;
    const auto a_square = gpu.template Shared<0, T, kSide * kSide>();
    const auto b_square = gpu.template Shared<1, T, kSide * kSide>();
    const int down = gpu.thread() / kSide;
    const int across = gpu.thread() % kSide;
    Sum sum = 0;
    for (int64_t begin = 0; begin < of.k; begin += kSide) {
      const bool has_a = row < of.m && begin + across < of.k;
      const bool has_b = column < of.n && begin + down < of.k;
      a_square[gpu.thread()] =
          has_a ? static_cast<T>(a[row * of.a_row + (begin + across) * of.a_step]) : T{0};
      b_square[gpu.thread()] =
          has_b ? static_cast<T>(b[(begin + down) * of.b_step + column * of.b_column]) : T{0};
      gpu.Barrier();
      for (int i = 0; i < kSide; ++i) {
        const T left = a_square[down * kSide + i];
        const T right = b_square[i * kSide + across];
        sum += static_cast<Sum>(left) * static_cast<Sum>(right);
      }
      gpu.Barrier();
    }
    return sum;
  }

  template <class Gpu>
  WEFT_GPU void Finish(Gpu& gpu, int64_t matrix, int64_t row, int64_t column, Sum sum) const {
    const auto y = gpu.Global(static_cast<T*>(of.y)) + matrix * of.y_batch;
    T value = static_cast<T>(sum);
    if (of.alpha != 1.0f) value = static_cast<T>(of.alpha * static_cast<float>(value));
    if (of.c != nullptr) {
      const auto c = gpu.Global(static_cast<const T*>(of.c));
      T addend = c[row * of.c_row + column * of.c_column];
      if (of.beta != 1.0f) addend = static_cast<T>(of.beta * static_cast<float>(addend));
      value = static_cast<T>(static_cast<Sum>(value) + static_cast<Sum>(addend));
    }
    y[row * of.n + column] = value;
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_LINEAR_MATMUL_BODY_H_
