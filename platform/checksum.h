// Checksums of bytes: XXH3-64.
#ifndef WEFT_PLATFORM_CHECKSUM_H_
#define WEFT_PLATFORM_CHECKSUM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace weft {

// XXH3-64 with seed 0 (Yann Collet, https://xxhash.com): finds damage, proves nothing against an
// attacker. The same value on every machine; some 10 GB/s.
uint64_t Checksum(std::span<const std::byte> bytes);

// The same of bytes that come in parts, one after the other. One thread.
class RunningChecksum {
 public:
  RunningChecksum();
  ~RunningChecksum();
  RunningChecksum(const RunningChecksum&) = delete;
  RunningChecksum& operator=(const RunningChecksum&) = delete;

  void Add(std::span<const std::byte> bytes);
  // Of what has been added since the begin, or since Reset.
  uint64_t Value() const;
  void Reset();

 private:
  class State;
  const std::unique_ptr<State> state_;
};

// The same for bytes that may lie in a mapped file: little of it is in memory at a time, and none
// afterwards (platform/mapped_pages.h).
uint64_t MappedChecksum(std::span<const std::byte> bytes);

}  // namespace weft

#endif  // WEFT_PLATFORM_CHECKSUM_H_
