// A step as two flat lists of instructions over buffers, without addresses. Pure data but for
// prepared kernels. Internal to executor/.
#ifndef WEFT_EXECUTOR_LOWERING_LOWERED_STEP_H_
#define WEFT_EXECUTOR_LOWERING_LOWERED_STEP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/interfaces/input_source.h"
#include "executor/lowering/buffer_table.h"
#include "executor/lowering/lowered_instruction.h"
#include "graph/graph.h"
#include "ops/kernel.h"
#include "ops/value_node.h"
#include "tensor/tensor.h"
#include "tensor/value.h"

namespace weft {

// Inputs and reports of so many bytes may lie outside the arena (external_buffers.h); below, a copy
// costs less than finding out whether it is needed.
inline constexpr int64_t kMinMovedBytes = 4096;

// What messages and statistics say about an instruction.
struct InstructionInfo {
  std::string node;
  std::string op;
  std::string shapes;  // "float32[2,3], ... -> float32[2,4]"
  Phase phase = Phase::kForward;
  std::vector<DType> output_dtypes;      // for check_numerics
  std::vector<int64_t> output_elements;  // likewise
  int group = -1;  // the info of the group that the node runs in (group_kernels.h); -1: in none
  // Of a group: where the outputs of each of its nodes begin.
  struct Member {
    std::string node;
    size_t first_output = 0;
  };
  std::vector<Member> members;
};

struct LoweredReport {
  std::string name;
  BufferIndex buffer = kNoBuffer;
  DType dtype = DType::kInvalid;
  Shape shape;
  SlotIndex slot = kNoSlot;  // where it is when it has no buffer
};

struct StepScalar {
  std::string name;
  DType dtype = DType::kInvalid;
  Tensor device_value;
};

struct LoweredStep {
  BufferTable buffers;
  std::vector<LoweredInstruction> compute;
  std::vector<LoweredInstruction> communication;  // run by the communication thread, in order
  std::vector<InstructionInfo> infos;
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::vector<Tensor> constants;  // keeps device copies alive
  std::vector<Value> slots;       // as a step begins: constants, else an invalid tensor
  std::vector<std::unique_ptr<ValueNode>> value_nodes;
  std::vector<std::unique_ptr<Node>> nodes;  // that the value nodes are of
  std::vector<StepScalar> scalars;
  std::vector<FeedInput> feeds;
  std::vector<LoweredReport> reports;
  // Fixed buffers that get their addresses when the variables get memory.
  std::vector<std::pair<std::string, BufferIndex>> variables;
  int64_t workspace_bytes = 0;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOWERING_LOWERED_STEP_H_
