// LoRA: adapters, the products of two small matrices, train beside frozen weights. E. Hu et al.,
// "LoRA: Low-Rank Adaptation of Large Language Models", 2021, arXiv:2106.09685.
//
// A node y = x W (section 4.1) becomes y = x W + scale (x A) B, where W is [in, out], A is [in, r]
// and B is [r, out]; all of it nodes of the graph, so that it is differentiated, sharded and
// checkpointed as anything else. B begins with zeros, so the outputs begin as the model's own. What
// is exported is the model as it was, with W + scale A B in W's place.
//
//   MatMul, Gemm   W is the constant right operand, with two axes; with transB A is [r, in], B is
//                  [out, r], and W + scale B A is exported
//   Conv           of one group: A [r, in, k...] is a convolution of the same window, B [out, r,
//                  1...] one without a window
//
// A weight that several of these read (tied) has one adapter, which all of them read. One that
// something else reads too (Gather, Transpose) has none: the merged weight would change that too.
#ifndef WEFT_TRAINING_ADAPTERS_LORA_H_
#define WEFT_TRAINING_ADAPTERS_LORA_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "tensor/tensor.h"

namespace weft {

// The options of --lora.
struct LoraSpec {
  // Of the products; a weight with a shorter axis takes that, which loses nothing.
  int64_t rank = 8;
  // The products count alpha / rank times; 0 = once.
  double alpha = 0;
  // Patterns of weights, by any of their names (onnx_import/parameters/variable_names.h), or of the
  // nodes that read them. None: all weights that can have an adapter.
  std::vector<std::string> match = {};
  // Likewise: parameters that train themselves, such as a new head's.
  std::vector<std::string> train = {};

  // Exactly these weights have an adapter, by their own names, with a rank and a scale of its own
  // (those of a file of adapters); rank, alpha and match do not count. Empty: they do.
  struct Given {
    int64_t rank = 0;
    double scale = 1;
  };
  std::map<std::string, Given> given = {};

  double scale() const { return alpha > 0 ? alpha / static_cast<double>(rank) : 1; }
};
// From items KEY=VALUE ("rank=8", "alpha=16", "match=*attn*", "train=head*"; the last two any
// number of times). InvalidArgument showing the item and what is expected.
absl::StatusOr<LoraSpec> ParseLora(const std::vector<std::string>& items);

// Where a weight lies that is kept in few bits (weight_quantization.h): names of variables, and the
// attributes of the DequantizeLinear that reads them.
struct QuantizedBase {
  std::string codes;
  std::string scales;
  int axis = 0;
  int64_t block = 0;
};

// One adapter: the weight and its two factors, by name.
struct LoraAdapter {
  std::string weight;
  std::string a;  // variables: "WEIGHT/lora_A" and "WEIGHT/lora_B"
  std::string b;
  // W is [out, in...]: W + scale B A. Else W is [in, out]: W + scale A B.
  bool is_transposed = false;
  double scale = 1;
  // Unset: the weight is a variable as it was.
  std::optional<QuantizedBase> quantized = std::nullopt;
};

// Adds adapters to those trainable weights of the graph that the spec names, and freezes all
// others: but for adapters and LoraSpec::train, no variable is trainable any more. A is normally
// distributed with variance 1 / in (of a convolution, 1 / what one output reads), as a function of
// seed and name. InvalidArgument for a pattern that fits nothing, with near names, or nothing that
// can have an adapter, with the reason.
absl::StatusOr<std::vector<LoraAdapter>> AddAdapters(Graph& graph, const LoraSpec& spec,
                                                     uint64_t seed);

// Weights of the model from values of a job's variables: adapters are taken out and added to their
// weights, whose own values are the graph's initial ones, or what these dequantize to. Sums are
// made in double and rounded once.
// An adapter that `values` does not have changes nothing.
absl::StatusOr<std::map<std::string, Tensor>> MergeAdapters(
    const Graph& graph, const std::vector<LoraAdapter>& adapters,
    std::map<std::string, Tensor> values);

}  // namespace weft

#endif  // WEFT_TRAINING_ADAPTERS_LORA_H_
