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

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_BLOCKS_WIDE_ELEMENT_H_
