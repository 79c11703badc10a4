// Bodies of pools: a thread for each element that is written, which looks at all that it is made
// of. So every sum has one order, and nothing is written twice.
#ifndef WEFT_OPS_KERNELS_CUDA_POOL_POOL_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_POOL_POOL_BODY_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "ops/kernels/cuda/blocks/divisor.h"
#include "ops/kernels/cuda/blocks/fault.h"
#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/scalar.h"
#include "ops/kernels/cuda/pool/pool_calls.h"

namespace weft::cuda {

// The elements of one axis of a window that lie in the image: positions start + t dilation for t in
// [first, last).
struct PoolSpan {
  int32_t start;
  int32_t first;
  int32_t last;

  WEFT_GPU PoolSpan(const PoolAxis& axis, int32_t output)
      : start(output * axis.stride - axis.pad_begin), first(0), last(0) {
    if (start < 0) first = Above(-start, axis.dilation);
    if (start < axis.input) last = Above(axis.input - start, axis.dilation);
    if (last > axis.kernel) last = axis.kernel;
  }
  // n / d, rounded up; n > 0.
  WEFT_GPU static int32_t Above(int32_t n, int32_t d) { return d == 1 ? n : (n + d - 1) / d; }

  WEFT_GPU int32_t count() const { return last > first ? last - first : 0; }
  // The elements that a mean with padding counts: none beyond the padding at the end.
  WEFT_GPU int32_t padded_count(const PoolAxis& axis) const {
    const int32_t end = axis.input + axis.pad_end;
    const int32_t reached = start >= end ? 0 : Above(end - start, axis.dilation);
    return reached < axis.kernel ? reached : axis.kernel;
  }
};

// The windows of one axis that may reach a position: outputs in [first, last).
struct PoolReach {
  int32_t first;
  int32_t last;

  WEFT_GPU PoolReach(const PoolAxis& axis, int32_t position) : first(0), last(0) {
    const int32_t place = position + axis.pad_begin;
    const int32_t beyond = place - (axis.kernel - 1) * axis.dilation;
    if (beyond > 0) first = PoolSpan::Above(beyond, axis.stride);
    if (place < 0) return;
    last = place / axis.stride + 1;
    if (last > axis.output) last = axis.output;
  }
};

// The element of the window that a position is, or -1.
WEFT_GPU int32_t TapOf(const PoolAxis& axis, int32_t output, int32_t position) {
  const int32_t distance = position - output * axis.stride + axis.pad_begin;
  if (axis.dilation == 1) return distance;
  return distance % axis.dilation == 0 ? distance / axis.dilation : -1;
}

// Plane, depth, row and column of an element of all planes.
struct PoolPlace {
  int64_t plane;
  int32_t d;
  int32_t h;
  int32_t w;
};
template <typename Index>
struct PoolDivisors {
  FastDivisor<Index> d;
  FastDivisor<Index> h;
  FastDivisor<Index> w;

