// Small models with awkward sizes, and data for them: what any plan is tried on. They need no files
// but those that are written for them.
#ifndef WEFT_TESTS_TESTING_EQUIVALENCE_MODELS_H_
#define WEFT_TESTS_TESTING_EQUIVALENCE_MODELS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "tensor/tensor.h"

namespace weft::testing {

struct EquivalenceModel {
  std::string name;
  Graph graph;                         // forward, weights marked as trainable
  std::map<std::string, Tensor> data;  // inputs and "labels", `samples` rows each
};

//   "mlp"      7 - 23 - 13 - 11 with Relu and Sigmoid
//   "lenet"    two convolutions, two poolings, three Gemms on images of 1x14x14
//   "gpt"      token and position embeddings, two blocks of causal attention and a feed-forward
//              layer of 17, LayerNormalization, a head of its own
//   "encoder"  an embedding that is the head too, attention over all tokens, a skip connection over
//              both blocks that is concatenated
//   "lstm"     an LSTM of 7 units in both directions over 5 steps, a head on its last states
//
// The first four, for which tests draw plans.
std::vector<std::string> EquivalenceModelNames();

// InvalidArgument for an unknown name.
absl::StatusOr<EquivalenceModel> BuildEquivalenceModel(const std::string& name, int64_t samples);

// Writes the data as NPY files into `folder`; the path of each input's.
std::map<std::string, std::string> WriteDataFiles(const EquivalenceModel& model,
                                                  const std::string& folder);

}  // namespace weft::testing

#endif  // WEFT_TESTS_TESTING_EQUIVALENCE_MODELS_H_
