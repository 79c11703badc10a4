#include "training/job/batch_cuts.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "training/graph/training_graph.h"
#include "training/job/job_search.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kBatch = 16;
constexpr int64_t kFeatures = 32;

ValueType FloatType(std::vector<Dim> dims) {
  return {ValueKind::kTensor, DType::kFloat32, SymbolicShape(std::move(dims))};
}

enum class Kind { kPlain, kNormalized, kPairs };

// x W, normalized over the batch, or compared with all samples of the batch.
Graph TrainingGraphOf(Kind kind) {
  Graph graph;
  GraphBuilder b(graph);
  const auto weight = [&](const std::string& name, std::vector<Dim> dims, bool trainable = true) {
    return graph.AddVariable(name, FloatType(std::move(dims)), Tensor(), trainable);
  };
  const ValueId x = graph.AddInput("x", FloatType({Dim::Symbol("N"), Dim(kFeatures)}));
  b.set_name_prefix("layer/");
  ValueId y = b.Op("MatMul", {x, weight("w", {Dim(kFeatures), Dim(kFeatures)})});
  if (kind == Kind::kNormalized) {
    y = b.Op("BatchNormalization",
             {y, weight("scale", {Dim(kFeatures)}), weight("shift", {Dim(kFeatures)}),
              weight("mean", {Dim(kFeatures)}, false), weight("var", {Dim(kFeatures)}, false)},
             {{"training_mode", int64_t{1}}});
  } else if (kind == Kind::kPairs) {
    y = b.Op("MatMul", {y, b.Op("Transpose", {x}, {{"perm", std::vector<int64_t>{1, 0}}})});
  }
  b.Name(y, "y");
  graph.AddOutput(y);
  EXPECT_TRUE(b.status().ok()) << b.status();
  auto training = BuildTrainingGraph(graph, {});
  EXPECT_TRUE(training.ok()) << training.status();
  return *std::move(training);
}

JobSpec SpecOf(int workers, bool searches) {
  JobSpec spec;
  spec.cluster = ClusterSpec::Local(workers, 1);
  spec.search.wanted = searches;
  spec.search.may_leave_out = true;
  return spec;
}

std::string RefusalOf(Kind kind, JobSpec spec) {
  const absl::Status status = LimitBatchCuts(TrainingGraphOf(kind), kBatch, spec);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

SearchResult Search(Kind kind, JobSpec& spec) {
  const Graph graph = TrainingGraphOf(kind);
  EXPECT_TRUE(LimitBatchCuts(graph, kBatch, spec).ok());
  const CostModel costs = CostModel::OfSpec(spec.cluster).value();
  auto found = SearchJobPlan(graph, spec, costs, kBatch);
  EXPECT_TRUE(found.ok()) << found.status();
  return *std::move(found);
}

TEST(BatchCutsTest, WithoutMixingNothingIsLimited) {
  JobSpec spec = SpecOf(4, /*searches=*/true);
  spec.plan.micro_batches = 4;
  spec.search.keep_micro_batches = true;
  ASSERT_TRUE(LimitBatchCuts(TrainingGraphOf(Kind::kPlain), kBatch, spec).ok());
  EXPECT_FALSE(spec.plan.whole_batch);
  EXPECT_EQ(spec.plan.micro_batches, 4);
  EXPECT_EQ(spec.search.batch_reason, "");
}

TEST(BatchCutsTest, StatisticsGiveEachReplicaOneMicroBatch) {
  JobSpec spec = SpecOf(4, /*searches=*/true);
  spec.search.may_leave_out = false;
  const SearchResult found = Search(Kind::kNormalized, spec);
  EXPECT_TRUE(found.plan.whole_batch);
  EXPECT_EQ(found.plan.micro_batches, found.plan.mesh.data);
  EXPECT_THAT(found.batch_reason,
              AllOf(HasSubstr("each replica has one micro-batch"),
                    HasSubstr("(BatchNormalization) computes statistics over the samples")));
}

TEST(BatchCutsTest, PairsAreSearchedForOnOneReplica) {
  JobSpec spec = SpecOf(2, /*searches=*/true);
  const SearchResult found = Search(Kind::kPairs, spec);
  EXPECT_EQ(found.plan.mesh.data, 1);
  EXPECT_EQ(found.plan.micro_batches, 1);
  EXPECT_THAT(found.batch_reason, AllOf(HasSubstr("in one micro-batch on one replica"),
                                        HasSubstr("(MatMul) pairs each sample")));
  for (const PlanCandidate& other : found.rejected) {
    EXPECT_EQ(other.choice.mesh.data, 1) << ParallelText(other.choice);
    EXPECT_EQ(other.choice.micro_batches, 1) << ParallelText(other.choice);
  }
}

// Sums over replicas have other bits than one replica's.
TEST(BatchCutsTest, AStrictJobKeepsTheBatchOnOneReplica) {
  JobSpec spec = SpecOf(2, /*searches=*/true);
  spec.plan.strict = true;
  spec.plan.micro_batches = 4;
  spec.search.default_micro_batches = true;
  ASSERT_TRUE(LimitBatchCuts(TrainingGraphOf(Kind::kNormalized), kBatch, spec).ok());
  EXPECT_EQ(spec.plan.micro_batches, 1);
  EXPECT_EQ(spec.search.max_replicas, 1);
}

TEST(BatchCutsTest, GivenCutsAreRefusedWithNodeReasonAndFlag) {
  JobSpec spec = SpecOf(2, /*searches=*/true);
  spec.plan.micro_batches = 4;
  spec.search.keep_micro_batches = true;
  EXPECT_THAT(RefusalOf(Kind::kNormalized, spec),
              AllOf(HasSubstr("node 'layer/"), HasSubstr("computes statistics"),
                    HasSubstr("--batch-norm micro")));
  spec = SpecOf(2, /*searches=*/false);
  spec.plan.mesh.data = 2;
  EXPECT_THAT(RefusalOf(Kind::kPairs, spec),
              AllOf(HasSubstr("pairs each sample with all others"), HasSubstr("on axis 1 of"),
                    HasSubstr("--allow-batch-cut")));
}

TEST(BatchCutsTest, WhatIsAcceptedIsCut) {
  JobSpec spec = SpecOf(2, /*searches=*/false);
  spec.plan.mesh.data = 2;
  spec.plan.micro_batches = 4;
  spec.batch_policy.statistics_of_micro_batches = true;
  EXPECT_TRUE(LimitBatchCuts(TrainingGraphOf(Kind::kNormalized), kBatch, spec).ok());
  EXPECT_FALSE(spec.plan.whole_batch);
  EXPECT_THAT(RefusalOf(Kind::kPairs, spec), HasSubstr("--allow-batch-cut"));
  spec.batch_policy.allows_cuts = true;
  EXPECT_TRUE(LimitBatchCuts(TrainingGraphOf(Kind::kPairs), kBatch, spec).ok());
  EXPECT_FALSE(spec.plan.whole_batch);
}

}  // namespace
}  // namespace weft
