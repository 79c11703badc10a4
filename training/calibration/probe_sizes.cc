#include "training/calibration/probe_sizes.h"

namespace weft {
namespace {

constexpr int kCardPrograms = 5;
constexpr int kFirstRandom = 2;  // sides of 256 and more
constexpr int64_t kFirstSide = 16;
constexpr int64_t kFirstElements = 256;
constexpr int64_t kActivatedOnHost = 65'536;  // that stay in a cache
// Beyond these an activation waits for memory alone: 16 MiB are in the cache of a card.
constexpr int64_t kMaxActivated = 4'194'304;

}  // namespace

ProbeSizes ProbeSizesOfHost() {
  ProbeSizes sizes;
  sizes.products = {{DType::kFloat32, {8, 16, 32, 64, 128, 256, 512, 1024}}};
  sizes.elements = {16, 256, 4096, 32768, 262'144, 1'048'576, 4'194'304};
  sizes.activated = {kActivatedOnHost};
  return sizes;
}

std::vector<ProbeSizes> ProbeSizesOfCard() {
  std::vector<ProbeSizes> programs;
  int64_t side = kFirstSide;
  int64_t elements = kFirstElements;
  for (int i = 0; i < kCardPrograms; ++i) {
    ProbeSizes& sizes = programs.emplace_back();
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBfloat16}) {
      sizes.products.push_back({dtype, {side, 2 * side}});
    }
    sizes.products.push_back({DType::kFloat64, {side / 4, side / 2}});
    sizes.elements = {elements, 4 * elements};
    if (4 * elements <= kMaxActivated) sizes.activated = {4 * elements};
    sizes.has_random_operands = i >= kFirstRandom;
    side *= 4;
    elements *= 16;
  }
  return programs;
}

int64_t ProbeBytes(const ProbeSizes& sizes) {
  int64_t bytes = 0;
  for (const ProbedProducts& products : sizes.products) {
    for (const int64_t side : products.sides) {
      bytes += 2 * DTypeBytes(products.dtype, side * side);  // both operands are one
    }
  }
  for (const int64_t count : sizes.elements) bytes += 4 * DTypeBytes(DType::kFloat32, count);
  for (const int64_t count : sizes.activated) bytes += 2 * DTypeBytes(DType::kFloat32, count);
  return bytes;
}

}  // namespace weft
