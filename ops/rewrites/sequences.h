// Sequences whose elements are known before a graph runs become plain tensors.
#ifndef WEFT_OPS_REWRITES_SEQUENCES_H_
#define WEFT_OPS_REWRITES_SEQUENCES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "graph/graph.h"

namespace weft {

// Exporters without an optimizer write chunk and split as SplitToSequence and SequenceAt, stack and
// cat as SequenceConstruct and ConcatFromSequence. Where pieces and positions are known, SequenceAt
// becomes the piece itself (an output of Split), SequenceLength a number, ConcatFromSequence a
// Concat; sequences that nobody reads any more go. Also through SequenceInsert, SequenceErase and
// Identity. What is not known stays as it is. Returns how many nodes that read a sequence became
// plain; after any, shapes that were open may be known. Types must have been inferred. Fails with
// the error of a shape function where what it builds does not fit.
// `work` counts what was done, over all calls for a graph; sequences beyond kMaxSequenceWork stay.
absl::StatusOr<int> ResolveSequences(Graph& graph, int64_t& work);

// An element that is remembered counts 1, one that gets a node 16: a small file can name the same
// pieces many times.
inline constexpr int64_t kMaxSequenceWork = int64_t{1} << 20;

}  // namespace weft

#endif  // WEFT_OPS_REWRITES_SEQUENCES_H_
