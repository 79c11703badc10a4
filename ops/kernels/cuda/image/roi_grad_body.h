// Bodies of the gradients of RoiAlign and MaxRoiPool. A pixel gathers: a thread looks at all
// regions that may have it, in order. Regions are few, and those of other samples and places cost
// one look each; a sort of all samples would move each of them several times.
#ifndef WEFT_OPS_KERNELS_CUDA_IMAGE_ROI_GRAD_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_IMAGE_ROI_GRAD_BODY_H_

#include <cmath>
#include <cstdint>

#include "ops/defs/image/roi_region.h"
#include "ops/kernels/cuda/blocks/block_reduce.h"
#include "ops/kernels/cuda/blocks/real_operand.h"
#include "ops/kernels/cuda/image/roi_body.h"
#include "ops/kernels/cuda/image/roi_launch.h"
#include "ops/kernels/cuda/language/gpu.h"

namespace weft::cuda {

// Of `count` steps of length `step` from `start` on, those that may reach within a pixel of
// `pixel`: [first, last). More than these, never fewer.
WEFT_GPU PixelRange StepsNear(double start, double step, int64_t count, int64_t pixel) {
  const double a = (static_cast<double>(pixel) - 1 - start) / step;
  const double b = (static_cast<double>(pixel) + 1 - start) / step;
  if (!(step != 0) || a != a || b != b) return {0, count};
  const double low = a < b ? a : b;
  const double high = a < b ? b : a;
  return {WholeWithin(std::floor(low) - 2, 0, count), WholeWithin(std::ceil(high) + 2, 0, count)};
}

WEFT_GPU bool MayHave(const RoiRow& row, int64_t sample, int64_t h, int64_t w) {
  return row.sample == sample && h >= row.low[0] && h <= row.high[0] && w >= row.low[1] &&
         w <= row.high[1];
}

// The weight of pixel `pixel` in a position along an axis.
WEFT_GPU double ShareOf(double position, int64_t size, int64_t pixel) {
  PixelPair pair;
  if (!FindPixels(position, size, pair)) return 0;
  return (pair.low == pixel ? 1 - pair.share : 0) + (pair.high == pixel ? pair.share : 0);
}

// dX of RoiAlign's mean: a thread for each pixel, of a few channels.
struct RoiMeanGradBody {
  RealInput dy;
  RealOutput dx;
  int64_t threads;
  RoiCall call;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int64_t chunks = (call.channels + kRoiChannels - 1) / kRoiChannels;
    const auto rows = gpu.Global(call.rows);
    for (int64_t t = gpu.index(); t < threads; t += gpu.stride()) {
      const int64_t place = t % call.plane();
      const int64_t first = t / call.plane() % chunks * kRoiChannels;
      const int64_t n = t / call.plane() / chunks;
      const int64_t h = place / call.size[1];
      const int64_t w = place % call.size[1];
      double sums[kRoiChannels] = {};
      for (int64_t r = 0; r < call.regions; ++r) {
        const RoiRow row = rows[r];
        if (MayHave(row, n, h, w)) AddRegion(gpu, row.region, r, first, h, w, sums);
      }
      WEFT_UNROLL
      for (int c = 0; c < kRoiChannels; ++c) {
        if (first + c >= call.channels) continue;
        WriteReal(gpu, dx, (n * call.channels + first + c) * call.plane() + place, sums[c]);
      }
    }
  }

 private:
  template <class Gpu>
  WEFT_GPU void AddRegion(Gpu& gpu, const AlignedRegion& region, int64_t r, int64_t first,
                          int64_t h, int64_t w, double (&sums)[kRoiChannels]) const {
    const PixelRange lines = Samples(region, 0, h);
    const PixelRange columns = Samples(region, 1, w);
    const double samples = static_cast<double>(region.grid[0] * region.grid[1]);
    for (int64_t sy = lines.first; sy < lines.last; ++sy) {
      const int64_t i = sy / region.grid[0];
      const double line = ShareOf(region.Position(0, i, sy % region.grid[0]), call.size[0], h);
      if (line == 0) continue;
      for (int64_t sx = columns.first; sx < columns.last; ++sx) {
        const int64_t j = sx / region.grid[1];
        const double share =
            line * ShareOf(region.Position(1, j, sx % region.grid[1]), call.size[1], w);
        if (share == 0) continue;
        const int64_t from =
            (r * call.channels + first) * call.pooled() + i * call.spec.pooled[1] + j;
        WEFT_UNROLL
        for (int c = 0; c < kRoiChannels; ++c) {
          if (first + c >= call.channels) continue;
          sums[c] += ReadReal(gpu, dy, from + c * call.pooled()) / samples * share;
        }
      }
    }
  }

