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

class RunningChecksum::State {
 public:
  XXH3_state_t* get() { return state_.get(); }

 private:
  // Aligned as it needs it.
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_{XXH3_createState(),
                                                                        &XXH3_freeState};
};

RunningChecksum::RunningChecksum() : state_(std::make_unique<State>()) { Reset(); }
RunningChecksum::~RunningChecksum() = default;

void RunningChecksum::Add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_->get(), bytes.data(), bytes.size());
}

uint64_t RunningChecksum::Value() const { return XXH3_64bits_digest(state_->get()); }

void RunningChecksum::Reset() { XXH3_64bits_reset(state_->get()); }

uint64_t MappedChecksum(std::span<const std::byte> bytes) {
  RunningChecksum checksum;
  ForEachMappedWindow(bytes, [&](std::span<const std::byte> part) { checksum.Add(part); });
  return checksum.Value();
}

}  // namespace weft
