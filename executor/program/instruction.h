// Instruction: one entry of a compiled step. A lowered instruction (lowered_instruction.h) and the
// addresses of its buffers. Internal to executor/.
#ifndef WEFT_EXECUTOR_PROGRAM_INSTRUCTION_H_
#define WEFT_EXECUTOR_PROGRAM_INSTRUCTION_H_

#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "executor/lowering/lowered_step.h"
#include "executor/program/host_staging.h"
#include "ops/memory_work.h"

namespace weft {

// One struct for each family, as in `lowered`. `what` lives in the LoweredStep.
namespace bound {

struct KernelRun {
  Kernel* kernel = nullptr;
  KernelContext context;  // points into `inputs` and `outputs`
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
};

struct HostRun {
  const lowered::HostRun* what = nullptr;
  KernelContext context;  // points into `inputs` and `outputs`
  // On the device: of the inputs that are there, then of the outputs that are.
  std::vector<void*> buffers;
  std::vector<void*> device_outputs;  // by output of the node
  // In host memory, by operand of the node.
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
};

struct Fill {
  const lowered::Fill* what = nullptr;
  void* into = nullptr;
  void* ahead = nullptr;
};

struct Send {
  const lowered::Send* what = nullptr;
  const void* from = nullptr;
};

struct WaitSent {
  const lowered::WaitSent* what = nullptr;
};

struct Receive {
  const lowered::Receive* what = nullptr;
  void* into = nullptr;
};

struct Collective {
  const lowered::Collective* what = nullptr;
  std::vector<void*> buffers;
};

struct Add {
  const lowered::Add* what = nullptr;
  SumArguments arguments;
};

struct Copy {
  const lowered::Copy* what = nullptr;
  const void* from = nullptr;
  void* into = nullptr;
};

struct Pack {
  const lowered::Pack* what = nullptr;
  RowsArguments arguments;
};

struct Guard {
  const lowered::Guard* what = nullptr;
  const void* value = nullptr;
};

struct Commit {};

struct Signal {
  const lowered::Signal* what = nullptr;
  bool is_awaited_next = false;  // nothing to compute comes between it and an await
};

struct Await {
  const lowered::Await* what = nullptr;
};

struct ValueRun {
  const lowered::ValueRun* what = nullptr;
  std::vector<const void*> inputs;
};

struct TakeValue {
  const lowered::TakeValue* what = nullptr;
};

struct Load {
  const lowered::Load* what = nullptr;
  void* into = nullptr;
};

}  // namespace bound

struct Instruction {
  std::variant<bound::KernelRun, bound::HostRun, bound::Fill, bound::Send, bound::WaitSent,
               bound::Receive, bound::Collective, bound::Add, bound::Copy, bound::Pack,
               bound::Guard, bound::Commit, bound::Signal, bound::Await, bound::ValueRun,
               bound::TakeValue, bound::Load>
      work;
  int info = -1;
  int micro_batch = -1;
  std::unique_ptr<HostStaging> staging;  // where the host cannot reach what it is to touch

  template <typename Family>
  const Family* As() const {
    return std::get_if<Family>(&work);
  }
  template <typename Family>
  Family* As() {
    return std::get_if<Family>(&work);
  }
};

// As it was lowered, without addresses; borrows it. `total_micro_batches`: of the step, on all
// ranks. Internal for a family of unfinished programs.
absl::StatusOr<Instruction> NewInstruction(const LoweredInstruction& lowered,
                                           int total_micro_batches);

// Each place in the instruction that wants a buffer's address; the workspace of a kernel is a
// place to write. What a collective works on is written.
using ReadVisitor = absl::FunctionRef<void(BufferIndex, const void*&)>;
using WriteVisitor = absl::FunctionRef<void(BufferIndex, void*&)>;
void VisitAddresses(const LoweredInstruction& lowered, Instruction& instruction, ReadVisitor read,
                    WriteVisitor write);

// Where on the device a kernel's outputs lie, by output of its node, null where it is not wanted;
// empty for what runs no kernel. Borrows the instruction.
std::span<void* const> DeviceOutputs(Instruction& instruction);

// Points the context of the run at its copies in host memory, which come as HostOperandsOf has
// them, with the workspace behind.
void PointAtHost(bound::HostRun& run, void* const* operands);

// What the host touches of an instruction; nothing (count 0) of one that works on the device alone,
// and of a Fill, which has the staging of its feed (feed_staging.h).
HostOperands HostOperandsOf(Instruction& instruction);
// The bytes of each, in the same order; of a HostRun also of its workspace, behind them.
std::vector<int64_t> HostOperandBytes(const LoweredInstruction& lowered,
                                      const BufferTable& buffers);

}  // namespace weft

#endif  // WEFT_EXECUTOR_PROGRAM_INSTRUCTION_H_
