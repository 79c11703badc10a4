// Several steps of every optimizer, in float64, against its formula written by hand.
#include "training/graph/optimizer.h"

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/testing/graph_evaluator.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr double kRate = 0.1;

double GradientAt(int step) { return 0.5 + 0.25 * step * (step % 2 == 0 ? 1 : -1); }

// What `w` (2 at first) is after each of five steps with the gradients above.
std::vector<double> RunOptimizer(const OptimizerSpec& spec) {
  Graph graph;
  const ValueType number{ValueKind::kTensor, DType::kFloat64, Shape{1}};
  graph.AddVariable("w", number, Tensor::Of<double>({1}, {2.0}), true);
  const ValueId gradient = graph.AddInput("g", number);
  OptimizerInputs inputs;
  inputs.learning_rate =
      graph.AddInput("rate", {ValueKind::kTensor, DType::kFloat64, Shape{}}, InputRole::kStep);
  if (spec.needs_step_number()) {
    inputs.step =
        graph.AddInput("step", {ValueKind::kTensor, DType::kInt64, Shape{}}, InputRole::kStep);
  }
  GraphBuilder builder(graph);
  builder.set_phase(Phase::kUpdate);
  const absl::Status added = AddUpdate(builder, spec, inputs, "w", gradient);
  EXPECT_TRUE(added.ok()) << added;
  std::map<ValueId, Tensor> feeds;
  std::vector<ValueId> updates;
  for (const Variable& variable : graph.variables()) {
    feeds[variable.value] =
        variable.initial.valid() ? variable.initial : *Tensor::Zeros(DType::kFloat64, {1});
    updates.push_back(variable.update);
  }
  std::vector<double> path;
  for (int step = 1; step <= 5; ++step) {
    feeds[gradient] = Tensor::Of<double>({1}, {GradientAt(step)});
    feeds[inputs.learning_rate] = Tensor::Scalar<double>(kRate);
    if (inputs.step.valid()) feeds[inputs.step] = Tensor::Scalar<int64_t>(step);
    const auto updated = testing::EvaluateGraph(graph, feeds, updates, KernelRegistry::Reference());
    EXPECT_TRUE(updated.ok()) << updated.status();
    if (!updated.ok()) return {};
    for (size_t i = 0; i < updates.size(); ++i) feeds[graph.variables()[i].value] = (*updated)[i];
    path.push_back((*updated)[0].data<double>()[0]);
  }
  return path;
}

void ExpectPath(const OptimizerSpec& spec, const std::function<double(double, double, int)>& next) {
  const std::vector<double> path = RunOptimizer(spec);
  ASSERT_EQ(path.size(), 5u);
  double w = 2.0;
  for (int step = 1; step <= 5; ++step) {
    w = next(w, GradientAt(step), step);
    EXPECT_NEAR(path[step - 1], w, 1e-12) << "step " << step;
  }
}

TEST(OptimizerTest, Sgd) {
  ExpectPath({.kind = "sgd"}, [](double w, double g, int) { return w - kRate * g; });
}

TEST(OptimizerTest, SgdWithWeightDecay) {
  ExpectPath({.kind = "sgd", .weight_decay = 0.25},
             [](double w, double g, int) { return w - kRate * (g + 0.25 * w); });
}

TEST(OptimizerTest, Momentum) {
  double v = 0;
  ExpectPath({.kind = "momentum", .weight_decay = 0.25, .options = {{"momentum", 0.5}}},
             [&v](double w, double g, int) {
               v = 0.5 * v + g + 0.25 * w;
               return w - kRate * v;
             });
}

TEST(OptimizerTest, Nesterov) {
  double v = 0;
  ExpectPath({.kind = "nesterov", .options = {{"momentum", 0.5}}}, [&v](double w, double g, int) {
    v = 0.5 * v + g;
    return w - kRate * (g + 0.5 * v);
  });
}

TEST(OptimizerTest, MomentumOfZeroIsPlainSgd) {
  ExpectPath({.kind = "nesterov", .options = {{"momentum", 0}}},
             [](double w, double g, int) { return w - kRate * g; });
}

TEST(OptimizerTest, Adam) {
  double m = 0, v = 0;
  ExpectPath({.kind = "adam",
              .weight_decay = 0.25,
              .options = {{"beta1", 0.5}, {"beta2", 0.75}, {"epsilon", 0.125}}},
             [&](double w, double g, int step) {
               g += 0.25 * w;
               m = 0.5 * m + 0.5 * g;
               v = 0.75 * v + 0.25 * g * g;
               const double m_hat = m / (1 - std::pow(0.5, step));
               const double v_hat = v / (1 - std::pow(0.75, step));
               return w - kRate * m_hat / (std::sqrt(v_hat) + 0.125);
             });
}

