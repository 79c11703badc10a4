// Pass "collectives": from collective nodes to copies and runs of opened collectives. Internal to
// executor/.
//
// Input   a program with lowered::CollectiveNode instructions.
// Output  one without: operands are laid side by side, reduced in place, and copied back.
//         All-reduces that sum nothing but sums over micro-batches are in the communication list,
//         and the sums grow in their regions.
// Laws    Collectives are opened by the names of their nodes: first those of the communication
//         list, then the others as they come; members may have them in different lists. The tensors
//         of an all-reduce lie in one group of the buffer table, block by block. Scratch memory of
//         the communication list is shared: it runs one collective at a time.
#ifndef WEFT_EXECUTOR_LOWERING_EXPAND_COLLECTIVES_H_
#define WEFT_EXECUTOR_LOWERING_EXPAND_COLLECTIVES_H_

#include "absl/status/statusor.h"
#include "executor/lowering/executor_environment.h"
#include "executor/lowering/lowering_program.h"
#include "graph/partition.h"

namespace weft {

// `partition` is the one that the program was bound for. Errors name the node.
absl::StatusOr<LoweringProgram> ExpandCollectives(LoweringProgram program,
                                                  const Partition& partition,
                                                  const ExecutorEnvironment& environment);

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOWERING_EXPAND_COLLECTIVES_H_
