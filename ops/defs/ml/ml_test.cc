// ai.onnx.ml against values worked out by hand.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

constexpr char kDomain[] = "ai.onnx.ml";
const float kNan = std::numeric_limits<float>::quiet_NaN();
const Tolerance kClose = {.of_magnitude = 1e-6};

Tensor Floats(Shape shape, const std::vector<float>& values) {
  return Tensor::Of<float>(std::move(shape), values);
}

::testing::AssertionResult Gives(const OpCase& op_case, const std::vector<Tensor>& expected) {
  for (const int threads : {1, 2}) {
    const auto outputs = RunOp(op_case, Kernels::kProduction, threads);
    if (!outputs.ok()) return ::testing::AssertionFailure() << outputs.status();
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto near = TensorsNear((*outputs)[i], expected[i], kClose);
      if (!near) return near;
    }
  }
  return ::testing::AssertionSuccess();
}

// ---- Trees

// x0 <= 1 ? (x1 < 5 ? leaf 0 : leaf 1) : leaf 2, with votes 1 for target 0, 10 and 100 for 1.
Attributes TwoNodes() {
  return {{"tree_roots", std::vector<int64_t>{0}},
          {"nodes_modes", Tensor::Of<uint8_t>({2}, std::vector<uint8_t>{0, 1})},
          {"nodes_splits", Floats({2}, {1, 5})},
          {"nodes_featureids", std::vector<int64_t>{0, 1}},
          {"nodes_truenodeids", std::vector<int64_t>{1, 0}},
          {"nodes_trueleafs", std::vector<int64_t>{0, 1}},
          {"nodes_falsenodeids", std::vector<int64_t>{2, 1}},
          {"nodes_falseleafs", std::vector<int64_t>{1, 1}},
          {"leaf_targetids", std::vector<int64_t>{0, 1, 1}},
          {"leaf_weights", Floats({3}, {1, 10, 100})},
          {"n_targets", int64_t{2}}};
}

OpCase Trees(Attributes attributes) {
  return {.domain = kDomain,
          .op = "TreeEnsemble",
          .attributes = std::move(attributes),
          .inputs = {Floats({4, 2}, {1, 4, 0, 5, 2, 0, kNan, 0})}};
}

TEST(TreeEnsemble, FollowsTheBranches) {
  EXPECT_TRUE(Gives(Trees(TwoNodes()), {Floats({4, 2}, {1, 0, 0, 10, 0, 100, 0, 100})}));
  Attributes missing = TwoNodes();
  missing.Set("nodes_missing_value_tracks_true", std::vector<int64_t>{1, 0});
  EXPECT_TRUE(Gives(Trees(missing), {Floats({4, 2}, {1, 0, 0, 10, 0, 100, 1, 0})}));
}

TEST(TreeEnsemble, AggregatesTrees) {
  // The second tree is the first one's lower node.
  const std::vector<std::vector<float>> expected = {{1, 0, 0, 10, .5f, 50, .5f, 50},
                                                    {2, 0, 0, 20, 1, 100, 1, 100},
                                                    {1, 0, 0, 10, 1, 100, 1, 100},
                                                    {1, 0, 0, 10, 1, 100, 1, 100}};
  for (int64_t aggregate = 0; aggregate < 4; ++aggregate) {
    Attributes attributes = TwoNodes();
    attributes.Set("tree_roots", std::vector<int64_t>{0, 1});
    attributes.Set("aggregate_function", aggregate);
    EXPECT_TRUE(Gives(Trees(attributes), {Floats({4, 2}, expected[aggregate])})) << aggregate;
  }
}

TEST(TreeEnsemble, MembersOfSets) {
  Attributes attributes = TwoNodes();
  attributes.Set("nodes_modes", Tensor::Of<uint8_t>({2}, std::vector<uint8_t>{6, 6}));
  attributes.Set("membership_values", Floats({5}, {2, 0, kNan, 4, kNan}));
  // Node 0 asks for {0, 2}, node 1 for {4}.
  EXPECT_TRUE(Gives(Trees(attributes), {Floats({4, 2}, {0, 100, 0, 10, 0, 10, 0, 100})}));
}

