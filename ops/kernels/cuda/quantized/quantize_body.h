// Bodies of QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear. A thread has four
// neighbours: whatever the type, their codes fill whole bytes, so that no two threads share one.
#ifndef WEFT_OPS_KERNELS_CUDA_QUANTIZED_QUANTIZE_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_QUANTIZED_QUANTIZE_BODY_H_

#include <cmath>
#include <cstdint>

#include "ops/kernels/cuda/language/packet.h"
#include "ops/kernels/cuda/quantized/code_format.h"
#include "ops/kernels/cuda/quantized/range_body.h"
#include "ops/kernels/cuda/quantized/scale_map.h"

namespace weft::cuda {

inline constexpr int kCodesAtOnce = 4;

// y = (x - zero) * scale, in float.
template <typename R, typename Index>
struct DequantizeBody {
  const void* x;
  const void* scales;
  const void* zeros;  // of x's type; null: 0
  R* y;
  int64_t count;
  bool has_packets;  // y's address allows them
  DType scale_dtype;
  ScaleMap<Index> map;
  CodeDecoder reader;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto to = gpu.Global(y);
    for (int64_t first = gpu.index() * kCodesAtOnce; first < count;
         first += gpu.stride() * kCodesAtOnce) {
      const bool is_whole = first + kCodesAtOnce <= count;
      Packet<R, kCodesAtOnce> out;
      Index last = -1;
      float scale = 0;
      float zero = 0;
      WEFT_UNROLL
      for (int v = 0; v < kCodesAtOnce; ++v) {
        if (first + v >= count) break;
        const Index own = map.At(static_cast<Index>(first + v));
        if (own != last) {
          scale = ReadScale(gpu, scales, scale_dtype, own);
          zero = zeros == nullptr ? 0.0f : reader.At(gpu, zeros, own);
          last = own;
        }
        out.values[v] = Narrow<R>((reader.At(gpu, x, first + v) - zero) * scale);
        if (!is_whole || !has_packets) to[first + v] = out.values[v];
      }
      if (is_whole && has_packets) gpu.Store(to, first, out);
    }
  }
};

// x / scale in the precision of a type: both and the quotient are rounded to it.
WEFT_GPU float QuotientIn(DType precision, float x, float scale) {
  if (precision == DType::kFloat16) {
    return Widen(Narrow<Float16>(Widen(Narrow<Float16>(x)) / Widen(Narrow<Float16>(scale))));
  }
  if (precision == DType::kBfloat16) {
    return Widen(Narrow<Bfloat16>(Widen(Narrow<Bfloat16>(x)) / Widen(Narrow<Bfloat16>(scale))));
  }
  return x / scale;
}

// The codes of four neighbours, or of the last `present` ones, as bytes of `to`.
template <class Gpu>
WEFT_GPU void StoreCodes(Gpu& gpu, void* to, int bits, bool has_packets, int64_t first,
                         int64_t present, const uint32_t* codes) {
  if (bits == 16) {
    const auto halves = gpu.Global(static_cast<uint16_t*>(to));
    WEFT_UNROLL
    for (int v = 0; v < kCodesAtOnce; ++v) {
      if (v < present) halves[first + v] = static_cast<uint16_t>(codes[v]);
    }
    return;
  }
  const auto bytes = gpu.Global(static_cast<uint8_t*>(to));
  if (bits == 8 && has_packets && present == kCodesAtOnce) {
    Packet<uint8_t, kCodesAtOnce> packet;
    WEFT_UNROLL
    for (int v = 0; v < kCodesAtOnce; ++v) packet.values[v] = static_cast<uint8_t>(codes[v]);
    gpu.Store(bytes, first, packet);
    return;
  }
  uint32_t word = 0;
  WEFT_UNROLL
  for (int v = 0; v < kCodesAtOnce; ++v) {
    const uint32_t mask = (1u << bits) - 1;
    if (v < present) word |= (codes[v] & mask) << (v * bits);
  }
  const int64_t begin = first * bits / 8;
  const int64_t size = (present * bits + 7) / 8;
  for (int64_t b = 0; b < size; ++b) {
    bytes[begin + b] = static_cast<uint8_t>(word >> (8 * b));
  }
}

// y = round(x / scale) + zero as a whole number, or x / scale + zero as a float of few bits.
template <typename Index>
struct QuantizeBody {
  const void* x;
  const void* scales;
  const void* zeros;  // of y's type; null: 0
  void* y;
  int64_t count;
  bool has_packets;  // y's address allows them
  DType scale_dtype;
  DType precision;
  ScaleMap<Index> map;
  CodeDecoder reader;  // of x
  CodeDecoder zero_reader;
  CodeEncoder writer;

  template <class Gpu>
  WEFT_GPU uint32_t CodeOf(Gpu& gpu, int64_t i) const {
    const Index own = map.At(static_cast<Index>(i));
    const float scale = ReadScale(gpu, scales, scale_dtype, own);
    const float zero = zeros == nullptr ? 0.0f : zero_reader.At(gpu, zeros, own);
    const float quotient = QuotientIn(precision, reader.At(gpu, x, i), scale);
    if (writer.is_float) return writer.OfReal(quotient + zero);
    return writer.OfWhole(std::nearbyint(quotient) + zero);
  }

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    for (int64_t first = gpu.index() * kCodesAtOnce; first < count;
         first += gpu.stride() * kCodesAtOnce) {
      const int64_t present = count - first < kCodesAtOnce ? count - first : kCodesAtOnce;
      uint32_t codes[kCodesAtOnce];
      WEFT_UNROLL
      for (int v = 0; v < kCodesAtOnce; ++v) codes[v] = v < present ? CodeOf(gpu, first + v) : 0;
      StoreCodes(gpu, y, writer.bits, has_packets, first, present, codes);
    }
  }
};

// DynamicQuantizeLinear, once the range is known: that of the data and 0 becomes that of uint8.
struct DynamicQuantizeBody {
  const float* x;
  const uint32_t* range;  // ExtremesBody::range
  uint8_t* y;
  float* scale;
  uint8_t* zero;
  int64_t count;
  bool has_packets;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto found = gpu.Global(range);
    // NaN says nothing.
    const float low = -OrZero(MagnitudeOf(found[0]));
    const float high = OrZero(MagnitudeOf(found[1]));
    const float step = (high == low ? 1.0f : high - low) / 255.0f;
    const float ratio = -low / step;  // NaN where the data is infinite
    const float offset = ratio >= 0 ? std::nearbyint(ratio > 255.0f ? 255.0f : ratio) : 0.0f;
    if (gpu.index() == 0) {
      gpu.Global(scale)[0] = step;
      gpu.Global(zero)[0] = static_cast<uint8_t>(offset);
    }
    const auto from = gpu.Global(x);
    for (int64_t first = gpu.index() * kCodesAtOnce; first < count;
         first += gpu.stride() * kCodesAtOnce) {
      const int64_t present = count - first < kCodesAtOnce ? count - first : kCodesAtOnce;
      uint32_t codes[kCodesAtOnce];
      WEFT_UNROLL
      for (int v = 0; v < kCodesAtOnce; ++v) {
        const float value = v < present ? static_cast<float>(from[first + v]) : 0.0f;
        codes[v] = Uint8Code(std::nearbyint(value / step) + offset);
      }
      StoreCodes(gpu, y, 8, has_packets, first, present, codes);
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_QUANTIZED_QUANTIZE_BODY_H_
