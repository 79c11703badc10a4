// Bodies of GridSample, its gradient and AffineGrid.
#ifndef WEFT_OPS_KERNELS_CUDA_IMAGE_GRID_SAMPLE_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_IMAGE_GRID_SAMPLE_BODY_H_

#include <cstdint>
#include <limits>

#include "ops/defs/image/grid_axis.h"
#include "ops/kernels/cuda/blocks/any_number.h"
#include "ops/kernels/cuda/blocks/real_operand.h"
#include "ops/kernels/cuda/image/grid_sample_launch.h"
#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/scalar.h"

// Before a loop whose steps nvcc does not write out: its loads would need too many registers.
#ifdef __CUDA_ARCH__
#define WEFT_ROLLED _Pragma("unroll 1")
#else
#define WEFT_ROLLED
#endif

namespace weft::cuda {

// What a point is made of: the elements along each axis, -1 where there is none.
template <typename G, SampleMode kMode>
struct PointTaps {
  static constexpr int kTaps = TapsPerAxis(kMode);

  int32_t places[kGridAxes][kTaps];
  G weights[kGridAxes][kTaps];
  G slopes[kGridAxes][kTaps];

  // Of point p of all samples.
  template <class Gpu>
  WEFT_GPU void Find(Gpu& gpu, const GridSampleCall& call, int64_t p) {
    WEFT_UNROLL
    for (int a = 0; a < kGridAxes; ++a) {
      AxisTaps<G> own{};
      if (a >= kGridAxes - call.axes) {
        GridAxis axis;
        axis.mode = kMode;
        axis.padding = call.options.padding;
        axis.align_corners = call.options.align_corners;
        axis.size = call.image[a];
        const double at = ReadReal(gpu, call.grid, p * call.axes + (kGridAxes - 1 - a));
        own = SampleAxis<G>(axis, static_cast<G>(at));
      } else {
        own.weights[0] = 1;
        for (int k = 1; k < 4; ++k) own.indices[k] = -1;
      }
      WEFT_UNROLL
      for (int k = 0; k < kTaps; ++k) {
        places[a][k] = static_cast<int32_t>(own.indices[k]);
        weights[a][k] = own.weights[k];
        slopes[a][k] = own.slopes[k];
      }
    }
  }

  // Value k, which is known at run time alone, of values in registers.
  template <typename V>
  WEFT_GPU static V Pick(const V (&values)[kTaps], int k) {
    V picked = values[0];
    WEFT_UNROLL
    for (int m = 1; m < kTaps; ++m) picked = k == m ? values[m] : picked;
    return picked;
  }

  // The place in the image of element (j, k) of a plane; -1: none.
  WEFT_GPU int64_t Place(const GridSampleCall& call, int32_t plane, int j, int k) const {
    if (plane < 0 || places[1][j] < 0 || places[2][k] < 0) return -1;
    return (plane * call.image[1] + places[1][j]) * call.image[2] + places[2][k];
  }

  // The sum over `read(place)`, a G, of the elements.
  template <typename S, typename Read>
  WEFT_GPU S Sum(const GridSampleCall& call, Read read) const {
    S sum = 0;
    WEFT_ROLLED
    for (int i = 0; i < kTaps; ++i) {
      const int32_t plane = Pick(places[0], i);
      if (plane < 0) continue;
      const G plane_weight = Pick(weights[0], i);
      WEFT_UNROLL
      for (int j = 0; j < kTaps; ++j) {
        if (places[1][j] < 0) continue;
        const G weight = plane_weight * weights[1][j];
        WEFT_UNROLL
        for (int k = 0; k < kTaps; ++k) {
          if (places[2][k] < 0) continue;
          sum += static_cast<S>(weight * weights[2][k]) * read(Place(call, plane, j, k));
        }
      }
    }
    return sum;
  }
};

// A thread has one point, of a few channels.
inline constexpr int kGridChannels = 8;

struct PointOfChannels {
  int64_t point;  // of all samples
  int64_t x;      // of the first channel: where its image begins in X
  int64_t y;      // and the point in Y
  int64_t channels;

  WEFT_GPU static PointOfChannels Of(const GridSampleCall& call, int64_t thread) {
    const int64_t chunks = (call.channels + kGridChannels - 1) / kGridChannels;
    const int64_t i = thread % call.points;
    const int64_t n = thread / call.points / chunks;
    const int64_t first = thread / call.points % chunks * kGridChannels;
    const int64_t line = n * call.channels + first;
    const int64_t rest = call.channels - first;
    return {n * call.points + i, line * call.plane(), line * call.points + i,
            rest < kGridChannels ? rest : kGridChannels};
  }
};

// Linear and cubic, of floats. G is what is summed in.
template <typename T, SampleMode kMode>
struct GridSampleBody {
  using G = Compute<T>;

