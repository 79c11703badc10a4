// How values of a line are added up (ops/kernels/cuda/blocks/line_body.h): a Fold has a Total, what
// it begins with, the total of two, and how threads of a warp exchange one.
#ifndef WEFT_OPS_KERNELS_CUDA_BLOCKS_LINE_FOLD_H_
#define WEFT_OPS_KERNELS_CUDA_BLOCKS_LINE_FOLD_H_

#include <cmath>
#include <cstdint>
#include <limits>

#include "ops/kernels/cuda/language/gpu.h"

namespace weft::cuda {

template <typename S>
struct SumFold {
  using Total = S;
  static WEFT_GPU Total Initial() { return S(0); }
  static WEFT_GPU Total Combine(Total a, Total b) { return a + b; }
  template <class Gpu>
  static WEFT_GPU Total Exchange(Gpu& gpu, Total total, int mask) {
    return gpu.ShuffleXor(total, mask);
  }
};

// Two sums.
template <typename S>
struct Pair {
  S a;
  S b;
};
template <typename S>
struct PairFold {
  using Total = Pair<S>;
  static WEFT_GPU Total Initial() { return {S(0), S(0)}; }
  static WEFT_GPU Total Combine(Total a, Total b) { return {a.a + b.a, a.b + b.b}; }
  template <class Gpu>
  static WEFT_GPU Total Exchange(Gpu& gpu, Total total, int mask) {
    return {gpu.ShuffleXor(total.a, mask), gpu.ShuffleXor(total.b, mask)};
  }
};

// The largest; NaN if there is one.
template <typename S>
struct MaxFold {
  using Total = S;
  static constexpr S kInitial = -std::numeric_limits<S>::infinity();
  static WEFT_GPU Total Initial() { return kInitial; }
  static WEFT_GPU Total Combine(Total a, Total b) { return a != a || a > b ? a : b; }
  template <class Gpu>
  static WEFT_GPU Total Exchange(Gpu& gpu, Total total, int mask) {
    return gpu.ShuffleXor(total, mask);
  }
};

// The largest number x, and the sum of e^(number - x), in one pass: Milakov and Gimelshein, Online
// normalizer calculation for softmax (2018). NaN makes the sum NaN.
struct LogSum {
  double largest;
  double sum;
};
struct LogSumFold {
  using Total = LogSum;
  static constexpr double kNone = -std::numeric_limits<double>::infinity();
  static WEFT_GPU Total Initial() { return {kNone, 0.0}; }

  // e^(x - largest); of equal infinities, too, whose difference is none.
  template <typename C>
  static WEFT_GPU C Term(C x, C largest) {
    return x == largest ? C(1) : std::exp(x - largest);
  }

  // Adds numbers, in their own type over this run.
  template <int K, typename C>
  static WEFT_GPU void Add(Total& total, const C (&x)[K]) {
    const C before = static_cast<C>(total.largest);
    C largest = before;
    WEFT_UNROLL
    for (int k = 0; k < K; ++k) largest = x[k] > largest ? x[k] : largest;
    C sum = 0;
    WEFT_UNROLL
    for (int k = 0; k < K; ++k) sum += Term(x[k], largest);
    if (before != largest) {
      total.sum *= static_cast<double>(Term(before, largest));
      total.largest = static_cast<double>(largest);
    }
    total.sum += static_cast<double>(sum);
  }

  static WEFT_GPU Total Combine(Total a, Total b) {
    if (a.largest < b.largest) {
      return {b.largest, a.sum * std::exp(a.largest - b.largest) + b.sum};
    }
    if (a.largest > b.largest) {
      return {a.largest, a.sum + b.sum * std::exp(b.largest - a.largest)};
    }
    return {a.largest, a.sum + b.sum};
  }
  template <class Gpu>
  static WEFT_GPU Total Exchange(Gpu& gpu, Total total, int mask) {
    return {gpu.ShuffleXor(total.largest, mask), gpu.ShuffleXor(total.sum, mask)};
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_LINE_FOLD_H_
