#include "platform/checksum.h"

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft {

uint64_t Checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace weft