TEST(OptimizerTest, AdamWDecaysTheWeightItself) {
  double m = 0, v = 0;
  ExpectPath({.kind = "adamw",
              .weight_decay = 0.25,
              .options = {{"beta1", 0.5}, {"beta2", 0.75}, {"epsilon", 0.125}}},
             [&](double w, double g, int step) {
               m = 0.5 * m + 0.5 * g;
               v = 0.75 * v + 0.25 * g * g;
               const double m_hat = m / (1 - std::pow(0.5, step));
               const double v_hat = v / (1 - std::pow(0.75, step));
               w -= kRate * 0.25 * w;
               return w - kRate * m_hat / (std::sqrt(v_hat) + 0.125);
             });
}

TEST(OptimizerTest, StateFollowsItsParameter) {
  Graph graph;
  const ValueType type{ValueKind::kTensor, DType::kFloat32, Shape{2, 3}};
  graph.AddVariable("fc.weight", type, Tensor(), true);
  GraphBuilder builder(graph);
  builder.set_phase(Phase::kUpdate);
  const ValueId gradient = graph.AddInput("g", type);
  const ValueId rate = graph.AddInput("rate", {ValueKind::kTensor, DType::kFloat32, Shape{}});
  const ValueId step = graph.AddInput("step", {ValueKind::kTensor, DType::kInt64, Shape{}});
  ASSERT_TRUE(AddUpdate(builder, {.kind = "adam"}, {rate, step}, "fc.weight", gradient).ok());
  for (const char* name : {"fc.weight/m", "fc.weight/v"}) {
    const Variable* slot = graph.FindVariable(name);
    ASSERT_NE(slot, nullptr) << name;
    EXPECT_EQ(slot->slot_of, "fc.weight");
    EXPECT_FALSE(slot->trainable);
    EXPECT_FALSE(slot->initial.valid());  // zeros
    EXPECT_EQ(graph.value(slot->value).type, type);
    EXPECT_TRUE(slot->update.valid());
  }
}

TEST(OptimizerTest, AWeightNamedLikeASlotIsNotTakenForIt) {
  Graph graph;
  const ValueType type{ValueKind::kTensor, DType::kFloat32, Shape{2, 3}};
  for (const char* name : {"w", "w/m", "w/velocity"}) {
    graph.AddVariable(name, type, Tensor(), true);
  }
  GraphBuilder builder(graph);
  builder.set_phase(Phase::kUpdate);
  const ValueId gradient = graph.AddInput("g", type);
  const ValueId rate = graph.AddInput("rate", {ValueKind::kTensor, DType::kFloat32, Shape{}});
  const ValueId step = graph.AddInput("step", {ValueKind::kTensor, DType::kInt64, Shape{}});
  ASSERT_TRUE(AddUpdate(builder, {.kind = "adam"}, {rate, step}, "w", gradient).ok());
  ASSERT_TRUE(AddUpdate(builder, {.kind = "momentum"}, {rate, step}, "w/m", gradient).ok());
  int slots = 0;
  for (const Variable& variable : graph.variables()) {
    if (variable.name == "w/velocity") {
      EXPECT_FALSE(variable.update.valid());
      continue;
    }
    EXPECT_TRUE(variable.update.valid()) << variable.name;
    slots += variable.slot_of.empty() ? 0 : 1;
  }
  EXPECT_EQ(slots, 3);
  // The weight's update is output 0 of its own update node.
  EXPECT_EQ(graph.value(graph.FindVariable("w/m")->update).output_index, 0);
}

TEST(OptimizerTest, AStateThatStartsAboveZeroSaysWithWhat) {
  Graph graph;
  const ValueType type{ValueKind::kTensor, DType::kFloat32, Shape{2}};
  graph.AddVariable("w", type, Tensor(), true);
  GraphBuilder builder(graph);
  builder.set_phase(Phase::kUpdate);
  const ValueId gradient = graph.AddInput("g", type);
  const ValueId rate = graph.AddInput("rate", {ValueKind::kTensor, DType::kFloat32, Shape{}});
  const ValueId step = graph.AddInput("step", {ValueKind::kTensor, DType::kInt64, Shape{}});
  ASSERT_TRUE(AddUpdate(builder, {.kind = "adagrad", .options = {{"initial-accumulator", 0.5}}},
                        {rate, step}, "w", gradient)
                  .ok());
  const Tensor& initial = graph.FindVariable("w/sum")->initial;
  ASSERT_TRUE(initial.valid());
  EXPECT_THAT(initial.data<float>(), ::testing::ElementsAre(0.5f, 0.5f));
}

