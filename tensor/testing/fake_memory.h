#ifndef WEFT_TENSOR_TESTING_FAKE_MEMORY_H_
#define WEFT_TENSOR_TESTING_FAKE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "platform/mutex.h"

namespace weft::testing {

// The memory of a fake device: one mapping apart from the heap, in which mistakes show.
//  - Nobody may touch it but holders of a FakeMemoryAccess; others die of SIGSEGV.
//  - New memory is filled with a pattern that is NaN in every floating type of 16 bits or more and
//  a
//    huge number in every integer type, so that reading it before writing it shows in results.
//  - Freed memory is filled with another such pattern; writing to it is noticed.
//  - Guard bytes before and after each block notice writes out of bounds.
// Thread-safe.
class FakeMemory {
 public:
  // Every 16 bits of new and of freed memory.
  static constexpr uint16_t kFreshPattern = 0x7FF4;
  static constexpr uint16_t kFreedPattern = 0x7FFD;

  // Reserves `capacity` bytes of address space. `owner` names the device in messages. `protect`:
  // keep the pages out of reach while nobody holds an access.
  FakeMemory(std::string owner, size_t capacity, bool protect);
  ~FakeMemory();
  FakeMemory(const FakeMemory&) = delete;
  FakeMemory& operator=(const FakeMemory&) = delete;

  // 64-byte aligned; null when no block is large enough.
  void* Allocate(size_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  // REQUIRES: `data` came from Allocate and was not freed since.
  void Free(void* data) ABSL_LOCKS_EXCLUDED(mutex_);

  // True for any address of this memory, allocated or not.
  bool Contains(const void* address) const;
  // True if [data, data + bytes) lies in one allocation.
  bool IsAllocated(const void* data, size_t bytes) const ABSL_LOCKS_EXCLUDED(mutex_);

  // Looks at all guards and all freed memory; Internal with the first damage found, now or before.
  absl::Status Verify() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend class FakeMemoryAccess;

  struct Allocation {
    size_t bytes;
    size_t block;  // with guards
  };

  void Open() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Close() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Protect(size_t begin, size_t end, bool accessible) const;
  // The offset of a block of `size` bytes that is no longer free, or kNone.
  size_t TakeBlock(size_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReturnBlock(size_t offset, size_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckGuards(size_t offset, const Allocation& allocation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckFreed(size_t offset, size_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Damage(const std::string& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::span<uint8_t> Bytes(size_t offset, size_t size) const { return {base_ + offset, size}; }

  const std::string owner_;
  const size_t capacity_;
  const bool protect_;
  uint8_t* const base_;

  mutable Mutex mutex_;
  int accesses_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t used_end_ ABSL_GUARDED_BY(mutex_) = 0;  // Beyond it nothing was ever allocated.
  std::map<size_t, Allocation> allocations_ ABSL_GUARDED_BY(mutex_);  // By offset of the block.
  std::map<size_t, size_t> free_blocks_ ABSL_GUARDED_BY(mutex_);      // Offset to size.
  absl::Status damage_ ABSL_GUARDED_BY(mutex_);
};

// While one of these lives, every thread may touch the memory: what runs on the device holds one.
class FakeMemoryAccess {
 public:
  explicit FakeMemoryAccess(FakeMemory& memory);
  ~FakeMemoryAccess();
  FakeMemoryAccess(const FakeMemoryAccess&) = delete;
  FakeMemoryAccess& operator=(const FakeMemoryAccess&) = delete;

 private:
  FakeMemory& memory_;
};

}  // namespace weft::testing

#endif  // WEFT_TENSOR_TESTING_FAKE_MEMORY_H_
