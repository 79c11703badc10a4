// Sources (ops/kernels/cuda/blocks/fold_body.h) of the reductions: what is added up, and what is
// made of a total. Floats are added in their own type over four elements, and in double over those.
#ifndef WEFT_OPS_KERNELS_CUDA_REDUCTION_REDUCE_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_REDUCTION_REDUCE_BODY_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "ops/kernels/cuda/blocks/any_number.h"
#include "ops/kernels/cuda/blocks/fold_body.h"
#include "ops/kernels/cuda/blocks/line_fold.h"
#include "ops/kernels/cuda/language/scalar.h"
#include "ops/kernels/cuda/reduction/reduce_launch.h"

namespace weft::cuda {

// The ends of a type: values, as nvcc calls no constexpr function of the standard library on a GPU.
template <typename R>
struct EndsOf {
  static constexpr R kLowest = std::numeric_limits<R>::lowest();
  static constexpr R kLargest = std::numeric_limits<R>::max();
};

// Whole numbers are added up in 64 bits, wrapping around.
template <typename T>
using WideTotal = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;

// A double as a T; whole numbers are cut off, as a cast does.
template <typename T>
WEFT_GPU T FromDouble(double value) {
  if constexpr (std::is_integral_v<T>) {
    if (!(value > -9.2e18))
      return std::is_signed_v<T> ? static_cast<T>(INT64_MIN >> (64 - 8 * sizeof(T))) : T(0);
    if (value > 9.2e18)
      return static_cast<T>(~uint64_t{0} >> (64 - 8 * sizeof(T) + (std::is_signed_v<T> ? 1 : 0)));
    return static_cast<T>(static_cast<int64_t>(value));
  } else {
    return Narrow<T>(static_cast<Compute<T>>(value));
  }
}

template <typename T, typename Total>
WEFT_GPU T FinishTotal(Total total, const ReduceFinish& finish) {
  if constexpr (std::is_same_v<Total, uint64_t>) {
    const int64_t whole = static_cast<int64_t>(finish.divisor);
    if (whole == 1) return static_cast<T>(total);
    if (whole == 0) return T(0);
    if constexpr (std::is_unsigned_v<T>)
      return static_cast<T>(total / static_cast<uint64_t>(whole));
    return static_cast<T>(static_cast<int64_t>(total) / whole);
  } else {
    if (finish.kind == FinishKind::kRoot) return FromDouble<T>(std::sqrt(total));
    if (finish.kind == FinishKind::kLog) return FromDouble<T>(std::log(total));
    return FromDouble<T>(total / finish.divisor);
  }
}

// ---- Reducers: a Fold over elements of T, with Add(total, K numbers) and Result, as a T or as
// another type.

struct Itself {
  template <typename S>
  static WEFT_GPU S Of(S x) {
    return x;
  }
};
struct Magnitude {
  template <typename S>
  static WEFT_GPU auto Of(S x) {
    if constexpr (std::is_unsigned_v<S>) {
      return x;
    } else if constexpr (std::is_integral_v<S>) {
      const auto bits = static_cast<uint64_t>(x);
      return x < 0 ? uint64_t{0} - bits : bits;
    } else {
      return x < S(0) ? S(0) - x : x;
    }
  }
};
struct Squared {
  template <typename S>
  static WEFT_GPU S Of(S x) {
    return x * x;
  }
};

// The sum of Map::Of(x), in Sum.
template <typename T, class Map, typename Sum = WideTotal<T>>
struct SumReducer {
  using Total = Sum;
  static WEFT_GPU Total Initial() { return Total(0); }
  static WEFT_GPU Total Combine(Total a, Total b) { return a + b; }
  template <int K>
  static WEFT_GPU void Add(Total& total, const Compute<T> (&x)[K]) {
    if constexpr (std::is_integral_v<T>) {
      for (int k = 0; k < K; ++k) {
        if constexpr (std::is_same_v<Sum, double>) {
          total += Map::Of(static_cast<double>(x[k]));
        } else {
          // The sign is looked at in the type itself.
          total += static_cast<Total>(Map::Of(static_cast<Signed>(x[k])));
        }
      }
    } else {
      Compute<T> sum = Map::Of(x[0]);
      WEFT_UNROLL
      for (int k = 1; k < K; ++k) sum += Map::Of(x[k]);
      total += static_cast<Total>(sum);
    }
  }
  template <typename R = T>
  static WEFT_GPU R Result(Total total, const ReduceFinish& finish) {
    return FinishTotal<R>(total, finish);
  }

