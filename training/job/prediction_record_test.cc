#include "training/job/prediction_record.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

TrainProgress Step(double seconds, int64_t samples = 8) {
  TrainProgress progress;
  progress.seconds = seconds;
  progress.samples = samples;
  progress.input_seconds = 0.001;
  return progress;
}

TEST(StepTimesTest, LeavesTheFirstStepsAndShortBatchesOut) {
  StepTimes times({.batch = 8});
  for (int i = 0; i < 5; ++i) times.Add(Step(9));
  for (int i = 0; i < 5; ++i) times.Add(Step(7, 3));
  for (int i = 0; i < 15; ++i) times.Add(Step(i < 7 ? 1 : 2));
  EXPECT_EQ(times.steps(), 20);
  EXPECT_EQ(times.MedianSeconds(), 2);
  EXPECT_EQ(times.MedianInputSeconds(), 0.001);
}

TEST(StepTimesTest, FewStepsAllCount) {
  StepTimes times({.batch = 8});
  times.Add(Step(3));
  EXPECT_EQ(times.MedianSeconds(), 3);
  EXPECT_EQ(StepTimes({.batch = 8}).MedianSeconds(), 0);
}

TEST(RecordTest, PutsPredictionAndRunSideBySide) {
  PreparedJob job;
  job.plan.model_digest = 5;
  job.plan.mesh.data = 2;
  job.plan.prediction.step_seconds = 0.25;
  job.plan.prediction.compute_seconds = 0.125;
  job.plan.prediction.bytes_per_step = {64, 64};
  job.programs.push_back({"train/8", {.batch = 8}, {}});
  Partition partition;
  Graph::NodeSpec sum;
  sum.name = "sum";
  sum.domain = std::string(kWeftDomain);
  sum.op = "AllReduce";
  partition.end.AddNode(std::move(sum));
  job.programs[0].partitions.push_back(std::move(partition));
  StepTimes times({.batch = 8});
  times.Add(Step(0.5));
  RunMeasurements run;
  run.model = "m.onnx";
  run.ended = absl::FromUnixSeconds(0);
  run.factor = 1.5;
  run.traffic.push_back({RankId(0), 10, 640, 630, 0, {}});
  run.memory.push_back({});
  run.statistics = {{{"train/8",
                      100,
                      50,
                      0,
                      10,
                      {{"work", "Relu", Phase::kForward, 10, 4'000'000'000},
                       {"sum", "AllReduce", Phase::kUpdate, 10, 900'000'000}}}}};
  const RunHistoryEntry entry = RecordOf(job, times, run);
  EXPECT_EQ(entry.time, "1970-01-01T00:00:00Z");
  EXPECT_EQ(entry.model_digest, 5u);
  EXPECT_EQ(entry.plan, PlanSignature(job.plan));
  EXPECT_EQ(entry.factor, 1.5);
  EXPECT_EQ(entry.predicted.step_seconds, 0.25);
  EXPECT_EQ(entry.measured.step_seconds, 0.5);
  EXPECT_DOUBLE_EQ(entry.measured.compute_seconds, 0.4);
  EXPECT_NEAR(entry.measured.communication_seconds, 0.099, 1e-12);
  EXPECT_EQ(entry.measured.bytes_sent, (std::vector<int64_t>{63}));
  EXPECT_THAT(ComparisonText(entry),
              HasSubstr("predicted 250 ms, measured 500 ms (median of 1): -50.0 %"));
}

TEST(ComparisonTextTest, NothingWithoutAPrediction) {
  RunHistoryEntry entry;
  entry.measured.step_seconds = 1;
  EXPECT_EQ(ComparisonText(entry), "");
}

}  // namespace
}  // namespace weft
