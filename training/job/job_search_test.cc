#include "training/job/job_search.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/node_runner.h"
#include "ops/testing/test_tensors.h"
#include "placement/cost/published_specs.h"
#include "placement/cost/testing/round_profile.h"
#include "placement/partition/partition_summary.h"
#include "placement/partition/partitioner.h"
#include "platform/byte_quantity.h"
#include "platform/testing/fake_file_system.h"
#include "training/data/data_file.h"
#include "training/data/data_set.h"
#include "training/graph/training_graph.h"
#include "training/job/compiled_memory.h"
#include "training/job/job.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kBatch = 16;
constexpr int64_t kWidth = 1024;
constexpr int64_t kProcessBytes = int64_t{16} << 20;

TrainingSpec MeanSquares() {
  TrainingSpec spec;
  spec.loss = ParseLoss("mse").value();
  spec.optimizer.kind = "sgd";
  return spec;
}

// Four layers, 16 MiB of weights.
Graph FourLayersModel() {
  Graph model;
  GraphBuilder b(model);
  ValueId x = model.AddInput(
      "x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape({Dim::Symbol("N"), Dim(kWidth)})});
  for (int i = 0; i < 4; ++i) {
    b.set_name_prefix(absl::StrCat("layer", i, "/"));
    const ValueId weight = model.AddVariable(
        absl::StrCat("w", i), {ValueKind::kTensor, DType::kFloat32, Shape{kWidth, kWidth}},
        Tensor(), true);
    x = b.Op("Tanh", {b.Op("MatMul", {x, weight})});
  }
  model.AddOutput(x);
  EXPECT_TRUE(b.status().ok()) << b.status();
  return model;
}

Graph FourLayers() {
  auto graph = BuildTrainingGraph(FourLayersModel(), MeanSquares());
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

JobSpec OneWorker(int64_t memory) {
  JobSpec spec;
  spec.cluster = ClusterSpec::Local(1, 1);
  spec.memory_per_worker = memory;
  spec.search.wanted = true;
  spec.search.keep_micro_batches = true;
  spec.plan.micro_batches = 2;
  return spec;
}

SearchResult Search(const Graph& graph, const JobSpec& spec) {
  const CostModel costs = CostModel::OfSpec(spec.cluster).value();
  auto found = SearchJobPlan(graph, spec, costs, kBatch);
  EXPECT_TRUE(found.ok()) << found.status();
  return *std::move(found);
}

// A search once judged by an estimate that no compile agreed with: it knows neither workspaces of
// kernels nor packed weights nor sums of gradients. Then a plan that fitted was refused.
TEST(JobSearchTest, NearItsLimitAPlanIsJudgedByWhatItsCompileFinds) {
  const Graph graph = FourLayers();
  const JobSpec wide = OneWorker(int64_t{16} << 30);
  const SearchResult estimated = Search(graph, wide);
  EXPECT_FALSE(estimated.chosen.compiled);
  const JobSpec narrow = OneWorker(estimated.chosen.memory_bytes * 3);
  const SearchResult found = Search(graph, narrow);
  EXPECT_TRUE(found.chosen.compiled);

  const std::vector<Partition> partitions =
      PartitionStep(graph, found.plan, {/*training=*/true, kBatch}, CpuNodeEvaluator()).value();
  const int64_t compiled = CompiledMemory(narrow.cluster)(partitions.front(), 0).value();
  EXPECT_EQ(found.chosen.memory_bytes, compiled + kProcessBytes);
  // The sums of four matrices are alive when the last one is made.
  const RankSummary summary = Summarize(partitions.front()).value();
  EXPECT_GT(compiled, summary.variable_bytes + summary.arena_bytes);
}

// Two workers: the first computes ten times as fast as the second, and has its host behind a slow
// link. Between them a message takes a second, so that one of them does it all.
CostModel FastBehindASlowLink(const std::vector<std::string>& host_ops) {
  ClusterProfile profile = RoundProfile({0, 0});
  profile.devices.push_back(RoundDevice());
  profile.devices[0].contraction[DType::kFloat32] = {{{1, 1e10}}};
  profile.devices[0].host_bytes_per_second = 1e6;
  profile.devices[0].host_copy_seconds = 1e-3;
  profile.device_of = {0, 1};
  profile.within_host = RoundLink(1, 1e3);
  profile.within_host.through_host = true;  // measured where one of both has no card
  return ModelOf(std::move(profile)).WithHostOps(host_ops);
}

// Copies of [16,1024] floats at 1 MB/s take longer than the second worker's products.
TEST(JobSearchTest, AFastWorkerIsLeftOutWhereItsFallbackCostsMoreThanItGains) {
  const Graph graph = FourLayers();
  JobSpec spec = OneWorker(int64_t{16} << 30);
  spec.cluster = ClusterSpec::Local(2, 1);
  spec.search.may_leave_out = true;
  spec.plan.micro_batches = 1;
  const auto workers_of = [&](const std::vector<std::string>& host_ops) {
    spec.plan.host_ops = host_ops;
    const auto found = SearchJobPlan(graph, spec, FastBehindASlowLink(host_ops), kBatch);
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? found->plan.workers : std::vector<int>();
  };
  EXPECT_EQ(workers_of({}), std::vector<int>{0});
  EXPECT_EQ(workers_of({"Tanh"}), std::vector<int>{1});
}

// One after the other on one worker: the step grows by what each Tanh takes longer on the host.
TEST(JobSearchTest, TheSearchCountsTheCopiesOfEachNodeOnTheHost) {
  const Graph graph = FourLayers();
  JobSpec spec = OneWorker(int64_t{16} << 30);
  spec.plan.micro_batches = 1;
  const auto seconds_of = [&](const std::vector<std::string>& host_ops) {
    spec.plan.host_ops = host_ops;
    ClusterProfile profile = FastBehindASlowLink({}).profile();
    profile.device_of = {0};
    profile.host_of = {0};
    const CostModel costs = ModelOf(std::move(profile)).WithHostOps(host_ops);
    const auto found = SearchJobPlan(graph, spec, costs, kBatch);
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? found->chosen.step_seconds : 0;
  };
  const NodeProbe tanh("Tanh", {Shape{kBatch, kWidth}});
  const double on_device = FastBehindASlowLink({}).NodeSeconds(tanh.View(), 0, 1);
  const double on_host = 2 * 1e-3 + 2 * 4 * kBatch * kWidth / 1e6;  // and its work, which is little
  const double more = seconds_of({"Tanh"}) - seconds_of({});
  EXPECT_NEAR(more, 4 * (on_host - on_device), 1e-2 * more);
}

// Rows for both inputs.
std::shared_ptr<const DataSet> DataOfLayers(testing::FakeFileSystem& files) {
  DataSpec data_spec;
  data_spec.batch = kBatch;
  for (const std::string& input : {std::string("x"), std::string("labels")}) {
    const std::string path = absl::StrCat("/", input, ".npy");
    const Tensor rows = testing::RandomTensor({kBatch, kWidth}, 1);
    EXPECT_TRUE(files.WriteFileAtomically(path, *ToNpy(rows)).ok());
    data_spec.files.push_back({input, path, 0});
  }
  const auto data = DataSet::Open(files, data_spec);
  EXPECT_TRUE(data.ok()) << data.status();
  return *data;
}

// No plan fitted, the search said, and a job that was refused without advice had another exit code
// than one whose plan was given.
TEST(JobSearchTest, APlanThatFitsByItsEstimateAloneIsRefusedWithWhatWouldFit) {
  testing::FakeFileSystem files;
  const std::shared_ptr<const DataSet> data = DataOfLayers(files);
  const JobSpec wide = OneWorker(int64_t{16} << 30);
  const auto roomy = PrepareTraining(FourLayersModel(), MeanSquares(), wide, data);
  ASSERT_TRUE(roomy.ok()) << roomy.status();
  const int64_t compiled =
      CompiledMemory(wide.cluster)(roomy->programs.front().partitions.front(), 0).value();
  EXPECT_EQ(roomy->plan.prediction.memory_bytes.front(), compiled);

  // What placement alone knows of leaves out the copy that checkpoints are written from.
  JobSpec spec = OneWorker(compiled + kProcessBytes + (int64_t{1} << 20));
  spec.checkpoints = true;
  const CostModel costs = CostModel::OfSpec(spec.cluster).value();
  EXPECT_EQ(SearchJobPlan(roomy->graph, spec, costs, kBatch).status().code(),
            absl::StatusCode::kResourceExhausted);
  const auto job = PrepareTraining(FourLayersModel(), MeanSquares(), spec, data);
  ASSERT_TRUE(job.ok()) << job.status();
  const absl::Status refused = CheckPlanFits(*job, spec, costs);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("the job was refused before anything was started; "));
}

// A rank was compiled for the plan's prediction and once more for this check. What the first found
// is handed on: a figure that no compile finds is believed.
TEST(JobSearchTest, WhatThePredictionCompiledIsNotCompiledForTheCheck) {
  testing::FakeFileSystem files;
  const JobSpec spec = OneWorker(int64_t{16} << 30);
  auto job = PrepareTraining(FourLayersModel(), MeanSquares(), spec, DataOfLayers(files));
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_EQ(job->planned.size(), 1u);
  ASSERT_TRUE(job->planned.front().has_value());
  const CostModel costs = CostModel::OfSpec(spec.cluster).value();
  EXPECT_TRUE(CheckPlanFits(*job, spec, costs).ok());
  job->planned.front()->memory.arena_bytes += int64_t{16} << 30;
  EXPECT_EQ(CheckPlanFits(*job, spec, costs).code(), absl::StatusCode::kResourceExhausted);
}

// Of its memory the program has what CUDA's context leaves: the file's figure, or the card's. What
// lies on the host does not count. The worker is of another machine, as this one may have no card.
TEST(JobSearchTest, AProgramThatDoesNotFitItsGpuIsRefused) {
  testing::FakeFileSystem files;
  JobSpec spec;
  spec.cluster = ClusterSpec::Local(1, 1);
  WorkerSpec& worker = spec.cluster.workers.front();
  worker.device = DeviceKind::kCuda;
  worker.address = "unix:/nowhere";
  worker.model = "H100-80GB";
  auto job = PrepareTraining(FourLayersModel(), MeanSquares(), spec, DataOfLayers(files));
  ASSERT_TRUE(job.ok()) << job.status();
  const CostModel costs = CostModel::OfSpec(spec.cluster).value();
  const int64_t card = costs.MemoryBytes(0);
  ASSERT_GT(card, int64_t{70} << 30);
  for (const int64_t given : {int64_t{0}, int64_t{2} << 30}) {
    worker.memory_bytes = given;
    const int64_t limit = (given > 0 ? given : card) - kContextBytes;
    PlannedProgram planned;
    planned.memory.on_device = true;
    planned.memory.variable_bytes = int64_t{600} << 20;
    planned.memory.device_constant_bytes = 5;
    planned.memory.packed_bytes = 3;
    planned.memory.arena_bytes = limit - planned.memory.variable_bytes - 5 - 3;
    planned.memory.staging_bytes = planned.memory.constant_bytes = card;
    job->planned = {planned};
    EXPECT_TRUE(CheckPlanFits(*job, spec, costs).ok());
    ++job->planned.front()->memory.arena_bytes;
    const absl::Status refused = CheckPlanFits(*job, spec, costs);
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr(absl::StrCat(worker.name, " may have ", ByteQuantity(limit),
                                             " of its GPU's memory and needs ")),
                      HasSubstr("variables 600 MiB, arena "),
                      HasSubstr("the job was refused before anything was started; ")));
  }
}

