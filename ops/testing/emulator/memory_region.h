// A piece of memory of an emulated GPU, and who touched its bytes last.
#ifndef WEFT_OPS_TESTING_EMULATOR_MEMORY_REGION_H_
#define WEFT_OPS_TESTING_EMULATOR_MEMORY_REGION_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace weft::testing {

// Accesses are known by numbers: what a thread of a launch does between two meetings with others
// has one, and so has each copy (GridRun, EmulatedDevice).
inline constexpr uint32_t kNeverWritten = 0;
inline constexpr uint32_t kWrittenByHost = 1;
inline constexpr uint32_t kFirstAccess = 2;

// The last accesses of a byte.
struct ByteShadow {
  uint32_t write = kNeverWritten;
  uint32_t read = 0;  // since that write; several at once have a number of their own
};

// An allocation of the device, or shared memory of a block.
struct MemoryRegion {
  // Pages of the shadow are real only once they are touched.
  MemoryRegion(std::string name, void* data, size_t bytes)
      : name(std::move(name)),
        data(static_cast<uint8_t*>(data)),
        bytes(bytes),
        shadow(static_cast<ByteShadow*>(std::calloc(bytes + 1, sizeof(ByteShadow)))) {}
  ~MemoryRegion() { std::free(shadow); }
  MemoryRegion(const MemoryRegion&) = delete;
  MemoryRegion& operator=(const MemoryRegion&) = delete;

  std::string name;  // "allocation 3"
  uint8_t* const data;
  const size_t bytes;
  ByteShadow* const shadow;  // one for each byte
  bool is_shared = false;
  bool is_freed = false;
  bool is_read_only = false;
};

// The allocations of a device. Not thread-safe.
class EmulatedMemory {
 public:
  void Add(void* data, size_t bytes);
  void Remove(void* data);
  // The allocation that the address lies in, or just at the end of: one that was freed if there is
  // no other. Null where there never was one.
  std::shared_ptr<MemoryRegion> Find(const void* address) const;
  // Forgets who touched what; what was written stays so.
  void ForgetAccesses();

 private:
  using Regions = std::map<uintptr_t, std::shared_ptr<MemoryRegion>>;  // by their begin

  Regions regions_;
  Regions freed_;
  int64_t allocations_ = 0;
};

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_EMULATOR_MEMORY_REGION_H_
