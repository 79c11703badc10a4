// Bodies of RoiAlign and MaxRoiPool: the regions, and the pools over them.
#ifndef WEFT_OPS_KERNELS_CUDA_IMAGE_ROI_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_IMAGE_ROI_BODY_H_

#include <cmath>
#include <cstdint>
#include <limits>

#include "ops/defs/image/roi_region.h"
#include "ops/kernels/cuda/blocks/fault.h"
#include "ops/kernels/cuda/blocks/real_operand.h"
#include "ops/kernels/cuda/image/roi_launch.h"
#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/scalar.h"

namespace weft::cuda {

inline constexpr int64_t kNoWhole = std::numeric_limits<int64_t>::min();

// A number as a whole one for a report; what is none, or too large, as the smallest.
WEFT_GPU int64_t WholeForReport(double value) {
  return value > -9e18 && value < 9e18 ? static_cast<int64_t>(value) : kNoWhole;
}

// A number within [low, high] as a whole one; what is no number as `low`.
WEFT_GPU int64_t WholeWithin(double value, int64_t low, int64_t high) {
  if (!(value > static_cast<double>(low))) return low;
  return value < static_cast<double>(high) ? static_cast<int64_t>(value) : high;
}

// A thread for each region.
struct RoiRowsBody {
  RoiCall call;
  RoiRowsCall from;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    for (int64_t r = gpu.index(); r < call.regions; r += gpu.stride()) {
      const int values = call.is_align ? 4 : 5;
      const int first = values - 4;
      RoiRow row = {};
      bool is_right = FindSample(gpu, r, values, row);
      WEFT_UNROLL
      for (int axis = 0; axis < 2; ++axis) {
        const double low = ReadReal(gpu, from.rois, r * values + first + 1 - axis);
        const double high = ReadReal(gpu, from.rois, r * values + first + 3 - axis);
        is_right = (call.is_align ? Align(gpu, r, axis, low, high, row)
                                  : Pool(gpu, r, axis, low, high, row)) &&
                   is_right;
      }
      if (!is_right) row.sample = -1;
      gpu.Global(call.rows)[r] = row;
    }
  }

 private:
  template <class Gpu>
  WEFT_GPU bool FindSample(Gpu& gpu, int64_t r, int values, RoiRow& row) const {
    if (call.is_align) {
      row.sample = gpu.Global(from.batch)[r];
    } else {
      // Towards zero, but what is below zero is none.
      const double sample = ReadReal(gpu, from.rois, r * values);
      row.sample = sample >= 0 ? WholeForReport(sample) : WholeForReport(std::floor(sample));
    }
    return InRange(gpu, from.sample_report, row.sample, r);
  }

  template <class Gpu>
  WEFT_GPU bool Align(Gpu& gpu, int64_t r, int axis, double low, double high, RoiRow& row) const {
    const double samples = AlignAxis(call.spec, axis, low, high, row.region);
    const double start = row.region.start[axis];
    SetPixels(start, start + static_cast<double>(call.spec.pooled[axis]) * row.region.bin[axis],
              axis, row);
    return InRange(gpu, from.corner_report, WholeForReport(start), r) &&
           InRange(gpu, from.grid_report,
                   samples > 0    ? WholeForReport(samples)
                   : samples <= 0 ? 0
                                  : -1,
                   r);
  }

  template <class Gpu>
  WEFT_GPU bool Pool(Gpu& gpu, int64_t r, int axis, double low, double high, RoiRow& row) const {
    const PooledAxis pooled = PoolAxis(call.spec, axis, low, high);
    row.pooled[axis] = pooled;
    SetPixels(pooled.start, pooled.start + static_cast<double>(call.spec.pooled[axis]) * pooled.bin,
              axis, row);
    const double last = ProductAlone(high, call.spec.scale);
    return InRange(gpu, from.corner_report, WholeForReport(pooled.start), r) &&
           InRange(gpu, from.corner_report, WholeForReport(last), r);
  }

  // The pixels between two positions, and two more on each side.
  WEFT_GPU void SetPixels(double a, double b, int axis, RoiRow& row) const {
    const double low = a < b ? a : b;
    const double high = a < b ? b : a;
    row.low[axis] = WholeWithin(std::floor(low) - 2, 0, call.size[axis]);
    row.high[axis] = WholeWithin(std::ceil(high) + 2, -1, call.size[axis] - 1);
    // What is left of the image gives to its first pixel, what is right of it to its last.
    if (row.low[axis] >= call.size[axis]) row.low[axis] = call.size[axis] - 1;
    if (row.high[axis] < 0) row.high[axis] = 0;
  }
};

// The four pixels around a sample, and their weights.
struct RoiSample {
  int32_t places[4];
  double weights[4];

