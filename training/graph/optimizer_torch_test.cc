// Ten steps of every optimizer, in float64, against torch 1.13: torch.optim.SGD, Adam, AdamW,
// Adagrad, Adadelta and RMSprop with the arguments that the specs name, on one parameter (2, -1,
// 0.5) whose gradient in step t = 1 ... 10 is ((7 t + 5 i) mod 11 - 5) / 8 for element i. LARS,
// LAMB and Lion, which torch lacks, are their papers' formulas written with torch's tensors.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/graph_evaluator.h"
#include "training/graph/optimizer.h"

namespace weft {
namespace {

struct Case {
  std::string name;
  OptimizerSpec spec;
  std::vector<double> expected;
};

Tensor GradientOf(int step) {
  std::vector<double> gradient;
  for (int i = 0; i < 3; ++i) gradient.push_back(((7 * step + 5 * i) % 11 - 5) / 8.0);
  return Tensor::Of<double>({3}, gradient);
}

// The parameter after ten steps, by these kernels.
std::vector<double> RunTenSteps(const OptimizerSpec& spec, const KernelRegistry& kernels) {
  Graph graph;
  const ValueType type{ValueKind::kTensor, DType::kFloat64, Shape{3}};
  graph.AddVariable("w", type, Tensor::Of<double>({3}, {2, -1, 0.5}), true);
  const ValueId gradient = graph.AddInput("g", type);
  OptimizerInputs inputs;
  inputs.learning_rate =
      graph.AddInput("rate", {ValueKind::kTensor, DType::kFloat64, Shape{}}, InputRole::kStep);
  inputs.step =
      graph.AddInput("step", {ValueKind::kTensor, DType::kInt64, Shape{}}, InputRole::kStep);
  GraphBuilder builder(graph);
  builder.set_phase(Phase::kUpdate);
  const absl::Status added = AddUpdate(builder, spec, inputs, "w", gradient);
  EXPECT_TRUE(added.ok()) << added;
  std::map<ValueId, Tensor> feeds = {{inputs.learning_rate, Tensor::Scalar<double>(0.1)}};
  std::vector<ValueId> updates;
  for (const Variable& variable : graph.variables()) {
    feeds[variable.value] =
        variable.initial.valid() ? variable.initial : *Tensor::Zeros(DType::kFloat64, {3});
    updates.push_back(variable.update);
  }
  for (int step = 1; step <= 10; ++step) {
    feeds[gradient] = GradientOf(step);
    feeds[inputs.step] = Tensor::Scalar<int64_t>(step);
    const auto updated = testing::EvaluateGraph(graph, feeds, updates, kernels);
    EXPECT_TRUE(updated.ok()) << updated.status();
    if (!updated.ok()) return {};
    for (size_t i = 0; i < updates.size(); ++i) feeds[graph.variables()[i].value] = (*updated)[i];
  }
  const std::span<const double> w = feeds[graph.variables()[0].value].data<double>();
  return {w.begin(), w.end()};
}

class TorchOptimizers : public ::testing::TestWithParam<Case> {
 protected:
  static void ExpectAgreement(const KernelRegistry& kernels) {
    const std::vector<double> w = RunTenSteps(GetParam().spec, kernels);
    ASSERT_EQ(w.size(), 3u);
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(w[i], GetParam().expected[i], 1e-12) << i;
  }
};

TEST_P(TorchOptimizers, ReferenceKernelsAgree) { ExpectAgreement(KernelRegistry::Reference()); }
TEST_P(TorchOptimizers, ProductionKernelsAgree) { ExpectAgreement(KernelRegistry::Global()); }

INSTANTIATE_TEST_SUITE_P(
    Kinds, TorchOptimizers,
    ::testing::Values(
        Case{"Sgd",
             {.kind = "sgd", .weight_decay = 0.01},
             {1.9180756883783623, -0.990455733779803, 0.557447365441887}},
        Case{"Momentum",
             {.kind = "momentum", .weight_decay = 0.01},
             {1.5395178124776745, -0.7131022038829332, 0.6138110039292811}},
        Case{"Dampened",
             {.kind = "momentum", .options = {{"momentum", 0.8}, {"dampening", 0.3}}},
             {1.7736405216000002, -0.8251771007999998, 0.5716677376}},
        Case{"Nesterov",
             {.kind = "nesterov", .weight_decay = 0.01},
             {1.506611612002791, -0.7348819635726347, 0.6598996612383293}},
        Case{"Adam",
             {.kind = "adam", .weight_decay = 0.01},
             {1.6370473758336788, -0.7454787528577129, 0.4705702006843174}},
        Case{"AdamW",
             {.kind = "adamw", .weight_decay = 0.1},
             {1.505757149647207, -0.683894053626533, 0.4398435544143449}},
        Case{"AmsGrad",
             {.kind = "amsgrad", .weight_decay = 0.01, .options = {{"beta2", 0.9}}},
             {1.6442840946268316, -0.7453719306144323, 0.4690206082684246}},
        Case{"Adagrad",
             {.kind = "adagrad",
              .weight_decay = 0.01,
              .options = {{"lr-decay", 0.05}, {"initial-accumulator", 0.1}}},
             {1.8983453777302026, -0.9400206331832865, 0.5309844817935137}},
        Case{"Adadelta",
             {.kind = "adadelta", .weight_decay = 0.01},
             {1.9993973947109656, -0.9999753034991841, 0.5003908704909882}},
        Case{"Rmsprop",
             {.kind = "rmsprop", .weight_decay = 0.01},
             {0.7526676246618362, -0.42928129910741036, 0.5664797550211765}},
        Case{"RmspropMomentum",
             {.kind = "rmsprop", .options = {{"momentum", 0.9}}},
             {-5.279600558541148, 4.442187770423923, -1.6592904426076165}},
        Case{"RmspropCentered",
             {.kind = "rmsprop",
              .weight_decay = 0.01,
              .options = {{"momentum", 0.9}, {"alpha", 0.9}, {"centered", 1}}},
             {-0.6682599054135144, 0.9152990531143813, -0.16998672758333963}},
        Case{"Lars",
             {.kind = "lars", .weight_decay = 0.01, .options = {{"trust-coefficient", 0.02}}},
             {1.9704491061555198, -0.9790362631977995, 0.5097656776794651}},
        Case{"Lamb",
             {.kind = "lamb", .weight_decay = 0.01},
             {1.0291368013735722, -0.41337767267509884, 0.8146161921836028}},
        Case{"Lion",
             {.kind = "lion", .weight_decay = 0.1},
             {1.6233518489712377, -0.9130295739624334, 0.46083853645803097}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft
