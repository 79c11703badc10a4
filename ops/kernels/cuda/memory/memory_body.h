// Bodies of what a program does to memory between kernels (ops/memory_work.h).
#ifndef WEFT_OPS_KERNELS_CUDA_MEMORY_MEMORY_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_MEMORY_MEMORY_BODY_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/block_reduce.h"
#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/scalar.h"

namespace weft::cuda {

// into[i] += from[i] for i below `elements`, N neighbours at a time while whole packets last. Both
// addresses are multiples of N * sizeof(T).
template <typename T, int N>
struct SumBody {
  const T* from;
  T* into;
  int64_t elements;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto source = gpu.Global(from);
    const auto target = gpu.Global(into);
    const int64_t packets = elements / N;
    for (int64_t i = gpu.index(); i < packets; i += gpu.stride()) {
      const Packet<T, N> more = gpu.template Load<N>(source, i * N);
      Packet<T, N> sum = gpu.template Load<N>(target, i * N);
      for (int k = 0; k < N; ++k) sum.values[k] = Add(sum.values[k], more.values[k]);
      gpu.template Store<N>(target, i * N, sum);
    }
    const int64_t rest = packets * N + gpu.index();
    if (rest < elements) target[rest] = Add(target[rest], source[rest]);
  }

  // In Compute<T>: integers narrower than int are computed as int, and wrap around when narrowed.
  WEFT_GPU static T Add(T a, T b) {
    return Narrow<T>(static_cast<Compute<T>>(Widen(a) + Widen(b)));
  }
};

// Rows of `words` words of T, N elements each, one run of a strided copy. A block has threads for
// 1 << column_bits columns of some rows; blocks along y share the columns.
template <typename T, int N>
struct CopyRowsBody {
  const T* from;
  T* into;
  int64_t rows;
  int64_t words;
  int64_t from_stride;  // in elements
  int64_t into_stride;
  int column_bits;
  int64_t blocks_y;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto source = gpu.Global(from);
    const auto target = gpu.Global(into);
    const int columns = 1 << column_bits;
    const int rows_at_once = gpu.threads() >> column_bits;
    const int64_t first_word = gpu.block_y() * columns + (gpu.thread() & (columns - 1));
    const int64_t first_row = gpu.block() * rows_at_once + (gpu.thread() >> column_bits);
    for (int64_t row = first_row; row < rows; row += gpu.blocks() * rows_at_once) {
      for (int64_t word = first_word; word < words; word += blocks_y * columns) {
        gpu.template Store<N>(target, row * into_stride + word * N,
                              gpu.template Load<N>(source, row * from_stride + word * N));
      }
    }
  }
};

// *first = value, by one thread.
struct SetFirstBody {
  int64_t* first;
  int64_t value;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    if (gpu.index() == 0) gpu.Global(first)[0] = value;
  }
};

struct Smaller {
  template <typename T>
  WEFT_GPU T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};

// *first = the smaller of itself and the first element that is not finite. The smallest of all does
// not depend on who comes first, so the result has the same bits each time.
template <typename T>
struct FindNonFiniteBody {
  const T* data;
  int64_t elements;
  int64_t* first;
  int64_t none;  // what no element has as its number

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto values = gpu.Global(data);
    int64_t found = none;
    for (int64_t i = gpu.index(); i < elements && found == none; i += gpu.stride()) {
      // What is neither infinite nor a NaN times zero is zero.
      if (!(Widen(static_cast<T>(values[i])) * 0 == 0)) found = i;
    }
    found = WarpReduce(gpu, found, Smaller{});
    if (gpu.lane() == 0 && found != none) gpu.AtomicMin(gpu.Global(first), 0, found);
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_MEMORY_MEMORY_BODY_H_