 private:
  // Sums and products of 64 bits wrap around without a sign; a magnitude needs it.
  using Signed =
      std::conditional_t<std::is_same_v<Map, Magnitude>,
                         std::conditional_t<std::is_unsigned_v<T>, uint64_t, int64_t>, uint64_t>;
};

template <typename T>
struct ProductReducer {
  using Total = WideTotal<T>;
  static WEFT_GPU Total Initial() { return Total(1); }
  static WEFT_GPU Total Combine(Total a, Total b) { return a * b; }
  template <int K>
  static WEFT_GPU void Add(Total& total, const Compute<T> (&x)[K]) {
    WEFT_UNROLL
    for (int k = 0; k < K; ++k) total *= static_cast<Total>(x[k]);
  }
  template <typename R = T>
  static WEFT_GPU R Result(Total total, const ReduceFinish& finish) {
    return FinishTotal<R>(total, finish);
  }
};

// NaN stays; of no elements: the end of the type.
template <typename T, bool kSmallest>
struct ExtremeReducer {
  using Total = Compute<T>;
  static constexpr Total kInitial =
      std::numeric_limits<Total>::has_infinity
          ? (kSmallest ? std::numeric_limits<Total>::infinity()
                       : -std::numeric_limits<Total>::infinity())
          : (kSmallest ? std::numeric_limits<Total>::max() : std::numeric_limits<Total>::lowest());
  static WEFT_GPU Total Initial() { return kInitial; }
  static WEFT_GPU Total Combine(Total a, Total b) {
    return (kSmallest ? a < b : a > b) || a != a ? a : b;
  }
  template <int K>
  static WEFT_GPU void Add(Total& total, const Compute<T> (&x)[K]) {
    WEFT_UNROLL
    for (int k = 0; k < K; ++k) total = Combine(total, x[k]);
  }
  template <typename R = T>
  static WEFT_GPU R Result(Total total, const ReduceFinish&) {
    if constexpr (std::is_integral_v<T>) {
      // That of no elements is the end of R, not of T.
      if constexpr (std::is_signed_v<T>) {
        if (total < static_cast<T>(EndsOf<R>::kLowest)) return EndsOf<R>::kLowest;
      }
      if (total > static_cast<T>(EndsOf<R>::kLargest)) return EndsOf<R>::kLargest;
      return static_cast<R>(total);
    } else {
      return Narrow<R>(total);
    }
  }
};

template <typename T>
struct LogSumExpReducer : LogSumFold {
  template <int K>
  static WEFT_GPU void Add(Total& total, const Compute<T> (&x)[K]) {
    if constexpr (std::is_integral_v<T>) {
      double numbers[K];
      WEFT_UNROLL
      for (int k = 0; k < K; ++k) numbers[k] = static_cast<double>(x[k]);
      LogSumFold::Add(total, numbers);
    } else {
      LogSumFold::Add(total, x);
    }
  }
  template <typename R = T>
  static WEFT_GPU R Result(Total total, const ReduceFinish&) {
    return FromDouble<R>(total.largest + std::log(total.sum));
  }
};

// The elements of one tensor of floats.
template <typename T, class Reducer>
struct ReduceSource {
  using Total = typename Reducer::Total;
  static constexpr int kWidth = kWidest<T>;
  template <int V>
  using State = Stateless;

  const T* x = nullptr;
  T* y = nullptr;
  ReduceFinish finish;

  static WEFT_GPU Total Initial() { return Reducer::Initial(); }
  static WEFT_GPU Total Combine(Total a, Total b) { return Reducer::Combine(a, b); }
  template <int V, class Gpu>
  WEFT_GPU Stateless Open(Gpu&, int64_t, int64_t, bool) const {
    return {};
  }
  template <int V, int K, class Gpu>
  WEFT_GPU void Add(Gpu& gpu, const Stateless&, const int64_t (&at)[K], int64_t, int,
                    Total (&totals)[V]) const {
    const auto from = gpu.Global(x);
    Packet<T, V> packets[K];
    WEFT_UNROLL
    for (int k = 0; k < K; ++k) packets[k] = gpu.template Load<V>(from, at[k]);
    WEFT_UNROLL
    for (int v = 0; v < V; ++v) {
      Compute<T> numbers[K];
      WEFT_UNROLL
      for (int k = 0; k < K; ++k) numbers[k] = Widen(packets[k].values[v]);
      Reducer::Add(totals[v], numbers);
    }
  }
  template <class Gpu>
  WEFT_GPU void Finish(Gpu& gpu, int64_t output, Total total) const {
    gpu.Global(y)[output] = Reducer::Result(total, finish);
  }
};

// Those of a tensor of whole numbers, or bool: of any such type, as numbers of 64 bits. T: int64_t,
// or uint64_t for types without a sign.
template <typename T, class Reducer>
struct WholeReduceSource {
  using Total = typename Reducer::Total;
  static constexpr int kWidth = 1;
  template <int V>
  using State = Stateless;

  const void* x = nullptr;
  void* y = nullptr;
  DType dtype = DType::kInvalid;
  ReduceFinish finish;

  static WEFT_GPU Total Initial() { return Reducer::Initial(); }
  static WEFT_GPU Total Combine(Total a, Total b) { return Reducer::Combine(a, b); }
  template <int V, class Gpu>
  WEFT_GPU Stateless Open(Gpu&, int64_t, int64_t, bool) const {
    return {};
  }
  template <int V, int K, class Gpu>
  WEFT_GPU void Add(Gpu& gpu, const Stateless&, const int64_t (&at)[K], int64_t, int,
                    Total (&totals)[V]) const {
    T numbers[K];
    WEFT_UNROLL
    for (int k = 0; k < K; ++k) numbers[k] = static_cast<T>(ReadWhole(gpu, x, dtype, at[k]));
    Reducer::Add(totals[0], numbers);
  }
  template <class Gpu>
  WEFT_GPU void Finish(Gpu& gpu, int64_t output, Total total) const {
    if constexpr (std::is_signed_v<T>) {
      if (dtype == DType::kInt8) return Put<int8_t>(gpu, output, total);
      if (dtype == DType::kInt16) return Put<int16_t>(gpu, output, total);
      if (dtype == DType::kInt32) return Put<int32_t>(gpu, output, total);
    } else {
      if (dtype == DType::kBool) return Put<bool>(gpu, output, total);
      if (dtype == DType::kUint8) return Put<uint8_t>(gpu, output, total);
      if (dtype == DType::kUint16) return Put<uint16_t>(gpu, output, total);
      if (dtype == DType::kUint32) return Put<uint32_t>(gpu, output, total);
    }
    Put<T>(gpu, output, total);
  }

 private:
  template <typename R, class Gpu>
  WEFT_GPU void Put(Gpu& gpu, int64_t output, Total total) const {
    gpu.Global(static_cast<R*>(y))[output] = Reducer::template Result<R>(total, finish);
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_REDUCTION_REDUCE_BODY_H_
