// Bodies of DeformConv's sampling and its gradient. Dai et al., Deformable Convolutional Networks
// (2017); with mask, Zhu et al. (2018).
#ifndef WEFT_OPS_KERNELS_CUDA_CONV_DEFORM_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_CONV_DEFORM_BODY_H_

#include <cmath>
#include <cstdint>

#include "ops/kernels/cuda/blocks/real_operand.h"
#include "ops/kernels/cuda/conv/deform_launch.h"
#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/scalar.h"

namespace weft::cuda {

// The cell of elements around a point, in double: a point far from the first element keeps its
// fraction.
struct DeformCell {
  int64_t below[kDeformAxes];
  double share[kDeformAxes];  // of the element behind
  bool inside;                // else everything is zero

  // Of window `window` of field `field`: a sample's number times fields() plus group and tap.
  template <class Gpu>
  WEFT_GPU void Find(Gpu& gpu, const DeformCall& call, int64_t field, int64_t window) {
    int64_t rest_of_tap = field % call.taps;
    int64_t rest_of_window = window;
    inside = true;
    WEFT_UNROLL
    for (int i = kDeformAxes - 1; i >= 0; --i) {
      below[i] = 0;
      share[i] = 0;
      const int own = i - (kDeformAxes - call.axes);
      if (own < 0) continue;
      const DeformAxis& axis = call.axis[i];
      const int64_t at = rest_of_window % axis.output * axis.stride - axis.pad +
                         rest_of_tap % axis.kernel * axis.dilation;
      rest_of_window /= axis.output;
      rest_of_tap /= axis.kernel;
      const int64_t place = (field * call.axes + own) * call.windows + window;
      const double x = static_cast<double>(at) + ReadReal(gpu, call.offset, place);
      if (!(x > -1 && x < static_cast<double>(axis.input))) {
        inside = false;
        continue;
      }
      below[i] = static_cast<int64_t>(std::floor(x));
      share[i] = x - static_cast<double>(below[i]);
    }
  }

  // The element of corner (i, j, k), each 0 or 1; -1: outside, which is zero.
  WEFT_GPU int64_t Place(const DeformCall& call, int i, int j, int k) const {
    const int64_t z = below[0] + i;
    const int64_t y = below[1] + j;
    const int64_t x = below[2] + k;
    if (!inside || z < 0 || y < 0 || x < 0 || z >= call.axis[0].input || y >= call.axis[1].input ||
        x >= call.axis[2].input) {
      return -1;
    }
    return (z * call.axis[1].input + y) * call.axis[2].input + x;
  }

  WEFT_GPU double Weight(int axis, int side) const {
    return side == 0 ? 1 - share[axis] : share[axis];
  }
};

template <class Gpu>
WEFT_GPU double DeformMask(Gpu& gpu, const DeformCall& call, int64_t field, int64_t window) {
  return call.mask.data == nullptr ? 1 : ReadReal(gpu, call.mask, field * call.windows + window);
}

// A thread has one tap of one window, of a few channels.
inline constexpr int64_t kDeformChannels = 8;

template <typename T>
struct DeformColumnsBody {
  using G = Compute<T>;

  T* columns;
  int64_t threads;
  DeformCall call;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int64_t chunks = (call.channels + kDeformChannels - 1) / kDeformChannels;
    const T* const x = static_cast<const T*>(call.x.data);
    for (int64_t t = gpu.index(); t < threads; t += gpu.stride()) {
      const int64_t window = t % call.windows;
      const int64_t first = t / call.windows % chunks * kDeformChannels;
      const int64_t field = t / call.windows / chunks;
      DeformCell cell;
      cell.Find(gpu, call, field, window);
      const double mask = DeformMask(gpu, call, field, window);
      const int64_t group = field / call.taps;  // of all samples
      const int64_t last =
          first + kDeformChannels < call.channels ? first + kDeformChannels : call.channels;
      for (int64_t c = first; c < last; ++c) {
        const int64_t line = group * call.channels + c;
        const auto image = gpu.Global(x) + line * call.image();
        G sum = 0;
        WEFT_UNROLL
        for (int i = 0; i < 2; ++i) {
          WEFT_UNROLL
          for (int j = 0; j < 2; ++j) {
            WEFT_UNROLL
            for (int k = 0; k < 2; ++k) {
              const int64_t place = cell.Place(call, i, j, k);
              if (place < 0) continue;
              const double weight =
                  mask * cell.Weight(0, i) * cell.Weight(1, j) * cell.Weight(2, k);
              const T value = image[place];
              sum += static_cast<G>(weight) * Widen(value);
            }
          }
        }
        gpu.Global(columns)[(line * call.taps + field % call.taps) * call.windows + window] =
            Narrow<T>(sum);
      }
    }
  }
};

