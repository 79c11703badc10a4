// Bodies of convolutions by their definition, for groups with few channels.
#ifndef WEFT_OPS_KERNELS_CUDA_CONV_CONV_DIRECT_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_CONV_CONV_DIRECT_BODY_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/block_reduce.h"
#include "ops/kernels/cuda/conv/conv_body.h"
#include "ops/kernels/cuda/conv/conv_calls.h"
#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/scalar.h"

namespace weft::cuda {

// image[i] = sum_of(plane, position in it) for all elements of `planes` planes of `size`, a thread
// for each.
template <typename T, typename Index, class Gpu, class SumOf>
WEFT_GPU void WriteSums(Gpu& gpu, void* image, int64_t planes, int64_t size, const SumOf& sum_of) {
  const auto count = static_cast<Index>(planes * size);
  const auto narrow_size = static_cast<Index>(size);
  const auto to = gpu.Global(static_cast<T*>(image));
  for (Index i = static_cast<Index>(gpu.index()); i < count;
       i += static_cast<Index>(gpu.stride())) {
    const Index plane = i / narrow_size;
    const double sum = sum_of(plane, static_cast<int64_t>(i - plane * narrow_size));
    to[static_cast<int64_t>(i)] = Narrow<T>(static_cast<Compute<T>>(sum));
  }
}

// What a sum begins with: the bias of the channel, where there is one.
template <typename T, class Gpu>
WEFT_GPU double BiasOf(Gpu& gpu, const DirectConv& of, int64_t channel) {
  if (of.bias == nullptr) return 0;
  const T bias = gpu.Global(static_cast<const T*>(of.bias))[channel];
  return static_cast<double>(Widen(bias));
}

// A thread computes one element of the small image. Lines of the window are summed in the type of
// the computation, and those in float64.
template <typename T, typename Index>
struct DirectSmallBody {
  DirectConv of;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    WriteSums<T, Index>(gpu, of.small_image, of.samples * of.groups * of.small_channels,
                        of.window.small_size(),
                        [&](Index plane, int64_t position) { return Sum(gpu, plane, position); });
  }

 private:
  template <class Gpu>
  WEFT_GPU double Sum(Gpu& gpu, Index plane, int64_t position) const {
    const ConvWindow& w = of.window;
    const Index group = plane / static_cast<Index>(of.small_channels);
    const int64_t first = static_cast<int64_t>(group) * of.large_channels;
    const Index channels = static_cast<Index>(of.groups * of.small_channels);
    const auto channel = static_cast<int64_t>(plane % channels);
    auto large = gpu.Global(static_cast<const T*>(of.large_image)) + first * w.large_size();
    auto weight =
        gpu.Global(static_cast<const T*>(of.weights)) + channel * of.large_channels * w.taps();
    const ImagePlace place = PlaceOf(position, w.small);
    double sum = BiasOf<T>(gpu, of, channel);
    for (auto c = static_cast<int32_t>(of.large_channels); c > 0; --c, large += w.large_size()) {
      for (int32_t t0 = 0; t0 < w.kernel[0]; ++t0) {
        const int32_t i0 = place.at[0] * w.stride[0] - w.pad[0] + t0 * w.dilation[0];
        for (int32_t t1 = 0; t1 < w.kernel[1]; ++t1, weight = weight + w.kernel[2]) {
          const int32_t i1 = place.at[1] * w.stride[1] - w.pad[1] + t1 * w.dilation[1];
          if (!IsInside(w, 0, i0) || !IsInside(w, 1, i1)) continue;
          const int32_t line = (i0 * w.large[1] + i1) * w.large[2];
          Compute<T> run = 0;
          for (int32_t t2 = 0; t2 < w.kernel[2]; ++t2) {
            const int32_t i2 = place.at[2] * w.stride[2] - w.pad[2] + t2 * w.dilation[2];
            if (!IsInside(w, 2, i2)) continue;
            const T value = large[line + i2];
            const T factor = weight[t2];
            run += Widen(value) * Widen(factor);
          }
          sum += static_cast<double>(run);
        }
      }
    }
    return sum;
  }
};