  // All samples of the region along an axis, numbered from its start.
  WEFT_GPU PixelRange Samples(const AlignedRegion& region, int axis, int64_t pixel) const {
    return StepsNear(region.start[axis], region.bin[axis] / static_cast<double>(region.grid[axis]),
                     region.grid[axis] * call.spec.pooled[axis], pixel);
  }
};

// The largest weighted pixel of an element of RoiAlign with mode max, and its sample.
struct LargestSample {
  int64_t iy = 0;
  int64_t ix = 0;
  int part = 0;
  int32_t place = -1;  // none: nothing flows
  double weight = 0;

  // The first of equal ones. Of a sample outside, which is zero, nothing flows.
  template <class Gpu>
  WEFT_GPU static LargestSample Find(Gpu& gpu, const RoiCall& call, const AlignedRegion& region,
                                     int64_t i, const RealInput& x, int64_t image) {
    LargestSample largest;
    double value = 0;
    bool any_outside = false;
    for (int64_t iy = 0; iy < region.grid[0]; ++iy) {
      const double at = region.Position(0, i / call.spec.pooled[1], iy);
      for (int64_t ix = 0; ix < region.grid[1]; ++ix) {
        RoiSample sample;
        if (!sample.Find(call, at, region.Position(1, i % call.spec.pooled[1], ix))) {
          any_outside = true;
          continue;
        }
        // Of the sample first: what is no number stays where it is first.
        double best = 0;
        double weight = 0;
        int32_t place = 0;
        int part = 0;
        WEFT_UNROLL
        for (int k = 0; k < 4; ++k) {
          const double candidate = sample.weights[k] * ReadReal(gpu, x, image + sample.places[k]);
          if (k > 0 && !(candidate > best)) continue;
          best = candidate;
          weight = sample.weights[k];
          place = sample.places[k];
          part = k;
        }
        if (largest.place >= 0 && !(best > value)) continue;
        value = best;
        largest = {iy, ix, part, place, weight};
      }
    }
    if (any_outside && value < 0) largest.place = -1;
    return largest;
  }
};

// A thread for each element of Y: where it comes from.
struct RoiPlacesBody {
  RealInput x;
  RoiPlaces to;
  RoiCall call;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int64_t count = call.regions * call.channels * call.pooled();
    for (int64_t t = gpu.index(); t < count; t += gpu.stride()) {
      const int64_t line = t / call.pooled();
      const int64_t i = t % call.pooled();
      const RoiRow row = gpu.Global(call.rows)[line / call.channels];
      LargestSample largest;
      if (row.sample >= 0) {
        const int64_t image = (row.sample * call.channels + line % call.channels) * call.plane();
        if (call.is_align) {
          largest = LargestSample::Find(gpu, call, row.region, i, x, image);
        } else {
          largest.place = LargestPixel(gpu, row, i, image);
        }
      }
      gpu.Global(to.places)[t] = largest.place;
      if (to.factors != nullptr) gpu.Global(to.factors)[t] = largest.weight;
    }
  }

 private:
  // MaxRoiPool's: the first pixel of the bin that is largest, -1 in an empty one.
  template <class Gpu>
  WEFT_GPU int32_t LargestPixel(Gpu& gpu, const RoiRow& row, int64_t i, int64_t image) const {
    const PixelRange lines = PixelsOf(row.pooled[0], i / call.spec.pooled[1], call.size[0]);
    const PixelRange columns = PixelsOf(row.pooled[1], i % call.spec.pooled[1], call.size[1]);
    int64_t best = -1;
    double value = 0;
    for (int64_t h = lines.first; h < lines.last; ++h) {
      for (int64_t w = columns.first; w < columns.last; ++w) {
        const int64_t at = h * call.size[1] + w;
        const double candidate = ReadReal(gpu, x, image + at);
        if (best >= 0 && !(candidate > value)) continue;
        best = at;
        value = candidate;
      }
    }
    return static_cast<int32_t>(best);
  }
};

// dX of maxima: a thread for each pixel of a channel looks where the places say so.
struct RoiMaxGradBody {
  RealInput dy;
  RoiPlaces from;
  RealOutput dx;
  RoiCall call;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int64_t count = call.samples * call.channels * call.plane();
    const auto rows = gpu.Global(call.rows);
    const auto places = gpu.Global(from.places);
    for (int64_t t = gpu.index(); t < count; t += gpu.stride()) {
      const int64_t place = t % call.plane();
      const int64_t line = t / call.plane();
      const int64_t h = place / call.size[1];
      const int64_t w = place % call.size[1];
      double sum = 0;
      for (int64_t r = 0; r < call.regions; ++r) {
        const RoiRow row = rows[r];
        if (!MayHave(row, line / call.channels, h, w)) continue;
        const PixelRange bins[2] = {Bins(row, 0, h), Bins(row, 1, w)};
        const int64_t first = (r * call.channels + line % call.channels) * call.pooled();
        for (int64_t i = bins[0].first; i < bins[0].last; ++i) {
          for (int64_t j = bins[1].first; j < bins[1].last; ++j) {
            const int64_t at = first + i * call.spec.pooled[1] + j;
            if (places[at] != place) continue;
            double factor = 1;
            if (from.factors != nullptr) factor = gpu.Global(from.factors)[at];
            sum += factor * ReadReal(gpu, dy, at);
          }
        }
      }
      WriteReal(gpu, dx, t, sum);
    }
  }

 private:
  WEFT_GPU PixelRange Bins(const RoiRow& row, int axis, int64_t pixel) const {
    const double start = call.is_align ? row.region.start[axis] : row.pooled[axis].start;
    const double bin = call.is_align ? row.region.bin[axis] : row.pooled[axis].bin;
    return StepsNear(start, bin, call.spec.pooled[axis], pixel);
  }
};

