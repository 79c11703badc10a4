// Training is held to numbers that another framework computed in double precision: loss curves and
// first-step gradients of the corpora's training-models.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "platform/file_system.h"
#include "tests/testing/training_run.h"
#include "training/data/data_file.h"

namespace weft::testing {
namespace {

struct Curve {
  std::vector<double> truth;  // loss_float64 of steps 0..49
  double own_gap = 0;         // largest relative float32-float64 gap of the file
};

Curve ReadCurve(const std::string& path) {
  Curve curve;
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream row(line);
    double step = 0, truth = 0, single = 0;
    char comma = 0;
    if (!(row >> step >> comma >> truth >> comma >> single)) continue;
    curve.own_gap = std::max(curve.own_gap, std::abs(single - truth) / truth);
    if (curve.truth.size() < 50) curve.truth.push_back(truth);
  }
  return curve;
}

// The optimizers by the names of the curves' files (their README has the rules).
OptimizerSpec Optimizer(const std::string& name, double learning_rate) {
  OptimizerSpec spec;
  spec.kind = name == "sgd_wd" ? "sgd" : name;
  spec.learning_rate = learning_rate;
  if (name == "sgd_wd" || name == "adamw") spec.weight_decay = 0.01;
  return spec;
}

TrainingRun MnistRun(const std::string& corpora, const std::string& model) {
  TrainingRun run;
  run.model = corpora + "/training-models/" + model + ".onnx";
  run.data = {{"x", corpora + "/mnist/train-images-idx3-ubyte"},
              {"labels", corpora + "/mnist/train-labels-idx1-ubyte"}};
  return run;
}

struct CurveCase {
  std::string model;
  std::string optimizer;
  double learning_rate;
  // In a curve of lenet_mnist one flipped near-tie (a ReLU or a maximum) parts two runs for good:
  // with sgd at step 11, where the loss climbs to 2.75, with momentum at step 44, where some
  // numbers of micro-batches come to gaps of 0.003 and others stay below 1e-6. Whether it flips
  // hangs on the last bit, so these curves are run in the mode that fixes the bits.
  bool strict = false;
};

class TrainingCurves : public ::testing::TestWithParam<CurveCase> {
 protected:
  void SetUp() override {
    if (!CorporaFolder()) GTEST_SKIP() << "WEFT_CORPORA is not set: no reference curves";
  }
};

TEST_P(TrainingCurves, MatchDoublePrecision) {
  const CurveCase& param = GetParam();
  TrainingRun run = MnistRun(*CorporaFolder(), param.model);
  run.optimizer = Optimizer(param.optimizer, param.learning_rate);
  run.plan.strict = param.strict;
  if (param.strict) run.plan.micro_batches = 4;
  const Curve curve = ReadCurve(*CorporaFolder() + "/training-models/curves/" + param.model + "." +
                                param.optimizer + ".csv");
  ASSERT_EQ(curve.truth.size(), 50u);
  const auto outcome = weft::testing::Run(run);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  const double gap = LargestRelativeGap(outcome->losses, curve.truth);
  std::cout << param.model << " " << param.optimizer << ": gap " << gap << ", the file's own "
            << curve.own_gap << "\n";
  EXPECT_LE(gap, std::max(10 * curve.own_gap, 1e-5));
}

INSTANTIATE_TEST_SUITE_P(
    Models, TrainingCurves,
    ::testing::Values(
        CurveCase{"mlp_mnist", "sgd", 0.1}, CurveCase{"mlp_mnist", "momentum", 0.01},
        CurveCase{"mlp_mnist", "nesterov", 0.01}, CurveCase{"mlp_mnist", "sgd_wd", 0.1},
        CurveCase{"mlp_mnist", "adam", 0.001}, CurveCase{"mlp_mnist", "adamw", 0.001},
        CurveCase{"mlp_mnist", "adagrad", 0.01}, CurveCase{"mlp_mnist", "rmsprop", 0.001},
        CurveCase{"lenet_mnist", "sgd", 0.05, true},
        CurveCase{"lenet_mnist", "momentum", 0.01, true}, CurveCase{"lenet_mnist", "adam", 0.001}),
    [](const auto& info) { return info.param.model + "_" + info.param.optimizer; });

class FirstGradients : public ::testing::TestWithParam<std::string> {};

TEST_P(FirstGradients, MatchDoublePrecision) {
  if (!CorporaFolder()) GTEST_SKIP() << "WEFT_CORPORA is not set: no reference gradients";
  TrainingRun run = MnistRun(*CorporaFolder(), GetParam());
  run.optimizer = Optimizer("sgd", 0.1);
  run.steps = 1;
  run.gradients = true;
  const auto outcome = weft::testing::Run(run);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_FALSE(outcome->gradients.empty());
  for (const auto& [name, gradient] : outcome->gradients) {
    const auto truth = ReadDataFile(
        RealFileSystem(), *CorporaFolder() + "/" + GetParam() + ".step0/grad." + name + ".npy");
    ASSERT_TRUE(truth.ok()) << truth.status();
    const auto expected = ToDoubles(*truth);
    const auto actual = ToDoubles(gradient);
    ASSERT_TRUE(expected.ok() && actual.ok());
    ASSERT_EQ(actual->size(), expected->size());
    double largest = 0;
    double gap = 0;
    for (size_t i = 0; i < expected->size(); ++i) {
      largest = std::max(largest, std::abs((*expected)[i]));
      const double difference = std::abs((*expected)[i] - (*actual)[i]);
      gap = std::isnan(difference) ? HUGE_VAL : std::max(gap, difference);
    }
    EXPECT_LE(gap, 1e-5 * largest) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, FirstGradients, ::testing::Values("mlp_mnist", "lenet_mnist"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace weft::testing
