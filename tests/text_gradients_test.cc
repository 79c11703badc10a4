// The first-step gradients of the corpora's small GPT, the whole backward pass at once, against two
// truths in double precision: central differences of the forward graph, and the backward graph on
// the float64 reference kernels. The differences say that the graph of the gradients is right; the
// reference kernels, whose every element can then be trusted, say it of each float32 gradient.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "gtest/gtest.h"
#include "onnx_import/importer.h"
#include "onnx_import/parameters/trainable.h"
#include "ops/testing/graph_evaluator.h"
#include "ops/testing/test_tensors.h"
#include "platform/file_system.h"
#include "tests/testing/character_data.h"
#include "tests/testing/training_run.h"
#include "training/graph/training_graph.h"

namespace weft::testing {
namespace {

// Naive kernels: one row of 64 characters is what they do in a second or two.
constexpr int64_t kBatch = 1;
constexpr int kWholeDirections = 3;
// In units of each parameter's root mean square. Truncation grows with the square of the step and
// rounding of the loss (some 1e-15) with its inverse: both are near 1e-10 here.
constexpr double kStep = 1e-5;
// Of the typical size of a directional derivative, |gradient| x the direction's scale.
constexpr double kDifferenceTolerance = 1e-6;
constexpr double kFloat32Tolerance = 1e-5;

using Doubles = std::vector<double>;

// The forward graph in float64: constants, initial values and casts made double.
void MakeDouble(Graph& graph) {
  for (const ValueId id : graph.value_ids()) {
    ValueDef& value = graph.value(id);
    if (value.type.dtype == DType::kFloat32) value.type.dtype = DType::kFloat64;
    if (value.source == ValueSource::kConstant && value.constant.dtype() == DType::kFloat32) {
      value.constant = Cast(value.constant, DType::kFloat64);
    }
  }
  for (Variable& variable : graph.mutable_variables()) {
    if (variable.initial.valid()) variable.initial = Cast(variable.initial, DType::kFloat64);
  }
  for (const NodeId id : graph.node_ids()) {
    Node& node = graph.node(id);
    if (node.op == "Cast" && node.attributes.Int("to", 0) == static_cast<int>(DType::kFloat32)) {
      node.attributes.Set("to", static_cast<int64_t>(DType::kFloat64));
    }
  }
}

// Of one micro-batch, sums over the micro-batches are their operands.
void DropSums(Graph& graph) {
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    if (node.op == "Accumulate") graph.ReplaceUses(node.outputs[0], node.inputs[0]);
  }
}

double Norm(const Doubles& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

class TextGradients : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!CorporaFolder()) GTEST_SKIP() << "WEFT_CORPORA is not set: no model and no text";
    const std::string text = ReadCorpusText(*CorporaFolder());
    ASSERT_GT(text.size(), 1000000u);
    run_.model = *CorporaFolder() + "/training-models/gpt_char.onnx";
    run_.data = WriteCharacterData(text, kBatch, ::testing::TempDir());
    run_.batch = kBatch;
    run_.steps = 1;
    run_.gradients = true;
    ASSERT_NO_FATAL_FAILURE(BuildGraph());
    feeds_ = {{*graph_->FindValue("idx"), CharacterIds(text, kBatch, 0)},
              {*graph_->FindValue("labels"), CharacterIds(text, kBatch, 1)}};
    ASSERT_NO_FATAL_FAILURE(EvaluateGradients());
  }

  void BuildGraph() {
    auto model = ImportModelFile(RealFileSystem(), run_.model);
    ASSERT_TRUE(model.ok()) << model.status();
    ASSERT_TRUE(MarkTrainable(*model).ok());
    MakeDouble(model->graph);
    TrainingSpec spec;
    spec.report_gradients = true;
    auto graph = BuildTrainingGraph(model->graph, spec);
    ASSERT_TRUE(graph.ok()) << graph.status();
    graph_ = std::make_unique<Graph>(*std::move(graph));
    for (const Variable& variable : graph_->variables()) {
      if (!variable.trainable) continue;
      const auto gradient = graph_->FindValue("gradient/" + variable.name);
      ASSERT_TRUE(gradient.has_value()) << variable.name << " has no gradient";
      names_.push_back(variable.name);
    }
    DropSums(*graph_);
  }

  // Fills values_ and gradients_ with what the reference kernels give.
  void EvaluateGradients() {
    std::vector<ValueId> wanted;
    for (const std::string& name : names_) wanted.push_back(*graph_->FindValue("gradient/" + name));
    const auto results = EvaluateGraph(*graph_, feeds_, wanted, KernelRegistry::Reference());
    ASSERT_TRUE(results.ok()) << results.status();
    for (size_t i = 0; i < names_.size(); ++i) {
      ASSERT_EQ((*results)[i].dtype(), DType::kFloat64) << names_[i];
      gradients_[names_[i]] = ToDoubles((*results)[i]).value();
      values_[names_[i]] = ToDoubles(graph_->FindVariable(names_[i])->initial).value();
    }
  }

  // The mean loss with parameters values_ + step * direction.
  double Loss(const std::map<std::string, Doubles>& direction, double step) {
    std::map<ValueId, Tensor> feeds = feeds_;
    for (const auto& [name, slopes] : direction) {
      const Variable& variable = *graph_->FindVariable(name);
      Doubles moved = values_.at(name);
      for (size_t i = 0; i < moved.size(); ++i) moved[i] += step * slopes[i];
      feeds[variable.value] = Tensor::Of<double>(variable.initial.shape(), moved);
    }
    const auto loss =
        EvaluateGraph(*graph_, feeds, {graph_->outputs()[0]}, KernelRegistry::Reference());
    EXPECT_TRUE(loss.ok()) << loss.status();
    return loss.ok() ? loss->front().data<double>()[0] : std::nan("");
  }

  // Normal numbers of the scale of the parameter's values; `scale` is set to it.
  Doubles Direction(const std::string& name, double& scale) {
    const Doubles& values = values_.at(name);
    scale = Norm(values) / std::sqrt(static_cast<double>(values.size()));
    if (scale == 0) scale = 0.01;  // biases start at zero
    std::normal_distribution<double> normal(0, scale);
    Doubles direction(values.size());
    for (double& slope : direction) slope = normal(random_);
    return direction;
  }

  // Central difference against <gradient, direction>, both for the parameters of `names` together.
  // Returns the gap in units of the derivative's typical size.
  double DirectionalGap(const std::vector<std::string>& names) {
    std::map<std::string, Doubles> direction;
    double derivative = 0;
    double typical = 0;
    for (const std::string& name : names) {
      double scale = 0;
      direction[name] = Direction(name, scale);
      const Doubles& gradient = gradients_.at(name);
      for (size_t i = 0; i < gradient.size(); ++i) derivative += gradient[i] * direction[name][i];
      typical = std::hypot(typical, Norm(gradient) * scale);
    }
    const double difference = (Loss(direction, kStep) - Loss(direction, -kStep)) / (2 * kStep);
    EXPECT_GT(typical, 0);
    return std::abs(difference - derivative) / typical;
  }

  TrainingRun run_;
  std::unique_ptr<Graph> graph_;  // in double
  std::map<ValueId, Tensor> feeds_;
  std::vector<std::string> names_;
  std::map<std::string, Doubles> values_;
  std::map<std::string, Doubles> gradients_;
  std::mt19937_64 random_{20};
};

TEST_F(TextGradients, CentralDifferencesOfTheLossAgreeWithTheBackwardGraph) {
  double largest = 0;
  for (int i = 0; i < kWholeDirections; ++i) {
    const double gap = DirectionalGap(names_);
    largest = std::max(largest, gap);
    EXPECT_LE(gap, kDifferenceTolerance) << "all parameters, direction " << i;
  }
  for (const std::string& name : names_) {
    const double gap = DirectionalGap({name});
    largest = std::max(largest, gap);
    EXPECT_LE(gap, kDifferenceTolerance) << name;
  }
  std::cout << names_.size() << " parameters: largest gap " << largest << "\n";
}

TEST_F(TextGradients, Float32GradientsAgreeWithTheBackwardGraphInDouble) {
  const auto outcome = weft::testing::Run(run_);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_EQ(outcome->gradients.size(), names_.size());
  double worst = 0;
  for (const std::string& name : names_) {
    const Doubles actual = ToDoubles(outcome->gradients.at(name)).value();
    const Doubles& expected = gradients_.at(name);
    ASSERT_EQ(actual.size(), expected.size()) << name;
    double largest = 0;
    double gap = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      largest = std::max(largest, std::abs(expected[i]));
      const double difference = std::abs(expected[i] - actual[i]);
      gap = std::isnan(difference) ? HUGE_VAL : std::max(gap, difference);
    }
    EXPECT_LE(gap, kFloat32Tolerance * largest) << name;
    worst = std::max(worst, gap / largest);
  }
  std::cout << names_.size() << " gradients: largest gap " << worst << " of the largest element\n";
}

}  // namespace
}  // namespace weft::testing
