#include "platform/checksum.h"

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "platform/mapped_pages.h"

namespace weft {

uint64_t Checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

uint64_t MappedChecksum(std::span<const std::byte> bytes) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  ForEachMappedWindow(bytes, [&](std::span<const std::byte> part) {
    XXH3_64bits_update(state.get(), part.data(), part.size());
  });
  return XXH3_64bits_digest(state.get());
}

}  // namespace weft
