#include "placement/search/alternatives.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/node_runner.h"
#include "placement/completion/plan_completion.h"
#include "placement/testing/regression_graph.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

// Two replicas of a batch of 4,096 samples, of which a byte each is alive as long as its
// micro-batch is.
class AlternativesTest : public ::testing::Test {
 protected:
  // "WHAT: micro-batches" of the alternatives when `max_samples` samples of a replica may be alive.
  std::vector<std::string> Find(int64_t max_samples) {
    SearchOptions options;
    options.global_batch = kBatch;
    options.memory_limits = {max_samples, max_samples};
    Plan refused;
    refused.mesh = {2, 1, 1};
    refused.micro_batches = 2;
    refused = *CompletePlan(graph_, cluster_, refused, kBatch);
    std::vector<int> micro_batches;
    const auto memory_of = [&](const Plan& plan) -> absl::StatusOr<std::vector<int64_t>> {
      micro_batches.push_back(plan.micro_batches);
      return std::vector<int64_t>(2, kBatch / plan.micro_batches);
    };
    const std::vector<Alternative> found =
        FindAlternatives(graph_, cluster_, CostModel::OfSpec(cluster_).value(), refused, options,
                         memory_of, CpuNodeEvaluator());
    max_tried_ = *std::max_element(micro_batches.begin(), micro_batches.end());
    std::vector<std::string> texts;
    for (const Alternative& alternative : found) {
      texts.push_back(alternative.what + ": " + alternative.parallel);
    }
    return texts;
  }

  static constexpr int64_t kBatch = 4096;
  const Graph graph_ = testing::RegressionGraph();
  const ClusterSpec cluster_ = ClusterSpec::Local(2, 1);
  int max_tried_ = 0;
};

// There were at most 32 of a replica.
TEST_F(AlternativesTest, CutsIntoAsManyMicroBatchesAsItTakes) {
  const std::vector<std::string> found = Find(/*max_samples=*/10);
  EXPECT_THAT(found, ::testing::Contains("more micro-batches: dp=2,tp=1,pp=1,micro=512"));
}

TEST_F(AlternativesTest, CutsIntoNoMoreThanAJobCompilesInTime) {
  EXPECT_THAT(Find(/*max_samples=*/1), ElementsAre());
  EXPECT_EQ(max_tried_, 1024);
}

}  // namespace
}  // namespace weft
