// EmbeddingBag as a Loop that collects bags in a sequence, where all bags have one length.
#ifndef WEFT_OPS_REWRITES_EMBEDDING_BAG_SEQUENCE_H_
#define WEFT_OPS_REWRITES_EMBEDDING_BAG_SEQUENCE_H_

#include "graph/graph.h"

namespace weft {

// PyTorch's dynamo exporter writes EmbeddingBag as a Loop without a number of rounds: round i
// reduces the rows from offsets[i] to offsets[i + 1] of the gathered (and weighted) rows, and
// inserts the result into a sequence, which ConcatFromSequence joins. An If has zeros for empty
// bags; means and maxima have another If, for the last bag. Where the offsets are known and equally
// spaced, or are 0, L, 2 L, ... up to the number of indices, the whole becomes a Gather of [bags,
// L, size] and a reduction over axis 1. Other Loops stay. Returns how many became so. Types must
// have been inferred.
int RewriteEmbeddingBagSequences(Graph& graph);

}  // namespace weft

#endif  // WEFT_OPS_REWRITES_EMBEDDING_BAG_SEQUENCE_H_
