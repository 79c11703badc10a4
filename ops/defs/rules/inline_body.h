// InlineBody: the nodes of a subgraph, added to a graph in place of a node that would run it.
#ifndef WEFT_OPS_DEFS_RULES_INLINE_BODY_H_
#define WEFT_OPS_DEFS_RULES_INLINE_BODY_H_

#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph_builder.h"

namespace weft {

// Copies the body's constants and nodes with `inputs` in the place of its inputs; one value per
// output. InvalidArgument when the counts differ, or where a node does not fit.
absl::StatusOr<std::vector<ValueId>> InlineBody(GraphBuilder& builder, const Graph& body,
                                                const std::vector<ValueId>& inputs);

}  // namespace weft

#endif  // WEFT_OPS_DEFS_RULES_INLINE_BODY_H_
