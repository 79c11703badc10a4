#include "training/graph/metric.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/testing/graph_evaluator.h"
#include "platform/random.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

ValueType TypeOf(DType dtype, std::vector<Dim> dims) {
  return {ValueKind::kTensor, dtype, SymbolicShape(std::move(dims))};
}

constexpr int64_t kBatch = 50;

// A model that gives its input back, whose metric is measured batch by batch.
class MetricTest : public ::testing::Test {
 protected:
  void Add(const LossSpec& loss, const std::string& metric, std::vector<Dim> sample) {
    sample.insert(sample.begin(), Dim::Symbol("N"));
    graph_.AddOutput(graph_.AddInput("x", TypeOf(DType::kFloat32, std::move(sample))));
    auto means = AddMetric(builder_, loss, metric, kBatch);
    ASSERT_TRUE(means.ok()) << means.status();
    means_ = *std::move(means);
  }

  void Measure(const Tensor& x, const Tensor& labels) {
    std::vector<ValueId> wanted;
    for (const MetricMean& mean : means_) {
      wanted.push_back(mean.parts.sum);
      wanted.push_back(mean.parts.weight);
    }
    const auto values = testing::EvaluateGraph(
        graph_, {{*graph_.FindValue("x"), x}, {*graph_.FindValue("labels"), labels}}, wanted,
        KernelRegistry::Global());
    ASSERT_TRUE(values.ok()) << values.status();
    std::map<std::string, Tensor> reports;
    for (size_t i = 0; i < means_.size(); ++i) {
      const double weight = (*ToDoubles((*values)[2 * i + 1]))[0];
      if (means_[i].is_list) {
        reports[means_[i].name] = (*values)[2 * i];
      } else {
        const double sum = (*ToDoubles((*values)[2 * i]))[0];
        reports[means_[i].name] = Tensor::Scalar<double>(sum / weight);
      }
      reports[absl::StrCat(means_[i].name, kWeightSuffix)] = Tensor::Scalar<double>(weight);
    }
    totals_.Add(reports);
  }

  double Value(const std::string& metric) const {
    const auto values = totals_.Values();
    return values.contains(metric) ? values.at(metric) : -1;
  }

  Graph graph_;
  GraphBuilder builder_{graph_};
  std::vector<MetricMean> means_;
  MetricTotals totals_;
};

Tensor Scores(const std::vector<float>& values) {
  return Tensor::Of<float>({static_cast<int64_t>(values.size()) / 3, 3}, values);
}

TEST_F(MetricTest, AccuracyCountsRightAnswersOfAllBatches) {
  Add({}, "accuracy", {3});
  Measure(Scores({1, 2, 3, 5, 0, 0, 0, 1, 0}), Tensor::Of<int64_t>({3}, {2, 1, 1}));
  Measure(Scores({9, 2, 3}), Tensor::Of<int64_t>({1}, {0}));
  EXPECT_NEAR(Value("accuracy"), 3.0 / 4, 1e-12);
}

TEST_F(MetricTest, IgnoredLabelsCountNowhere) {
  Add({.ignore_index = 2}, "accuracy", {3});
  Measure(Scores({1, 2, 3, 5, 0, 0, 0, 1, 0}), Tensor::Of<int64_t>({3}, {2, 1, 1}));
  EXPECT_NEAR(Value("accuracy"), 1.0 / 2, 1e-12);
}

TEST_F(MetricTest, ABatchInWhichNothingCountsHasNoMean) {
  Add({.ignore_index = 2}, "accuracy", {3});
  Measure(Scores({1, 2, 3}), Tensor::Of<int64_t>({1}, {2}));
  Measure(Scores({1, 5, 3}), Tensor::Of<int64_t>({1}, {1}));
  EXPECT_EQ(Value("accuracy"), 1);
}

TEST_F(MetricTest, TopKLooksAtTheBestK) {
  Add({}, "top2", {3});
  Measure(Scores({1, 2, 3, 5, 0, 1, 0, 1, 2}), Tensor::Of<int64_t>({3}, {1, 1, 2}));
  EXPECT_NEAR(Value("top2"), 2.0 / 3, 1e-6);
}

TEST_F(MetricTest, TopKOfASequence) {
  Add({.kind = "sequence_cross_entropy", .ignore_index = 0}, "top2", {2, 3});
  Measure(Tensor::Of<float>({1, 2, 3}, {1, 2, 3, 5, 0, 1}), Tensor::Of<int64_t>({1, 2}, {0, 1}));
  EXPECT_EQ(Value("top2"), 0);
}

