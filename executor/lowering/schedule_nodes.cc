#include "executor/lowering/schedule_nodes.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "graph/op_schema.h"
#include "graph/schedule/action_nodes.h"
#include "graph/schedule/end_order.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

using Kind = ScheduleEntry::Kind;

void AddNodes(const std::vector<NodeId>& nodes, int scope, StepSchedule& schedule) {
  for (const NodeId node : nodes) schedule.entries.push_back({Kind::kNode, scope, node});
}

// The guard stands before any update.
absl::Status AddEnd(const Partition& partition, StepSchedule& schedule) {
  WEFT_ASSIGN_OR_RETURN(const EndOrder order, OrderOfEnd(partition));
  const auto add = [&schedule](Kind kind) {
    schedule.entries.push_back({kind, StepSchedule::kEnd, NodeId()});
  };
  const auto guard = order.nodes.begin() + static_cast<std::ptrdiff_t>(order.before_guard);
  add(Kind::kEnd);
  AddNodes({order.nodes.begin(), guard}, StepSchedule::kEnd, schedule);
  if (!partition.guard.empty()) add(Kind::kGuard);
  AddNodes({guard, order.nodes.end()}, StepSchedule::kEnd, schedule);
  add(Kind::kUpdates);
  add(Kind::kReports);
  add(Kind::kDone);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StepSchedule> ScheduleNodes(const Partition& partition) {
  StepSchedule schedule;
  schedule.scopes = {{&partition.begin, -1, nullptr}, {&partition.end, -1, nullptr}};
  for (const MicroBatch& rows : partition.micro_batches) {
    schedule.scopes.push_back({&partition.micro[rows.graph], rows.index, &rows});
  }
  WEFT_ASSIGN_OR_RETURN(const ActionNodes nodes, ActionNodes::Create(partition));
  for (const Action& action : partition.actions) {
    const int scope = StepSchedule::kFirstMicroBatch + action.micro_batch;
    switch (action.kind) {
      case Action::Kind::kBegin: {
        WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, partition.begin.TopologicalOrder());
        AddNodes(order, StepSchedule::kBegin, schedule);
        schedule.entries.push_back({Kind::kBeginOutputs, StepSchedule::kBegin, NodeId()});
        break;
      }
      case Action::Kind::kForward:
      case Action::Kind::kBackward:
      case Action::Kind::kWeightGradient:
        AddNodes(nodes.Of(action), scope, schedule);
        if (action.kind == Action::Kind::kForward && action.chunk == 0) {
          schedule.entries.push_back({Kind::kConstantSums, scope, NodeId()});
        }
        break;
      case Action::Kind::kUpdate:
        WEFT_RETURN_IF_ERROR(AddEnd(partition, schedule));
        break;
    }
  }
  return schedule;
}

std::string Describe(const StepSchedule& schedule) {
  std::string text = "schedule:\n";
  for (const ScheduleEntry& entry : schedule.entries) {
    const StepScope& scope = schedule.scopes[entry.scope];
    if (entry.kind == Kind::kNode) {
      const Node& node = scope.graph->node(entry.node);
      absl::StrAppend(&text, "  node ", node.name, " (",
                      node.schema != nullptr ? node.schema->FullName() : node.op, ")");
    } else {
      constexpr const char* kWords[] = {"node",  "begin_outputs", "constant_sums", "end",
                                        "guard", "updates",       "reports",       "done"};
      absl::StrAppend(&text, "  ", kWords[static_cast<int>(entry.kind)]);
    }
    if (scope.micro_batch >= 0) absl::StrAppend(&text, " mb", scope.micro_batch);
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace weft
