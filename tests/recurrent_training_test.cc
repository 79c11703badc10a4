// The corpora's LSTM in training, held to numbers in double precision: losses of 50 updates and
// the gradients of the first batch. They were computed by the equations of LSTM and their chain
// rule, written out with numpy (gradients agreed with central differences to 1e-8), from the file's
// weights on batches k of the training images 64k to 64k + 63, pixels divided by 255.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/training_run.h"

namespace weft::testing {
namespace {

TrainingRun LstmRun() {
  TrainingRun run;
  run.model = *CorporaFolder() + "/training-models/lstm_mnist.onnx";
  run.data = {{"x", *CorporaFolder() + "/mnist/train-images-idx3-ubyte"},
              {"labels", *CorporaFolder() + "/mnist/train-labels-idx1-ubyte"}};
  return run;
}

class RecurrentTraining : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!CorporaFolder()) GTEST_SKIP() << "WEFT_CORPORA is not set: no model and no images";
  }
};

TEST_F(RecurrentTraining, LossesAreThoseInDoublePrecision) {
  struct Curve {
    std::string optimizer;
    double learning_rate;
    std::map<int, double> losses;  // by step
  };
  const std::vector<Curve> curves = {{"sgd",
                                      0.5,
                                      {{0, 2.3018593808139967},
                                       {1, 2.2975392543870408},
                                       {4, 2.3126225407759824},
                                       {9, 2.2951765475479013},
                                       {24, 2.2738420300175926},
                                       {49, 1.99332627098929}}},
                                     {"adam",
                                      0.001,
                                      {{0, 2.3018593808139967},
                                       {1, 2.298980833845772},
                                       {4, 2.3031591781913825},
                                       {9, 2.2891299314619244},
                                       {24, 2.2269790998158507},
                                       {49, 1.8300659905645578}}}};
  for (const Curve& curve : curves) {
    TrainingRun run = LstmRun();
    run.optimizer.kind = curve.optimizer;
    run.optimizer.learning_rate = curve.learning_rate;
    const auto outcome = weft::testing::Run(run);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    ASSERT_EQ(outcome->losses.size(), 50u);
    for (const auto& [step, loss] : curve.losses) {
      EXPECT_NEAR(outcome->losses[step], loss, 1e-5 * loss) << curve.optimizer << " " << step;
    }
  }
}

// Of each gradient g: its norm, its largest magnitude, and the sums of g[i] cos(i) and g[i] sin(i).
TEST_F(RecurrentTraining, FirstGradientsAreThoseInDoublePrecision) {
  struct Sums {
    double norm, largest, cosines, sines;
  };
  const std::map<std::string, Sums> expected = {
      {"lstm.W",
       {0.0496304151913354, 0.00709768217450317, -0.0117749460696009, 0.00383578231207175}},
      {"lstm.R", {0.0551943949224462, 0.00383619540372558, 0.022524353786599, -0.0489299802547203}},
      {"lstm.B",
       {0.105251707829531, 0.0246382573808537, -0.171436022381898, -6.59264762175593e-05}},
      {"fc.weight",
       {0.0315256707100359, 0.00464501709943456, 0.0130973088712822, -0.0109642195057669}},
      {"fc.bias",
       {0.0900439096293806, 0.0407663902466211, 0.0750504279985767, 0.00950983651913677}}};
  TrainingRun run = LstmRun();
  run.steps = 1;
  run.gradients = true;
  const auto outcome = weft::testing::Run(run);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_EQ(outcome->gradients.size(), expected.size());
  for (const auto& [name, sums] : expected) {
    SCOPED_TRACE(name);
    const std::vector<double> gradient = ToDoubles(outcome->gradients.at(name)).value();
    double square = 0, largest = 0, cosines = 0, sines = 0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      square += gradient[i] * gradient[i];
      largest = std::max(largest, std::abs(gradient[i]));
      cosines += gradient[i] * std::cos(static_cast<double>(i));
      sines += gradient[i] * std::sin(static_cast<double>(i));
    }
    // An error of 1e-5 of the largest in every element would change a sum by that much.
    const double rounding = 1e-5 * sums.largest * std::sqrt(static_cast<double>(gradient.size()));
    EXPECT_NEAR(std::sqrt(square), sums.norm, rounding);
    EXPECT_NEAR(largest, sums.largest, 1e-5 * sums.largest);
    EXPECT_NEAR(cosines, sums.cosines, rounding);
    EXPECT_NEAR(sines, sums.sines, rounding);
  }
}

}  // namespace
}  // namespace weft::testing
