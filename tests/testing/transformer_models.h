// Small transformers, written node by node as exporters write the real ones: what Megatron's split
// must be found in.
#ifndef WEFT_TESTS_TESTING_TRANSFORMER_MODELS_H_
#define WEFT_TESTS_TESTING_TRANSFORMER_MODELS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/sharding.h"
#include "tests/testing/equivalence_models.h"

namespace weft::testing {

struct TransformerModel {
  EquivalenceModel model;
  // Megatron's split (Shoeybi et al. 2019): how each large weight of the blocks lies.
  std::map<std::string, AxisSharding> split;
};

//   "bert"     query, key and value by a product each, GELU by Erf, LayerNormalization after
//   "gpt2"     Gemm with bias on rows, query, key and value in one product cut by Split
//   "slices"   the same in three dimensions, cut by three Slices
//   "llama"    weights behind Transpose, RMS norm by parts, rotary positions by halves, two queries
//              for each key, SwiGLU
//   "t5"       encoder and decoder, relative positions from a table, no biases
//   "vit"      patches by Conv, a class token, torch's MultiheadAttention (one weight [3 D, D],
//   heads
//              and batch in one axis)
//   "whisper"  encoder over Conv of one axis, decoder that looks at it
//   "fused"    Attention with packed heads and RotaryEmbedding
// All have 8 heads (llama and fused 4 of keys and values), which 2 and 4 ranks share.
std::vector<std::string> TransformerNames();

// InvalidArgument for an unknown name. `heads`: how many instead of 8, a divisor of 48; only "bert"
// asks.
absl::StatusOr<TransformerModel> BuildTransformer(const std::string& name, int64_t samples,
                                                  int64_t heads = 8);

}  // namespace weft::testing

#endif  // WEFT_TESTS_TESTING_TRANSFORMER_MODELS_H_
