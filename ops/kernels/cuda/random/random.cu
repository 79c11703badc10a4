// Random tensors, Bernoulli and Multinomial.
#include <algorithm>

#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/random/random_body.h"

namespace weft::cuda {
namespace {

constexpr int kRandomThreads = 256;
// A number costs many instructions; a few blocks for each multiprocessor are enough.
constexpr int64_t kRandomBlocks = int64_t{8} * 160 * 2;

LaunchGrid RandomGrid(int64_t threads) {
  return {.blocks = Blocks(threads, kRandomThreads, kRandomBlocks), .threads = kRandomThreads};
}

template <typename Numbers, typename T, typename Index>
int LaunchAs(const RandomCall& call, const BroadcastMap<1, Index>& map) {
  const int64_t packets = call.places.has_fours ? call.count / 4 : 0;
  return Launch<kRandomThreads>(
      call.queue, RandomGrid(packets > 0 ? packets : call.count),
      RandomBody<Numbers, T, Index>{static_cast<T*>(call.y), call.count, packets, call.places.first,
                                    map, call.key, Numbers{call.a, call.b}});
}

template <typename Numbers, typename T>
int LaunchRandom(const RandomCall& call) {
  return call.places.fits_narrow ? LaunchAs<Numbers, T>(call, call.places.narrow)
                                 : LaunchAs<Numbers, T>(call, call.places.wide);
}

template <typename Numbers>
RandomLaunch RandomByType(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return LaunchRandom<Numbers, float>;
    case DType::kFloat64:
      return LaunchRandom<Numbers, double>;
    case DType::kFloat16:
      return LaunchRandom<Numbers, Float16>;
    case DType::kBfloat16:
      return LaunchRandom<Numbers, Bfloat16>;
    default:
      return nullptr;
  }
}

template <typename P, typename R>
int LaunchBernoulli(const BernoulliCall& call) {
  return Launch<kRandomThreads>(
      call.queue, RandomGrid(call.count),
      BernoulliBody<P, R>{static_cast<const P*>(call.p), static_cast<R*>(call.y), call.count,
                          call.places.first, call.places.wide, call.key, static_cast<R>(call.one)});
}

template <typename P>
BernoulliLaunch BernoulliBySize(int bits) {
  switch (bits) {
    case 8:
      return LaunchBernoulli<P, uint8_t>;
    case 16:
      return LaunchBernoulli<P, uint16_t>;
    case 32:
      return LaunchBernoulli<P, uint32_t>;
    case 64:
      return LaunchBernoulli<P, uint64_t>;
    default:
      return nullptr;
  }
}

// Some rows at a time, so that indices are int32_t.
template <typename T, typename R>
int LaunchMultinomial(const MultinomialCall& call) {
  if (call.samples == 0) return 0;
  const int64_t step = kDrawLimit / call.samples * call.samples;
  for (int64_t first = 0; first < call.count; first += step) {
    const int64_t count = std::min(step, call.count - first);
    const int code = Launch<kRandomThreads>(
        call.queue, RandomGrid(count),
        MultinomialBody<T, R>{
            static_cast<const T*>(call.logits) + first / call.samples * call.classes,
            static_cast<R*>(call.y) + first, static_cast<int32_t>(count),
            FastDivisor<int32_t>(static_cast<int32_t>(call.samples)), call.classes,
            call.first_place + first, call.key});
    if (code != 0) return code;
  }
  return 0;
}

template <typename T>
MultinomialLaunch MultinomialByIndex(DType output) {
  if (output == DType::kInt32) return LaunchMultinomial<T, int32_t>;
  if (output == DType::kInt64) return LaunchMultinomial<T, int64_t>;
  return nullptr;
}

}  // namespace

RandomLaunch FindRandom(Distribution distribution, DType dtype) {
  return distribution == Distribution::kUniform ? RandomByType<UniformNumbers>(dtype)
                                                : RandomByType<NormalNumbers>(dtype);
}

BernoulliLaunch FindBernoulli(DType probabilities, int output_bits) {
  switch (probabilities) {
    case DType::kFloat32:
      return BernoulliBySize<float>(output_bits);
    case DType::kFloat64:
      return BernoulliBySize<double>(output_bits);
    case DType::kFloat16:
      return BernoulliBySize<Float16>(output_bits);
    case DType::kBfloat16:
      return BernoulliBySize<Bfloat16>(output_bits);
    default:
      return nullptr;
  }
}

MultinomialLaunch FindMultinomial(DType logits, DType output) {
  switch (logits) {
    case DType::kFloat32:
      return MultinomialByIndex<float>(output);
    case DType::kFloat64:
      return MultinomialByIndex<double>(output);
    case DType::kFloat16:
      return MultinomialByIndex<Float16>(output);
    case DType::kBfloat16:
      return MultinomialByIndex<Bfloat16>(output);
    default:
      return nullptr;
  }
}

}  // namespace weft::cuda
