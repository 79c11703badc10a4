#include "training/job/batch_cuts.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/testing/test_tensors.h"
#include "placement/completion/plan_completion.h"
#include "platform/testing/fake_file_system.h"
#include "training/data/data_file.h"
#include "training/graph/training_graph.h"
#include "training/job/job.h"
#include "training/job/job_search.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kBatch = 16;
constexpr int64_t kFeatures = 32;

ValueType FloatType(std::vector<Dim> dims) {
  return {ValueKind::kTensor, DType::kFloat32, SymbolicShape(std::move(dims))};
}

enum class Kind { kPlain, kNormalized, kPairs };

// x W, normalized over the batch, or compared with all samples of the batch. `fixed`, if above 0:
// the samples that a Reshape says there are, as exporters bake them in.
Graph ModelOf(Kind kind, int64_t fixed = 0) {
  Graph graph;
  GraphBuilder b(graph);
  const auto weight = [&](const std::string& name, std::vector<Dim> dims, bool trainable = true) {
    return graph.AddVariable(name, FloatType(std::move(dims)), Tensor(), trainable);
  };
  const ValueId x = graph.AddInput("x", FloatType({Dim::Symbol("N"), Dim(kFeatures)}));
  b.set_name_prefix("layer/");
  ValueId y = b.Op("MatMul", {x, weight("w", {Dim(kFeatures), Dim(kFeatures)})});
  if (fixed > 0) y = b.Op("Reshape", {y, b.Ints({fixed, kFeatures})});
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
  return graph;
}

