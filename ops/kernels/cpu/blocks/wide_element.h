// Elements as bytes without meaning, for kernels that only move them.
#ifndef WEFT_OPS_KERNELS_CPU_BLOCKS_WIDE_ELEMENT_H_
#define WEFT_OPS_KERNELS_CPU_BLOCKS_WIDE_ELEMENT_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "ops/kernel.h"
#include "tensor/dtype.h"

namespace weft::cpu {

// 16 bytes: complex128.
struct Bytes16 {
  uint64_t low;
  uint64_t high;
};

// Returns prepare(T{}) for an unsigned type T as wide as an element of `dtype`. Unimplemented for
// strings and for packed elements, which are smaller than a byte.
template <typename Fn>
absl::StatusOr<std::unique_ptr<Kernel>> PrepareByWidth(const PrepareContext& context, DType dtype,
                                                       Fn&& prepare) {
  switch (DTypeBits(dtype)) {
    case 8:
      return prepare(uint8_t{});
    case 16:
      return prepare(uint16_t{});
    case 32:
      return prepare(uint32_t{});
    case 64:
      return prepare(uint64_t{});
    case 128:
      return prepare(Bytes16{});
    default:
      return context.Unimplemented(absl::StrCat("no kernel moves elements of ",
                                                std::string(DTypeName(dtype)),
                                                ", which are not whole bytes"));
  }
}

// Element i of packed elements of `bits` (1, 2 or 4), low bits first.
inline uint8_t PackedAt(const void* data, int bits, int64_t i) {
  const int64_t position = i * bits;
  const uint8_t byte = static_cast<const uint8_t*>(data)[position / 8];
  return static_cast<uint8_t>((byte >> (position % 8)) & ((1 << bits) - 1));
}

// Sets element i, leaving its neighbours alone.
inline void SetPackedAt(void* data, int bits, int64_t i, uint8_t value) {
  const int64_t position = i * bits;
  uint8_t& byte = static_cast<uint8_t*>(data)[position / 8];
  const int mask = ((1 << bits) - 1) << (position % 8);
  byte = static_cast<uint8_t>((byte & ~mask) | ((value << (position % 8)) & mask));
}

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_BLOCKS_WIDE_ELEMENT_H_
