// The logical training graph of a two-layer linear regression, written by hand: what tests of this
// folder partition.
#ifndef WEFT_PLACEMENT_TESTING_REGRESSION_GRAPH_H_
#define WEFT_PLACEMENT_TESTING_REGRESSION_GRAPH_H_

#include "graph/graph.h"

namespace weft::testing {

// x [N,4], labels [N,2], both float64. h = x w1 with w1 [4,3] (node "fc1/MatMul"), y = h w2 with w2
// [3,2] (node "fc2/MatMul"), "loss" = sum of squared errors / number of elements, plain SGD with
// the step input "learning_rate". The only report is the loss.
Graph RegressionGraph();

}  // namespace weft::testing

#endif  // WEFT_PLACEMENT_TESTING_REGRESSION_GRAPH_H_
