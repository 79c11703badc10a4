// Numbers of files that are stored with their lowest byte first.
#ifndef WEFT_TRAINING_RECORDS_LITTLE_ENDIAN_H_
#define WEFT_TRAINING_RECORDS_LITTLE_ENDIAN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

// REQUIRES: offset + sizeof(Integer) <= bytes.size().
template <typename Integer>
Integer ReadLittleEndian(std::string_view bytes, size_t offset) {
  Integer value = 0;
  for (size_t i = sizeof(Integer); i > 0; --i) {
    value = static_cast<Integer>(static_cast<uint64_t>(value) << 8 |
                                 static_cast<unsigned char>(bytes[offset + i - 1]));
  }
  return value;
}

template <typename Integer>
void AppendLittleEndian(Integer value, std::string& bytes) {
  for (size_t i = 0; i < sizeof(Integer); ++i) {
    bytes.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
  }
}

}  // namespace weft

#endif  // WEFT_TRAINING_RECORDS_LITTLE_ENDIAN_H_