TEST(TreeEnsemble, RefusesBrokenTrees) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  Attributes cyclic = TwoNodes();
  cyclic.Set("nodes_trueleafs", std::vector<int64_t>{0, 0});
  EXPECT_TRUE(ExpectError(Trees(cyclic), invalid, {"cycle"}));
  Attributes outside = TwoNodes();
  outside.Set("nodes_falsenodeids", std::vector<int64_t>{3, 1});
  EXPECT_TRUE(ExpectError(Trees(outside), invalid, {"node 0 of 2", "unknown"}));
  Attributes feature = TwoNodes();
  feature.Set("nodes_featureids", std::vector<int64_t>{0, 7});
  EXPECT_TRUE(ExpectError(Trees(feature), invalid, {"feature 7", "X has 2 features"}));
  const int64_t max_index = std::numeric_limits<int64_t>::max();
  feature.Set("nodes_featureids", std::vector<int64_t>{max_index, 0});
  EXPECT_TRUE(ExpectError(Trees(feature), invalid, {"feature 9223372036854775807"}));
  Attributes votes = TwoNodes();
  votes.Set("leaf_targetids", std::vector<int64_t>{0, 1, max_index});
  EXPECT_TRUE(ExpectError(Trees(votes), invalid, {"votes for target 9223372036854775807"}));
  votes.Erase("n_targets");
  EXPECT_TRUE(ExpectError(Trees(votes), invalid, {"1099511627777 targets"}));
  Attributes target = TwoNodes();
  target.Set("leaf_targetids", std::vector<int64_t>{0, 1, 2});
  EXPECT_TRUE(ExpectError(Trees(target), invalid, {"target 2 of 2"}));
  Attributes sets = TwoNodes();
  sets.Set("nodes_modes", Tensor::Of<uint8_t>({2}, std::vector<uint8_t>{0, 6}));
  EXPECT_TRUE(ExpectError(Trees(sets), invalid, {"membership_values holds 0 sets"}));
}

// The same tree in the form of version 1; `votes`: "target" or "class".
Attributes OldTree(const std::string& votes) {
  const std::vector<std::string> modes = {"BRANCH_LEQ", "BRANCH_LT", "LEAF", "LEAF", "LEAF"};
  return {{"nodes_treeids", std::vector<int64_t>{7, 7, 7, 7, 7}},
          {"nodes_nodeids", std::vector<int64_t>{0, 1, 2, 3, 4}},
          {"nodes_modes", modes},
          {"nodes_values", std::vector<float>{1, 5, 0, 0, 0}},
          {"nodes_featureids", std::vector<int64_t>{0, 1, 0, 0, 0}},
          {"nodes_truenodeids", std::vector<int64_t>{1, 2, 0, 0, 0}},
          {"nodes_falsenodeids", std::vector<int64_t>{4, 3, 0, 0, 0}},
          {votes + "_treeids", std::vector<int64_t>{7, 7, 7}},
          {votes + "_nodeids", std::vector<int64_t>{2, 3, 4}},
          {votes + "_ids", std::vector<int64_t>{0, 1, 1}},
          {votes + "_weights", std::vector<float>{1, 10, 100}}};
}

TEST(TreeEnsemble, RegressorAndClassesOfTheOldForm) {
  OpCase regressor = Trees(OldTree("target"));
  regressor.op = "TreeEnsembleRegressor";
  regressor.attributes.Set("n_targets", int64_t{2});
  regressor.attributes.Set("base_values", std::vector<float>{0.5f, 2});
  EXPECT_TRUE(Gives(regressor, {Floats({4, 2}, {1.5f, 2, .5f, 12, .5f, 102, .5f, 102})}));
  OpCase classes = Trees(OldTree("class"));
  classes.domain = "ai.weft";
  classes.op = "TreeEnsembleClassify";
  classes.attributes.Set("classes", int64_t{3});
  classes.outputs = {true, true};
  EXPECT_TRUE(Gives(
      classes, {Int64s({0, 1, 1, 1}), Floats({4, 3}, {1, 0, 0, 0, 10, 0, 0, 100, 0, 0, 100, 0})}));
}