// A thread computes one element of the large image, from the positions whose windows hold it.
template <typename T, typename Index>
struct DirectLargeBody {
  DirectConv of;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    WriteSums<T, Index>(gpu, of.large_image, of.samples * of.groups * of.large_channels,
                        of.window.large_size(),
                        [&](Index plane, int64_t position) { return Sum(gpu, plane, position); });
  }

 private:
  template <class Gpu>
  WEFT_GPU double Sum(Gpu& gpu, Index plane, int64_t element) const {
    const ConvWindow& w = of.window;
    const Index sample_group = plane / static_cast<Index>(of.large_channels);
    const auto of_group =
        static_cast<int64_t>(plane) - static_cast<int64_t>(sample_group) * of.large_channels;
    const auto group = static_cast<int64_t>(sample_group % static_cast<Index>(of.groups));
    const int64_t first = static_cast<int64_t>(sample_group) * of.small_channels;
    const int64_t channel = group * of.large_channels + of_group;
    auto small = gpu.Global(static_cast<const T*>(of.small_image)) + first * w.small_size();
    auto weights = gpu.Global(static_cast<const T*>(of.weights)) +
                   (group * of.small_channels * of.large_channels + of_group) * w.taps();
    const ImagePlace place = PlaceOf(element, w.large);
    double sum = BiasOf<T>(gpu, of, channel);
    const TapHit first0 = FirstHit(w, 0, place.at[0]);
    const TapHit first1 = FirstHit(w, 1, place.at[1]);
    const TapHit first2 = FirstHit(w, 2, place.at[2]);
    for (auto m = static_cast<int32_t>(of.small_channels); m > 0; --m, small += w.small_size()) {
      for (TapHit h0 = first0; h0.tap < w.kernel[0]; NextHit(w, 0, h0)) {
        if (!IsPosition(w, 0, h0)) continue;
        for (TapHit h1 = first1; h1.tap < w.kernel[1]; NextHit(w, 1, h1)) {
          if (!IsPosition(w, 1, h1)) continue;
          const int32_t line = (h0.position * w.small[1] + h1.position) * w.small[2];
          const int32_t taps = (h0.tap * w.kernel[1] + h1.tap) * w.kernel[2];
          Compute<T> run = 0;
          for (TapHit h2 = first2; h2.tap < w.kernel[2]; NextHit(w, 2, h2)) {
            if (!IsPosition(w, 2, h2)) continue;
            const T value = small[line + h2.position];
            const T factor = weights[taps + h2.tap];
            run += Widen(value) * Widen(factor);
          }
          sum += static_cast<double>(run);
        }
      }
      weights += of.large_channels * w.taps();
    }
    return sum;
  }
};

// A block computes one weight after another: its threads share samples and positions.
template <typename T, typename Index>
struct DirectWeightsBody {
  DirectConv of;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int64_t taps = of.window.taps();
    const int64_t count = of.groups * of.small_channels * of.large_channels * taps;
    for (int64_t weight = gpu.block(); weight < count; weight += gpu.blocks()) {
      const double sum = BlockReduce<0>(gpu, OfThread(gpu, weight), 0.0, Plus());
      if (gpu.thread() == 0) {
        gpu.Global(static_cast<T*>(of.weights))[weight] = Narrow<T>(static_cast<Compute<T>>(sum));
      }
    }
  }

 private:
  template <class Gpu>
  WEFT_GPU double OfThread(Gpu& gpu, int64_t weight) const {
    const ConvWindow& w = of.window;
    const int64_t filter = weight / w.taps();
    const ImagePlace tap = PlaceOf(weight - filter * w.taps(), w.kernel);
    const int64_t m = filter / of.large_channels;
    const int64_t c = m / of.small_channels * of.large_channels + filter % of.large_channels;
    const int64_t size = w.small_size();
    const auto small = gpu.Global(static_cast<const T*>(of.small_image)) + m * size;
    const auto large = gpu.Global(static_cast<const T*>(of.large_image)) + c * w.large_size();
    const int64_t small_step = of.groups * of.small_channels * size;
    const int64_t large_step = of.groups * of.large_channels * w.large_size();
    const auto count = static_cast<Index>(of.samples * size);
    const auto narrow_size = static_cast<Index>(size);
    double sum = 0;
    auto i = static_cast<Index>(gpu.thread());
    while (i < count) {
      Compute<T> run = 0;
      for (int n = 0; n < kShortRun && i < count; ++n, i += static_cast<Index>(gpu.threads())) {
        const Index sample = i / narrow_size;
        const auto position = static_cast<int64_t>(i - sample * narrow_size);
        const ImagePlace place = PlaceOf(position, w.small);
        const int32_t i0 = place.at[0] * w.stride[0] - w.pad[0] + tap.at[0] * w.dilation[0];
        const int32_t i1 = place.at[1] * w.stride[1] - w.pad[1] + tap.at[1] * w.dilation[1];
        const int32_t i2 = place.at[2] * w.stride[2] - w.pad[2] + tap.at[2] * w.dilation[2];
        if (!IsInside(w, 0, i0) || !IsInside(w, 1, i1) || !IsInside(w, 2, i2)) continue;
        const T gradient = small[static_cast<int64_t>(sample) * small_step + position];
        const T value = large[static_cast<int64_t>(sample) * large_step +
                              ((i0 * w.large[1] + i1) * w.large[2] + i2)];
        run += Widen(gradient) * Widen(value);
      }
      sum += static_cast<double>(run);
    }
    return sum;
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_CONV_CONV_DIRECT_BODY_H_