TEST(OptimizerTest, TheMovingAverageFollowsTheNewValue) {
  Graph graph;
  const ValueType type{ValueKind::kTensor, DType::kFloat64, Shape{2}};
  graph.AddVariable("w", type, Tensor::Of<double>({2}, {1, 2}), true);
  graph.AddVariable("frozen", type, Tensor::Of<double>({2}, {1, 2}), false);
  GraphBuilder builder(graph);
  builder.set_phase(Phase::kUpdate);
  const ValueId gradient = graph.AddInput("g", type);
  const ValueId rate = graph.AddInput("rate", {ValueKind::kTensor, DType::kFloat64, Shape{}});
  ASSERT_TRUE(AddUpdate(builder, {}, {rate, kNoValue}, "w", gradient).ok());
  ASSERT_TRUE(AddMovingAverage(builder, 0.75, "w").ok());
  EXPECT_EQ(MovingAverageOf(graph, "w"), "w/ema");
  EXPECT_EQ(MovingAverageOf(graph, "frozen"), "");
  const Variable* const average = graph.FindVariable("w/ema");
  EXPECT_EQ(average->slot_of, "w");
  const auto updated = testing::EvaluateGraph(
      graph, {{gradient, Tensor::Of<double>({2}, {4, 8})}, {rate, Tensor::Scalar<double>(0.5)}},
      {average->update}, KernelRegistry::Reference());
  ASSERT_TRUE(updated.ok()) << updated.status();
  // 0.75 (1, 2) + 0.25 (-1, -2)
  EXPECT_THAT((*updated)[0].data<double>(), ::testing::ElementsAre(0.5, 1));
}

TEST(ValidateOptimizerTest, AnUnknownKindListsTheKnown) {
  const absl::Status status = ValidateOptimizer({.kind = "newton"});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string message(status.message());
  EXPECT_THAT(message, ::testing::StartsWith("no optimizer 'newton'; there are: adadelta, "));
  for (const char* kind : {"adam", "lion", "momentum", "rmsprop"}) {
    EXPECT_THAT(message, HasSubstr(std::string(", ") + kind + ", "));
  }
  EXPECT_THAT(message, ::testing::EndsWith(", sgd"));
}

TEST(ValidateOptimizerTest, AnUnknownKindNamesTheNearest) {
  const absl::Status status = ValidateOptimizer({.kind = "nesterow"});
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("no optimizer 'nesterow', did you mean 'nesterov'?; there are: adadelta"));
}

TEST(ValidateOptimizerTest, EveryKindIsValidAsItComes) {
  for (const std::string& kind : OptimizerKinds()) {
    EXPECT_TRUE(ValidateOptimizer({.kind = kind}).ok()) << kind;
  }
}

TEST(ValidateOptimizerTest, NumbersOutOfRangeAreNamed) {
  const auto message = [](const OptimizerSpec& spec) {
    return std::string(ValidateOptimizer(spec).message());
  };
  EXPECT_THAT(message({.learning_rate = -1}), HasSubstr("learning rate is -1"));
  EXPECT_THAT(message({.learning_rate = std::nan("")}), HasSubstr("learning rate is nan"));
  EXPECT_THAT(message({.kind = "nesterov", .options = {{"momentum", 1}}}),
              HasSubstr("momentum is 1, expected a number in [0, 1)"));
  EXPECT_THAT(message({.weight_decay = -0.5}), HasSubstr("weight decay is -0.5"));
  EXPECT_THAT(message({.kind = "adam", .options = {{"beta1", 1}}}), HasSubstr("beta1 is 1"));
  EXPECT_THAT(message({.kind = "adam", .options = {{"beta2", 2}}}), HasSubstr("beta2 is 2"));
  EXPECT_THAT(message({.kind = "adam", .options = {{"epsilon", -1}}}), HasSubstr("epsilon is -1"));
  EXPECT_THAT(message({.kind = "momentum", .options = {{"dampening", 1}}}),
              HasSubstr("dampening is 1"));
  EXPECT_THAT(message({.kind = "rmsprop", .options = {{"alpha", 1}}}), HasSubstr("alpha is 1"));
  EXPECT_THAT(message({.kind = "adagrad", .options = {{"initial-accumulator", -1}}}),
              HasSubstr("initial accumulator is -1"));
}

// Once it was ignored: `--optimizer sgd --momentum 0.9` trained without momentum.
TEST(ValidateOptimizerTest, AnOptionOfAnotherKindIsRefused) {
  const auto message = [](const OptimizerSpec& spec) {
    return std::string(ValidateOptimizer(spec).message());
  };
  EXPECT_EQ(message({.kind = "sgd", .options = {{"momentum", 0.5}}}),
            "optimizer 'sgd' has no option 'momentum'; it belongs to: lars, momentum, nesterov, "
            "rmsprop");
  EXPECT_EQ(message({.kind = "adam", .options = {{"bets1", 0.5}}}),
            "optimizer 'adam' has no option 'bets1', did you mean 'beta1'?");
}

}  // namespace
}  // namespace weft
