// CumSum, CumProd and CumProdGrad: whole numbers in 64 bits, wrapping around; floats in double.
#ifndef WEFT_OPS_KERNELS_CUDA_REDUCTION_CUMULATIVE_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_REDUCTION_CUMULATIVE_BODY_H_

#include <cstdint>
#include <type_traits>

#include "ops/kernels/cuda/language/scalar.h"
#include "ops/kernels/cuda/reduction/cumulative_launch.h"

namespace weft::cuda {

// The lines along the axis that the operand names.
struct CumulativeLines {
  int64_t lines = 0;
  int64_t size = 0;
  int64_t stride = 1;

  // Those of axis 0 if there is no such axis, which is reported: outputs are written all the same.
  template <class Gpu>
  static WEFT_GPU CumulativeLines Of(Gpu& gpu, const CumulativePlan& plan) {
    int64_t axis = ReadIndex(gpu, plan.axis, 0);
    if (!InRange(gpu, plan.report, axis, 0)) axis = 0;
    if (axis < 0) axis += plan.rank;
    CumulativeLines found;
    found.size = plan.sizes[axis];
    found.stride = plan.strides[axis];
    found.lines = found.size == 0 ? 0 : plan.elements / found.size;
    return found;
  }
  WEFT_GPU int64_t Start(int64_t line) const {
    return line / stride * stride * size + line % stride;
  }
  // Element i of a line in the order of summing.
  WEFT_GPU int64_t At(int64_t start, int64_t i, bool reverse) const {
    return start + (reverse ? size - 1 - i : i) * stride;
  }
};

// A warp per line where its elements lie side by side, else a thread per line.
template <typename T, bool kProduct>
struct CumulativeBody {
  using Total = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;

  CumulativePlan plan;
  const T* x = nullptr;
  T* y = nullptr;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const CumulativeLines lines = CumulativeLines::Of(gpu, plan);
    if (lines.stride == 1) {
      const int64_t warps = gpu.stride() / kWarp;
      for (int64_t line = gpu.index() / kWarp; line < lines.lines; line += warps) {
        WarpLine(gpu, lines, lines.Start(line));
      }
    } else {
      for (int64_t line = gpu.index(); line < lines.lines; line += gpu.stride()) {
        ThreadLine(gpu, lines, lines.Start(line));
      }
    }
  }

 private:
  static WEFT_GPU Total Join(Total a, Total b) {
    if constexpr (kProduct) {
      return a * b;
    } else {
      return a + b;
    }
  }
  static constexpr Total kInitial = kProduct ? 1 : 0;

  template <class Gpu>
  WEFT_GPU Total Read(Gpu& gpu, int64_t at) const {
    const T element = gpu.Global(x)[at];
    return static_cast<Total>(Widen(element));
  }
  template <class Gpu>
  WEFT_GPU void Write(Gpu& gpu, int64_t at, Total total) const {
    gpu.Global(y)[at] = Narrow<T>(static_cast<Compute<T>>(total));
  }

  template <class Gpu>
  WEFT_GPU void ThreadLine(Gpu& gpu, const CumulativeLines& lines, int64_t start) const {
    Total total = kInitial;
    for (int64_t i = 0; i < lines.size; ++i) {
      const int64_t at = lines.At(start, i, plan.reverse != 0);
      const Total before = total;
      total = Join(before, Read(gpu, at));
      Write(gpu, at, plan.exclusive != 0 ? before : total);
    }
  }

  // 32 elements at a time: Hillis and Steele, Data parallel algorithms (1986).
  template <class Gpu>
  WEFT_GPU void WarpLine(Gpu& gpu, const CumulativeLines& lines, int64_t start) const {
    const int lane = gpu.lane();
    Total carried = kInitial;
    for (int64_t first = 0; first < lines.size; first += kWarp) {
      const int64_t i = first + lane;
      const bool exists = i < lines.size;
      const int64_t at = exists ? lines.At(start, i, plan.reverse != 0) : 0;
      Total total = exists ? Read(gpu, at) : kInitial;
      for (int distance = 1; distance < kWarp; distance *= 2) {
        const Total other = gpu.ShuffleUp(total, distance);
        if (lane >= distance) total = Join(other, total);
      }
      const Total shifted = gpu.ShuffleUp(total, 1);
      const Total before = Join(carried, lane == 0 ? kInitial : shifted);
      const Total through = Join(carried, total);
      if (exists) Write(gpu, at, plan.exclusive != 0 ? before : through);
      carried = gpu.Shuffle(through, kWarp - 1);
    }
  }
};

// dx[k] = (product of x before k) * s[k], s[k] = dy[k] + x[k + 1] s[k + 1]; of an exclusive product
// s[k] = dy[k + 1] + x[k + 1] s[k + 1]. A thread per line.
template <typename T>
struct CumulativeGradBody {
  CumulativePlan plan;
  const T* dy = nullptr;
  const T* x = nullptr;
  T* dx = nullptr;
  double* sums = nullptr;  // s, where dx has the element

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const CumulativeLines lines = CumulativeLines::Of(gpu, plan);
    const auto behind = gpu.Global(sums);
    const bool reverse = plan.reverse != 0;
    for (int64_t line = gpu.index(); line < lines.lines; line += gpu.stride()) {
      const int64_t start = lines.Start(line);
      double sum = 0;
      for (int64_t i = lines.size - 1; i >= 0; --i) {
        const bool last = i + 1 == lines.size;
        const int64_t at = lines.At(start, i, reverse);
        const int64_t next = last ? at : lines.At(start, i + 1, reverse);
        const double factor = last ? 0.0 : Read(gpu, x, next);
        double own = 0;
        if (plan.exclusive == 0) {
          own = Read(gpu, dy, at);
        } else if (!last) {
          own = Read(gpu, dy, next);
        }
        sum = last ? own : own + factor * sum;
        behind[at] = sum;
      }
      double before = 1;
      for (int64_t i = 0; i < lines.size; ++i) {
        const int64_t at = lines.At(start, i, reverse);
        const double slope = behind[at];
        gpu.Global(dx)[at] = Narrow<T>(static_cast<Compute<T>>(before * slope));
        before *= Read(gpu, x, at);
      }
    }
  }

 private:
  template <class Gpu>
  WEFT_GPU double Read(Gpu& gpu, const T* from, int64_t at) const {
    const T element = gpu.Global(from)[at];
    return static_cast<double>(Widen(element));
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_REDUCTION_CUMULATIVE_BODY_H_
