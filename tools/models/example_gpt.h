// `graph_runner example gpt`: a language model of any size, also without its weights.
#ifndef WEFT_TOOLS_MODELS_EXAMPLE_GPT_H_
#define WEFT_TOOLS_MODELS_EXAMPLE_GPT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "platform/file_system.h"

namespace weft {

// A GPT as Radford et al. have it ("Language models are unsupervised multitask learners", 2019),
// with the scores' matrix tied to the embeddings.
struct ExampleGpt {
  int layers = 4;
  int64_t width = 128;  // a multiple of heads
  int64_t heads = 4;
  int64_t sequence = 128;    // tokens of a sample
  int64_t vocabulary = 256;  // bytes are tokens
  uint64_t seed = 0;
  // Zeros in place of weights, which take no room on the disk (a hole in the file): a model to
  // inspect and to plan, of any size.
  bool without_weights = false;
};

// 12 layers width^2 of the blocks' matrices (4 width^2 of attention, 8 width^2 of the feed-forward
// layer), 13 layers width of their biases and norms, (vocabulary + sequence) width of embeddings,
// and 2 width of the last norm.
int64_t ParametersOf(const ExampleGpt& gpt);

// Input `tokens` int64[N, sequence], one output float32[N, sequence, vocabulary]. Variables have no
// values. InvalidArgument for sizes that make no model, with the flag's name.
absl::StatusOr<Graph> BuildExampleGpt(const ExampleGpt& gpt);

// What was written.
struct WrittenExample {
  int64_t model_bytes = 0;
  int64_t weight_bytes = 0;  // of the file beside it
  std::string weights_path;
};

// Writes the ONNX file (operator set 20), and PATH.data beside it with the weights: normally
// distributed with deviation 0.02, those that end a branch 0.02 / sqrt(2 layers), biases 0, scales
// of norms 1 (Radford et al.). One tensor at a time is in memory. The same shape and seed give the
// same bytes.
absl::StatusOr<WrittenExample> WriteExampleGpt(FileSystem& files, const std::string& path,
                                               const ExampleGpt& gpt);

}  // namespace weft

#endif  // WEFT_TOOLS_MODELS_EXAMPLE_GPT_H_