// drois of RoiAlign: a block for each region, in double.
inline constexpr int kCornerThreads = 128;
template <bool kMax>
struct RoiCornersBody {
  RealInput dy;
  RealInput x;
  RealOutput drois;
  RoiCall call;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    for (int64_t r = gpu.block(); r < call.regions; r += gpu.blocks()) {
      const RoiRow row = gpu.Global(call.rows)[r];
      double corners[4] = {};
      const int64_t count = row.sample < 0 ? 0 : call.channels * call.pooled();
      for (int64_t e = gpu.thread(); e < count; e += gpu.threads()) {
        AddElement(gpu, row, r, e / call.pooled(), e % call.pooled(), corners);
      }
      WEFT_UNROLL
      for (int i = 0; i < 4; ++i) {
        const double sum = BlockReduce<0>(gpu, corners[i], 0.0, Plus());
        if (gpu.thread() == 0) WriteReal(gpu, drois, 4 * r + i, sum);
      }
    }
  }

 private:
  template <class Gpu>
  WEFT_GPU void AddElement(Gpu& gpu, const RoiRow& row, int64_t r, int64_t c, int64_t i,
                           double (&corners)[4]) const {
    const AlignedRegion& region = row.region;
    const int64_t image = (row.sample * call.channels + c) * call.plane();
    const double factor = ReadReal(gpu, dy, (r * call.channels + c) * call.pooled() + i);
    if constexpr (kMax) {
      const LargestSample largest = LargestSample::Find(gpu, call, region, i, x, image);
      if (largest.place < 0) return;
      AddSample(gpu, region, i, largest.iy, largest.ix, largest.part, image, factor, corners);
    } else {
      const double share = factor / static_cast<double>(region.grid[0] * region.grid[1]);
      for (int64_t iy = 0; iy < region.grid[0]; ++iy) {
        for (int64_t ix = 0; ix < region.grid[1]; ++ix) {
          AddSample(gpu, region, i, iy, ix, -1, image, share, corners);
        }
      }
    }
  }

  // What a sample that moves gives; of its pixel `part` alone, or of all with -1.
  template <class Gpu>
  WEFT_GPU void AddSample(Gpu& gpu, const AlignedRegion& region, int64_t i, int64_t iy, int64_t ix,
                          int part, int64_t image, double factor, double (&corners)[4]) const {
    const int64_t height = i / call.spec.pooled[1];
    const int64_t width = i % call.spec.pooled[1];
    PixelPair row;
    PixelPair column;
    if (!FindPixels(region.Position(0, height, iy), call.size[0], row) ||
        !FindPixels(region.Position(1, width, ix), call.size[1], column)) {
      return;
    }
    double by_y = 0;
    double by_x = 0;
    WEFT_UNROLL
    for (int k = 0; k < 4; ++k) {
      if (part >= 0 && k != part) continue;
      const int64_t place = (k / 2 == 0 ? row.low : row.high) * call.size[1] +
                            (k % 2 == 0 ? column.low : column.high);
      const double value = factor * ReadReal(gpu, x, image + place);
      by_y += (k / 2 == 0 ? -row.slope : row.slope) *
              (k % 2 == 0 ? 1 - column.share : column.share) * value;
      by_x += (k % 2 == 0 ? -column.slope : column.slope) *
              (k / 2 == 0 ? 1 - row.share : row.share) * value;
    }
    // A corner moves the start, and the samples behind it by their share of the region.
    AddAxis(region, 0, region.Bins(0, height, iy), by_y, corners[1], corners[3]);
    AddAxis(region, 1, region.Bins(1, width, ix), by_x, corners[0], corners[2]);
  }

  WEFT_GPU void AddAxis(const AlignedRegion& region, int axis, double bins, double slope,
                        double& low, double& high) const {
    const double along =
        region.fixed[axis] ? 0.0 : bins / static_cast<double>(call.spec.pooled[axis]);
    low += slope * call.spec.scale * (1 - along);
    high += slope * call.spec.scale * along;
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_IMAGE_ROI_GRAD_BODY_H_