// Two replicas on two GPUs, with the buffers of their communicator.
TEST(JobSearchTest, AGpuWithoutRoomForNcclIsRefused) {
  testing::FakeFileSystem files;
  JobSpec spec;
  spec.cluster = ClusterSpec::Local(2, 1);
  for (int i = 0; i < 2; ++i) {
    WorkerSpec& worker = spec.cluster.workers[static_cast<size_t>(i)];
    worker.device = DeviceKind::kCuda;
    worker.device_index = i;
    worker.address = "unix:/nowhere";
    worker.memory_bytes = int64_t{2} << 30;
  }
  spec.plan.mesh.data = 2;
  spec.plan.micro_batches = 2;
  auto job = PrepareTraining(FourLayersModel(), MeanSquares(), spec, DataOfLayers(files));
  ASSERT_TRUE(job.ok()) << job.status();
  const CostModel costs = CostModel::OfSpec(spec.cluster).value();
  constexpr int64_t kNcclBytes = int64_t{192} << 20;  // of a group of two
  PlannedProgram planned;
  planned.memory.on_device = true;
  planned.memory.arena_bytes = (int64_t{2} << 30) - kContextBytes - kNcclBytes;
  job->planned = {planned, planned};
  const absl::Status fits = CheckPlanFits(*job, spec, costs);
  EXPECT_TRUE(fits.ok()) << fits;
  ++job->planned.back()->memory.arena_bytes;
  const absl::Status refused = CheckPlanFits(*job, spec, costs);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr(spec.cluster.workers[1].name), HasSubstr(", NCCL 192 MiB; the job")));
  // Of a strict job nothing is joined.
  job->plan.strict = true;
  const absl::Status strict = CheckPlanFits(*job, spec, costs);
  EXPECT_TRUE(strict.ok()) << strict;
}

TEST(JobSearchTest, RanksThatWereNotCompiledHaveNoFigure) {
  Partition partition;
  partition.rank = RankId(1);
  PlannedRanks ranks(2);
  EXPECT_EQ(MemoryIn(ranks)(partition, 0).status().code(), absl::StatusCode::kUnavailable);
  ranks[1] = PlannedProgram();
  ranks[1]->memory.packed_bytes = 12;
  EXPECT_EQ(MemoryIn(ranks)(partition, 0).value(), 12);
}

TEST(JobSearchTest, CompiledMemoryNamesAWorkerThatIsNotThere) {
  const Graph graph = FourLayers();
  const JobSpec spec = OneWorker(0);
  const SearchResult found = Search(graph, spec);
  const std::vector<Partition> partitions =
      PartitionStep(graph, found.plan, {/*training=*/true, kBatch}, CpuNodeEvaluator()).value();
  const auto memory = CompiledMemory(spec.cluster)(partitions.front(), 3);
  EXPECT_EQ(memory.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(memory.status().message(), "there is no worker 3 among the 1 of the cluster");
}

}  // namespace
}  // namespace weft
