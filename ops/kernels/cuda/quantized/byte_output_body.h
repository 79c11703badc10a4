// What becomes of the sums of a product of bytes: int32 as they are, or codes of another scale.
#ifndef WEFT_OPS_KERNELS_CUDA_QUANTIZED_BYTE_OUTPUT_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_QUANTIZED_BYTE_OUTPUT_BODY_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/packet.h"
#include "ops/kernels/cuda/language/scalar.h"
#include "ops/kernels/cuda/quantized/byte_calls.h"
#include "ops/kernels/cuda/quantized/code_format.h"

namespace weft::cuda {

// Neighbours of a row of Y that a thread writes.
inline constexpr int kOutputsAtOnce = 4;

WEFT_GPU float RoundedTo(DType dtype, float value) {
  if (dtype == DType::kFloat16) return Widen(Narrow<Float16>(value));
  if (dtype == DType::kBfloat16) return Widen(Narrow<Bfloat16>(value));
  return value;
}

// The code of an element of Y. Each step is rounded by itself, as on the CPU.
template <class Gpu>
WEFT_GPU uint32_t RequantizedCode(Gpu& gpu, const Requantization& of, int64_t matrix, int64_t row,
                                  int64_t column, double sum) {
  const float a = ReadScale(gpu, of.a_scales, of.scale_dtype, of.a_place.At(matrix, row));
  const float b = ReadScale(gpu, of.b_scales, of.scale_dtype, of.b_place.At(matrix, column));
  const float y = ReadScale(gpu, of.y_scales, of.scale_dtype, of.y_place.At(matrix, row));
  const float factor = RoundedTo(of.scale_dtype, RoundedTo(of.scale_dtype, a * b) / y);
  const double scaled = RoundedProduct(sum, static_cast<double>(factor));
  const auto zero = static_cast<double>(of.zeros.At(gpu, matrix, row));
  if (of.writer.is_float) return of.writer.OfReal(RoundedSum(scaled, zero));
  // Whole numbers within the range of codes are exact as float, others stay outside of it.
  if (!of.rounds_first) {
    return of.writer.OfWhole(static_cast<float>(std::nearbyint(RoundedSum(scaled, zero))));
  }
  if (scaled != scaled) return 0;
  return of.writer.OfWhole(static_cast<float>(RoundedSum(std::nearbyint(scaled), zero)));
}

// Writes elements `column` to column + count of a row, at most kOutputsAtOnce.
struct SumsOutput {
  int32_t* y;
  int64_t m;
  int64_t n;
  bool has_packets;  // rows begin at multiples of a packet

  template <class Gpu>
  WEFT_GPU void Write(Gpu& gpu, int64_t matrix, int64_t row, int64_t column, int64_t count,
                      const uint32_t (&sums)[kOutputsAtOnce]) const {
    const auto to = gpu.Global(y) + ((matrix * m + row) * n + column);
    Packet<int32_t, kOutputsAtOnce> packet;
    WEFT_UNROLL
    for (int v = 0; v < kOutputsAtOnce; ++v) packet.values[v] = static_cast<int32_t>(sums[v]);
    if (has_packets && count >= kOutputsAtOnce) {
      gpu.Store(to, 0, packet);
      return;
    }
    WEFT_UNROLL
    for (int v = 0; v < kOutputsAtOnce; ++v) {
      if (v < count) to[v] = packet.values[v];
    }
  }
};

struct CodesOutput {
  uint8_t* y;
  int64_t m;
  int64_t n;
  bool has_packets;
  Requantization codes;

  template <class Gpu>
  WEFT_GPU void Write(Gpu& gpu, int64_t matrix, int64_t row, int64_t column, int64_t count,
                      const uint32_t (&sums)[kOutputsAtOnce]) const {
    const auto to = gpu.Global(y) + ((matrix * m + row) * n + column);
    double bias = 0;
    if (codes.bias != nullptr) {
      const int32_t own = gpu.Global(codes.bias)[codes.bias_place.At(matrix, row)];
      bias = static_cast<double>(own);
    }
    // One after the other, for the code is long: the sum of the next moves up.
    uint32_t left[kOutputsAtOnce] = {sums[0], sums[1], sums[2], sums[3]};
    uint32_t word = 0;
    for (int v = 0; v < kOutputsAtOnce && v < count; ++v) {
      const double sum = static_cast<double>(static_cast<int32_t>(left[0])) + bias;
      const uint32_t code = RequantizedCode(gpu, codes, matrix, row, column + v, sum) & 0xffu;
      word |= code << (8 * v);
      WEFT_UNROLL
      for (int next = 1; next < kOutputsAtOnce; ++next) left[next - 1] = left[next];
    }
    Packet<uint8_t, kOutputsAtOnce> packet;
    memcpy(packet.values, &word, sizeof(word));
    if (has_packets && count >= kOutputsAtOnce) {
      gpu.Store(to, 0, packet);
      return;
    }
    WEFT_UNROLL
    for (int v = 0; v < kOutputsAtOnce; ++v) {
      if (v < count) to[v] = packet.values[v];
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_QUANTIZED_BYTE_OUTPUT_BODY_H_
