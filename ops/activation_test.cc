#include "ops/activation.h"

#include <cmath>

#include "gtest/gtest.h"

namespace weft {
namespace {

std::vector<Activation> Read(const Attributes& attributes, int directions = 1) {
  const auto activations = ReadActivations(attributes, {"Sigmoid", "Tanh", "Tanh"}, directions);
  EXPECT_TRUE(activations.ok()) << activations.status();
  return *activations;
}

TEST(ActivationTest, ComputesEachByHand) {
  const struct {
    ActivationKind kind;
    double alpha, beta, x, y;
  } cases[] = {{ActivationKind::kRelu, 0, 0, -2, 0},
               {ActivationKind::kRelu, 0, 0, 2, 2},
               {ActivationKind::kTanh, 0, 0, 1, std::tanh(1.0)},
               {ActivationKind::kSigmoid, 0, 0, 0, 0.5},
               {ActivationKind::kAffine, 2, 3, 4, 11},
               {ActivationKind::kLeakyRelu, 0.5, 0, -2, -1},
               {ActivationKind::kThresholdedRelu, 1, 0, 1, 0},
               {ActivationKind::kThresholdedRelu, 1, 0, 1.5, 1.5},
               {ActivationKind::kScaledTanh, 2, 0.5, 2, 2 * std::tanh(1.0)},
               {ActivationKind::kHardSigmoid, 0.2, 0.5, 1, 0.7},
               {ActivationKind::kHardSigmoid, 0.2, 0.5, 5, 1},
               {ActivationKind::kElu, 2, 0, -1, 2 * (std::exp(-1.0) - 1)},
               {ActivationKind::kSoftsign, 0, 0, -3, -0.75},
               {ActivationKind::kSoftplus, 0, 0, 0, std::log(2.0)},
               {ActivationKind::kSoftplus, 0, 0, 800, 800}};
  for (const auto& c : cases) {
    EXPECT_DOUBLE_EQ((Activation{c.kind, c.alpha, c.beta}(c.x)), c.y)
        << static_cast<int>(c.kind) << " of " << c.x;
  }
}

TEST(ActivationTest, RepeatsTheDefaultsPerDirection) {
  const std::vector<Activation> activations = Read({}, 2);
  ASSERT_EQ(activations.size(), 6);
  EXPECT_EQ(activations[3].kind, ActivationKind::kSigmoid);
  EXPECT_EQ(activations[5].kind, ActivationKind::kTanh);
}

TEST(ActivationTest, GivesAlphasInOrderToThoseThatHaveThem) {
  const std::vector<Activation> activations =
      Read({{"activations", std::vector<std::string>{"leakyrelu", "Tanh", "HardSigmoid"}},
            {"activation_alpha", std::vector<float>{0.25f, 0.75f}},
            {"activation_beta", std::vector<float>{0.125f}}});
  EXPECT_EQ(activations[0].alpha, 0.25);
  EXPECT_EQ(activations[2].alpha, 0.75);
  EXPECT_EQ(activations[2].beta, 0.125);
  EXPECT_EQ(Read({{"activations", std::vector<std::string>{"LeakyRelu", "Tanh", "Tanh"}}})[0].alpha,
            0.01);
}

TEST(ActivationTest, SaysWhatIsWrong) {
  const std::vector<std::string> fallback = {"Sigmoid", "Tanh", "Tanh"};
  EXPECT_EQ(ReadActivations({{"activations", std::vector<std::string>{"Tanh"}}}, fallback, 1)
                .status()
                .message(),
            "attribute 'activations' has 1 names, expected 3");
  EXPECT_EQ(ReadActivations({{"activations", std::vector<std::string>{"Tan", "Tanh", "Tanh"}}},
                            fallback, 1)
                .status()
                .message(),
            "attribute 'activations' names 'Tan', which is no activation");
}

}  // namespace
}  // namespace weft
