// A training job of the example "mlp" on workers of this process, its files in memory: what the run
// tells while it lasts and what is left of it.
#include "tools/jobs/training_run.h"

#include <cerrno>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "distributed/in_process_cluster.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "onnx_import/parameters/trainable.h"
#include "ops/testing/test_tensors.h"
#include "platform/testing/fake_file_system.h"
#include "tools/console/exit_code.h"
#include "tools/jobs/training_results.h"
#include "tools/models/example_models.h"
#include "training/data/data_file.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr int64_t kSamples = 24;
constexpr int64_t kSteps = 3;
constexpr char kVersion[] = "test";

class TrainingRunTest : public ::testing::Test {
 protected:
  TrainingRunTest() {
    Write("x", testing::RandomTensor({kSamples, 1, 28, 28}, 3));
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < kSamples; ++i) labels.push_back(i % 10);
    Write("labels", Tensor::Of<int64_t>({kSamples}, labels));
    data_.batch = 8;
    EXPECT_TRUE(files_.WriteFileAtomically("/m.onnx", ExampleModelFile("mlp", 1).value()).ok());
    console_ = {&out_, &err_, /*animated=*/false};
  }

  void Write(const std::string& input, const Tensor& tensor) {
    const std::string path = absl::StrCat("/", input, ".npy");
    ASSERT_TRUE(files_.WriteFileAtomically(path, *ToNpy(tensor)).ok());
    data_.files.push_back({input, path, 0});
  }

  // A job that is ready to be started.
  void Prepare(int workers = 1) {
    job_.model = ImportModelFile(files_, "/m.onnx").value();
    ASSERT_TRUE(MarkTrainable(job_.model).ok());
    job_.training.report_gradients = gradients_;
    job_.training.average_decay = average_decay_;
    job_.steps = kSteps;
    job_.spec.cluster = ClusterSpec::Local(workers, 1);
    auto prepared = PrepareTraining(job_.model.graph, job_.training, job_.spec,
                                    DataSet::Open(files_, data_).value());
    ASSERT_TRUE(prepared.ok()) << prepared.status();
    job_.job = *std::move(prepared);
    cluster_ = std::make_unique<InProcessCluster>(workers, NewDataSetFactory(files_), kVersion);
    coordinator_ = std::make_unique<Coordinator>(cluster_->clients());
    const absl::Status started = StartJob(*coordinator_, job_.job, job_.spec, kVersion, {});
    ASSERT_TRUE(started.ok()) << started;
    auto curves = TrainingCurves::Create(files_, RealClock(), wanted_, job_.job, 0, {});
    ASSERT_TRUE(curves.ok()) << curves.status();
    curves_ = *std::move(curves);
    run_ = std::make_unique<TrainingRun>(job_, loop_, *curves_, console_, RealClock());
  }
  absl::Status Run() { return run_->Run(*coordinator_, stop_); }
  std::string Text(const std::string& path) { return files_.ReadFile(path).value_or(""); }

  testing::FakeFileSystem files_;
  DataSpec data_;
  ResultFiles wanted_;
  bool gradients_ = false;
  double average_decay_ = 0;
  std::function<bool()> stop_ = [] { return false; };
  std::ostringstream out_, err_;
  Console console_;
  LoopFlags loop_flags_;
  JobLoop loop_{loop_flags_, console_};
  TrainingJob job_;
  std::unique_ptr<InProcessCluster> cluster_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<TrainingCurves> curves_;
  std::unique_ptr<TrainingRun> run_;
};

TEST_F(TrainingRunTest, TellsEachStepToWhomeverListens) {
  wanted_.metrics = "/m.csv";
  Prepare();
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(run_->result().steps, kSteps);
  EXPECT_THAT(err_.str(), HasSubstr("step 3/3"));
  const std::vector<std::string> rows = absl::StrSplit(Text("/m.csv"), '\n', absl::SkipEmpty());
  ASSERT_THAT(rows, SizeIs(1 + kSteps));
  for (int64_t step = 0; step < kSteps; ++step) {
    const std::vector<std::string> columns = absl::StrSplit(rows[1 + step], ',');
    EXPECT_EQ(columns[0], absl::StrCat(step));
    EXPECT_EQ(columns[2], "0.01");
    EXPECT_EQ(columns[5], "0");  // one worker sends nothing
  }
  EXPECT_GT(run_->step_seconds(), 0);
  EXPECT_THAT(run_->StallText(), StartsWith("input  stalled the steps for "));
}

