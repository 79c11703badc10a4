// Bodies of pools over whole planes.
#ifndef WEFT_OPS_KERNELS_CUDA_POOL_GLOBAL_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_POOL_GLOBAL_BODY_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/block_reduce.h"
#include "ops/kernels/cuda/blocks/divisor.h"
#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/scalar.h"
#include "ops/kernels/cuda/pool/pool_body.h"

namespace weft::cuda {

// What is kept while a plane is walked: a number in double. NaN wins over numbers.
struct AverageFold {
  WEFT_GPU static double First() { return 0; }
  WEFT_GPU double operator()(double a, double b) const { return a + b; }
  WEFT_GPU double Of(double x) const { return x; }
  WEFT_GPU double Result(double sum, int64_t size) const { return sum / static_cast<double>(size); }
};
struct MaxPlaneFold {
  WEFT_GPU static double First() { return kLowest<double>; }
  WEFT_GPU double operator()(double a, double b) const { return a != a || a > b ? a : b; }
  WEFT_GPU double Of(double x) const { return x; }
  WEFT_GPU double Result(double largest, int64_t /*size*/) const { return largest; }
};
struct LpFold {
  LpNorm norm;

  WEFT_GPU static double First() { return 0; }
  WEFT_GPU double operator()(double a, double b) const { return a + b; }
  WEFT_GPU double Of(double x) const { return norm.Raise(x); }
  WEFT_GPU double Result(double sum, int64_t /*size*/) const { return norm.Root(sum); }
};

// A warp for each plane, or with kByBlock a block. kWidth elements are read at once; planes are
// multiples of it.
template <typename T, class Fold, int kWidth, bool kByBlock>
struct GlobalPoolBody {
  const T* x;
  T* y;
  int64_t planes;
  int64_t size;
  Fold fold;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    if constexpr (kByBlock) {
      for (int64_t plane = gpu.block(); plane < planes; plane += gpu.blocks()) {
        const double own = Walk(gpu, plane, gpu.thread(), gpu.threads());
        const double all = BlockReduce<0>(gpu, own, Fold::First(), fold);
        if (gpu.thread() == 0) Write(gpu, plane, all);
      }
    } else {
      const int64_t warps = gpu.blocks() * gpu.warps();
      for (int64_t plane = gpu.block() * gpu.warps() + gpu.warp(); plane < planes; plane += warps) {
        const double all = WarpReduce(gpu, Walk(gpu, plane, gpu.lane(), kWarp), fold);
        if (gpu.lane() == 0) Write(gpu, plane, all);
      }
    }
  }

 private:
  // The packets first, first + step, ... of a plane.
  template <class Gpu>
  WEFT_GPU double Walk(Gpu& gpu, int64_t plane, int first, int step) const {
    const auto from = gpu.Global(x) + plane * size;
    double kept = Fold::First();
    for (int64_t i = int64_t{first} * kWidth; i < size; i += int64_t{step} * kWidth) {
      const Packet<T, kWidth> packet = gpu.template Load<kWidth>(from, i);
      WEFT_UNROLL
      for (int k = 0; k < kWidth; ++k) {
        kept = fold(kept, fold.Of(static_cast<double>(Widen(packet.values[k]))));
      }
    }
    return kept;
  }
  template <class Gpu>
  WEFT_GPU void Write(Gpu& gpu, int64_t plane, double kept) const {
    gpu.Global(y)[plane] = Narrow<T>(static_cast<Compute<T>>(fold.Result(kept, size)));
  }
};

template <typename T, typename Index>
struct GlobalAverageGradBody {
  static constexpr int kWidth = kWidest<T>;

  const T* dy;
  T* dx;
  Index count;
  Index packets;
  FastDivisor<Index> size;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto to = gpu.Global(dx);
    for (int64_t i = gpu.index(); i < packets; i += gpu.stride()) {
      Packet<T, kWidth> packet;
      const Division<Index> first = size.Divide(static_cast<Index>(i * kWidth));
      if (first.rest + kWidth <= size.divisor()) {
        const T share = ShareOf(gpu, first.quotient);
        WEFT_UNROLL
        for (int k = 0; k < kWidth; ++k) packet.values[k] = share;
      } else {
        WEFT_UNROLL
        for (int k = 0; k < kWidth; ++k) {
          packet.values[k] = ShareOf(gpu, size.Divide(static_cast<Index>(i * kWidth + k)).quotient);
        }
      }
      gpu.template Store<kWidth>(to, i * kWidth, packet);
    }
    for (int64_t i = int64_t{packets} * kWidth + gpu.index(); i < count; i += gpu.stride()) {
      to[i] = ShareOf(gpu, size.Divide(static_cast<Index>(i)).quotient);
    }
  }

 private:
  template <class Gpu>
  WEFT_GPU T ShareOf(Gpu& gpu, Index plane) const {
    const T gradient = gpu.Global(dy)[plane];
    return Narrow<T>(Widen(gradient) / static_cast<Compute<T>>(size.divisor()));
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_POOL_GLOBAL_BODY_H_
