// What a step sums over the data axis and sends along the pipeline, for stages of units: by the
// rules that the partitioner follows (placement/rules). Internal to placement/search/.
#ifndef WEFT_PLACEMENT_SEARCH_STAGE_TRAFFIC_H_
#define WEFT_PLACEMENT_SEARCH_STAGE_TRAFFIC_H_

#include <cstdint>
#include <vector>

#include "graph/plan.h"
#include "placement/rules/sum_groups.h"
#include "placement/search/planning_graph.h"
#include "placement/sharding/data_sharding.h"

namespace weft {

// What ZeRO splits. Empty vectors: nothing.
struct DataSplit {
  std::vector<bool> variables;  // by PlannedVariable::number
  std::vector<bool> sums;       // by PlanningGraph::sums: scattered if it is read at one place only
  DataAxis axis = {};
  bool Has(const PlannedVariable& variable) const {
    return !variables.empty() && variables[variable.number];
  }
};

// `plan` says mesh, zero, reduction and what stays whole. `updates`: FindRowUpdates of the graph.
DataSplit SplitOverData(const PlanningGraph& graph, const Plan& plan, const RowUpdates& updates);

// The stages of a pipeline: the first unit of each, and the number of units.
struct StagesOfUnits {
  const std::vector<int>& begins;
  int places = 1;
};

// The sums of one place's ranks, each as a shard of the tensor axis has it.
struct PlaceSums {
  std::vector<RankSum> sums;  // as `groups` numbers them
  SumGroups groups;
};
// How many collectives of a kind add a place's sums up, and their bytes.
struct CollectiveTotal {
  int64_t collectives = 0;
  int64_t bytes = 0;
};
CollectiveTotal TotalOf(const PlaceSums& sums, bool is_scattered);

// By place.
std::vector<PlaceSums> SumsOfPlaces(const PlanningGraph& graph, const StagesOfUnits& stages,
                                    const DataSplit& split, int64_t bucket_bytes);

// All values that go from one stage to another at the same time. Of several stages of a place that
// read a value, the one that does first gets it.
struct StageMessage {
  int from = 0;
  int to = 0;
  Phase phase = Phase::kForward;  // kForward and kBackward: per micro-batch; kBegin: per step
  int64_t bytes = 0;
};
// In order of phase, sender and receiver. Values that cross stages once per step after the last
// micro-batch are not here: the loss, norms of gradients.
std::vector<StageMessage> MessagesOfStages(const PlanningGraph& graph, const StagesOfUnits& stages);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_STAGE_TRAFFIC_H_