  const T* x;
  T* y;
  int64_t threads;
  GridSampleCall call;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    for (int64_t t = gpu.index(); t < threads; t += gpu.stride()) {
      const PointOfChannels own = PointOfChannels::Of(call, t);
      PointTaps<G, kMode> taps;
      taps.Find(gpu, call, own.point);
      for (int64_t c = 0; c < own.channels; ++c) {
        const auto from = gpu.Global(x) + (own.x + c * call.plane());
        const G sum = taps.template Sum<G>(call, [&](int64_t place) {
          const T value = from[place];
          return Widen(value);
        });
        gpu.Global(y)[own.y + c * call.points] = Narrow<T>(sum);
      }
    }
  }
};

// The ends of a type of whole numbers.
template <typename T>
inline constexpr T kFirstOf = std::numeric_limits<T>::min();
template <typename T>
inline constexpr T kLastOf = std::numeric_limits<T>::max();

// Element i of `to` of any number type or bool: whole ones are cut towards zero and at their ends.
template <class Gpu>
WEFT_GPU void WriteCut(Gpu& gpu, const RealOutput& to, int64_t i, double value) {
  const auto write = [&](auto zero) {
    using T = decltype(zero);
    T cut = kFirstOf<T>;
    if (value >= static_cast<double>(kLastOf<T>)) {
      cut = kLastOf<T>;
    } else if (value > static_cast<double>(kFirstOf<T>)) {
      cut = static_cast<T>(value);
    }
    gpu.Global(static_cast<T*>(to.data))[i] = cut;
  };
  switch (to.dtype) {
    case DType::kInt8:
      return write(int8_t{});
    case DType::kInt16:
      return write(int16_t{});
    case DType::kInt32:
      return write(int32_t{});
    case DType::kInt64:
      return write(int64_t{});
    case DType::kUint8:
      return write(uint8_t{});
    case DType::kUint16:
      return write(uint16_t{});
    case DType::kUint32:
      return write(uint32_t{});
    case DType::kUint64:
      return write(uint64_t{});
    case DType::kBool:
      gpu.Global(static_cast<uint8_t*>(to.data))[i] = value != 0 ? 1 : 0;
      return;
    default:
      return WriteReal(gpu, to, i, value);
  }
}

// Linear and cubic, of any numbers, with coordinates of G. Added in double.
template <typename G, SampleMode kMode>
struct AnyGridSampleBody {
  const void* x;
  RealOutput y;  // of any type
  int64_t threads;
  GridSampleCall call;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    for (int64_t t = gpu.index(); t < threads; t += gpu.stride()) {
      const PointOfChannels own = PointOfChannels::Of(call, t);
      PointTaps<G, kMode> taps;
      taps.Find(gpu, call, own.point);
      for (int64_t c = 0; c < own.channels; ++c) {
        const int64_t image = own.x + c * call.plane();
        const double sum = taps.template Sum<double>(
            call, [&](int64_t place) { return ToDouble(ReadAny(gpu, x, y.dtype, image + place)); });
        WriteCut(gpu, y, own.y + c * call.points, sum);
      }
    }
  }
};

// Nearest: copies units, zeros outside.
template <typename Unit, typename G>
struct NearestGridBody {
  const Unit* x;
  Unit* y;
  int64_t threads;
  GridSampleCall call;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    for (int64_t t = gpu.index(); t < threads; t += gpu.stride()) {
      const PointOfChannels own = PointOfChannels::Of(call, t);
      PointTaps<G, SampleMode::kNearest> taps;
      taps.Find(gpu, call, own.point);
      const int64_t place = taps.Place(call, taps.places[0][0], 0, 0);
      for (int64_t c = 0; c < own.channels; ++c) {
        Unit value = {};
        if (place >= 0) value = gpu.Global(x)[own.x + c * call.plane() + place];
        gpu.Global(y)[own.y + c * call.points] = value;
      }
    }
  }
};

// A thread for each point: its keys and weights.
template <typename G, SampleMode kMode>
struct GridPartsBody {
  uint32_t* keys;
  G* weights;
  GridSampleCall call;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    using Taps = PointTaps<G, kMode>;
    const auto key_of = gpu.Global(keys);
    const auto weight_of = gpu.Global(weights);
    const int64_t none = call.samples * call.plane();
    const int64_t parts = call.parts();
    for (int64_t p = gpu.index(); p < call.samples * call.points; p += gpu.stride()) {
      Taps taps;
      taps.Find(gpu, call, p);
      const int64_t image = p / call.points * call.plane();
      WEFT_ROLLED
      for (int i = 0; i < Taps::kTaps; ++i) {
        const int32_t plane = Taps::Pick(taps.places[0], i);
        const G weight = Taps::Pick(taps.weights[0], i);
        WEFT_UNROLL
        for (int j = 0; j < Taps::kTaps; ++j) {
          WEFT_UNROLL
          for (int k = 0; k < Taps::kTaps; ++k) {
            // Axes that the image lacks have one part.
            const int part = (i * Taps::kTaps + j) * Taps::kTaps + k;
            if (part >= parts) continue;
            const int64_t place = taps.Place(call, plane, j, k);
            key_of[p * parts + part] = static_cast<uint32_t>(place < 0 ? none : image + place);
            weight_of[p * parts + part] = weight * taps.weights[1][j] * taps.weights[2][k];
          }
        }
      }
    }
  }
};

