// MatMulInteger, QLinearMatMul, and convolutions whose windows are one element.
#include <type_traits>

#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/quantized/byte_product_grid.h"

namespace weft::cuda {

int LaunchByteProduct(LaunchQueue queue, const ByteProduct& product, const ByteOutput& output) {
  return LaunchByOutput(product, output, [&](const auto& to) {
    using Output = std::decay_t<decltype(to)>;
    return Launch<kByteThreads>(
        queue, ByteProductGrid(product),
        ByteProductBody<PlainColumns, Output>{
            product, HasWords(product.a, product.k), {HasWords(product.b, product.n)}, to});
  });
}

}  // namespace weft::cuda
