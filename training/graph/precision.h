// Mixed precision: which number formats a training step computes in.
#ifndef WEFT_TRAINING_GRAPH_PRECISION_H_
#define WEFT_TRAINING_GRAPH_PRECISION_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/graph.h"

namespace weft {

// What products are computed in. Weights, their gradients and the optimizer's state are float32 in
// all of them.
enum class Precision : uint8_t { kFloat32, kBfloat16, kFloat16 };

// "fp32", "bf16", "fp16".
std::vector<std::string> PrecisionNames();
std::string_view PrecisionName(Precision precision);
// InvalidArgument naming the names; those of the types (float32, bfloat16, float16) are known too.
absl::StatusOr<Precision> ParsePrecision(const std::string& text);

// How an operator takes operands of a lower precision (after the lists of PyTorch's autocast:
// https://pytorch.org/docs/stable/amp.html#autocast-op-reference).
enum class PrecisionUse : uint8_t {
  kLower,    // it is all products: float32 operands are rounded
  kFollow,   // lower where all activations are, weights and constants then follow; else float32
  kFloat32,  // its sums or its range need it: lower operands are widened
};
// Of the operator, by its node's schema. What only moves elements (ElementUse::kMoves, aliases)
// follows; what no list names is computed in float32, custom ops too.
PrecisionUse PrecisionUseOf(const Node& node);

// Lowers the forward nodes of a graph with types, before it is differentiated: the gradient of a
// Cast then brings gradients back to float32, and gradients of lowered nodes are lowered by their
// rules. `lower` is kBfloat16 or kFloat16. Each value is rounded once, however many nodes read it.
// Only float32 values change; what bodies of If, Loop and Scan read stays float32, and so do the
// values of `keep`. With `lowers_attention`, Attention of query, key and value alone is lowered
// too; its softmax stays float32. InvalidArgument when no node computes products in float32.
absl::Status LowerPrecision(Graph& graph, DType lower, const std::vector<ValueId>& keep,
                            bool lowers_attention = false);

}  // namespace weft

#endif  // WEFT_TRAINING_GRAPH_PRECISION_H_
