// A transformer for tests of this folder, to be looked at, not run.
#ifndef WEFT_PLACEMENT_TESTING_TRANSFORMER_GRAPH_H_
#define WEFT_PLACEMENT_TESTING_TRANSFORMER_GRAPH_H_

#include "graph/graph.h"

namespace weft::testing {

// Blocks of attention and feed-forward layers for 8 samples of 128 tokens of 8192 numbers, with the
// three projections of attention in one product, and a last norm. Forward nodes only; variables
// "block<i>.qkv.weight" and so on have no values.
Graph TransformerGraph(int blocks);

}  // namespace weft::testing

#endif  // WEFT_PLACEMENT_TESTING_TRANSFORMER_GRAPH_H_
