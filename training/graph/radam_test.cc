// RAdam's steps against its formula in closed form: moments as weighted sums of all gradients so
// far, not step by step.
#include <cmath>
#include <map>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/graph_evaluator.h"
#include "training/graph/optimizer.h"

namespace weft {
namespace {

constexpr double kRate = 0.1;

// What `w`, 2 at first, is after each step with these gradients, by these kernels.
std::vector<double> PathOf(const OptimizerSpec& spec, const std::vector<double>& gradients,
                           const KernelRegistry& kernels) {
  Graph graph;
  const ValueType number{ValueKind::kTensor, DType::kFloat64, Shape{1}};
  graph.AddVariable("w", number, Tensor::Of<double>({1}, {2.0}), true);
  const ValueId gradient = graph.AddInput("g", number);
  const OptimizerInputs inputs{
      graph.AddInput("rate", {ValueKind::kTensor, DType::kFloat64, Shape{}}),
      graph.AddInput("step", {ValueKind::kTensor, DType::kInt64, Shape{}})};
  GraphBuilder builder(graph);
  builder.set_phase(Phase::kUpdate);
  const absl::Status added = AddUpdate(builder, spec, inputs, "w", gradient);
  EXPECT_TRUE(added.ok()) << added;
  std::map<ValueId, Tensor> feeds = {{inputs.learning_rate, Tensor::Scalar<double>(kRate)}};
  std::vector<ValueId> updates;
  for (const Variable& variable : graph.variables()) {
    feeds[variable.value] =
        variable.initial.valid() ? variable.initial : *Tensor::Zeros(DType::kFloat64, {1});
    updates.push_back(variable.update);
  }
  std::vector<double> path;
  for (size_t i = 0; i < gradients.size(); ++i) {
    feeds[gradient] = Tensor::Of<double>({1}, {gradients[i]});
    feeds[inputs.step] = Tensor::Scalar<int64_t>(static_cast<int64_t>(i) + 1);
    const auto updated = testing::EvaluateGraph(graph, feeds, updates, kernels);
    EXPECT_TRUE(updated.ok()) << updated.status();
    if (!updated.ok()) return {};
    for (size_t k = 0; k < updates.size(); ++k) feeds[graph.variables()[k].value] = (*updated)[k];
    path.push_back((*updated)[0].data<double>()[0]);
  }
  return path;
}

// The mean of the last values with weights share^age.
double WeightedMean(const std::vector<double>& values, double share) {
  double sum = 0, weights = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double weight = std::pow(share, static_cast<double>(values.size() - 1 - i));
    sum += weight * values[i];
    weights += weight;
  }
  return sum / weights;
}

// The length of the simple moving average that v's weights stand for (the paper's rho).
double Length(double beta2, double t) {
  double weights = 0, ages = 0;
  for (double i = 1; i <= t; ++i) {
    weights += std::pow(beta2, t - i);
    ages += std::pow(beta2, t - i) * (t + 1 - i);
  }
  return 2 * ages / weights - 1;
}

std::vector<double> Expected(const std::vector<double>& gradients, double beta1, double beta2,
                             double epsilon, double weight_decay) {
  std::vector<double> path, seen, squares;
  double w = 2;
  const double longest = (1 + beta2) / (1 - beta2);
  for (const double gradient : gradients) {
    seen.push_back(gradient + weight_decay * w);
    squares.push_back(seen.back() * seen.back());
    const double t = static_cast<double>(seen.size());
    const double mean = WeightedMean(seen, beta1);
    const double r = Length(beta2, t);
    double direction = mean;
    if (r > 5) {
      const double rectified =
          ((r - 4) / (longest - 4)) * ((r - 2) / (longest - 2)) * (longest / r);
      // epsilon is beside the root of v, which is not divided by 1 - beta2^t.
      const double unbiased = 1 - std::pow(beta2, t);
      const double root = std::sqrt(WeightedMean(squares, beta2) * unbiased) + epsilon;
      direction *= std::sqrt(rectified) * std::sqrt(unbiased) / root;
    }
    w -= kRate * direction;
    path.push_back(w);
  }
  return path;
}

void ExpectPath(const OptimizerSpec& spec, const std::vector<double>& gradients,
                const std::vector<double>& expected) {
  for (const KernelRegistry* const kernels :
       {&KernelRegistry::Reference(), &KernelRegistry::Global()}) {
    const std::vector<double> path = PathOf(spec, gradients, *kernels);
    ASSERT_EQ(path.size(), expected.size());
    for (size_t i = 0; i < path.size(); ++i) EXPECT_NEAR(path[i], expected[i], 1e-10) << i + 1;
  }
}

std::vector<double> Gradients() {
  std::vector<double> gradients;
  for (int t = 1; t <= 12; ++t) gradients.push_back((7 * t % 11 - 5) / 8.0);
  return gradients;
}

TEST(Radam, FollowsItsFormulaBeforeAndAfterItTrustsTheSquares) {
  EXPECT_LT(Length(0.999, 5), 5);
  EXPECT_GT(Length(0.999, 6), 5);
  ExpectPath({.kind = "radam", .weight_decay = 0.25}, Gradients(),
             Expected(Gradients(), 0.9, 0.999, 1e-8, 0.25));
  ExpectPath({.kind = "radam", .options = {{"beta1", 0.5}, {"beta2", 0.875}, {"epsilon", 0.125}}},
             Gradients(), Expected(Gradients(), 0.5, 0.875, 0.125, 0));
}

TEST(Radam, WithAShortMemoryItIsPlainMomentum) {
  // r is at most 2 / (1 - 0.5) - 1 = 3.
  const std::vector<double> path = {2 - 0.1 * 4, 2 - 0.1 * 4 - 0.1 * (0.5 * 4 - 1) / 1.5};
  ExpectPath({.kind = "radam", .options = {{"beta1", 0.5}, {"beta2", 0.5}}}, {4, -1}, path);
}

}  // namespace
}  // namespace weft
