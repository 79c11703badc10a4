// Arena: the memory that the programs of one rank use in turn.
#ifndef WEFT_EXECUTOR_MEMORY_ARENA_H_
#define WEFT_EXECUTOR_MEMORY_ARENA_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "tensor/buffer.h"
#include "tensor/device.h"

namespace weft {

// What a step makes, it makes anew in the next: nothing in the arena has to outlive a step. So
// programs of which one runs at a time share one arena, as large as the largest needs. Programs
// reserve when they are compiled; the memory comes when one is about to run. Not synchronized.
class Arena {
 public:
  explicit Arena(Device& device) : device_(device) {}

  // A program will want this many bytes.
  void Reserve(int64_t bytes);
  // At least what was reserved, 64-byte aligned; null when that is nothing. Allocates, and touches
  // all of it where the host can, when there is less: pointers into what was there are void then.
  absl::StatusOr<void*> Memory();

  // The memory, for who has to keep it where it is; null: there is none.
  std::shared_ptr<const Buffer> buffer() const { return memory_; }
  // Gives the memory back between two steps; the next program that is about to run gets it anew.
  void Release() {
    memory_.reset();
    ++uses_;
  }

  // A step of a program begins. Numbers grow. A program that gets the number after its own last one
  // finds what it left: nobody has written to the arena since, and it has not moved.
  int64_t BeginUse() { return ++uses_; }

  int64_t reserved_bytes() const { return reserved_bytes_; }
  int64_t allocated_bytes() const;

 private:
  Device& device_;
  int64_t reserved_bytes_ = 0;
  std::shared_ptr<Buffer> memory_;
  int64_t uses_ = 0;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_MEMORY_ARENA_H_
