// Bodies of Resize and ResizeGrad. Weighted modes go axis after axis; a table says what each
// element along an axis is made of. Nearest is one copy by a table per axis.
#ifndef WEFT_OPS_KERNELS_CUDA_IMAGE_RESIZE_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_IMAGE_RESIZE_BODY_H_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "ops/kernels/cuda/blocks/any_number.h"
#include "ops/kernels/cuda/image/resize_launch.h"
#include "ops/kernels/cuda/language/scalar.h"

namespace weft::cuda {

// y[o, i, j] = the sum of weights[k] x[o, indices[k], j] over k in [starts[i], starts[i + 1]).
template <typename S>
struct AxisPassBody {
  const S* x;
  S* y;
  const int64_t* starts;
  const int64_t* indices;
  const S* weights;
  int64_t count;
  int64_t input;
  int64_t output;
  int64_t inner;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto from = gpu.Global(x);
    const auto to = gpu.Global(y);
    const auto start_of = gpu.Global(starts);
    const auto index_of = gpu.Global(indices);
    const auto weight_of = gpu.Global(weights);
    for (int64_t n = gpu.index(); n < count; n += gpu.stride()) {
      const int64_t j = n % inner;
      const int64_t i = n / inner % output;
      const int64_t base = n / inner / output * input * inner + j;
      const int64_t end = start_of[i + 1];
      S sum = 0;
      for (int64_t k = start_of[i]; k < end; ++k) {
        const S weight = weight_of[k];
        const S value = from[base + index_of[k] * inner];
        sum += weight * value;
      }
      to[n] = sum;
    }
  }
};

// Elements of any type as S.
template <typename S>
struct WidenImageBody {
  const void* x;
  S* y;
  int64_t count;
  DType dtype;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto to = gpu.Global(y);
    for (int64_t i = gpu.index(); i < count; i += gpu.stride()) {
      to[i] = static_cast<S>(ToDouble(ReadAny(gpu, x, dtype, i)));
    }
  }
};

// Sums as elements of T, of which whole ones are rounded to nearest even and cut at their ends.
template <typename T, typename S>
struct NarrowImageBody {
  const S* x;
  T* y;
  int64_t count;
  S low;  // of whole T
  S high;
  T lowest;
  T highest;

  WEFT_GPU T Of(S value) const {
    if constexpr (!std::is_integral_v<T>) {
      return Narrow<T>(value);
    } else if constexpr (std::is_same_v<T, bool>) {
      return value != 0;
    } else {
      const S whole = std::nearbyint(value);
      if (!(whole > low)) return lowest;
      if (whole >= high) return highest;
      return static_cast<T>(whole);
    }
  }

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto from = gpu.Global(x);
    const auto to = gpu.Global(y);
    for (int64_t i = gpu.index(); i < count; i += gpu.stride()) {
      const S value = from[i];
      to[i] = Of(value);
    }
  }
};

// y[i] = x where the tables say, or `fill` where one of them says -1.
template <typename T>
struct NearestBody {
  const T* x;  // null: only what is filled is written
  T* y;
  const int64_t* tables;
  T fill;
  ResizedAxes axes;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto from = gpu.Global(x);
    const auto to = gpu.Global(y);
    const auto table = gpu.Global(tables);
    for (int64_t n = gpu.index(); n < axes.count; n += gpu.stride()) {
      int64_t rest = n;
      int64_t offset = 0;
      bool is_inside = true;
      for (int d = 0; d < axes.axes; ++d) {
        const int64_t at = rest % axes.sizes[d];
        rest /= axes.sizes[d];
        const int64_t place =
            axes.tables[d] < 0 ? at : static_cast<int64_t>(table[axes.tables[d] + at]);
        is_inside = is_inside && place >= 0;
        offset += place * axes.strides[d];
      }
      if (!is_inside) {
        to[n] = fill;
      } else if (x != nullptr) {
        const T value = from[offset];
        to[n] = value;
      }
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_IMAGE_RESIZE_BODY_H_
