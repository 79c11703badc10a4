// ConvInteger and QLinearConv.
#include <type_traits>

#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/quantized/byte_product_grid.h"
#include "ops/kernels/cuda/quantized/byte_windows_body.h"

namespace weft::cuda {

int LaunchByteConv(LaunchQueue queue, const ByteProduct& product, const ByteWindows& windows,
                   const ByteOutput& output) {
  return LaunchByOutput(product, output, [&](const auto& to) {
    using Output = std::decay_t<decltype(to)>;
    return Launch<kByteThreads>(queue, ByteProductGrid(product),
                                ByteProductBody<WindowColumns, Output>{
                                    product, HasWords(product.a, product.k), {windows}, to});
  });
}

int LaunchDirectByteConv(LaunchQueue queue, const ByteProduct& product, const ByteWindows& windows,
                         const ByteOutput& output) {
  return LaunchByOutput(product, output, [&](const auto& to) {
    using Output = std::decay_t<decltype(to)>;
    return Launch<kQuantizedThreads>(queue, QuantizedGrid(product.matrices * product.m * product.n),
                                     DirectByteConvBody<Output>{product, windows, to});
  });
}

}  // namespace weft::cuda
