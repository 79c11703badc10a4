// QLinearMatMul of floats of 8 bits.
#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/quantized/byte_calls.h"
#include "ops/kernels/cuda/quantized/float8_product_body.h"
#include "ops/kernels/cuda/quantized/quantized_grid.h"

namespace weft::cuda {

int LaunchFloat8Product(LaunchQueue queue, const ByteProduct& product, const Requantization& codes,
                        void* y) {
  return Launch<kQuantizedThreads>(queue, QuantizedGrid(product.matrices * product.m * product.n),
                                   Float8ProductBody{product, codes, static_cast<uint8_t*>(y)});
}

}  // namespace weft::cuda
