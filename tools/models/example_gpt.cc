#include "tools/models/example_gpt.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "onnx_import/graph_wire.h"
#include "platform/random.h"
#include "platform/status_macros.h"
#include "tools/models/gpt_model.h"

namespace weft {
namespace {

// The first that has Gelu.
constexpr int64_t kGptOperatorSet = 20;
constexpr float kDeviation = 0.02F;
// Beyond any model there is; 12 layers width^2 floats still have a size in 64 bits.
constexpr int64_t kMaxLayers = int64_t{1} << 12;
constexpr int64_t kMaxSize = int64_t{1} << 20;
// Values drawn at a time.
constexpr int64_t kDrawn = int64_t{1} << 18;

absl::Status CheckSizes(const ExampleGpt& gpt) {
  for (const auto& [flag, value, max] : {std::tuple("--layers", int64_t{gpt.layers}, kMaxLayers),
                                         {"--width", gpt.width, kMaxSize},
                                         {"--heads", gpt.heads, kMaxSize},
                                         {"--sequence", gpt.sequence, kMaxSize},
                                         {"--vocabulary", gpt.vocabulary, kMaxSize}}) {
    if (value >= 1 && value <= max) continue;
    return absl::InvalidArgumentError(absl::StrCat(flag, " is ", value, "; expected 1 to ", max));
  }
  if (gpt.width % gpt.heads == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--width ", gpt.width,
                                                 " is no multiple of --heads ", gpt.heads,
                                                 ": heads have equal parts of it"));
}

bool EndsBranch(const std::string& name) {
  return absl::EndsWith(name, ".out.weight") || absl::EndsWith(name, ".down.weight");
}

// Appends the values of one variable.
class GptWeights {
 public:
  GptWeights(const ExampleGpt& gpt, WritableFile& file)
      : key_(gpt.seed, "example gpt"),
        branch_end_(kDeviation / std::sqrt(2 * static_cast<float>(gpt.layers))),
        file_(file) {}

  absl::Status Append(const std::string& name, int64_t elements) {
    const RandomKey key = key_.Fold(next_++);
    const bool is_scale = absl::EndsWith(name, ".scale");
    const bool is_drawn = absl::EndsWith(name, ".weight");
    if (!is_scale && !is_drawn) return file_.AppendZeros(elements * int64_t{sizeof(float)});
    for (int64_t first = 0; first < elements; first += kDrawn) {
      values_.assign(static_cast<size_t>(std::min(kDrawn, elements - first)), 1.0F);
      if (is_drawn) {
        FillNormal(key, static_cast<uint64_t>(first), 0,
                   EndsBranch(name) ? branch_end_ : kDeviation, values_);
      }
      WEFT_RETURN_IF_ERROR(file_.Append(std::string_view(
          reinterpret_cast<const char*>(values_.data()), values_.size() * sizeof(float))));
    }
    return absl::OkStatus();
  }

 private:
  const RandomKey key_;
  const float branch_end_;
  WritableFile& file_;
  uint64_t next_ = 0;
  std::vector<float> values_;
};

absl::Status WriteWeights(const Graph& graph, const ExampleGpt& gpt, WritableFile& file) {
  const std::vector<int64_t> offsets = OffsetsBeside(graph);
  if (gpt.without_weights) return file.AppendZeros(offsets.back());
  GptWeights weights(gpt, file);
  int64_t end = 0;
  for (size_t i = 0; i < graph.variables().size(); ++i) {
    const Variable& variable = graph.variables()[i];
    const int64_t elements = graph.value(variable.value).type.shape.ToConcrete()->num_elements();
    WEFT_RETURN_IF_ERROR(file.AppendZeros(offsets[i] - end));
    WEFT_RETURN_IF_ERROR(weights.Append(variable.name, elements));
    end = offsets[i] + elements * int64_t{sizeof(float)};
  }
  return absl::OkStatus();
}

}  // namespace

int64_t ParametersOf(const ExampleGpt& gpt) {
  return gpt.layers * (12 * gpt.width * gpt.width + 13 * gpt.width) +
         (gpt.vocabulary + gpt.sequence + 2) * gpt.width;
}

absl::StatusOr<Graph> BuildExampleGpt(const ExampleGpt& gpt) {
  WEFT_RETURN_IF_ERROR(CheckSizes(gpt));
  GptBlocks shape;
  shape.blocks = gpt.layers;
  shape.width = gpt.width;
  shape.heads = gpt.heads;
  shape.tokens = gpt.sequence;
  shape.with_values = false;
  GptText text;
  text.vocabulary = gpt.vocabulary;
  text.tied = true;
  WEFT_ASSIGN_OR_RETURN(Graph graph, GptLanguageModel(shape, text));
  graph.name = "gpt";
  graph.opsets[""] = kGptOperatorSet;
  return graph;
}

absl::StatusOr<WrittenExample> WriteExampleGpt(FileSystem& files, const std::string& path,
                                               const ExampleGpt& gpt) {
  WEFT_ASSIGN_OR_RETURN(const Graph graph, BuildExampleGpt(gpt));
  WrittenExample written;
  written.weights_path = path + ".data";
  GraphToOnnxOptions options;
  options.annotations = false;
  options.opset = kGptOperatorSet;
  options.weights_beside = written.weights_path.substr(written.weights_path.rfind('/') + 1);
  WEFT_ASSIGN_OR_RETURN(const std::string bytes, GraphToOnnx(graph, options));
  WEFT_ASSIGN_OR_RETURN(const auto file, files.OpenReplacement(written.weights_path));
  WEFT_RETURN_IF_ERROR(WriteWeights(graph, gpt, *file));
  WEFT_RETURN_IF_ERROR(file->Close());
  WEFT_RETURN_IF_ERROR(files.WriteFileAtomically(path, bytes));
  written.model_bytes = static_cast<int64_t>(bytes.size());
  written.weight_bytes = OffsetsBeside(graph).back();
  return written;
}

}  // namespace weft
