// Bodies of Dropout and its gradient.
#ifndef WEFT_OPS_KERNELS_CUDA_RANDOM_DROPOUT_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_RANDOM_DROPOUT_BODY_H_

#include <cmath>
#include <cstdint>

#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/scalar.h"
#include "ops/kernels/cuda/random/random_body.h"
#include "ops/kernels/cuda/random/random_calls.h"

namespace weft::cuda {

// The share of elements that are dropped: 0 outside of training, and for a ratio outside of [0, 1),
// which is reported.
template <class Gpu>
WEFT_GPU double RatioOf(Gpu& gpu, const DropoutMode& mode) {
  if (mode.training == nullptr) return 0;
  const uint8_t training = gpu.Global(mode.training)[0];
  if (training == 0) return 0;
  if (mode.ratio == nullptr) return 0.5;
  double ratio = 0;
  if (mode.ratio_type == DType::kFloat64) {
    ratio = gpu.Global(static_cast<const double*>(mode.ratio))[0];
  } else if (mode.ratio_type == DType::kFloat16) {
    ratio = Widen<Float16>(gpu.Global(static_cast<const Float16*>(mode.ratio))[0]);
  } else if (mode.ratio_type == DType::kBfloat16) {
    ratio = Widen<Bfloat16>(gpu.Global(static_cast<const Bfloat16*>(mode.ratio))[0]);
  } else {
    ratio = static_cast<double>(Widen<float>(gpu.Global(static_cast<const float*>(mode.ratio))[0]));
  }
  if (ratio >= 0 && ratio < 1) return ratio;
  // A report is of whole numbers: what is above is 1, all else -1.
  InRange(gpu, mode.report, ratio >= 1 ? 1 : -1, 0);
  return 0;
}

// The words whose numbers are at least `ratio` are those of which 24 bits are at least this: words
// are multiples of 2^-24, and the product is exact.
WEFT_GPU uint32_t ThresholdOf(double ratio) {
  return static_cast<uint32_t>(std::ceil(ratio * 0x1p24));
}

// The step whose number lies there is 0; so it is where nothing lies.
template <class Gpu>
WEFT_GPU bool IsFirst(Gpu& gpu, const int64_t* step) {
  return step == nullptr || gpu.Global(step)[0] == 0;
}

// y = kept ? x / (1 - ratio) : 0, and what is kept as a mask. y may be x.
template <typename T, typename Index>
struct DropoutBody {
  const T* x;
  T* y;
  uint8_t* mask;        // null: not wanted
  const uint8_t* kept;  // what was drawn before, in step 0 alone; null: never. May be `mask`.
  int64_t count;
  int64_t packets;  // of 4
  int64_t first_place;
  BroadcastMap<1, Index> places;
  StepKey node;
  DropoutMode mode;

  // What all threads of a step share.
  struct Numbers {
    PhiloxKey key;
    bool are_drawn;  // before
    uint32_t threshold;
  };

  // Whether elements [i, i + kCount) are kept.
  template <int kCount, class Gpu>
  WEFT_GPU void Draw(Gpu& gpu, int64_t i, const Numbers& numbers, uint8_t (&keeps)[kCount]) const {
    if (numbers.threshold == 0) {
      for (int v = 0; v < kCount; ++v) keeps[v] = 1;
    } else if (numbers.are_drawn) {
      const auto drawn = gpu.Global(kept);
      for (int v = 0; v < kCount; ++v) keeps[v] = drawn[i + v];
    } else {
      const int64_t place = first_place + places.At(static_cast<Index>(i)).of[0];
      const auto words = PhiloxWords<kCount>::At(numbers.key, static_cast<uint64_t>(place));
      for (int v = 0; v < kCount; ++v) {
        keeps[v] = (words.words[v] >> 8) >= numbers.threshold ? 1 : 0;
      }
    }
  }

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    using C = Compute<T>;
    const auto from = gpu.Global(x);
    const auto to = gpu.Global(y);
    const double ratio = RatioOf(gpu, mode);
    const Numbers numbers = {KeyOf(gpu, node), kept != nullptr && IsFirst(gpu, node.step),
                             ThresholdOf(ratio)};
    const C scale = static_cast<C>(1 / (1 - ratio));
    for (int64_t p = gpu.index(); p < packets; p += gpu.stride()) {
      T values[4];
      LoadFour(gpu, from, 4 * p, values);
      uint8_t keeps[4];
      Draw<4>(gpu, 4 * p, numbers, keeps);
      for (int v = 0; v < 4; ++v) {
        values[v] = Narrow<T>(keeps[v] != 0 ? Widen<T>(values[v]) * scale : C{0});
      }
      StoreFour(gpu, to, 4 * p, values);
      if (mask != nullptr) StoreFour(gpu, gpu.Global(mask), 4 * p, keeps);
    }
    for (int64_t i = 4 * packets + gpu.index(); i < count; i += gpu.stride()) {
      uint8_t keeps[1];
      Draw<1>(gpu, i, numbers, keeps);
      const C value = Widen<T>(from[i]);
      to[i] = Narrow<T>(keeps[0] != 0 ? value * scale : C{0});
      if (mask != nullptr) gpu.Global(mask)[i] = keeps[0];
    }
  }
};

