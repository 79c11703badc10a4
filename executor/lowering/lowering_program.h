// LoweringProgram: what the passes of the lowering hand on to each other. Internal to executor/.
#ifndef WEFT_EXECUTOR_LOWERING_LOWERING_PROGRAM_H_
#define WEFT_EXECUTOR_LOWERING_LOWERING_PROGRAM_H_

#include <map>
#include <string>
#include <vector>

#include "executor/lowering/lowered_step.h"

namespace weft {

// A sum over the micro-batches [first, last), an input of the end graph.
struct StepSum {
  std::string end_input;
  BufferIndex buffer = kNoBuffer;  // where it grows
  DType dtype = DType::kInvalid;
  int64_t elements = 0;
  int first = 0;
  int last = 0;
  bool ordered_tree = false;
};

// The variable gets this value when all else has been done.
struct VariableUpdate {
  BufferIndex value = kNoBuffer;
  BufferIndex variable = kNoBuffer;
};

struct LoweringProgram {
  LoweredStep step;  // as far as it is
  std::vector<StepSum> sums;
  std::vector<VariableUpdate> updates;
  // By buffer: how it gets the value of a slot. The buffer has no writer until LoadValues.
  std::map<BufferIndex, LoweredInstruction> loads;
  // By instruction of the communication list: the sums that must be ready before it.
  std::vector<std::vector<int>> sums_of_communication;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOWERING_LOWERING_PROGRAM_H_
