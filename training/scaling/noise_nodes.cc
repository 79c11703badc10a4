#include "training/scaling/noise_nodes.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"

namespace weft {
namespace {

// Divides where the weight is zero, and so is what is divided.
constexpr double kSmallestWeight = 1e-30;

class NoiseRegion {
 public:
  NoiseRegion(Graph& graph, ValueId micro_weight) : graph_(graph), builder_(graph) {
    weight_ = micro_weight;
  }

  absl::Status Run(ValueId weight, const std::map<ValueId, ValueId>& gradients,
                   ValueId whole_square) {
    AddWeights();
    std::vector<ValueId> squares;
    for (const auto& [value, gradient] : gradients) squares.push_back(AddSquare(value, gradient));
    BeginSums({}, "noise/");
    const ValueId count = builder_.WeftOp("Accumulate", {counts_});
    Report(builder_.WeftOp("AddN", squares), kNoiseMicroSquares);
    Report(builder_.Op("Identity", {whole_square}), kNoiseWholeSquare);
    Report(count, kNoiseMicroBatches);
    Report(builder_.Op("Identity", {weight}), kNoiseWeight);
    return builder_.status();
  }

 private:
  void BeginMicroBatch(Origin origin, const std::string& prefix) {
    builder_.set_phase(Phase::kBackward);
    builder_.set_origin(std::move(origin));
    builder_.set_name_prefix(prefix);
  }

  void BeginSums(Origin origin, const std::string& prefix) {
    builder_.set_phase(Phase::kUpdate);
    builder_.set_origin(std::move(origin));
    builder_.set_name_prefix(prefix);
  }

  // Whether the micro-batch counts, and the inverse of its weight, where the loss is.
  void AddWeights() {
    const ValueDef& weight = graph_.value(weight_);
    const DType dtype = weight.type.dtype;
    Origin origin;
    if (weight.source == ValueSource::kNode)
      origin.forward_node = graph_.node(weight.producer).name;
    BeginMicroBatch(std::move(origin), "noise/");
    const ValueId counts = builder_.Op("Greater", {weight_, builder_.Scalar(dtype, 0)});
    counts_ = builder_.Op("Cast", {counts}, {{"to", static_cast<int64_t>(dtype)}});
    const ValueId divisor = builder_.Op("Max", {weight_, builder_.Scalar(dtype, kSmallestWeight)});
    inverse_ = builder_.Op("Div", {counts_, divisor});
  }

  // The sum over micro-batches of one gradient's part.
  ValueId AddSquare(ValueId value, ValueId gradient) {
    const Origin origin = {graph_.value(gradient).origin.forward_node, graph_.value(value).name,
                           true};
    const std::string prefix = absl::StrCat("noise/", graph_.value(value).name, "/");
    BeginMicroBatch(origin, prefix);
    const ValueId square = builder_.Op("ReduceSumSquare", {gradient}, {{"keepdims", int64_t{0}}});
    const ValueId term = builder_.Op("Mul", {square, inverse_});
    BeginSums(origin, prefix);
    return builder_.WeftOp("Accumulate", {term});
  }

  void Report(ValueId value, const char* name) {
    builder_.Name(value, name);
    if (builder_.status().ok()) graph_.AddOutput(value);
  }

  Graph& graph_;
  GraphBuilder builder_;
  ValueId weight_;   // of the micro-batch
  ValueId counts_;   // 1, or 0 where the weight is
  ValueId inverse_;  // of the weight; 0 where it does not count
};

}  // namespace

absl::Status AddNoiseSums(Graph& graph, ValueId weight, const std::map<ValueId, ValueId>& gradients,
                          ValueId whole_square) {
  const ValueDef& sum = graph.value(weight);
  if (sum.source != ValueSource::kNode || graph.node(sum.producer).op != "Accumulate") {
    return absl::InternalError(
        absl::StrCat("the weight '", sum.name, "' of the loss is no sum over micro-batches"));
  }
  const ValueId micro_weight = graph.node(sum.producer).inputs.front();
  return NoiseRegion(graph, micro_weight).Run(weight, gradients, whole_square);
}

}  // namespace weft
