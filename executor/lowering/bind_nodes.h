// Pass "bind": from nodes to instructions over buffers. Internal to executor/.
//
// Input   the schedule of a partition.
// Output  a program: kernels prepared, channels open, inputs filled, each value of each scope in a
//         buffer or, where only the run can size it, in a slot. Aliases share their buffer.
// Laws    Every value has a buffer of its own, written by one node; inputs of the end graph that
//         are sums have one each, which nothing writes yet. Leaves of sums and collectives are
//         marked, not lowered (lowered::Leaf, lowered::CollectiveNode). A buffer that is to hold
//         what a slot holds is noted in `loads`. A node is prepared once per graph. A channel is
//         waited for before it is used again, before the end graph and at the end. On a device
//         whose memory the host cannot reach, the fills of a micro-batch come before its other
//         instructions, so that the host takes no part between these (RecordedSegments).
#ifndef WEFT_EXECUTOR_LOWERING_BIND_NODES_H_
#define WEFT_EXECUTOR_LOWERING_BIND_NODES_H_

#include "absl/status/statusor.h"
#include "executor/lowering/executor_environment.h"
#include "executor/lowering/lowering_program.h"
#include "executor/lowering/schedule_nodes.h"
#include "graph/partition.h"

namespace weft {

// Unimplemented for a node without kernel, NotFound for an unknown variable, Internal for a
// schedule that does not fit the graphs; each names the node.
absl::StatusOr<LoweringProgram> BindNodes(const StepSchedule& schedule, const Partition& partition,
                                          const ExecutorEnvironment& environment);

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOWERING_BIND_NODES_H_
