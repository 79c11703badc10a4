// What a program on one device works with.
#ifndef WEFT_EXECUTOR_LOWERING_EXECUTOR_ENVIRONMENT_H_
#define WEFT_EXECUTOR_LOWERING_EXECUTOR_ENVIRONMENT_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <string_view>

#include "executor/interfaces/communicator.h"
#include "executor/interfaces/device_collectives.h"
#include "executor/interfaces/input_source.h"
#include "executor/interfaces/step_commit.h"
#include "executor/interfaces/update_guard.h"
#include "executor/memory/arena.h"
#include "executor/variables/variable_store.h"
#include "ops/kernel.h"
#include "platform/clock.h"
#include "tensor/device.h"

namespace weft {

class BodyRunner;

// Called after each pass of the lowering with its name (LoweringPassNames) and the program as text,
// one line per instruction, stable.
using LoweringObserver = std::function<void(std::string_view pass, std::string_view text)>;

// Of a micro-batch's inputs. Fewer are with a device as fast when they are copied in their turn:
// PCI Express moves them in some 3 us, and a copy of its own stream has to be waited for.
inline constexpr int64_t kMinAheadBytes = int64_t{64} << 10;

// Borrowed; all outlive the program.
struct ExecutorEnvironment {
  Device* device = nullptr;
  VariableStore* variables = nullptr;
  Communicator* communicator = nullptr;
  InputSource* input = nullptr;  // may be null when the partition has no data inputs
  Clock* clock = nullptr;
  const KernelRegistry* kernels = nullptr;  // null = KernelRegistry::Global()
  Arena* arena = nullptr;                   // null = the program has one of its own
  // Runs bodies of If, Loop and the like; null = the program makes one.
  BodyRunner* bodies = nullptr;
  // CompileStep is ResourceExhausted, before it lays out an arena, where more is alive at one time.
  int64_t max_arena_bytes = std::numeric_limits<int64_t>::max();
  // Where the device does not run host work, a node without a kernel for it is refused. True: it
  // runs on the host then, with copies on both sides.
  bool runs_nodes_on_host = false;
  // Kernels that can run as one do (group_kernels.h). False: each node by itself, to the same bits.
  bool joins_kernels = true;
  // Inputs of which a micro-batch has so many bytes are copied to a device while it computes what
  // comes before (copy_feeds_ahead.h).
  int64_t min_ahead_bytes = kMinAheadBytes;
  // Told of each pass of the lowering; null = nobody looks, and no text is made.
  const LoweringObserver* observe_lowering = nullptr;
  // Collectives that need not go through the host; null = all do.
  DeviceCollectives* device_collectives = nullptr;
  // Asked before a training step changes variables; null = nobody is (StepProgram::state).
  StepCommit* commit = nullptr;
  // Called before a step updates variables, where the host reaches the device's memory; null =
  // nobody is.
  UpdateGuard* update_guard = nullptr;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOWERING_EXECUTOR_ENVIRONMENT_H_
