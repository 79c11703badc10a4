// Grids and outputs of products of bytes, for the .cu files of this folder.
#ifndef WEFT_OPS_KERNELS_CUDA_QUANTIZED_BYTE_PRODUCT_GRID_H_
#define WEFT_OPS_KERNELS_CUDA_QUANTIZED_BYTE_PRODUCT_GRID_H_

#include <cstdint>

#include "ops/kernels/cuda/language/launch_grid.h"
#include "ops/kernels/cuda/quantized/byte_calls.h"
#include "ops/kernels/cuda/quantized/byte_output_body.h"
#include "ops/kernels/cuda/quantized/byte_product_body.h"
#include "ops/kernels/cuda/quantized/quantized_grid.h"

namespace weft::cuda {

// A block for each tile of Y.
inline LaunchGrid ByteProductGrid(const ByteProduct& product) {
  const int64_t across = (product.n + kByteTile - 1) / kByteTile;
  const int64_t down = (product.m + kByteTile - 1) / kByteTile;
  return {.blocks = Blocks(product.matrices * across * down, 1), .threads = kByteThreads};
}

// Rows of `length` bytes, one after another from `data` on, begin at multiples of a word.
inline bool HasWords(const void* data, int64_t length) {
  return length % 4 == 0 && AllowsPackets(data, 4);
}

// launch(output) for the output that is asked for.
template <typename Fn>
int LaunchByOutput(const ByteProduct& product, const ByteOutput& output, Fn launch) {
  const bool rows_fit = product.n % kOutputsAtOnce == 0;
  if (output.is_codes) {
    return launch(CodesOutput{.y = static_cast<uint8_t*>(output.y),
                              .m = product.m,
                              .n = product.n,
                              .has_packets = rows_fit && AllowsPackets(output.y, kOutputsAtOnce),
                              .codes = output.codes});
  }
  return launch(SumsOutput{
      .y = static_cast<int32_t*>(output.y),
      .m = product.m,
      .n = product.n,
      .has_packets = rows_fit && AllowsPackets(output.y, kOutputsAtOnce * sizeof(int32_t))});
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_QUANTIZED_BYTE_PRODUCT_GRID_H_