  WEFT_GPU PoolPlace At(Index i) const {
    const Division<Index> by_w = w.Divide(i);
    const Division<Index> by_h = h.Divide(by_w.quotient);
    const Division<Index> by_d = d.Divide(by_h.quotient);
    return {by_d.quotient, static_cast<int32_t>(by_d.rest), static_cast<int32_t>(by_h.rest),
            static_cast<int32_t>(by_w.rest)};
  }
};

// fn(position in the plane) for the elements of a window in the image, in order, until it is false.
template <typename Fn>
WEFT_GPU void ForEachTap(const PoolGeometry& pool, const PoolPlace& output, Fn fn) {
  const PoolSpan depth(pool.axis[0], output.d);
  const PoolSpan height(pool.axis[1], output.h);
  const PoolSpan width(pool.axis[2], output.w);
  for (int32_t d = depth.first; d < depth.last; ++d) {
    const int32_t of_depth = (depth.start + d * pool.axis[0].dilation) * pool.axis[1].input;
    for (int32_t h = height.first; h < height.last; ++h) {
      const int32_t row =
          (of_depth + height.start + h * pool.axis[1].dilation) * pool.axis[2].input + width.start;
      for (int32_t w = width.first; w < width.last; ++w) {
        if (!fn(row + w * pool.axis[2].dilation)) return;
      }
    }
  }
}

WEFT_GPU int32_t PlaneInput(const PoolGeometry& pool) {
  return pool.axis[0].input * pool.axis[1].input * pool.axis[2].input;
}
WEFT_GPU int32_t PlaneOutput(const PoolGeometry& pool) {
  return pool.axis[0].output * pool.axis[1].output * pool.axis[2].output;
}

// Below all numbers. (A constant: GPU code may not call what numeric_limits has.)
template <typename T>
inline constexpr Compute<T> kLowest = std::is_integral_v<Compute<T>>
                                          ? std::numeric_limits<Compute<T>>::lowest()
                                          : -std::numeric_limits<Compute<T>>::infinity();

template <typename T, typename Index>
struct MaxPoolBody {
  const T* x;
  T* y;
  Index count;  // elements of y
  PoolGeometry pool;
  PoolDivisors<Index> output;
  PoolIndices indices;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int64_t plane_input = PlaneInput(pool);
    for (int64_t i = gpu.index(); i < count; i += gpu.stride()) {
      const PoolPlace place = output.At(static_cast<Index>(i));
      const auto plane = gpu.Global(x) + place.plane * plane_input;
      Compute<T> best = kLowest<T>;
      int32_t where = -1;
      ForEachTap(pool, place, [&](int32_t position) {
        const T element = plane[position];
        const Compute<T> value = Widen(element);
        if (where >= 0 && !(value > best) && value == value) return true;
        best = value;
        where = position;
        return true;
      });
      gpu.Global(y)[i] = Narrow<T>(best);
      if (indices.to != nullptr) gpu.Global(indices.to)[i] = IndexOf(place.plane, where);
    }
  }

 private:
  WEFT_GPU int64_t IndexOf(int64_t plane, int32_t where) const {
    if (where < 0) return -1;
    const int64_t sample = indices.first_sample + plane / indices.channels;
    const int64_t channel = indices.first_channel + plane % indices.channels;
    int64_t in_plane = where;
    if (indices.by_column) {
      const int32_t w = where % pool.axis[2].input;
      const int32_t row = where / pool.axis[2].input;
      const int32_t h = row % pool.axis[1].input;
      const int32_t d = row / pool.axis[1].input;
      in_plane = d + pool.axis[0].input * (h + int64_t{pool.axis[1].input} * w);
    }
    return (sample * indices.all_channels + channel) * PlaneInput(pool) + in_plane;
  }
};

// visit(place of the output, taps) for each window that has the position.
template <typename Fn>
WEFT_GPU void ForEachWindow(const PoolGeometry& pool, const PoolPlace& at, Fn visit) {
  const PoolReach depth(pool.axis[0], at.d);
  const PoolReach height(pool.axis[1], at.h);
  const PoolReach width(pool.axis[2], at.w);
  for (int32_t d = depth.first; d < depth.last; ++d) {
    const int32_t of_d = TapOf(pool.axis[0], d, at.d);
    if (of_d < 0) continue;
    for (int32_t h = height.first; h < height.last; ++h) {
      const int32_t of_h = TapOf(pool.axis[1], h, at.h);
      if (of_h < 0) continue;
      for (int32_t w = width.first; w < width.last; ++w) {
        const int32_t of_w = TapOf(pool.axis[2], w, at.w);
        if (of_w < 0) continue;
        visit(PoolPlace{at.plane, d, h, w}, PoolPlace{0, of_d, of_h, of_w});
      }
    }
  }
}

WEFT_GPU int32_t OutputPosition(const PoolGeometry& pool, const PoolPlace& output) {
  return (output.d * pool.axis[1].output + output.h) * pool.axis[2].output + output.w;
}

// The element of a window that takes its gradient, as a position in the plane: the first one that
// equals y; the last one in the image where none does; -1 where there is none.
template <typename T, typename Index>
struct MaxPlaceBody {
  const T* x;
  const T* y;
  int32_t* places;
  Index count;  // elements of y
  PoolGeometry pool;
  PoolDivisors<Index> output;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int64_t plane_input = PlaneInput(pool);
    for (int64_t i = gpu.index(); i < count; i += gpu.stride()) {
      const PoolPlace place = output.At(static_cast<Index>(i));
      const auto plane = gpu.Global(x) + place.plane * plane_input;
      const T element = gpu.Global(y)[i];
      const Compute<T> largest = Widen(element);
      int32_t where = -1;
      ForEachTap(pool, place, [&](int32_t position) {
        const T other = plane[position];
        where = position;
        return !(Widen(other) == largest);
      });
      gpu.Global(places)[i] = where;
    }
  }
};

