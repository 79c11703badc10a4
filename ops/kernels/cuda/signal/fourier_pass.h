// A pass of a Fourier transform, for bodies: sums of a few elements, which are then turned.
#ifndef WEFT_OPS_KERNELS_CUDA_SIGNAL_FOURIER_PASS_H_
#define WEFT_OPS_KERNELS_CUDA_SIGNAL_FOURIER_PASS_H_

#include <cstdint>

#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/packet.h"
#include "ops/kernels/cuda/signal/fourier_calls.h"

namespace weft::cuda {

// A complex number: real part, imaginary part.
template <typename S>
using FourierNumber = Packet<S, 2>;

template <typename S>
WEFT_GPU FourierNumber<S> SumOf(const FourierNumber<S>& a, const FourierNumber<S>& b) {
  return {a.values[0] + b.values[0], a.values[1] + b.values[1]};
}
template <typename S>
WEFT_GPU FourierNumber<S> DifferenceOf(const FourierNumber<S>& a, const FourierNumber<S>& b) {
  return {a.values[0] - b.values[0], a.values[1] - b.values[1]};
}
template <typename S>
WEFT_GPU FourierNumber<S> ProductOf(const FourierNumber<S>& a, const FourierNumber<S>& b) {
  return {a.values[0] * b.values[0] - a.values[1] * b.values[1],
          a.values[0] * b.values[1] + a.values[1] * b.values[0]};
}
// j * scale * a
template <typename S>
WEFT_GPU FourierNumber<S> QuarterTurn(const FourierNumber<S>& a, S scale) {
  return {-scale * a.values[1], scale * a.values[0]};
}

// out = the transform of kFactor elements; `sign` is that of the exponent. Written out for the
// roots of one: of 3 -1/2 and sqrt(3)/2, of 5 cos and sin of 72 and 144 degrees.
template <int kFactor, typename S>
WEFT_GPU void TransformFew(const FourierNumber<S> (&in)[kFactor], S sign,
                           FourierNumber<S> (&out)[kFactor]) {
  if constexpr (kFactor == 2) {
    out[0] = SumOf(in[0], in[1]);
    out[1] = DifferenceOf(in[0], in[1]);
  } else if constexpr (kFactor == 3) {
    const FourierNumber<S> sum = SumOf(in[1], in[2]);
    const FourierNumber<S> odd =
        QuarterTurn(DifferenceOf(in[1], in[2]), sign * static_cast<S>(0.86602540378443864676));
    const FourierNumber<S> even = {in[0].values[0] - static_cast<S>(0.5) * sum.values[0],
                                   in[0].values[1] - static_cast<S>(0.5) * sum.values[1]};
    out[0] = SumOf(in[0], sum);
    out[1] = SumOf(even, odd);
    out[2] = DifferenceOf(even, odd);
  } else if constexpr (kFactor == 4) {
    const FourierNumber<S> a = SumOf(in[0], in[2]);
    const FourierNumber<S> b = DifferenceOf(in[0], in[2]);
    const FourierNumber<S> c = SumOf(in[1], in[3]);
    const FourierNumber<S> d = QuarterTurn(DifferenceOf(in[1], in[3]), sign);
    out[0] = SumOf(a, c);
    out[1] = SumOf(b, d);
    out[2] = DifferenceOf(a, c);
    out[3] = DifferenceOf(b, d);
  } else {
    static_assert(kFactor == 5);
    constexpr S kCos1 = static_cast<S>(0.3090169943749474241);
    constexpr S kCos2 = static_cast<S>(-0.8090169943749474241);
    constexpr S kSin1 = static_cast<S>(0.95105651629515357212);
    constexpr S kSin2 = static_cast<S>(0.58778525229247312917);
    const FourierNumber<S> sum1 = SumOf(in[1], in[4]);
    const FourierNumber<S> sum2 = SumOf(in[2], in[3]);
    const FourierNumber<S> turned1 = QuarterTurn(DifferenceOf(in[1], in[4]), sign);
    const FourierNumber<S> turned2 = QuarterTurn(DifferenceOf(in[2], in[3]), sign);
    FourierNumber<S> even1, even2, odd1, odd2;
    WEFT_UNROLL
    for (int part = 0; part < 2; ++part) {
      const S first = in[0].values[part];
      const S s1 = sum1.values[part], s2 = sum2.values[part];
      const S t1 = turned1.values[part], t2 = turned2.values[part];
      even1.values[part] = first + kCos1 * s1 + kCos2 * s2;
      even2.values[part] = first + kCos2 * s1 + kCos1 * s2;
      odd1.values[part] = kSin1 * t1 + kSin2 * t2;
      odd2.values[part] = kSin2 * t1 - kSin1 * t2;
    }
    out[0] = SumOf(in[0], SumOf(sum1, sum2));
    out[1] = SumOf(even1, odd1);
    out[2] = SumOf(even2, odd2);
    out[3] = DifferenceOf(even2, odd2);
    out[4] = DifferenceOf(even1, odd1);
  }
}

// What a pass has besides its memory.
template <typename S>
struct FourierPassRun {
  FourierPass pass;
  const void* turns;
  bool is_inverse;
};

// Group number i of k of a line that begins at `first`: kFactor elements of `from`, to `to`.
template <int kFactor, typename S, class Gpu, class Memory, typename Index>
WEFT_GPU void RunGroup(Gpu& gpu, const FourierPassRun<S>& run, const Memory& from, const Memory& to,
                       Index first, Index k, Index i) {
  const auto turns = gpu.Global(static_cast<const FourierNumber<S>*>(run.turns)) + run.pass.turns;
  const Index after = run.pass.after;
  const Index before = run.pass.before;
  const S sign = run.is_inverse ? S{1} : S{-1};
  FourierNumber<S> in[kFactor];
  FourierNumber<S> out[kFactor];
  WEFT_UNROLL
  for (int j = 0; j < kFactor; ++j) {
    const FourierNumber<S> value = from[first + i + after * (j + kFactor * k)];
    in[j] = value;
  }
  TransformFew<kFactor, S>(in, sign, out);
  to[first + i + after * k] = out[0];
  WEFT_UNROLL
  for (int j = 1; j < kFactor; ++j) {
    FourierNumber<S> turn = turns[static_cast<int64_t>(j - 1) * after + i];
    turn.values[1] *= sign;
    to[first + i + after * (k + before * j)] = ProductOf(out[j], turn);
  }
}

// Groups begin, begin + stride, ... of a pass over `lines` lines of `size` elements.
template <typename S, class Gpu, class Memory, typename Index>
WEFT_GPU void RunPass(Gpu& gpu, const FourierPassRun<S>& run, const Memory& from, const Memory& to,
                      Index size, Index lines, Index begin, Index stride) {
  const Index after = run.pass.after;
  const Index groups = size / run.pass.factor;  // of a line
  for (Index group = begin; group < groups * lines; group += stride) {
    const Index line = group / groups;
    const Index of_line = group - line * groups;
    const Index k = of_line / after;
    const Index i = of_line - k * after;
    switch (run.pass.factor) {
      case 2:
        RunGroup<2>(gpu, run, from, to, line * size, k, i);
        break;
      case 3:
        RunGroup<3>(gpu, run, from, to, line * size, k, i);
        break;
      case 4:
        RunGroup<4>(gpu, run, from, to, line * size, k, i);
        break;
      default:
        RunGroup<5>(gpu, run, from, to, line * size, k, i);
    }
  }
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_SIGNAL_FOURIER_PASS_H_
