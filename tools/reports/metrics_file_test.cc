#include "tools/reports/metrics_file.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "platform/testing/fake_clock.h"
#include "platform/testing/fake_file_system.h"

namespace weft {
namespace {

constexpr char kStepColumns[] =
    "step,loss,learning_rate,samples_per_second,input_stall_seconds,bytes_sent";

class MetricsFileTest : public ::testing::Test {
 protected:
  std::unique_ptr<MetricsFile> Open(const std::string& path, int64_t first_step = 0,
                                    const std::vector<std::string>& evaluated = {}) {
    auto file = MetricsFile::Create(files_, path, first_step, {.evaluated = evaluated});
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }

  std::string Text(const std::string& path) { return files_.ReadFile(path).value_or(""); }

  testing::FakeFileSystem files_;
};

TEST_F(MetricsFileTest, ARowForEachStep) {
  const auto file = Open("/m.csv");
  file->Add({0, 2.123456789012, 0.1, 1000.5, 0.25, 64});
  file->Add({1, 2, 0.1, 1000, 0, 64});
  ASSERT_TRUE(file->Close().ok());
  EXPECT_EQ(Text("/m.csv"),
            absl::StrCat(kStepColumns, "\n0,2.12345679,0.1,1000.5,0.25,64\n1,2,0.1,1000,0,64\n"));
}

// Each step of a job whose steps take long can be seen when it is done.
TEST_F(MetricsFileTest, ASlowStepReachesTheSystem) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/slow.csv");
  testing::FakeClock clock;
  auto file = MetricsFile::Create(RealFileSystem(), path, 0, {}, clock);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto rows = [&path] {
    const std::string text = RealFileSystem().ReadFile(path).value_or("");
    return std::count(text.begin(), text.end(), '\n') - 1;
  };
  (*file)->Add({0, 2, 0.1, 1000, 0, 64});
  EXPECT_EQ(rows(), 1);
  (*file)->Add({1, 2, 0.1, 1000, 0, 64});
  EXPECT_EQ(rows(), 1) << "a quick step waits for others";
  clock.Advance(absl::Milliseconds(100));
  (*file)->Add({2, 2, 0.1, 1000, 0, 64});
  EXPECT_EQ(rows(), 3);
  ASSERT_TRUE((*file)->Close().ok());
}

TEST_F(MetricsFileTest, EvaluationsStandInTheRowOfTheStepBefore) {
  const auto file = Open("/m.csv", 0, {"loss", "accuracy"});
  file->Add({0, 2, 0.1, 10, 0, 0});
  file->Add({1, 1, 0.1, 10, 0, 0});
  file->AddEvaluation({{"accuracy", 0.75}, {"loss", 1.5}});
  file->Add({2, 0.5, 0.1, 10, 0, 0});
  ASSERT_TRUE(file->Close().ok());
  EXPECT_EQ(Text("/m.csv"), absl::StrCat(kStepColumns,
                                         ",eval_loss,eval_accuracy\n0,2,0.1,10,0,0,,\n"
                                         "1,1,0.1,10,0,0,1.5,0.75\n2,0.5,0.1,10,0,0,,\n"));
}

TEST_F(MetricsFileTest, UpdatesInTurnHaveAColumnEach) {
  auto file = MetricsFile::Create(files_, "/m.csv", 0, {.updates = {"d", "g"}});
  ASSERT_TRUE(file.ok()) << file.status();
  (*file)->Add({0, 2, 0.1, 10, 0, 0, 0, 0, "d"});
  (*file)->Add({1, 3, 0.1, 10, 0, 0, 0, 0, "g"});
  ASSERT_TRUE((*file)->Close().ok());
  EXPECT_EQ(Text("/m.csv"),
            absl::StrCat(kStepColumns, ",loss_d,loss_g\n0,2,0.1,10,0,0,2,\n1,3,0.1,10,0,0,,3\n"));
}

TEST_F(MetricsFileTest, JobsWithALossScaleHaveItsColumns) {
  auto file =
      MetricsFile::Create(files_, "/m.csv", 0, {.evaluated = {"auc"}, .has_loss_scale = true});
  ASSERT_TRUE(file.ok()) << file.status();
  (*file)->Add({0, 2, 0.1, 10, 0, 0, 65536, 0});
  (*file)->Add({1, 1, 0.1, 10, 0, 0, 32768, 1});
  ASSERT_TRUE((*file)->Close().ok());
  EXPECT_EQ(Text("/m.csv"),
            absl::StrCat(kStepColumns,
                         ",loss_scale,skipped_steps,eval_auc\n0,2,0.1,10,0,0,65536,0,\n"
                         "1,1,0.1,10,0,0,32768,1,\n"));
}

TEST_F(MetricsFileTest, LinesOfJsonHaveOnlyTheKeysThatTheyNeed) {
  const auto file = Open("/m.jsonl", 0, {"auc"});
  file->Add({0, 2, 0.1, 10, 0, 0});
  file->Add({1, 1, 0.1, 10, 0, 0});
  file->AddEvaluation({{"auc", std::numeric_limits<double>::quiet_NaN()}});
  ASSERT_TRUE(file->Close().ok());
  EXPECT_EQ(Text("/m.jsonl"),
            "{\"step\":0,\"loss\":2,\"learning_rate\":0.1,\"samples_per_second\":10,"
            "\"input_stall_seconds\":0,\"bytes_sent\":0}\n"
            "{\"step\":1,\"loss\":1,\"learning_rate\":0.1,\"samples_per_second\":10,"
            "\"input_stall_seconds\":0,\"bytes_sent\":0,\"eval_auc\":null}\n");
}

TEST_F(MetricsFileTest, AResumedRunKeepsEarlierRowsUnderItsColumns) {
  {
    const auto file = Open("/m.csv", 0, {"loss"});
    file->Add({0, 2, 0.1, 10, 0, 0});
    file->AddEvaluation({{"loss", 3}});
    file->Add({1, 1, 0.1, 10, 0, 0});
    ASSERT_TRUE(file->Close().ok());
  }
  const auto file = Open("/m.csv", 1, {"accuracy", "loss"});
  file->Add({1, 1.5, 0.1, 10, 0, 0});
  ASSERT_TRUE(file->Close().ok());
  EXPECT_EQ(Text("/m.csv"), absl::StrCat(kStepColumns,
                                         ",eval_accuracy,eval_loss\n0,2,0.1,10,0,0,,3\n"
                                         "1,1.5,0.1,10,0,0,,\n"));
}

// Steps that do not measure have empty columns, or no such keys; so has a scale that is not known.
TEST_F(MetricsFileTest, StepsThatMeasureTheNoiseHaveItsColumns) {
  for (const char* path : {"/noise.csv", "/noise.jsonl"}) {
    auto file = MetricsFile::Create(files_, path, 0, {.has_noise = true});
    ASSERT_TRUE(file.ok()) << file.status();
    StepMetrics plain = {0, 0.5};
    StepMetrics measured = {1, 0.25};
    measured.noise = NoiseMeasurement{30, 0.5};
    measured.noise_scale = 60;
    StepMetrics hidden = {2, 0.125};
    hidden.noise = NoiseMeasurement{30, -2};
    (*file)->Add(plain);
    (*file)->Add(measured);
    (*file)->Add(hidden);
    ASSERT_TRUE((*file)->Close().ok());
  }
  EXPECT_EQ(*files_.ReadFile("/noise.csv"),
            "step,loss,learning_rate,samples_per_second,input_stall_seconds,bytes_sent,"
            "gradient_variance,gradient_square,noise_scale\n"
            "0,0.5,0,0,0,0,,,\n"
            "1,0.25,0,0,0,0,30,0.5,60\n"
            "2,0.125,0,0,0,0,30,-2,\n");
  const std::string lines = *files_.ReadFile("/noise.jsonl");
  EXPECT_NE(lines.find("\"bytes_sent\":0}\n"), std::string::npos) << lines;
  EXPECT_NE(lines.find("\"gradient_variance\":30,\"gradient_square\":0.5,\"noise_scale\":60}"),
            std::string::npos)
      << lines;
}

}  // namespace
}  // namespace weft