  // False: it lies outside.
  WEFT_GPU bool Find(const RoiCall& call, double y, double x) {
    PixelPair row;
    PixelPair column;
    if (!FindPixels(y, call.size[0], row) || !FindPixels(x, call.size[1], column)) return false;
    WEFT_UNROLL
    for (int k = 0; k < 4; ++k) {
      const int64_t line = k / 2 == 0 ? row.low : row.high;
      places[k] =
          static_cast<int32_t>(line * call.size[1] + (k % 2 == 0 ? column.low : column.high));
      weights[k] =
          (k / 2 == 0 ? 1 - row.share : row.share) * (k % 2 == 0 ? 1 - column.share : column.share);
    }
    return true;
  }
};

// A thread has one element of a region, of a few channels.
inline constexpr int kRoiChannels = 4;

template <typename T, bool kMax>
struct RoiAlignBody {
  const T* x;
  T* y;
  int64_t threads;
  RoiCall call;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int64_t chunks = (call.channels + kRoiChannels - 1) / kRoiChannels;
    for (int64_t t = gpu.index(); t < threads; t += gpu.stride()) {
      const int64_t i = t % call.pooled();
      const int64_t first = t / call.pooled() % chunks * kRoiChannels;
      const int64_t r = t / call.pooled() / chunks;
      const RoiRow row = gpu.Global(call.rows)[r];
      double results[kRoiChannels] = {};
      if (row.sample >= 0) Pool(gpu, row, i, first, results);
      WEFT_UNROLL
      for (int c = 0; c < kRoiChannels; ++c) {
        if (first + c >= call.channels) continue;
        const int64_t to = (r * call.channels + first + c) * call.pooled() + i;
        gpu.Global(y)[to] = Narrow<T>(static_cast<Compute<T>>(results[c]));
      }
    }
  }

 private:
  template <class Gpu>
  WEFT_GPU void Pool(Gpu& gpu, const RoiRow& row, int64_t i, int64_t first,
                     double (&results)[kRoiChannels]) const {
    const int64_t height = i / call.spec.pooled[1];
    const int64_t width = i % call.spec.pooled[1];
    const AlignedRegion& region = row.region;
    const auto image = gpu.Global(x) + (row.sample * call.channels + first) * call.plane();
    bool any = false;
    for (int64_t iy = 0; iy < region.grid[0]; ++iy) {
      const double at = region.Position(0, height, iy);
      for (int64_t ix = 0; ix < region.grid[1]; ++ix) {
        RoiSample sample;
        const bool inside = sample.Find(call, at, region.Position(1, width, ix));
        WEFT_UNROLL
        for (int c = 0; c < kRoiChannels; ++c) {
          if (first + c >= call.channels) continue;
          double best = 0;
          WEFT_UNROLL
          for (int k = 0; k < 4; ++k) {
            if (!inside) continue;
            const T pixel = image[c * call.plane() + sample.places[k]];
            const double part = sample.weights[k] * static_cast<double>(Widen(pixel));
            if constexpr (kMax) {
              best = k == 0 || best < part ? part : best;
            } else {
              results[c] += part;
            }
          }
          if constexpr (kMax) results[c] = !any || results[c] < best ? best : results[c];
        }
        any = true;
      }
    }
    if constexpr (!kMax) {
      const int64_t samples = region.grid[0] * region.grid[1];
      WEFT_UNROLL
      for (double& result : results) result /= static_cast<double>(samples > 0 ? samples : 1);
    }
  }
};

// A thread for each element of y.
template <typename T>
struct MaxRoiPoolBody {
  const T* x;
  T* y;
  RoiCall call;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int64_t count = call.regions * call.channels * call.pooled();
    for (int64_t t = gpu.index(); t < count; t += gpu.stride()) {
      const int64_t line = t / call.pooled();
      const int64_t i = t % call.pooled();
      const RoiRow row = gpu.Global(call.rows)[line / call.channels];
      Compute<T> best = 0;  // of nothing
      if (row.sample >= 0) {
        const auto image =
            gpu.Global(x) + (row.sample * call.channels + line % call.channels) * call.plane();
        const PixelRange lines = PixelsOf(row.pooled[0], i / call.spec.pooled[1], call.size[0]);
        const PixelRange columns = PixelsOf(row.pooled[1], i % call.spec.pooled[1], call.size[1]);
        bool any = false;
        for (int64_t h = lines.first; h < lines.last; ++h) {
          for (int64_t w = columns.first; w < columns.last; ++w) {
            const T pixel = image[h * call.size[1] + w];
            const Compute<T> candidate = Widen(pixel);
            if (!any || candidate > best || candidate != candidate) best = candidate;
            any = true;
          }
        }
      }
      gpu.Global(y)[t] = Narrow<T>(best);
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_IMAGE_ROI_BODY_H_
