// Bodies of random tensors and draws. Each number is a function of key and place.
#ifndef WEFT_OPS_KERNELS_CUDA_RANDOM_RANDOM_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_RANDOM_RANDOM_BODY_H_

#include <cmath>
#include <cstdint>

#include "ops/kernels/cuda/blocks/divisor.h"
#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/scalar.h"
#include "ops/kernels/cuda/random/normal_quantile.h"
#include "ops/kernels/cuda/random/random_calls.h"

namespace weft::cuda {

// Four elements from `i` on, which is a multiple of 4, in as few stores as there can be.
template <class Gpu, typename Memory, typename T>
WEFT_GPU void StoreFour(Gpu& gpu, const Memory& memory, int64_t i, const T (&values)[4]) {
  constexpr int kWidth = sizeof(T) == 8 ? 2 : 4;
  WEFT_UNROLL
  for (int first = 0; first < 4; first += kWidth) {
    Packet<T, kWidth> packet;
    for (int v = 0; v < kWidth; ++v) packet.values[v] = values[first + v];
    gpu.Store(memory, i + first, packet);
  }
}
template <class Gpu, typename Memory, typename T>
WEFT_GPU void LoadFour(Gpu& gpu, const Memory& memory, int64_t i, T (&values)[4]) {
  constexpr int kWidth = sizeof(T) == 8 ? 2 : 4;
  WEFT_UNROLL
  for (int first = 0; first < 4; first += kWidth) {
    const auto packet = gpu.template Load<kWidth>(memory, i + first);
    for (int v = 0; v < kWidth; ++v) values[first + v] = packet.values[v];
  }
}

// The key of the step.
template <class Gpu>
WEFT_GPU PhiloxKey KeyOf(Gpu& gpu, const StepKey& key) {
  if (key.step == nullptr) return key.key;
  const int64_t step = gpu.Global(key.step)[0];
  return FoldOf(key.key, static_cast<uint64_t>(step));
}

// In [low, high).
struct UniformNumbers {
  float low;
  float high;
  template <int kCount>
  WEFT_GPU void Draw(PhiloxKey key, uint64_t place, float (&numbers)[kCount]) const {
    const auto words = PhiloxWords<kCount>::At(key, place);
    const float width = RoundedSum(high, -low);
    WEFT_UNROLL
    for (int v = 0; v < kCount; ++v) {
      numbers[v] = RoundedSum(low, RoundedProduct(UniformOf(words.words[v]), width));
    }
  }
};

struct NormalNumbers {
  float mean;
  float deviation;
  template <int kCount>
  WEFT_GPU void Draw(PhiloxKey key, uint64_t place, float (&numbers)[kCount]) const {
    for (int v = 0; v < kCount; ++v) {
      // Two words for each number, of which 53 bits count.
      const uint64_t at = place + static_cast<uint64_t>(v);
      const auto block = BlockOf(key, at / 2);
      const uint32_t low = at % 2 == 0 ? block.words[0] : block.words[2];
      const uint32_t high = at % 2 == 0 ? block.words[1] : block.words[3];
      const uint64_t bits = ((uint64_t{high} << 32) | low) >> 11;
      const double middle = RoundedSum(static_cast<double>(bits), 0.5) * 0x1p-53;
      const double unit = middle < 1 - 0x1p-53 ? middle : 1 - 0x1p-53;
      numbers[v] = static_cast<float>(
          RoundedSum(static_cast<double>(mean),
                     RoundedProduct(static_cast<double>(deviation), QuantileOf(unit))));
    }
  }
};

template <typename Numbers, typename T, typename Index>
struct RandomBody {
  T* y;
  int64_t count;
  int64_t packets;  // of 4
  int64_t first_place;
  BroadcastMap<1, Index> places;
  StepKey node;
  Numbers numbers;

  WEFT_GPU uint64_t PlaceOf(int64_t i) const {
    return static_cast<uint64_t>(first_place + places.At(static_cast<Index>(i)).of[0]);
  }

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto to = gpu.Global(y);
    const PhiloxKey key = KeyOf(gpu, node);
    for (int64_t p = gpu.index(); p < packets; p += gpu.stride()) {
      float drawn[4];
      numbers.template Draw<4>(key, PlaceOf(4 * p), drawn);
      T values[4];
      for (int v = 0; v < 4; ++v) values[v] = Narrow<T>(static_cast<Compute<T>>(drawn[v]));
      StoreFour(gpu, to, 4 * p, values);
    }
    for (int64_t i = 4 * packets + gpu.index(); i < count; i += gpu.stride()) {
      float drawn[1];
      numbers.template Draw<1>(key, PlaceOf(i), drawn);
      to[i] = Narrow<T>(static_cast<Compute<T>>(drawn[0]));
    }
  }
};

// R: bits of the output's size.
template <typename P, typename R>
struct BernoulliBody {
  const P* p;
  R* y;
  int64_t count;
  int64_t first_place;
  BroadcastMap<1, int64_t> places;
  StepKey node;
  R one;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto from = gpu.Global(p);
    const auto to = gpu.Global(y);
    const PhiloxKey key = KeyOf(gpu, node);
    for (int64_t i = gpu.index(); i < count; i += gpu.stride()) {
      const auto place = static_cast<uint64_t>(first_place + places.At(i).of[0]);
      const float number = UniformOf(PhiloxWords<1>::At(key, place).words[0]);
      to[i] = static_cast<Compute<P>>(number) < Widen<P>(from[i]) ? one : R{0};
    }
  }
};

// A thread for each draw; sums in double and in the order of the classes, as on the CPU.
template <typename T, typename R>
struct MultinomialBody {
  const T* logits;
  R* y;
  int32_t count;
  FastDivisor<int32_t> samples;
  int64_t classes;
  int64_t first_place;
  StepKey node;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto all = gpu.Global(logits);
    const auto to = gpu.Global(y);
    const PhiloxKey key = KeyOf(gpu, node);
    for (int64_t i = gpu.index(); i < count; i += gpu.stride()) {
      const auto row = all + samples.Divide(static_cast<int32_t>(i)).quotient * classes;
      double largest = -HUGE_VAL;
      for (int64_t c = 0; c < classes; ++c) {
        const auto logit = static_cast<double>(Widen<T>(row[c]));
        if (logit > largest) largest = logit;
      }
      double total = 0;
      for (int64_t c = 0; c < classes; ++c) {
        total += std::exp(static_cast<double>(Widen<T>(row[c])) - largest);
      }
      const auto place = static_cast<uint64_t>(first_place + i);
      const auto number = static_cast<double>(UniformOf(PhiloxWords<1>::At(key, place).words[0]));
      double rest = RoundedProduct(number, total);
      int64_t drawn = classes - 1;
      for (int64_t c = 0; c < classes; ++c) {
        rest -= std::exp(static_cast<double>(Widen<T>(row[c])) - largest);
        if (rest < 0) {
          drawn = c;
          break;
        }
      }
      to[i] = static_cast<R>(drawn);
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_RANDOM_RANDOM_BODY_H_