TEST_F(MetricTest, AccuracyOfSoftLabels) {
  Add({.soft_labels = true}, "accuracy", {3});
  Measure(Scores({1, 2, 3, 5, 0, 0}), Tensor::Of<float>({2, 3}, {0, 0.25, 0.75, 0.25, 0.5, 0.25}));
  EXPECT_EQ(Value("accuracy"), 0.5);
}

TEST_F(MetricTest, AccuracyOfYesAndNo) {
  Add({.kind = "bce_with_logits"}, "accuracy", {3});
  Measure(Scores({1, -2, 3, -1, 0, 2}), Tensor::Of<float>({2, 3}, {1, 0, 0, 1, 0, 1}));
  EXPECT_NEAR(Value("accuracy"), 4.0 / 6, 1e-6);
}

TEST_F(MetricTest, PerplexityIsTakenOfTheWholeMeanWithoutSmoothing) {
  Add({.label_smoothing = 0.5}, "perplexity", {3});
  // Evenly likely: 3. Then as good as certain.
  Measure(Scores({0, 0, 0, 1, 1, 1, 2, 2, 2}), Tensor::Of<int64_t>({3}, {0, 1, 2}));
  Measure(Scores({100, 0, 0}), Tensor::Of<int64_t>({1}, {0}));
  EXPECT_NEAR(Value("perplexity"), std::exp(std::log(3) * 3 / 4), 1e-6);
}

TEST_F(MetricTest, ErrorsAreMeansOverElements) {
  Add({.kind = "mse"}, "mae", {2});
  Measure(Tensor::Of<float>({2, 2}, {1, 2, 3, 4}), Tensor::Of<float>({2, 2}, {1, 0, 4, 4}));
  EXPECT_EQ(Value("mae"), 0.75);
}

TEST_F(MetricTest, SquaredErrorOfAnyLossOfNumbers) {
  Add({.kind = "huber"}, "mse", {2});
  Measure(Tensor::Of<float>({2, 2}, {1, 2, 3, 4}), Tensor::Of<float>({2, 2}, {1, 0, 4, 4}));
  EXPECT_EQ(Value("mse"), 1.25);
}

TEST_F(MetricTest, R2IsOfTheWholeSet) {
  Add({.kind = "mse"}, "r2", {1});
  // Labels 1, 2, 3, 6: mean 3, squares of distances 14. Errors: 0.25 + 0.25 + 0 + 4.
  Measure(Tensor::Of<float>({3, 1}, {1.5, 2.5, 3}), Tensor::Of<float>({3, 1}, {1, 2, 3}));
  Measure(Tensor::Of<float>({1, 1}, {4}), Tensor::Of<float>({1, 1}, {6}));
  EXPECT_NEAR(Value("r2"), 1 - 4.5 / 14, 1e-12);
}

TEST_F(MetricTest, R2KeepsItsDigitsFarFromZero) {
  Add({.kind = "mse"}, "r2", {1});
  Measure(Tensor::Of<float>({2, 1}, {10000, 10001}), Tensor::Of<float>({2, 1}, {10000, 10002}));
  EXPECT_NEAR(Value("r2"), 0.5, 1e-6);
}

// All pairs, one by one.
double AucByPairs(const std::vector<float>& scores, const std::vector<int>& labels) {
  double right = 0, pairs = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    for (size_t k = 0; k < scores.size(); ++k) {
      if (labels[i] != 1 || labels[k] != 0) continue;
      pairs += 1;
      right += scores[i] > scores[k] ? 1 : scores[i] == scores[k] ? 0.5 : 0;
    }
  }
  return right / pairs;
}

// Scores of both classes that overlap, with many ties.
struct Rated {
  std::vector<float> scores;
  std::vector<int> labels;
};
Rated RatedSamples(int count) {
  RandomSequence random(RandomKey(5, "auc"));
  Rated rated;
  for (int i = 0; i < count; ++i) {
    rated.labels.push_back(static_cast<int>(random.Below(2)));
    rated.scores.push_back(static_cast<float>(random.Below(9) + 3 * rated.labels.back()) / 8);
  }
  return rated;
}

