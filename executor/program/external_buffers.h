// ExternalBuffers: buffers of a program that borrow memory outside its arena for a run. Internal to
// executor/.
#ifndef WEFT_EXECUTOR_PROGRAM_EXTERNAL_BUFFERS_H_
#define WEFT_EXECUTOR_PROGRAM_EXTERNAL_BUFFERS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "executor/lowering/lowered_step.h"
#include "executor/program/instruction.h"

namespace weft {

// Saves the copies at both ends of a step: an input is read where its source has it, a report is
// made where the caller gets it. Used by the program's compute thread only.
class ExternalBuffers {
 public:
  // Borrows the step. None of its buffers can be moved yet.
  explicit ExternalBuffers(const LoweredStep& step) : step_(step) {}
  // Those of the instructions can, which stay where they are; their addresses are set later.
  void Find(std::vector<Instruction>& compute, std::vector<Instruction>& communication);

  // All instructions are back at their own addresses in this arena.
  void Reset(void* arena);
  // The bytes that must lie at an address for `buffer` to be moved there; 0 = it cannot be moved.
  // An input can if only its one Fill writes to it, a report if it is in the arena.
  int64_t BytesOfInput(BufferIndex buffer) const;
  int64_t BytesOfReport(BufferIndex buffer) const;
  // From now on all instructions find the buffer there; null = in the arena again.
  void Move(BufferIndex buffer, void* address);
  void* AddressOf(BufferIndex buffer) const;

 private:
  struct Places {
    std::vector<const void**> readers;
    std::vector<void**> writers;
    int fills = 0;
    int other_writers = 0;
    bool is_report = false;
    void* moved_to = nullptr;
  };
  void AddPlaces(const LoweredInstruction& lowered, Instruction& instruction);
  const Places* PlacesOf(BufferIndex buffer) const;

  const LoweredStep& step_;
  void* arena_ = nullptr;
  std::map<BufferIndex, Places> places_;  // of arena buffers that are filled or reported, by root
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_PROGRAM_EXTERNAL_BUFFERS_H_
