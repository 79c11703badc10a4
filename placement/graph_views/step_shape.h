// What kind of step is partitioned, and how its values lie.
#ifndef WEFT_PLACEMENT_GRAPH_VIEWS_STEP_SHAPE_H_
#define WEFT_PLACEMENT_GRAPH_VIEWS_STEP_SHAPE_H_

#include <cstdint>
#include <map>
#include <string>

#include "graph/sharding.h"

namespace weft {

// What kind of step the partitions are for.
struct StepShape {
  bool training = true;      // false: forward nodes and reports only
  int64_t global_batch = 0;  // samples in the step
};

// How the values of a step lie along the tensor axis, by name: for each micro-batch size its
// graph's values, and under 0 what is made once per step. Values are found as their users find
// them.
using StepShardings = std::map<int64_t, std::map<std::string, AxisSharding>>;

}  // namespace weft

#endif  // WEFT_PLACEMENT_GRAPH_VIEWS_STEP_SHAPE_H_