// The gradients of 235,146 parameters: a worker of two sends half of them twice.
TEST_F(TrainingRunTest, CountsWhatWorkersSend) {
  wanted_.metrics = "/m.csv";
  Prepare(2);
  ASSERT_TRUE(Run().ok());
  job_.job.notes = {"as told"};
  const TrainingOutcome outcome = run_->Outcome();
  EXPECT_EQ(outcome.notes, job_.job.notes);
  ASSERT_THAT(outcome.traffic, SizeIs(2));
  int64_t sent = 0;
  for (const RankTraffic& rank : outcome.traffic) {
    EXPECT_EQ(rank.measured_bytes, rank.predicted_bytes);
    sent += rank.measured_bytes;
  }
  EXPECT_GE(sent / kSteps, 2 * 4 * 235146);
  const std::vector<std::string> rows = absl::StrSplit(Text("/m.csv"), '\n', absl::SkipEmpty());
  const std::vector<std::string> columns = absl::StrSplit(rows.back(), ',');
  EXPECT_EQ(columns[5], absl::StrCat(sent / kSteps));
}

TEST_F(TrainingRunTest, StopsWhenItIsTold) {
  stop_ = [] { return true; };
  Prepare();
  ASSERT_TRUE(Run().ok());
  EXPECT_TRUE(run_->result().stopped);
  EXPECT_EQ(run_->result().steps, 0);
}

// The metrics of a run could not be written to the end, and its model was lost with them.
TEST_F(TrainingRunTest, ADiskThatIsFullIsToldWithItsExitCodeAndLosesNoModel) {
  wanted_.metrics = "/m.csv";
  Prepare();
  files_.InjectError(testing::FakeFileSystem::Operation::kWrite, ENOSPC);
  const absl::Status status = Run();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kDisk) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("/m.csv"));
  ASSERT_TRUE(run_->has_result());
  EXPECT_EQ(run_->result().steps, kSteps);
  EXPECT_TRUE(run_->result().parameters.contains("fc1.weight"));
}

TEST_F(TrainingRunTest, IsComparedWithItsPrediction) {
  Prepare();
  ASSERT_TRUE(Run().ok());
  EXPECT_FALSE(run_->has_moved());
  const auto entry = run_->Compare(*coordinator_, "m.onnx");
  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_EQ(entry->model, "m.onnx");
  EXPECT_GT(entry->steps, 0);
  ASSERT_TRUE(AppendToHistory(files_, "/runs", *entry).ok());
  ASSERT_TRUE(AppendToHistory(files_, "/runs", *entry).ok());
  EXPECT_EQ(Text("/runs"), absl::StrCat(RunHistoryLine(*entry), RunHistoryLine(*entry)));
}

TEST_F(TrainingRunTest, ARunWithoutStepsIsNoHistory) {
  RunHistoryEntry entry;
  ASSERT_EQ(entry.steps, 0);
  EXPECT_TRUE(AppendToHistory(files_, "/runs", entry).ok());
  EXPECT_FALSE(files_.Exists("/runs"));
}

TEST_F(TrainingRunTest, ProgramsAreWrittenForEachWorkerAndKindOfStep) {
  data_.batch = 16;  // the last one has 8
  Prepare(2);
  ASSERT_TRUE(SaveProgramTexts(files_, "", job_.job, *coordinator_).ok());
  ASSERT_TRUE(SaveProgramTexts(files_, "/programs", job_.job, *coordinator_).ok());
  EXPECT_THAT(files_.ListDirectory("/programs").value(),
              ElementsAre("worker-0.train-16.txt", "worker-0.train-8.txt", "worker-1.train-16.txt",
                          "worker-1.train-8.txt"));
  EXPECT_THAT(Text("/programs/worker-1.train-8.txt"), HasSubstr("(Gemm)"));
  files_.InjectError(testing::FakeFileSystem::Operation::kWrite, ENOSPC);
  EXPECT_EQ(ExitCodeOf(SaveProgramTexts(files_, "/programs", job_.job, *coordinator_)),
            ExitCode::kDisk);
}

