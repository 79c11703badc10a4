// A job that does not fit never starts, and what is named instead fits and runs, on worker
// processes that have just so much memory.
//
// WEFT_WORKER_PROGRAM: what to start as a worker.
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/testing/test_tensors.h"
#include "placement/plan_file.h"
#include "platform/file_system.h"
#include "tests/testing/equivalence_models.h"
#include "tests/testing/training_run.h"
#include "training/job_search.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBatch = 8192;
constexpr int64_t kInputs = 16;
constexpr int64_t kWidth = 512;  // half of the batch: 8 MiB
constexpr int kLayers = 6;
constexpr int64_t kLimit = int64_t{190} << 20;

// Few weights, and four activations that the backward pass reads in each layer.
EquivalenceModel Layers() {
  EquivalenceModel model;
  model.name = "layers";
  GraphBuilder builder(model.graph);
  const SymbolicShape sample(std::vector<Dim>{Dim::Symbol("N"), Dim(kInputs)});
  ValueId h = model.graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32, sample});
  for (int layer = 0; layer < kLayers; ++layer) {
    builder.set_name_prefix(absl::StrCat("layer", layer, "/"));
    const double spread = 1 / std::sqrt(static_cast<double>(kWidth));
    const Shape shape{layer == 0 ? kInputs : kWidth, kWidth};
    const ValueId weight = model.graph.AddVariable(
        absl::StrCat("w", layer), {ValueKind::kTensor, DType::kFloat32, shape},
        RandomTensor(shape, static_cast<uint64_t>(layer) + 1, -spread, spread), true);
    h = builder.Op("Tanh", {builder.Op("MatMul", {h, weight})});
    const ValueId gate = builder.Op("Sigmoid", {h});
    h = builder.Op("Exp", {builder.Op("Neg", {builder.Op("Mul", {h, gate})})});
  }
  model.graph.AddOutput(h);
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  model.data["x"] = RandomTensor({kBatch, kInputs}, 99);
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < kBatch; ++i) labels.push_back(i * 7 % kWidth);
  model.data["labels"] = Int64s(labels);
  return model;
}

class PlanMemory : public ::testing::Test {
 protected:
  PlanMemory() : model_(Layers()), files_(WriteDataFiles(model_, ::testing::TempDir())) {
    training_.optimizer.kind = "sgd";
    spec_.cluster = ClusterSpec::Local(2, 1);
    spec_.memory_per_worker = kLimit;
  }

  absl::StatusOr<PreparedJob> Prepare() {
    DataSpec data;
    for (const auto& [input, file] : files_) data.files.push_back({input, file, 0});
    data.batch = kBatch;
    auto opened = DataSet::Open(RealFileSystem(), data);
    if (!opened.ok()) return opened.status();
    return PrepareTraining(model_.graph, training_, spec_, *std::move(opened));
  }

  absl::Status Check() {
    const auto job = Prepare();
    if (!job.ok()) return job.status();
    return CheckPlanFits(*job, spec_, CostsOf(spec_, job->plan.model_digest).value());
  }

  // Two steps on worker processes with that limit.
  absl::Status Train(const std::string& parallel) {
    TrainingRun run;
    run.data = files_;
    run.optimizer = training_.optimizer;
    run.batch = kBatch;
    run.steps = 2;
    run.workers = 2;
    run.plan = ParseParallel(parallel).value();
    run.memory_per_worker = kLimit;
    run.worker_command = {std::getenv("WEFT_WORKER_PROGRAM"), "worker"};
    return RunGraph(model_.graph, run).status();
  }

  EquivalenceModel model_;
  std::map<std::string, std::string> files_;
  TrainingSpec training_;
  JobSpec spec_;
};

// What follows each "--parallel ".
std::vector<std::string> ParallelsOf(const std::string& text) {
  const std::string flag = "--parallel ";
  std::vector<std::string> found;
  for (size_t at = text.find(flag); at != std::string::npos; at = text.find(flag, at)) {
    at += flag.size();
    found.push_back(text.substr(at, text.find(' ', at) - at));
  }
  return found;
}

TEST_F(PlanMemory, ARefusalNamesThreeAlternativesThatFitAndRun) {
  if (std::getenv("WEFT_WORKER_PROGRAM") == nullptr) GTEST_SKIP() << "no WEFT_WORKER_PROGRAM";
  spec_.plan = ParseParallel("dp=2").value();
  const absl::Status refused = Check();
  ASSERT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("the job was refused before anything was started; each of these fits: "));
  EXPECT_EQ(Train("dp=2").code(), absl::StatusCode::kResourceExhausted);
  const std::vector<std::string> alternatives = ParallelsOf(std::string(refused.message()));
  EXPECT_EQ(alternatives.size(), 3u) << refused;
  for (const std::string& parallel : alternatives) {
    const absl::Status trained = Train(parallel);
    EXPECT_TRUE(trained.ok()) << parallel << ": " << trained;
  }
}

TEST_F(PlanMemory, ASearchedPlanFits) {
  spec_.search.wanted = true;
  const auto job = Prepare();
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE(Check().ok()) << Check();
}

TEST_F(PlanMemory, WhereNothingFitsThatIsSaid) {
  spec_.memory_per_worker = int64_t{17} << 20;
  spec_.search.wanted = true;
  const absl::Status status = Prepare().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("fits the workers' memory"));
}

}  // namespace
}  // namespace weft::testing
