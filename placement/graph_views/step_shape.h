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

// The shardings of a step's values along the tensor axis, by name: for each size of micro-batch the
// values of its graph, and under 0 those that are made once per step. A sharding is the one that
// the readers of a value see, after conversion.
using StepShardings = std::map<int64_t, std::map<std::string, AxisSharding>>;

}  // namespace weft

#endif  // WEFT_PLACEMENT_GRAPH_VIEWS_STEP_SHAPE_H_
