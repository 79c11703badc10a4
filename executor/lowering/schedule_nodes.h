// Pass "schedule": from a Partition to one list of what is to be lowered, in the order of its
// actions. Internal to executor/.
//
// Input   a partition.
// Output  its scopes (each graph in each of its runs) and a list of entries: nodes, each in a
//         scope, and where sums of constants, the guard, updates and reports come.
// Laws    Every node of a scope comes once. The order is that of ActionNodes and OrderOfEnd, which
//         the simulator uses too. No device is asked and nothing is opened.
#ifndef WEFT_EXECUTOR_LOWERING_SCHEDULE_NODES_H_
#define WEFT_EXECUTOR_LOWERING_SCHEDULE_NODES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/partition.h"

namespace weft {

// One run of a graph: the begin graph, a micro graph for one micro-batch, the end graph.
struct StepScope {
  const Graph* graph = nullptr;
  int micro_batch = -1;              // job-wide index; -1 = once per step
  const MicroBatch* rows = nullptr;  // null = once per step
};

struct ScheduleEntry {
  enum class Kind {
    kNode,
    kBeginOutputs,  // of the begin graph, from now on inputs of others
    kConstantSums,  // the scope's leaves that no node makes
    kEnd,           // the micro-batches are done
    kGuard,
    kUpdates,
    kReports,
    kDone,
  };
  Kind kind = Kind::kNode;
  int scope = 0;
  NodeId node;
};

// Borrows the partition.
struct StepSchedule {
  static constexpr int kBegin = 0;
  static constexpr int kEnd = 1;
  static constexpr int kFirstMicroBatch = 2;  // and the others after it
  std::vector<StepScope> scopes;
  std::vector<ScheduleEntry> entries;
};

// Errors are those of ActionNodes::Create and OrderOfEnd.
absl::StatusOr<StepSchedule> ScheduleNodes(const Partition& partition);

// One line per entry, stable.
std::string Describe(const StepSchedule& schedule);

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOWERING_SCHEDULE_NODES_H_
