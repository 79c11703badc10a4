// Sequences whose elements are known before a graph runs become plain tensors.
#ifndef WEFT_OPS_REWRITES_SEQUENCES_H_
#define WEFT_OPS_REWRITES_SEQUENCES_H_

#include "absl/status/statusor.h"
#include "graph/graph.h"

namespace weft {

// Exporters without an optimizer write chunk and split as SplitToSequence and SequenceAt, stack and
// cat as SequenceConstruct and ConcatFromSequence. Where pieces and positions are known, SequenceAt
// becomes the piece itself (an output of Split), SequenceLength a number, ConcatFromSequence a
// Concat; sequences that nobody reads any more go. Also through SequenceInsert, SequenceErase and
// Identity. What is not known stays as it is. True if anything changed: shapes that were open may
// be known now. Types must have been inferred.
absl::StatusOr<bool> ResolveSequences(Graph& graph);

}  // namespace weft

#endif  // WEFT_OPS_REWRITES_SEQUENCES_H_