Graph TrainingGraphOf(Kind kind, int64_t fixed = 0) {
  auto training = BuildTrainingGraph(ModelOf(kind, fixed), {});
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

std::string RefusalOf(Kind kind, JobSpec spec, int64_t fixed = 0) {
  const absl::Status status = LimitBatchCuts(TrainingGraphOf(kind, fixed), kBatch, spec);
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

// Replicas, or micro-batches, of all plans that the search looked at: the chosen one and the best
// other one of each mesh.
std::vector<int> ReplicasIn(const SearchResult& found) {
  std::vector<int> replicas = {found.chosen.choice.mesh.data};
  for (const PlanCandidate& other : found.rejected) replicas.push_back(other.choice.mesh.data);
  return replicas;
}
std::vector<int> MicroBatchesIn(const SearchResult& found) {
  std::vector<int> counts = {found.chosen.choice.micro_batches};
  for (const PlanCandidate& other : found.rejected) counts.push_back(other.choice.micro_batches);
  return counts;
}

absl::StatusOr<Plan> Complete(Kind kind, const JobSpec& spec) {
  return CompletePlan(TrainingGraphOf(kind), spec.cluster, spec.plan, kBatch);
}

TEST(BatchCutsTest, WithoutMixingNothingIsLimited) {
  JobSpec spec = SpecOf(4, /*searches=*/true);
  spec.plan.micro_batches = 4;
  spec.search.keep_micro_batches = true;
  ASSERT_TRUE(LimitBatchCuts(TrainingGraphOf(Kind::kPlain), kBatch, spec).ok());
  EXPECT_FALSE(spec.plan.whole_batch);
  EXPECT_EQ(spec.plan.micro_batches, 4);
  EXPECT_EQ(spec.search.max_replicas, 0);
  EXPECT_EQ(spec.search.batch_reason, "");
}

// A plan of one replica alone would have one micro-batch without any limit.
TEST(BatchCutsTest, StatisticsGiveEachReplicaOneMicroBatch) {
  JobSpec spec = SpecOf(4, /*searches=*/true);
  spec.search.may_leave_out = false;
  const SearchResult found = Search(Kind::kNormalized, spec);
  EXPECT_TRUE(found.plan.whole_batch);
  EXPECT_EQ(found.plan.micro_batches, found.plan.mesh.data);
  EXPECT_THAT(ReplicasIn(found), Contains(4));
  EXPECT_EQ(MicroBatchesIn(found), ReplicasIn(found));
  EXPECT_THAT(found.batch_reason,
              AllOf(HasSubstr("each replica has one micro-batch"),
                    HasSubstr("(BatchNormalization) computes statistics over the samples")));
}

// All workers are used: for so small a model one alone would be the fastest with or without limit.
TEST(BatchCutsTest, PairsAreSearchedForOnOneReplica) {
  JobSpec spec = SpecOf(2, /*searches=*/true);
  spec.search.may_leave_out = false;
  JobSpec plain = spec;
  EXPECT_THAT(ReplicasIn(Search(Kind::kPlain, plain)), Contains(2));
  EXPECT_THAT(MicroBatchesIn(Search(Kind::kPlain, plain)), Not(Each(1)));
  const SearchResult found = Search(Kind::kPairs, spec);
  EXPECT_THAT(ReplicasIn(found), Each(1));
  EXPECT_THAT(MicroBatchesIn(found), Each(1));
  EXPECT_EQ(found.plan.mesh.size(), 2);
  EXPECT_THAT(found.batch_reason, AllOf(HasSubstr("in one micro-batch on one replica"),
                                        HasSubstr("(MatMul) pairs each sample")));
}

// Sums over replicas have other bits than one replica's.
TEST(BatchCutsTest, AStrictJobKeepsTheBatchOnOneReplica) {
  JobSpec spec = SpecOf(2, /*searches=*/true);
  spec.plan.micro_batches = 4;
  spec.search.default_micro_batches = true;
  JobSpec strict = spec;
  strict.plan.strict = true;
  ASSERT_TRUE(LimitBatchCuts(TrainingGraphOf(Kind::kNormalized), kBatch, spec).ok());
  EXPECT_EQ(spec.search.max_replicas, 0);
  ASSERT_TRUE(LimitBatchCuts(TrainingGraphOf(Kind::kNormalized), kBatch, strict).ok());
  EXPECT_EQ(strict.plan.micro_batches, 1);
  EXPECT_EQ(strict.search.max_replicas, 1);
}

// Only the steps of a training sum statistics over replicas (placement/pipeline/whole_batch.h).
TEST(BatchCutsTest, AnEvaluationKeepsWhateverMixesOnOneReplica) {
  const Graph graph = TrainingGraphOf(Kind::kNormalized);
  JobSpec spec = SpecOf(2, /*searches=*/true);
  ASSERT_TRUE(LimitBatchCuts(graph, kBatch, spec, /*evaluation=*/true).ok());
  EXPECT_EQ(spec.search.max_replicas, 1);
  spec = SpecOf(2, /*searches=*/false);
  spec.plan.mesh.data = 2;
  EXPECT_THAT(std::string(LimitBatchCuts(graph, kBatch, spec, /*evaluation=*/true).message()),
              AllOf(HasSubstr("one micro-batch on one replica"), HasSubstr("--batch-norm micro")));
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
  EXPECT_EQ(Complete(Kind::kNormalized, spec)->micro_batches, 4);
  EXPECT_THAT(RefusalOf(Kind::kPairs, spec), HasSubstr("--allow-batch-cut"));
  spec.batch_policy.allows_cuts = true;
  EXPECT_TRUE(LimitBatchCuts(TrainingGraphOf(Kind::kPairs), kBatch, spec).ok());
  EXPECT_FALSE(spec.plan.whole_batch);
  EXPECT_EQ(Complete(Kind::kPairs, spec)->micro_batches, 4);
}

// ---- Graphs that do not fit any number of samples.

// Four replicas have four samples each. The graph was looked at for all 16, which it does not fit,
// and the batch was cut without a word.
TEST(BatchCutsTest, AGraphIsLookedAtForTheSamplesOfAReplica) {
  JobSpec spec = SpecOf(4, /*searches=*/false);
  EXPECT_THAT(RefusalOf(Kind::kPairs, spec, /*fixed=*/4), HasSubstr("pairs each sample"));
  spec.plan.mesh.data = 4;
  EXPECT_THAT(RefusalOf(Kind::kPairs, spec, /*fixed=*/4), HasSubstr("pairs each sample"));
  EXPECT_TRUE(LimitBatchCuts(TrainingGraphOf(Kind::kPlain, /*fixed=*/4), kBatch, spec).ok());
  EXPECT_FALSE(spec.plan.whole_batch);
}

// A search would find the number that fits.
TEST(BatchCutsTest, AGraphThatIsSearchedForIsLookedAtForSizesThatDivideTheBatch) {
  JobSpec spec = SpecOf(4, /*searches=*/true);
  ASSERT_TRUE(LimitBatchCuts(TrainingGraphOf(Kind::kNormalized, /*fixed=*/4), kBatch, spec).ok());
  EXPECT_TRUE(spec.plan.whole_batch);
  EXPECT_EQ(spec.search.max_replicas, 0);
  EXPECT_THAT(spec.search.batch_reason, HasSubstr("computes statistics"));
}

// The search was limited to one replica with all 16 samples, for which the shapes have no room.
// What came of that was an error of a Reshape, and no word of the flag that helps.
TEST(BatchCutsTest, AWholeBatchThatShapesDoNotAllowIsRefusedWithTheFlag) {
  JobSpec spec = SpecOf(4, /*searches=*/true);
  EXPECT_THAT(RefusalOf(Kind::kPairs, spec, /*fixed=*/4),
              AllOf(HasSubstr("pairs each sample"),
                    HasSubstr("shapes in the model do not allow the whole batch"),
                    HasSubstr("--allow-batch-cut"), Not(HasSubstr("take one micro-batch"))));
  spec.batch_policy.allows_cuts = true;
  EXPECT_TRUE(LimitBatchCuts(TrainingGraphOf(Kind::kPairs, /*fixed=*/4), kBatch, spec).ok());
  // All 16 fit: one replica takes them.
  JobSpec whole = SpecOf(4, /*searches=*/true);
  ASSERT_TRUE(LimitBatchCuts(TrainingGraphOf(Kind::kPairs, /*fixed=*/16), kBatch, whole).ok());
  EXPECT_EQ(whole.search.max_replicas, 1);
}

// Shapes say that there are seven samples, and no number of equal micro-batches has seven.
TEST(BatchCutsTest, AGraphThatCannotBeLookedAtIsNotCutUnasked) {
  JobSpec spec = SpecOf(2, /*searches=*/false);
  spec.plan.mesh.data = 2;
  EXPECT_THAT(RefusalOf(Kind::kPlain, spec, /*fixed=*/7),
              AllOf(HasSubstr("cutting the batch may change results: whether nodes mix its samples "
                              "is not known: "),
                    HasSubstr("--allow-batch-cut")));
  spec.batch_policy.allows_cuts = true;
  EXPECT_TRUE(LimitBatchCuts(TrainingGraphOf(Kind::kPlain, /*fixed=*/7), kBatch, spec).ok());
  JobSpec searched = SpecOf(2, /*searches=*/true);
  ASSERT_TRUE(LimitBatchCuts(TrainingGraphOf(Kind::kPlain, /*fixed=*/7), kBatch, searched).ok());
  EXPECT_EQ(searched.search.max_replicas, 1);
  EXPECT_THAT(searched.search.batch_reason, HasSubstr("is not known"));
}

// There is no other way to run it, and no sample beside another. It is said all the same.
TEST(BatchCutsTest, SingleSamplesAreCutAndThatIsSaid) {
  JobSpec spec = SpecOf(4, /*searches=*/false);
  spec.plan.mesh.data = 4;
  spec.plan.micro_batches = 16;
  spec.plan.whole_batch = true;  // of a plan file
  ASSERT_TRUE(LimitBatchCuts(TrainingGraphOf(Kind::kPairs, /*fixed=*/1), kBatch, spec).ok());
  EXPECT_FALSE(spec.plan.whole_batch);
  EXPECT_EQ(spec.plan.micro_batches, 16);
  EXPECT_THAT(spec.search.batch_reason, AllOf(HasSubstr("each micro-batch has one sample"),
                                              HasSubstr("fix the batch to one sample")));
}

// ---- Advice that works.

// As a plan file has it. To say whole_batch: false there was no way: the limits set it again, and a
// flag did not take it back.
TEST(BatchCutsTest, WhatARefusedWholeBatchIsToldToSayWorks) {
  JobSpec spec = SpecOf(2, /*searches=*/false);
  spec.plan.mesh.data = 2;
  spec.plan.whole_batch = true;
  spec.plan.strict = true;
  spec.plan.micro_batches = 2;
  EXPECT_THAT(std::string(Complete(Kind::kNormalized, spec).status().message()),
              AllOf(HasSubstr("sums over 2 replicas have others; take one replica, or accept"),
                    HasSubstr("--batch-norm micro where BatchNormalization mixes samples"),
                    HasSubstr("--allow-batch-cut whatever does")));
  JobSpec micro = spec;
  micro.batch_policy.statistics_of_micro_batches = true;
  ASSERT_TRUE(LimitBatchCuts(TrainingGraphOf(Kind::kNormalized), kBatch, micro).ok());
  EXPECT_TRUE(Complete(Kind::kNormalized, micro).ok());
  JobSpec cut = spec;
  cut.batch_policy.allows_cuts = true;
  ASSERT_TRUE(LimitBatchCuts(TrainingGraphOf(Kind::kPairs), kBatch, cut).ok());
  EXPECT_TRUE(Complete(Kind::kPairs, cut).ok());
  JobSpec alone = SpecOf(1, /*searches=*/false);
  alone.plan.whole_batch = true;
  alone.plan.strict = true;
  ASSERT_TRUE(LimitBatchCuts(TrainingGraphOf(Kind::kNormalized), kBatch, alone).ok());
  EXPECT_TRUE(Complete(Kind::kNormalized, alone).ok());
}

TEST(BatchCutsTest, MicroBatchesThatAWholeBatchIsToldToHaveWork) {
  JobSpec spec = SpecOf(2, /*searches=*/false);
  spec.plan.mesh.data = 2;
  spec.plan.whole_batch = true;
  spec.plan.micro_batches = 4;
  EXPECT_THAT(std::string(Complete(Kind::kNormalized, spec).status().message()),
              HasSubstr("but it has 4 micro-batches; say --micro-batches 2, or accept"));
  spec.plan.micro_batches = 2;
  ASSERT_TRUE(LimitBatchCuts(TrainingGraphOf(Kind::kNormalized), kBatch, spec).ok());
  EXPECT_TRUE(Complete(Kind::kNormalized, spec)->whole_batch);
}

// Where a search is given up, what was given is completed: nothing, which means all workers.
TEST(BatchCutsTest, ASearchThatFailsLeavesTheBatchOnOneReplica) {
  JobSpec spec = SpecOf(2, /*searches=*/true);
  ASSERT_TRUE(LimitBatchCuts(TrainingGraphOf(Kind::kPairs), kBatch, spec).ok());
  KeepReplicaLimit(spec);
  const auto plan = Complete(Kind::kPairs, spec);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->mesh.size(), 1);
  EXPECT_EQ(plan->micro_batches, 1);
  spec = SpecOf(2, /*searches=*/true);
  ASSERT_TRUE(LimitBatchCuts(TrainingGraphOf(Kind::kNormalized), kBatch, spec).ok());
  KeepReplicaLimit(spec);
  EXPECT_EQ(Complete(Kind::kNormalized, spec)->mesh.data, 2);
}

// What a job of two stages that does not fit is told that would.
std::string AlternativesFor(Kind kind) {
  testing::FakeFileSystem files;
  DataSpec data_spec;
  data_spec.batch = kBatch;
  const auto write = [&](const std::string& input, const Tensor& tensor) {
    const std::string path = "/" + input + ".npy";
    EXPECT_TRUE(files.WriteFileAtomically(path, *ToNpy(tensor)).ok());
    data_spec.files.push_back({input, path, 0});
  };
  write("x", testing::RandomTensor({kBatch, kFeatures}, 1));
  write("labels", testing::RandomTensor({kBatch}, 2, 0, kBatch, DType::kInt64));
  const auto data = DataSet::Open(files, data_spec);
  EXPECT_TRUE(data.ok()) << data.status();
  JobSpec spec = SpecOf(2, /*searches=*/false);
  spec.plan.mesh.pipeline = 2;
  const auto job = PrepareTraining(ModelOf(kind), {}, spec, *data);
  EXPECT_TRUE(job.ok()) << job.status();
  if (!job.ok()) return "";
  EXPECT_TRUE(job->plan.whole_batch);
  const CostModel costs = CostModel::OfSpec(spec.cluster).value();
  const absl::Status error =
      AddAlternatives(absl::ResourceExhaustedError("too large"), *job, spec, costs);
  return std::string(error.message());
}

// A batch whose statistics replicas sum was never told to take more replicas.
TEST(BatchCutsTest, AlternativesHaveAsManyReplicasAsTheLimitAllows) {
  EXPECT_THAT(AlternativesFor(Kind::kNormalized), HasSubstr("--parallel dp=2"));
  EXPECT_THAT(AlternativesFor(Kind::kPairs), AllOf(HasSubstr("too large"), Not(HasSubstr("dp=2"))));
}

}  // namespace
}  // namespace weft