class TrainingResultsTest : public TrainingRunTest {
 protected:
  absl::Status Save() {
    return SaveResults(files_, wanted_, job_.trained(), run_->result(), console_);
  }
  // A weight of a file that was written.
  std::vector<double> WeightOf(const std::string& path) {
    const auto model = ImportModelFile(files_, path);
    if (!model.ok()) return {};
    return *ToDoubles(model->graph.FindVariable("fc1.weight")->initial);
  }
};

TEST_F(TrainingResultsTest, EachFileHasItsValues) {
  wanted_.model = "/out.onnx";
  wanted_.averages = "/averages.onnx";
  wanted_.gradients = "/gradients";
  gradients_ = true;
  average_decay_ = 0.5;
  Prepare();
  ASSERT_TRUE(Run().ok());
  ASSERT_TRUE(Save().ok());
  EXPECT_EQ(WeightOf("/out.onnx"), *ToDoubles(run_->result().parameters.at("fc1.weight")));
  EXPECT_EQ(WeightOf("/averages.onnx"), *ToDoubles(run_->result().averages.at("fc1.weight")));
  EXPECT_NE(WeightOf("/out.onnx"), WeightOf("/averages.onnx"));
  EXPECT_THAT(*files_.ListDirectory("/gradients"), SizeIs(6));  // three layers
}

// Of the second file too: the first one's error ended it all.
TEST_F(TrainingResultsTest, WhatCannotBeQuantizedIsWrittenAsFloats) {
  wanted_.model = "/out.onnx";
  wanted_.averages = "/averages.onnx";
  average_decay_ = 0.5;
  Prepare();
  ASSERT_TRUE(Run().ok());
  job_.quantization.weights.emplace_back().name = "fc1.weight";
  job_.quantization.inputs.emplace_back().range = "h/range";
  const absl::Status status = Save();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("/out.onnx has the float model: the model has no variable 'h/range'"));
  EXPECT_EQ(WeightOf("/out.onnx"), *ToDoubles(run_->result().parameters.at("fc1.weight")));
  EXPECT_EQ(WeightOf("/averages.onnx"), *ToDoubles(run_->result().averages.at("fc1.weight")));
}

TEST_F(TrainingResultsTest, NothingIsWrittenThatIsNotWanted) {
  Prepare();
  ASSERT_TRUE(Run().ok());
  const auto before = files_.ListDirectory("/").value();
  ASSERT_TRUE(Save().ok());
  EXPECT_EQ(files_.ListDirectory("/").value(), before);
}

TEST_F(TrainingResultsTest, AFullDiskHasItsExitCode) {
  wanted_.model = "/out.onnx";
  Prepare();
  ASSERT_TRUE(Run().ok());
  files_.InjectError(testing::FakeFileSystem::Operation::kWrite, ENOSPC);
  const absl::Status status = Save();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kDisk) << status;
  EXPECT_FALSE(files_.Exists("/out.onnx"));
}

TEST_F(TrainingResultsTest, TheReportNamesFilesAsTextAndAsJson) {
  Prepare();
  ASSERT_TRUE(Run().ok());
  ReportResults(*run_, loop_, {.model = "o.onnx", .metrics = "m.csv"}, /*json=*/false, console_);
  EXPECT_THAT(out_.str(), HasSubstr("after 3 steps in "));
  EXPECT_THAT(out_.str(), HasSubstr("\nmodel o.onnx\n"));
  out_.str("");
  ReportResults(*run_, loop_, {.model = "o.onnx", .metrics = "m.csv"}, /*json=*/true, console_);
  const auto report = nlohmann::json::parse(out_.str());
  EXPECT_EQ(report["steps"], kSteps);
  EXPECT_EQ(report["model"], "o.onnx");
  EXPECT_EQ(report["metrics"], "m.csv");
}

}  // namespace
}  // namespace weft