template <typename T>
struct DropoutGradBody {
  const T* dy;
  const uint8_t* mask;
  T* dx;
  int64_t count;
  int64_t packets;  // of 4
  DropoutMode mode;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    using C = Compute<T>;
    const auto from = gpu.Global(dy);
    const auto keeps = gpu.Global(mask);
    const auto to = gpu.Global(dx);
    const C scale = static_cast<C>(1 / (1 - RatioOf(gpu, mode)));
    for (int64_t p = gpu.index(); p < packets; p += gpu.stride()) {
      T values[4];
      LoadFour(gpu, from, 4 * p, values);
      const auto kept = gpu.template Load<4>(keeps, 4 * p);
      for (int v = 0; v < 4; ++v) {
        values[v] = Narrow<T>(kept.values[v] != 0 ? Widen<T>(values[v]) * scale : C{0});
      }
      StoreFour(gpu, to, 4 * p, values);
    }
    for (int64_t i = 4 * packets + gpu.index(); i < count; i += gpu.stride()) {
      const uint8_t kept = keeps[i];
      const C value = Widen<T>(from[i]);
      to[i] = Narrow<T>(kept != 0 ? value * scale : C{0});
    }
  }
};

// The numbers of ONNX's reference: a Mersenne twister (Matsumoto and Nishimura, ACM TOMACS 8, 1998)
// in one block of 256 threads. Its words depend on those 227 before, so that as many are made at
// once. For the first step of a node with a seed alone, whose speed does not matter.
struct TwisterBody {
  static constexpr int kWords = 624;
  static constexpr int kMiddle = 397;
  static constexpr int kAtOnce = kWords - kMiddle;

  TwisterCall call;

  // Where the global element `i` is in the local tensor; -1: it is not.
  WEFT_GPU int64_t LocalOf(int64_t i) const {
    int64_t local = 0;
    int64_t stride = 1;
    for (int d = call.rank - 1; d >= 0; --d) {
      const int64_t at = i % call.global[d] - call.offset[d];
      if (at < 0 || at >= call.local[d]) return -1;
      i /= call.global[d];
      local += at * stride;
      stride *= call.local[d];
    }
    return local;
  }

  WEFT_GPU static uint32_t Next(uint32_t word, uint32_t after, uint32_t middle) {
    const uint32_t joined = (word & 0x80000000U) | (after & 0x7fffffffU);
    return middle ^ (joined >> 1) ^ ((joined & 1) != 0 ? 0x9908b0dfU : 0U);
  }
  WEFT_GPU static uint32_t Tempered(uint32_t word) {
    word ^= word >> 11;
    word ^= (word << 7) & 0x9d2c5680U;
    word ^= (word << 15) & 0xefc60000U;
    return word ^ (word >> 18);
  }

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    if (!IsFirst(gpu, call.step)) return;
    const auto words = gpu.template Shared<0, uint32_t, kWords>();
    const auto kept = gpu.Global(call.kept);
    const double ratio = RatioOf(gpu, call.mode);
    if (gpu.thread() == 0) {
      uint32_t word = call.seed;
      words[0] = word;
      for (uint32_t i = 1; i < kWords; ++i) {
        word = 1812433253U * (word ^ (word >> 30)) + i;
        words[i] = word;
      }
    }
    gpu.Barrier();
    const int64_t end = call.first_place + call.count;
    for (int64_t first = 0; first < end; first += kWords / 2) {
      for (int begin = 0; begin < kWords; begin += kAtOnce) {
        const int i = begin + gpu.thread();
        const bool has_word = gpu.thread() < kAtOnce && i < kWords;
        uint32_t next = 0;
        if (has_word) {
          const uint32_t word = words[i];
          const uint32_t after = words[(i + 1) % kWords];
          const uint32_t middle = words[(i + kMiddle) % kWords];
          next = Next(word, after, middle);
        }
        gpu.Barrier();
        if (has_word) words[i] = next;
        gpu.Barrier();
      }
      for (int i = gpu.thread(); i < kWords / 2; i += gpu.threads()) {
        const int64_t element = first + i - call.first_place;
        if (element < 0 || element >= call.count) continue;
        const int64_t local = LocalOf(element);
        if (local < 0) continue;
        const uint64_t high = Tempered(words[2 * i]) >> 5;
        const uint64_t low = Tempered(words[2 * i + 1]) >> 6;
        const double number = static_cast<double>((high << 26) | low) * 0x1p-53;
        kept[local] = number >= ratio ? 1 : 0;
      }
      gpu.Barrier();
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_RANDOM_DROPOUT_BODY_H_
