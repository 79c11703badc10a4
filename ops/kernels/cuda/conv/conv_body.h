// Bodies of convolutions by products of matrices: columns from images, images from columns, sums.
#ifndef WEFT_OPS_KERNELS_CUDA_CONV_CONV_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_CONV_CONV_BODY_H_

#include <cstdint>
#include <type_traits>

#include "ops/kernels/cuda/blocks/block_reduce.h"
#include "ops/kernels/cuda/conv/conv_calls.h"
#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/scalar.h"

namespace weft::cuda {

// A place along the three image axes.
struct ImagePlace {
  int32_t at[kImageAxes];
};

// Element `i` of an image of these sizes.
WEFT_GPU ImagePlace PlaceOf(int64_t i, const int32_t (&sizes)[kImageAxes]) {
  const auto element = static_cast<uint32_t>(i);
  const uint32_t line = element / static_cast<uint32_t>(sizes[2]);
  ImagePlace place;
  place.at[2] = static_cast<int32_t>(element - line * static_cast<uint32_t>(sizes[2]));
  place.at[0] = static_cast<int32_t>(line / static_cast<uint32_t>(sizes[1]));
  place.at[1] = static_cast<int32_t>(line) - place.at[0] * sizes[1];
  return place;
}

// The type in which sums of T are kept: columns, partial sums.
template <typename T>
using ColumnOf = Compute<T>;

// A tap, and the position whose window has a given element there: it may lie outside of the image.
struct TapHit {
  int32_t tap;
  int32_t position;
};

// The first tap along an axis that hits large element `i`; the window's size if there is none. The
// next ones are tap_step taps on, and position_step positions back.
WEFT_GPU TapHit FirstHit(const ConvWindow& window, int axis, int32_t i) {
  int32_t from = i + window.pad[axis];
  for (int32_t tap = 0; tap < window.tap_step[axis] && tap < window.kernel[axis]; ++tap) {
    const int32_t position = from / window.stride[axis];
    if (position * window.stride[axis] == from) return {tap, position};
    from -= window.dilation[axis];
  }
  return {window.kernel[axis], 0};
}

WEFT_GPU void NextHit(const ConvWindow& window, int axis, TapHit& hit) {
  hit.tap += window.tap_step[axis];
  hit.position -= window.position_step[axis];
}

WEFT_GPU bool IsPosition(const ConvWindow& window, int axis, const TapHit& hit) {
  return static_cast<uint32_t>(hit.position) < static_cast<uint32_t>(window.small[axis]);
}

WEFT_GPU bool IsInside(const ConvWindow& window, int axis, int32_t i) {
  return i >= 0 && i < window.large[axis];
}

// Unfold. A thread walks over the taps of one position of a channel: neighbours write neighbours.
template <typename T, typename Index>
struct UnfoldBody {
  Unfold of;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto count = static_cast<Index>(of.samples * of.groups * of.channels * of.positions);
    const auto positions = static_cast<Index>(of.positions);
    for (Index i = static_cast<Index>(gpu.index()); i < count;
         i += static_cast<Index>(gpu.stride())) {
      const Index plane = i / positions;
      Walk(gpu, plane, static_cast<int64_t>(i - plane * positions));
    }
  }

 private:
  // `plane`: of the columns, [samples, groups, channels].
  template <class Gpu>
  WEFT_GPU void Walk(Gpu& gpu, Index plane, int64_t position) const {
    const ConvWindow& w = of.window;
    const Index group = plane / static_cast<Index>(of.channels);
    const int64_t channel = static_cast<int64_t>(group) * (of.group_channels - of.channels) +
                            of.first_channel + static_cast<int64_t>(plane);
    const auto image = gpu.Global(static_cast<const T*>(of.image)) + channel * w.large_size();
    auto column = gpu.Global(static_cast<T*>(of.columns)) +
                  (static_cast<int64_t>(plane) * w.taps() * of.positions + position);
    const ImagePlace place = PlaceOf(of.first_position + position, w.small);
    for (int32_t t0 = 0; t0 < w.kernel[0]; ++t0) {
      const int32_t i0 = place.at[0] * w.stride[0] - w.pad[0] + t0 * w.dilation[0];
      for (int32_t t1 = 0; t1 < w.kernel[1]; ++t1) {
        const int32_t i1 = place.at[1] * w.stride[1] - w.pad[1] + t1 * w.dilation[1];
        const bool has_line = IsInside(w, 0, i0) && IsInside(w, 1, i1);
        // Below 2^31 where the line exists.
        const int32_t line = has_line ? (i0 * w.large[1] + i1) * w.large[2] : 0;
        int32_t i2 = place.at[2] * w.stride[2] - w.pad[2];
        for (int32_t t2 = 0; t2 < w.kernel[2]; ++t2, i2 += w.dilation[2]) {
          T value = Narrow<T>(Compute<T>{0});
          if (has_line && IsInside(w, 2, i2)) value = image[line + i2];
          *column = value;
          column += of.positions;
        }
      }
    }
  }
};