TEST(TreeEnsemble, TwoClassesWithVotesForOne) {
  OpCase classes = Trees(OldTree("class"));
  classes.domain = "ai.weft";
  classes.op = "TreeEnsembleClassify";
  classes.attributes.Set("class_ids", std::vector<int64_t>{0, 0, 0});
  classes.attributes.Set("class_weights", std::vector<float>{0.25f, 0.5f, 1});
  classes.attributes.Set("classes", int64_t{2});
  classes.outputs = {true, true};
  EXPECT_TRUE(
      Gives(classes, {Int64s({0, 0, 1, 1}), Floats({4, 2}, {.75f, .25f, .5f, .5f, 0, 1, 0, 1})}));
}

// ---- Linear models

TEST(LinearModels, Regression) {
  const OpCase op_case{.domain = kDomain,
                       .op = "LinearRegressor",
                       .attributes = {{"coefficients", std::vector<float>{1, 2, 3, 4}},
                                      {"intercepts", std::vector<float>{10, 20}},
                                      {"targets", int64_t{2}}},
                       .inputs = {Floats({2, 2}, {1, 1, 2, 0})}};
  EXPECT_TRUE(Gives(op_case, {Floats({2, 2}, {13, 27, 12, 26})}));
}

TEST(LinearModels, ClassesByScores) {
  OpCase op_case{.domain = "ai.weft",
                 .op = "LinearClassify",
                 .attributes = {{"coefficients", std::vector<float>{1, 0, 0, 1, 1, 1}},
                                {"intercepts", std::vector<float>{0, 0, -10}},
                                {"classes", int64_t{3}}},
                 .inputs = {Floats({2, 2}, {3, 1, 9, 8})},
                 .outputs = {true, true}};
  EXPECT_TRUE(Gives(op_case, {Int64s({0, 0}), Floats({2, 3}, {3, 1, -6, 9, 8, 7})}));
  op_case.attributes = {{"coefficients", std::vector<float>{1, -1}},
                        {"classes", int64_t{2}},
                        {"post_transform", std::string("LOGISTIC")}};
  const float p = 1 / (1 + std::exp(-2.0f));
  const float q = 1 / (1 + std::exp(-1.0f));
  EXPECT_TRUE(Gives(op_case, {Int64s({1, 1}), Floats({2, 2}, {1 - p, p, 1 - q, q})}));
}

TEST(LinearModels, WrongSizesAreNamed) {
  const OpCase op_case{.domain = kDomain,
                       .op = "LinearRegressor",
                       .attributes = {{"coefficients", std::vector<float>{1, 2, 3}}},
                       .inputs = {Floats({2, 2}, {1, 1, 2, 0})}};
  EXPECT_TRUE(ExpectError(op_case, absl::StatusCode::kInvalidArgument,
                          {"coefficients has 3 elements, expected 2"}));
}

// ---- Support vector machines

TEST(Svm, RegressionWithEveryKernel) {
  OpCase op_case{.domain = kDomain,
                 .op = "SVMRegressor",
                 .attributes = {{"coefficients", std::vector<float>{2, -1}},
                                {"support_vectors", std::vector<float>{1, 0, 0, 1}},
                                {"n_supports", int64_t{2}},
                                {"rho", std::vector<float>{0.5f}},
                                {"kernel_params", std::vector<float>{0.5f, 1, 2}}},
                 .inputs = {Floats({1, 2}, {3, 4})}};
  const std::vector<std::pair<std::string, double>> expected = {
      {"LINEAR", 2 * 3 - 4 + 0.5},
      {"POLY", 2 * 2.5 * 2.5 - 3 * 3 + 0.5},
      {"RBF", 2 * std::exp(-0.5 * 20) - std::exp(-0.5 * 18) + 0.5},
      {"SIGMOID", 2 * std::tanh(2.5) - std::tanh(3.0) + 0.5}};
  for (const auto& [kernel, value] : expected) {
    op_case.attributes.Set("kernel_type", kernel);
    EXPECT_TRUE(Gives(op_case, {Floats({1, 1}, {static_cast<float>(value)})})) << kernel;
  }
}