// dx = the sum of dy of the windows whose place it is, in the order of the windows.
template <typename T, typename Index>
struct MaxPoolGradBody {
  const int32_t* places;
  const T* dy;
  T* dx;
  Index count;  // elements of dx
  PoolGeometry pool;
  PoolDivisors<Index> input;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    for (int64_t i = gpu.index(); i < count; i += gpu.stride()) {
      const PoolPlace at = input.At(static_cast<Index>(i));
      const int32_t own = (at.d * pool.axis[1].input + at.h) * pool.axis[2].input + at.w;
      const int64_t outputs = at.plane * PlaneOutput(pool);
      Compute<T> sum = 0;
      const PoolReach depth(pool.axis[0], at.d);
      const PoolReach height(pool.axis[1], at.h);
      const PoolReach width(pool.axis[2], at.w);
      for (int32_t d = depth.first; d < depth.last; ++d) {
        for (int32_t h = height.first; h < height.last; ++h) {
          const int64_t row = outputs + (d * pool.axis[1].output + h) * pool.axis[2].output;
          for (int32_t w = width.first; w < width.last; ++w) {
            const int32_t place = gpu.Global(places)[row + w];
            if (place != own) continue;
            const T share = gpu.Global(dy)[row + w];
            sum += Widen(share);
          }
        }
      }
      gpu.Global(dx)[i] = Narrow<T>(sum);
    }
  }
};

// What the sum of a window is divided by.
WEFT_GPU int64_t DivisorOfWindow(const PoolGeometry& pool, const PoolPlace& output,
                                 bool count_padding) {
  const PoolSpan depth(pool.axis[0], output.d);
  const PoolSpan height(pool.axis[1], output.h);
  const PoolSpan width(pool.axis[2], output.w);
  if (!count_padding) return int64_t{depth.count()} * height.count() * width.count();
  return int64_t{depth.padded_count(pool.axis[0])} * height.padded_count(pool.axis[1]) *
         width.padded_count(pool.axis[2]);
}

// y[i] = finish(sum of raise(element) over the window of i, place of i). Sums are made in double.
template <typename T, typename Index, class Gpu, class Raise, class Finish>
WEFT_GPU void SumWindows(Gpu& gpu, const T* x, T* y, Index count, const PoolGeometry& pool,
                         const PoolDivisors<Index>& output, const Raise& raise,
                         const Finish& finish) {
  const int64_t plane_input = PlaneInput(pool);
  for (int64_t i = gpu.index(); i < count; i += gpu.stride()) {
    const PoolPlace place = output.At(static_cast<Index>(i));
    const auto plane = gpu.Global(x) + place.plane * plane_input;
    double sum = 0;
    ForEachTap(pool, place, [&](int32_t position) {
      const T element = plane[position];
      sum += raise(static_cast<double>(Widen(element)));
      return true;
    });
    gpu.Global(y)[i] = Narrow<T>(static_cast<Compute<T>>(finish(sum, place)));
  }
}

template <typename T, typename Index>
struct AveragePoolBody {
  const T* x;
  T* y;
  Index count;
  PoolGeometry pool;
  PoolDivisors<Index> output;
  bool count_padding;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    SumWindows(
        gpu, x, y, count, pool, output, [](double element) { return element; },
        [this](double sum, const PoolPlace& place) {
          const int64_t divisor = DivisorOfWindow(pool, place, count_padding);
          return divisor == 0 ? 0 : sum / static_cast<double>(divisor);
        });
  }
};

