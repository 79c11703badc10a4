// EmbeddingBag as a Loop over bags, where all bags have one length.
#ifndef WEFT_OPS_REWRITES_EMBEDDING_BAG_H_
#define WEFT_OPS_REWRITES_EMBEDDING_BAG_H_

#include "graph/graph.h"

namespace weft {

// PyTorch's TorchScript exporter writes EmbeddingBag as a Loop whose round i takes the indices from
// offsets[i] to offsets[i + 1], gathers their rows, and reduces them (sum, mean or largest). How
// many there are depends on data, so that it runs but does not train. Where the offsets are known
// and equally spaced, or are 0, L, 2 L, ... of indices [batch, L], the Loop becomes a Gather of
// [bags, L, size] and a reduction over axis 1. Other Loops stay. Returns how many became so. Types
// must have been inferred.
int RewriteEmbeddingBags(Graph& graph);

}  // namespace weft

#endif  // WEFT_OPS_REWRITES_EMBEDDING_BAG_H_