// A thread for each tap of each window: keys and weights of its corners.
struct DeformCornersBody {
  uint32_t* keys;
  double* weights;
  DeformCall call;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int64_t count = call.samples * call.fields() * call.windows;
    const int64_t none = call.samples * call.groups * call.image();
    const int corners = 1 << call.axes;
    for (int64_t t = gpu.index(); t < count; t += gpu.stride()) {
      const int64_t field = t / call.windows;
      const int64_t window = t % call.windows;
      DeformCell cell;
      cell.Find(gpu, call, field, window);
      const double mask = DeformMask(gpu, call, field, window);
      const int64_t image = field / call.taps * call.image();
      WEFT_UNROLL
      for (int corner = 0; corner < 1 << kDeformAxes; ++corner) {
        if (corner >= corners) continue;
        const int i = corner >> 2;
        const int j = corner >> 1 & 1;
        const int k = corner & 1;
        const int64_t place = cell.Place(call, i, j, k);
        gpu.Global(keys)[t * corners + corner] =
            static_cast<uint32_t>(place < 0 ? none : image + place);
        gpu.Global(weights)[t * corners + corner] =
            mask * cell.Weight(0, i) * cell.Weight(1, j) * cell.Weight(2, k);
      }
    }
  }
};

// A thread for each tap of each window: what its point, and its mask, get from all channels.
struct DeformSlopesBody {
  static constexpr int kMinBlocks = 4;  // a quarter of the threads of a multiprocessor

  RealInput dcolumns;
  RealOutput doffset;
  RealOutput dmask;
  DeformCall call;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int64_t count = call.samples * call.fields() * call.windows;
    for (int64_t t = gpu.index(); t < count; t += gpu.stride()) {
      const int64_t field = t / call.windows;
      const int64_t window = t % call.windows;
      DeformCell cell;
      cell.Find(gpu, call, field, window);
      double value = 0;
      double slopes[kDeformAxes] = {};
      for (int64_t c = 0; c < call.channels; ++c) {
        const int64_t line = field / call.taps * call.channels + c;
        const int64_t row = line * call.taps + field % call.taps;
        AddChannel(gpu, cell, line * call.image(),
                   ReadReal(gpu, dcolumns, row * call.windows + window), value, slopes);
      }
      if (dmask.data != nullptr) WriteReal(gpu, dmask, field * call.windows + window, value);
      if (doffset.data == nullptr) continue;
      const double mask = DeformMask(gpu, call, field, window);
      WEFT_UNROLL
      for (int i = 0; i < kDeformAxes; ++i) {
        const int own = i - (kDeformAxes - call.axes);
        if (own < 0) continue;
        const int64_t place = (field * call.axes + own) * call.windows + window;
        WriteReal(gpu, doffset, place, mask * slopes[i]);
      }
    }
  }

 private:
  // Adds `factor` times the value at the point, and its slopes, in the image that begins at
  // `image`.
  template <class Gpu>
  WEFT_GPU void AddChannel(Gpu& gpu, const DeformCell& cell, int64_t image, double factor,
                           double& value, double (&slopes)[kDeformAxes]) const {
    WEFT_UNROLL
    for (int i = 0; i < 2; ++i) {
      WEFT_UNROLL
      for (int j = 0; j < 2; ++j) {
        WEFT_UNROLL
        for (int k = 0; k < 2; ++k) {
          const int64_t place = cell.Place(call, i, j, k);
          if (place < 0) continue;
          const double x = factor * ReadReal(gpu, call.x, image + place);
          const double wi = cell.Weight(0, i);
          const double wj = cell.Weight(1, j);
          const double wk = cell.Weight(2, k);
          value += wi * wj * wk * x;
          slopes[0] += (i == 0 ? -x : x) * wj * wk;
          slopes[1] += (j == 0 ? -x : x) * wi * wk;
          slopes[2] += (k == 0 ? -x : x) * wi * wj;
        }
      }
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_CONV_DEFORM_BODY_H_