TEST(Svm, MachinesOfPairsVote) {
  // One vector per class, the unit vectors; linear.
  const OpCase op_case{
      .domain = "ai.weft",
      .op = "SvmClassify",
      .attributes = {{"classes", int64_t{3}},
                     {"vectors_per_class", std::vector<int64_t>{1, 1, 1}},
                     {"support_vectors", std::vector<float>{1, 0, 0, 0, 1, 0, 0, 0, 1}},
                     {"coefficients", std::vector<float>{1, -1, -1, 1, 1, -1}},
                     {"rho", std::vector<float>{0, 0, 0}}},
      .inputs = {Floats({2, 3}, {1, 5, 2, 4, 1, 2})},
      .outputs = {true, true}};
  EXPECT_TRUE(Gives(op_case, {Int64s({1, 0}), Floats({2, 3}, {-4, -1, 3, 3, 2, -1})}));
}

// ---- Features

TEST(Features, BinarizerAndScaler) {
  const OpCase binarizer{.domain = kDomain,
                         .op = "Binarizer",
                         .attributes = {{"threshold", 1.5f}},
                         .inputs = {Int64s({1, 2, -3})}};
  EXPECT_TRUE(Gives(binarizer, {Int64s({0, 1, 0})}));
  const OpCase scaler{
      .domain = kDomain,
      .op = "Scaler",
      .attributes = {{"offset", std::vector<float>{1, 2}}, {"scale", std::vector<float>{10}}},
      .inputs = {Floats({2, 2}, {1, 2, 3, 4})}};
  EXPECT_TRUE(Gives(scaler, {Floats({2, 2}, {0, 0, 20, 20})}));
}

TEST(Features, NormalizerAndImputer) {
  OpCase normalizer{.domain = kDomain,
                    .op = "Normalizer",
                    .attributes = {{"norm", std::string("L2")}},
                    .inputs = {Floats({2, 2}, {3, -4, 0, 0})}};
  EXPECT_TRUE(Gives(normalizer, {Floats({2, 2}, {.6f, -.8f, 0, 0})}));
  normalizer.attributes.Set("norm", std::string("L1"));
  EXPECT_TRUE(Gives(normalizer, {Floats({2, 2}, {3.0f / 7, -4.0f / 7, 0, 0})}));
  normalizer.attributes.Set("norm", std::string("MAX"));
  EXPECT_TRUE(Gives(normalizer, {Floats({2, 2}, {.75f, -1, 0, 0})}));
  const OpCase imputer{.domain = kDomain,
                       .op = "Imputer",
                       .attributes = {{"imputed_value_floats", std::vector<float>{7, 8}},
                                      {"replaced_value_float", kNan}},
                       .inputs = {Floats({2, 2}, {kNan, 1, 2, kNan})}};
  EXPECT_TRUE(Gives(imputer, {Floats({2, 2}, {7, 1, 2, 8})}));
}

TEST(Features, ImputedFloatsEndAtTheBoundsOfWholeNumbers) {
  const OpCase imputer{.domain = kDomain,
                       .op = "Imputer",
                       .attributes = {{"imputed_value_floats", std::vector<float>{1e30f}},
                                      {"replaced_value_float", kNan}},
                       .inputs = {Int64s({0, 5})}};
  EXPECT_TRUE(Gives(imputer, {Int64s({std::numeric_limits<int64_t>::max(), 5})}));
}

TEST(Features, VectorizerCutsAndFills) {
  const OpCase op_case{
      .domain = kDomain,
      .op = "FeatureVectorizer",
      .attributes = {{"inputdimensions", std::vector<int64_t>{1, 3}}},
      .inputs = {Int64s({1, 2, 3, 4}).Reshaped({2, 2}), Floats({2, 2}, {5, 6, 7, 8})}};
  EXPECT_TRUE(Gives(op_case, {Floats({2, 4}, {1, 5, 6, 0, 3, 7, 8, 0})}));
}

}  // namespace
}  // namespace weft::testing