template <typename T, typename Index>
struct AveragePoolGradBody {
  const T* dy;
  T* dx;
  Index count;
  PoolGeometry pool;
  PoolDivisors<Index> input;
  bool count_padding;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    for (int64_t i = gpu.index(); i < count; i += gpu.stride()) {
      const PoolPlace at = input.At(static_cast<Index>(i));
      const auto gradient = gpu.Global(dy) + at.plane * PlaneOutput(pool);
      Compute<T> sum = 0;
      const PoolReach depth(pool.axis[0], at.d);
      const PoolReach height(pool.axis[1], at.h);
      const PoolReach width(pool.axis[2], at.w);
      for (int32_t d = depth.first; d < depth.last; ++d) {
        if (TapOf(pool.axis[0], d, at.d) < 0) continue;
        const int32_t of_depth = Counted(pool.axis[0], d);
        for (int32_t h = height.first; h < height.last; ++h) {
          if (TapOf(pool.axis[1], h, at.h) < 0) continue;
          const int32_t of_height = of_depth * Counted(pool.axis[1], h);
          const int32_t row = (d * pool.axis[1].output + h) * pool.axis[2].output;
          for (int32_t w = width.first; w < width.last; ++w) {
            if (TapOf(pool.axis[2], w, at.w) < 0) continue;
            const T share = gradient[row + w];
            const int32_t divisor = of_height * Counted(pool.axis[2], w);
            sum += Widen(share) / static_cast<Compute<T>>(divisor);
          }
        }
      }
      gpu.Global(dx)[i] = Narrow<T>(sum);
    }
  }

 private:
  WEFT_GPU int32_t Counted(const PoolAxis& axis, int32_t output) const {
    const PoolSpan span(axis, output);
    return count_padding ? span.padded_count(axis) : span.count();
  }
};

// |x|^p and its inverse.
struct LpNorm {
  int64_t p;

  WEFT_GPU double Raise(double x) const {
    if (p == 2) return x * x;
    return p == 1 ? std::fabs(x) : std::pow(std::fabs(x), static_cast<double>(p));
  }
  WEFT_GPU double Root(double sum) const {
    if (p == 2) return std::sqrt(sum);
    return p == 1 ? sum : std::pow(sum, 1 / static_cast<double>(p));
  }
};

template <typename T, typename Index>
struct LpPoolBody {
  const T* x;
  T* y;
  Index count;
  PoolGeometry pool;
  PoolDivisors<Index> output;
  LpNorm norm;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    SumWindows(
        gpu, x, y, count, pool, output, [this](double element) { return norm.Raise(element); },
        [this](double sum, const PoolPlace&) { return norm.Root(sum); });
  }
};

// Whole numbers wrap around; bool adds as or.
template <typename T, typename Index>
struct Col2ImBody {
  const T* columns;  // [planes, window, blocks]
  T* image;
  Index count;
  PoolGeometry pool;
  PoolDivisors<Index> input;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int64_t blocks = PlaneOutput(pool);
    const int64_t taps = int64_t{pool.axis[0].kernel} * pool.axis[1].kernel * pool.axis[2].kernel;
    for (int64_t i = gpu.index(); i < count; i += gpu.stride()) {
      const PoolPlace at = input.At(static_cast<Index>(i));
      const auto plane = gpu.Global(columns) + at.plane * taps * blocks;
      Compute<T> sum = 0;
      ForEachWindow(pool, at, [&](const PoolPlace& window, const PoolPlace& tap) {
        const int64_t number =
            (int64_t{tap.d} * pool.axis[1].kernel + tap.h) * pool.axis[2].kernel + tap.w;
        const T element = plane[number * blocks + OutputPosition(pool, window)];
        if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
          sum = static_cast<T>(static_cast<uint64_t>(sum) + static_cast<uint64_t>(element));
        } else {
          sum = static_cast<Compute<T>>(sum + Widen(element));
        }
      });
      gpu.Global(image)[i] = Narrow<T>(sum);
    }
  }
};

// Which element of x each element of y takes: the last one that names it. AtomicMax of whole
// numbers gives the same whatever the order.
struct UnpoolClaimBody {
  UnpoolCall call;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    for (int64_t i = gpu.index(); i < call.count; i += gpu.stride()) {
      const int64_t index = gpu.Global(call.indices)[i];
      if (!InRange(gpu, call.report, index, i)) continue;
      int64_t rest = index;
      int64_t place = 0;
      int64_t stride = 1;
      bool inside = true;
      for (int d = 0; d < call.axes; ++d) {
        const int64_t at = rest % call.from[d];
        rest /= call.from[d];
        inside = inside && at < call.to[d];
        place += at * stride;
        stride *= call.to[d];
      }
      if (inside) gpu.AtomicMax(gpu.Global(call.owners), place, static_cast<int32_t>(i));
    }
  }
};

template <typename T>
struct UnpoolTakeBody {
  const T* x;
  const int32_t* owners;
  T* y;
  int64_t elements;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    for (int64_t o = gpu.index(); o < elements; o += gpu.stride()) {
      const int32_t owner = gpu.Global(owners)[o];
      T value = {};
      if (owner >= 0) value = gpu.Global(x)[owner];
      gpu.Global(y)[o] = value;
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_POOL_POOL_BODY_H_