// Fold. A thread computes one element of the image: no two write the same.
template <typename T, typename Index>
struct FoldColumnsBody {
  Fold of;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int64_t size = of.window.large_size();
    const auto count = static_cast<Index>(of.samples * of.groups * of.channels * size);
    const auto narrow_size = static_cast<Index>(size);
    for (Index i = static_cast<Index>(gpu.index()); i < count;
         i += static_cast<Index>(gpu.stride())) {
      const Index plane = i / narrow_size;
      Sum(gpu, plane, static_cast<int64_t>(i - plane * narrow_size));
    }
  }

 private:
  template <class Gpu>
  WEFT_GPU void Sum(Gpu& gpu, Index plane, int64_t element) const {
    const ConvWindow& w = of.window;
    const Index group = plane / static_cast<Index>(of.channels);
    const int64_t channel = static_cast<int64_t>(group) * (of.group_channels - of.channels) +
                            of.first_channel + static_cast<int64_t>(plane);
    const int64_t positions = w.small_size();
    const auto columns = gpu.Global(static_cast<const ColumnOf<T>*>(of.columns)) +
                         static_cast<int64_t>(plane) * w.taps() * positions;
    const ImagePlace place = PlaceOf(element, w.large);
    ColumnOf<T> sum = 0;
    const TapHit first2 = FirstHit(w, 2, place.at[2]);
    const TapHit first1 = FirstHit(w, 1, place.at[1]);
    for (TapHit h0 = FirstHit(w, 0, place.at[0]); h0.tap < w.kernel[0]; NextHit(w, 0, h0)) {
      if (!IsPosition(w, 0, h0)) continue;
      for (TapHit h1 = first1; h1.tap < w.kernel[1]; NextHit(w, 1, h1)) {
        if (!IsPosition(w, 1, h1)) continue;
        const int32_t taps = (h0.tap * w.kernel[1] + h1.tap) * w.kernel[2];
        const int32_t line = (h0.position * w.small[1] + h1.position) * w.small[2];
        for (TapHit h2 = first2; h2.tap < w.kernel[2]; NextHit(w, 2, h2)) {
          if (!IsPosition(w, 2, h2)) continue;
          const ColumnOf<T> value = columns[(taps + h2.tap) * positions + line + h2.position];
          sum += value;
        }
      }
    }
    if (of.bias != nullptr) {
      const Index of_image = static_cast<Index>(channel) % static_cast<Index>(ImageChannels());
      const T bias = gpu.Global(static_cast<const T*>(of.bias))[static_cast<int64_t>(of_image)];
      sum += Widen(bias);
    }
    gpu.Global(static_cast<T*>(of.image))[channel * w.large_size() + element] = Narrow<T>(sum);
  }

  WEFT_GPU int64_t ImageChannels() const { return of.groups * of.group_channels; }
};

// FillChannels.
template <typename T, typename Index>
struct FillChannelsBody {
  FillChannels of;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto image = gpu.Global(static_cast<T*>(of.image));
    const auto bias = gpu.Global(static_cast<const T*>(of.bias));
    const auto count = static_cast<Index>(of.count);
    const auto plane = static_cast<Index>(of.plane);
    const auto channels = static_cast<Index>(of.channels);
    for (Index i = static_cast<Index>(gpu.index()); i < count;
         i += static_cast<Index>(gpu.stride())) {
      T value = Narrow<T>(Compute<T>{0});
      if (of.bias != nullptr) value = bias[static_cast<int64_t>(i / plane % channels)];
      image[static_cast<int64_t>(i)] = value;
    }
  }
};

// AddPartials.
template <typename T>
struct AddPartialsBody {
  AddPartials of;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto partials = gpu.Global(static_cast<const ColumnOf<T>*>(of.partials));
    const auto sums = gpu.Global(static_cast<T*>(of.sums));
    for (int64_t i = gpu.index(); i < of.count; i += gpu.stride()) {
      double sum = 0;
      for (int64_t part = 0; part < of.parts; ++part) {
        const ColumnOf<T> partial = partials[part * of.count + i];
        sum += static_cast<double>(partial);
      }
      sums[i] = Narrow<T>(static_cast<Compute<T>>(sum));
    }
  }
};

// Elements that a thread adds in their own type before the sum goes to float64.
inline constexpr int kShortRun = 16;

// The first half of SumChannels: block (part, channel) sums its part of the channel's elements.
template <typename T, typename Index>
struct SumPartsBody {
  SumChannels of;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int64_t parts = of.parts;
    for (int64_t block = gpu.block(); block < of.channels * parts; block += gpu.blocks()) {
      const int64_t channel = block / parts;
      const int64_t part = block - channel * parts;
      const double sum = BlockReduce<0>(gpu, OfThread(gpu, channel, part), 0.0, Plus());
      if (gpu.thread() == 0) gpu.Global(static_cast<double*>(of.scratch))[block] = sum;
    }
  }

 private:
  template <class Gpu>
  WEFT_GPU double OfThread(Gpu& gpu, int64_t channel, int64_t part) const {
    const auto image = gpu.Global(static_cast<const T*>(of.image)) + channel * of.plane;
    const auto elements = static_cast<Index>(of.samples * of.plane);
    const auto plane = static_cast<Index>(of.plane);
    const auto step = static_cast<Index>(of.parts * gpu.threads());
    double sum = 0;
    auto i = static_cast<Index>(part * gpu.threads() + gpu.thread());
    while (i < elements) {
      Compute<T> run = 0;
      for (int n = 0; n < kShortRun && i < elements; ++n, i += step) {
        const Index sample = i / plane;
        const T value = image[static_cast<int64_t>(sample) * of.channels * of.plane +
                              static_cast<int64_t>(i - sample * plane)];
        run += Widen(value);
      }
      sum += static_cast<double>(run);
    }
    return sum;
  }
};

// The second half: a thread adds the parts of a channel.
template <typename T>
struct AddPartsBody {
  SumChannels of;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto parts = gpu.Global(static_cast<const double*>(of.scratch));
    const auto sums = gpu.Global(static_cast<T*>(of.sums));
    for (int64_t channel = gpu.index(); channel < of.channels; channel += gpu.stride()) {
      double sum = 0;
      for (int64_t part = 0; part < of.parts; ++part) sum += parts[channel * of.parts + part];
      sums[channel] = Narrow<T>(static_cast<Compute<T>>(sum));
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_CONV_CONV_BODY_H_
