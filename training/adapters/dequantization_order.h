// When weights in few bits become floats: as late as possible, and again in the backward pass, so
// that no step holds more than one or two of them whole.
#ifndef WEFT_TRAINING_ADAPTERS_DEQUANTIZATION_ORDER_H_
#define WEFT_TRAINING_ADAPTERS_DEQUANTIZATION_ORDER_H_

#include "absl/status/status.h"
#include "graph/graph.h"

namespace weft {

// Both look at forward nodes DequantizeLinear whose operands are constants and variables that do
// not train, and at what is computed from these and such values alone (a Cast of --precision).
// Values stay the same to the bit.

// Gives these nodes ids behind those of all others, in the order in which they are read first: a
// graph's order takes the smallest id that is ready, so each then stands just before its reader.
// Nodes that are added later come behind them.
absl::Status ComputeWeightsLate(Graph& graph);

// Gives backward nodes that read such values copies of the nodes in the backward phase, one for
// each forward node that they belong to, whose stage they share. So a value is no longer alive from
// the forward to the backward pass. Costs the time of the copies.
absl::Status ComputeWeightsAgain(Graph& graph);

}  // namespace weft

#endif  // WEFT_TRAINING_ADAPTERS_DEQUANTIZATION_ORDER_H_
