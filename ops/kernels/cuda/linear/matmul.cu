#include <cstdint>
#include <limits>

#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/linear/matmul_body.h"
#include "ops/kernels/cuda/linear/matmul_launch.h"

namespace weft::cuda {
namespace {

constexpr int kSpreadThreads = 256;
// Enough blocks for every multiprocessor; each walks over the rest.
constexpr int64_t kSpreadBlocks = 4096;

template <typename T>
int LaunchSpread(LaunchQueue queue, const SpreadAddend& spread) {
  const int64_t count = spread.rows * spread.columns;
  const LaunchGrid grid = {Blocks(count, kSpreadThreads, kSpreadBlocks), kSpreadThreads};
  // The index does not wrap around when a thread takes its last step.
  if (count <= std::numeric_limits<int32_t>::max()) {
    return Launch<kSpreadThreads>(queue, grid, SpreadAddendBody<T, uint32_t>{spread});
  }
  return Launch<kSpreadThreads>(queue, grid, SpreadAddendBody<T, int64_t>{spread});
}

template <typename T>
int LaunchWhole(LaunchQueue queue, const WholeProduct& product) {
  using Body = WholeProductBody<T>;
  constexpr int kThreads = Body::kSide * Body::kSide;
  const int64_t across = (product.n + Body::kSide - 1) / Body::kSide;
  const int64_t down = (product.m + Body::kSide - 1) / Body::kSide;
  const int64_t squares = product.batches * across * down;
  const LaunchGrid grid = {Blocks(squares, 1), kThreads};
  return Launch<kThreads>(queue, grid, Body{product});
}

}  // namespace

int LaunchSpreadAddend(LaunchQueue queue, DType dtype, const SpreadAddend& spread) {
  if (dtype == DType::kFloat64) return LaunchSpread<double>(queue, spread);
  if (dtype == DType::kFloat16) return LaunchSpread<Float16>(queue, spread);
  if (dtype == DType::kBfloat16) return LaunchSpread<Bfloat16>(queue, spread);
  return LaunchSpread<float>(queue, spread);
}

int LaunchWholeProduct(LaunchQueue queue, DType dtype, const WholeProduct& product) {
  if (dtype == DType::kInt32) return LaunchWhole<int32_t>(queue, product);
  if (dtype == DType::kUint32) return LaunchWhole<uint32_t>(queue, product);
  if (dtype == DType::kUint64) return LaunchWhole<uint64_t>(queue, product);
  // alpha and beta are those of wider types: here the sign does not matter.
  if (dtype == DType::kInt8 || dtype == DType::kUint8) return LaunchWhole<uint8_t>(queue, product);
  if (dtype == DType::kInt16 || dtype == DType::kUint16) {
    return LaunchWhole<uint16_t>(queue, product);
  }
  return LaunchWhole<int64_t>(queue, product);
}

}  // namespace weft::cuda