// A thread for each point: the slopes of all channels, added in double.
template <typename G, SampleMode kMode>
struct GridSlopesBody {
  static constexpr int kMinBlocks = 4;  // a quarter of the threads of a multiprocessor

  RealInput dy;
  RealInput x;
  RealOutput dgrid;
  GridSampleCall call;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    for (int64_t p = gpu.index(); p < call.samples * call.points; p += gpu.stride()) {
      PointTaps<G, kMode> taps;
      taps.Find(gpu, call, p);
      const int64_t n = p / call.points;
      double sums[kGridAxes] = {};
      for (int64_t c = 0; c < call.channels; ++c) {
        const int64_t line = n * call.channels + c;
        double slopes[kGridAxes] = {};
        AddSlopes(gpu, taps, line * call.plane(), slopes);
        const double factor = ReadReal(gpu, dy, line * call.points + p % call.points);
        WEFT_UNROLL
        for (int a = 0; a < kGridAxes; ++a) sums[a] += factor * slopes[a];
      }
      WEFT_UNROLL
      for (int a = 0; a < kGridAxes; ++a) {
        if (a < kGridAxes - call.axes) continue;
        WriteReal(gpu, dgrid, p * call.axes + (kGridAxes - 1 - a), sums[a]);
      }
    }
  }

 private:
  // The slopes of the point along the axes, in the image that begins at `image`.
  template <class Gpu>
  WEFT_GPU void AddSlopes(Gpu& gpu, const PointTaps<G, kMode>& taps, int64_t image,
                          double (&slopes)[kGridAxes]) const {
    using Taps = PointTaps<G, kMode>;
    WEFT_ROLLED
    for (int i = 0; i < Taps::kTaps; ++i) {
      const int32_t place = Taps::Pick(taps.places[0], i);
      if (place < 0) continue;
      const G weight = Taps::Pick(taps.weights[0], i);
      const G slope = Taps::Pick(taps.slopes[0], i);
      double plane[kGridAxes] = {};  // its value, and its slopes along the other axes
      WEFT_UNROLL
      for (int j = 0; j < Taps::kTaps; ++j) {
        if (taps.places[1][j] < 0) continue;
        double row = 0;
        double row_slope = 0;
        WEFT_UNROLL
        for (int k = 0; k < Taps::kTaps; ++k) {
          if (taps.places[2][k] < 0) continue;
          const double value = ReadReal(gpu, x, image + taps.Place(call, place, j, k));
          row += static_cast<double>(taps.weights[2][k]) * value;
          row_slope += static_cast<double>(taps.slopes[2][k]) * value;
        }
        plane[0] += static_cast<double>(taps.weights[1][j]) * row;
        plane[1] += static_cast<double>(taps.slopes[1][j]) * row;
        plane[2] += static_cast<double>(taps.weights[1][j]) * row_slope;
      }
      slopes[0] += static_cast<double>(slope) * plane[0];
      slopes[1] += static_cast<double>(weight) * plane[1];
      slopes[2] += static_cast<double>(weight) * plane[2];
    }
  }
};

// A thread for each point: theta times the point of the unmoved grid and a one.
template <typename T>
struct AffineGridBody {
  using G = Compute<T>;

  const T* theta;
  T* grid;
  AffineGridCall call;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int64_t points = call.image[0] * call.image[1] * call.image[2];
    for (int64_t p = gpu.index(); p < call.samples * points; p += gpu.stride()) {
      G centre[kGridAxes] = {};  // of the last axis first
      int64_t rest = p % points;
      WEFT_UNROLL
      for (int k = 0; k < kGridAxes; ++k) {
        const int64_t size = call.image[kGridAxes - 1 - k];
        if (k < call.axes) centre[k] = Centre(rest % size, size);
        rest /= size;
      }
      const auto from = gpu.Global(theta) + p / points * call.axes * (call.axes + 1);
      for (int i = 0; i < call.axes; ++i) {
        const T last = from[i * (call.axes + 1) + call.axes];
        G sum = Widen(last);
        WEFT_UNROLL
        for (int k = 0; k < kGridAxes; ++k) {
          if (k >= call.axes) continue;
          const T factor = from[i * (call.axes + 1) + k];
          sum += Widen(factor) * centre[k];
        }
        gpu.Global(grid)[p * call.axes + i] = Narrow<T>(sum);
      }
    }
  }

 private:
  // Normalized coordinates of the centres, or with aligned corners of the points from -1 to 1.
  WEFT_GPU G Centre(int64_t i, int64_t size) const {
    const G n = static_cast<G>(size);
    if (!call.align_corners) return (2 * static_cast<G>(i) + 1) / n - 1;
    return size == 1 ? G(0) : 2 * static_cast<G>(i) / (n - 1) - 1;
  }
};

}  // namespace weft::cuda

#undef WEFT_ROLLED

#endif  // WEFT_OPS_KERNELS_CUDA_IMAGE_GRID_SAMPLE_BODY_H_
