#include "tensor/special_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tensor/small_float.h"

namespace weft {
namespace {

// The layout of a binary floating type as an unsigned integer of its size.
template <typename Bits>
struct Layout {
  Bits exponent;  // all ones: an infinity or a NaN
  Bits lowest;    // the bits of the lowest finite value
};
constexpr Layout<uint64_t> kDouble = {0x7ff0000000000000, 0xffefffffffffffff};
constexpr Layout<uint32_t> kFloat = {0x7f800000, 0xff7fffff};
constexpr Layout<uint16_t> kHalf = {0x7c00, 0xfbff};
constexpr Layout<uint16_t> kBfloat16 = {0x7f80, 0xff7f};

template <typename Bits>
Bits Load(const std::byte* data, int64_t index) {
  Bits bits;
  std::memcpy(&bits, data + index * sizeof(Bits), sizeof(Bits));
  return bits;
}

template <typename Bits>
bool IsSpecial(Bits bits, const Layout<Bits>& layout, bool lowest) {
  return (bits & layout.exponent) == layout.exponent || (lowest && bits == layout.lowest);
}

constexpr int64_t kBlock = 4096;

// Whether a whole block has one. Without branches and with a count that is known, so that it is
// done with vectors.
template <typename Bits>
bool BlockHasSpecial(const std::byte* data, const Layout<Bits>& layout, bool lowest) {
  // All ones and one more carry into the bit of the sign.
  const Bits one = layout.exponent & static_cast<Bits>(-layout.exponent);
  const Bits sign = static_cast<Bits>(~(static_cast<Bits>(~Bits{0}) >> 1));
  Bits carries = 0;
  for (int64_t i = 0; i < kBlock; ++i) {
    carries |= static_cast<Bits>((Load<Bits>(data, i) & layout.exponent) + one);
  }
  if (!lowest || (carries & sign) != 0) return (carries & sign) != 0;
  Bits any = 0;
  for (int64_t i = 0; i < kBlock; ++i) {
    any |= static_cast<Bits>(Load<Bits>(data, i) == layout.lowest);
  }
  return any != 0;
}

template <typename Bits>
int64_t Find(const Tensor& tensor, const Layout<Bits>& layout, bool lowest) {
  const auto* const data = static_cast<const std::byte*>(tensor.raw_data());
  const int64_t elements = tensor.num_elements();
  for (int64_t first = 0; first < elements; first += kBlock) {
    const int64_t end = std::min(elements, first + kBlock);
    const bool is_whole = end - first == kBlock;
    if (is_whole && !BlockHasSpecial(data + first * sizeof(Bits), layout, lowest)) continue;
    for (int64_t i = first; i < end; ++i) {
      if (IsSpecial(Load<Bits>(data, i), layout, lowest)) return i;
    }
  }
  return -1;
}

int64_t Find(const Tensor& tensor, bool lowest) {
  switch (tensor.dtype()) {
    case DType::kFloat64:
      return Find(tensor, kDouble, lowest);
    case DType::kFloat32:
      return Find(tensor, kFloat, lowest);
    case DType::kFloat16:
      return Find(tensor, kHalf, lowest);
    case DType::kBfloat16:
      return Find(tensor, kBfloat16, lowest);
    default:
      return -1;
  }
}

}  // namespace

int64_t FindNonFinite(const Tensor& tensor) { return Find(tensor, /*lowest=*/false); }

int64_t FindNonFiniteOrLowest(const Tensor& tensor) { return Find(tensor, /*lowest=*/true); }

std::string ElementText(const Tensor& tensor, int64_t index) {
  const absl::StatusOr<std::vector<double>> value =
      ToDoubles(tensor.Reshaped(Shape{tensor.num_elements()}).Rows(index, index + 1));
  if (!value.ok()) return "?";
  return std::isnan(value->front()) ? "nan" : absl::StrCat(value->front());
}

}  // namespace weft
