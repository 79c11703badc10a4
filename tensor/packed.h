// Elements of less than a byte, as ONNX packs them: one stream of bits, low bits first. Elements of
// 2 and 4 bits never cross a byte; those of 6 bits do: four of them fill three bytes.
#ifndef WEFT_TENSOR_PACKED_H_
#define WEFT_TENSOR_PACKED_H_

#include <cstdint>

namespace weft {

// The code of element `i` of elements of `bits` (1 to 8). Reads no byte that the element is not in.
inline uint32_t PackedElement(const void* data, int bits, int64_t i) {
  const int64_t position = i * bits;
  const int shift = static_cast<int>(position % 8);
  const uint8_t* const bytes = static_cast<const uint8_t*>(data) + position / 8;
  uint32_t value = bytes[0];
  if (shift + bits > 8) value |= static_cast<uint32_t>(bytes[1]) << 8;
  return (value >> shift) & ((1u << bits) - 1);
}

// Sets element `i` to the low bits of `code` and leaves its neighbours alone, which may lie in the
// same byte: threads must not share bytes.
inline void SetPackedElement(void* data, int bits, int64_t i, uint32_t code) {
  const int64_t position = i * bits;
  const int shift = static_cast<int>(position % 8);
  uint8_t* const bytes = static_cast<uint8_t*>(data) + position / 8;
  const uint32_t mask = ((1u << bits) - 1) << shift;
  const uint32_t value = (code << shift) & mask;
  bytes[0] = static_cast<uint8_t>((bytes[0] & ~mask) | value);
  if (shift + bits > 8) {
    bytes[1] = static_cast<uint8_t>((bytes[1] & ~(mask >> 8)) | (value >> 8));
  }
}

}  // namespace weft

#endif  // WEFT_TENSOR_PACKED_H_