TEST_F(MetricTest, AucIsTheShareOfPairsInOrder) {
  Add({.kind = "bce_with_logits"}, "auc", {1});
  const Rated rated = RatedSamples(2 * kBatch + 7);
  for (size_t first = 0; first < rated.scores.size(); first += kBatch) {
    const int64_t count = std::min<int64_t>(kBatch, rated.scores.size() - first);
    const auto begin = rated.scores.begin() + first;
    const auto label = rated.labels.begin() + first;
    Measure(Tensor::Of<float>({count, 1}, std::vector<float>(begin, begin + count)),
            Tensor::Of<float>({count, 1}, std::vector<float>(label, label + count)));
  }
  const double expected = AucByPairs(rated.scores, rated.labels);
  EXPECT_NEAR(Value("auc"), expected, 1e-12);
  EXPECT_GT(expected, 0.7);
  EXPECT_LT(expected, 0.95);
}

TEST_F(MetricTest, AucOfTwoClassesLeavesOutIgnoredLabels) {
  Add({.ignore_index = -100}, "auc", {2});
  const Rated rated = RatedSamples(kBatch);
  std::vector<float> scores;
  std::vector<int64_t> labels;
  std::vector<float> counted;
  std::vector<int> classes;
  for (size_t i = 0; i < rated.scores.size(); ++i) {
    scores.insert(scores.end(), {-rated.scores[i], 0.5f});
    labels.push_back(i % 5 == 0 ? -100 : rated.labels[i]);
    if (i % 5 == 0) continue;
    counted.push_back(rated.scores[i]);
    classes.push_back(rated.labels[i]);
  }
  Measure(Tensor::Of<float>({kBatch, 2}, scores), Tensor::Of<int64_t>({kBatch}, labels));
  EXPECT_NEAR(Value("auc"), AucByPairs(counted, classes), 1e-12);
}

TEST_F(MetricTest, ScoresFarApartAreNotTies) {
  Add({.kind = "bce_with_logits"}, "auc", {1});
  // Probabilities of all are 1 in float32.
  Measure(Tensor::Of<float>({4, 1}, {40, 50, 60, 1e30f}), Tensor::Of<float>({4, 1}, {0, 1, 0, 1}));
  EXPECT_EQ(Value("auc"), 0.75);
}

TEST(AreaUnderCurveTest, OneClassAloneHasNone) {
  EXPECT_TRUE(std::isnan(AreaUnderCurve({1, 2}, {1, 1})));
  EXPECT_TRUE(std::isnan(AreaUnderCurve({}, {})));
  EXPECT_TRUE(std::isnan(AreaUnderCurve({std::nan(""), 2}, {1, 0})));
}

std::string Refusal(const LossSpec& loss, const std::string& metric) {
  Graph graph;
  graph.AddOutput(graph.AddInput("x", TypeOf(DType::kFloat32, {Dim::Symbol("N"), 3})));
  GraphBuilder builder(graph);
  return std::string(AddMetric(builder, loss, metric, kBatch).status().message());
}

TEST(MetricErrors, AMetricMustSuitTheLoss) {
  EXPECT_THAT(Refusal({}, "mae"), HasSubstr("the labels of softmax_cross_entropy are classes"));
  EXPECT_THAT(Refusal({.kind = "mse"}, "accuracy"), HasSubstr("accuracy needs scores of classes"));
  EXPECT_THAT(Refusal({.kind = "mse"}, "top2"), HasSubstr("top2 needs scores of classes"));
  EXPECT_THAT(Refusal({.kind = "mse"}, "perplexity"), HasSubstr("needs a cross entropy"));
  EXPECT_THAT(Refusal({}, "auc"), HasSubstr("auc is of two classes, one sample a row"));
  EXPECT_THAT(Refusal({.kind = "mse"}, "auc"), HasSubstr("auc needs one score per sample"));
  EXPECT_THAT(Refusal({}, "top4"), HasSubstr("top4 of 3 classes holds every label"));
}

TEST(MetricErrors, AnUnknownMetricNamesTheNearest) {
  EXPECT_EQ(
      std::string(CheckMetric("perplexty").message()),
      "no metric 'perplexty', did you mean 'perplexity'?; there are accuracy, auc, loss, mae, "
      "mse, perplexity, r2 and topK (top5)");
  EXPECT_FALSE(CheckMetric("top").ok());
  EXPECT_FALSE(CheckMetric("top0").ok());
}

}  // namespace
}  // namespace weft
