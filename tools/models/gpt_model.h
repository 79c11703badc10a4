// Graphs of transformers in the form of GPT: for benchmarks, and for `graph_runner example`.
#ifndef WEFT_TOOLS_MODELS_GPT_MODEL_H_
#define WEFT_TOOLS_MODELS_GPT_MODEL_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "tensor/tensor.h"

namespace weft {

struct GptBlocks {
  int blocks = 1;
  int64_t width = 1024;
  int64_t heads = 16;
  int64_t tokens = 128;  // of a sample
  // Without values, which nothing but a run needs, a graph of any size fits.
  bool with_values = true;
};

// The input x: float32[N, tokens, width] through pre-norm blocks of causal attention and a
// feed-forward layer of 4 width with tanh, then the mean over tokens and ten logits. The nodes of
// block i are "block<i>/...", its weights "block<i>.qkv.weight" and so on.
absl::StatusOr<Graph> GptModel(const GptBlocks& shape);
// What makes a language model of the blocks.
struct GptText {
  int64_t vocabulary = 51200;
  // Everything from the parameters to the scores is computed in this, normalizations and softmax
  // too; the parameters themselves are float32.
  DType compute = DType::kFloat32;
  float dropout = 0;  // of the embeddings, the attention's weights and each branch's end
  // The scores are products with the embeddings of the tokens, as in Radford et al. 2019; else with
  // a matrix of their own, "head.weight".
  bool tied = false;
};
// GPT as Radford et al. 2019 have it: tokens int64[N, tokens], embeddings of tokens and positions,
// the blocks with GELU, a norm, and scores float32[N, tokens, vocabulary].
absl::StatusOr<Graph> GptLanguageModel(const GptBlocks& shape, const GptText& text);

// Values that are evenly spread in [-scale, scale), the same each time.
Tensor SpreadValues(const Shape& shape, float scale);

}  // namespace weft

#endif  // WEFT_TOOLS_MODELS_GPT_MODEL_H_
