#include "tools/chaos/chaos_job.h"

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/console/exit_code.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ChaosJobTest, KeepsWhatAJobIsAndNotWhereItWrites) {
  const auto job = ParseChaosJob(
      "model: m.onnx\ndata: x=x.npy\nlr: [1e-3, \"head/*=1e-2\"]\nsteps: 200\nlocal: 3\n"
      "strict: true\nout: mine.onnx\ncheckpoint: saved\ncheckpoint-every: 20\nresume: true\n"
      "metrics: mine.csv\nbest: best.onnx\ndetect: fast\n");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->text,
            "model: m.onnx\ndata: x=x.npy\nlr: [1e-3, \"head/*=1e-2\"]\nsteps: 200\nstrict: true\n"
            "detect: fast\n");
  EXPECT_EQ(job->workers, 3);
  EXPECT_EQ(job->local, "3");
  EXPECT_EQ(job->steps, 200);
  EXPECT_TRUE(job->is_strict);
  EXPECT_EQ(job->silence, 1);
  EXPECT_EQ(job->checkpoint_every, "20");
  EXPECT_EQ(job->why_no_proxies, "");
}

TEST(ChaosJobTest, SaysWhyItStartsNoWorkersItself) {
  const auto alone = ParseChaosJob("model: m.onnx\nepochs: 2\n");
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(alone->workers, 0);
  EXPECT_EQ(alone->steps, 0);
  EXPECT_THAT(alone->why_no_proxies, HasSubstr("give it --local N"));
  const auto mixed = ParseChaosJob("model: m.onnx\nsteps: 9\nlocal: 2\ndevice: cuda,cpu\n");
  ASSERT_TRUE(mixed.ok()) << mixed.status();
  EXPECT_THAT(mixed->why_no_proxies, HasSubstr("--device"));
  EXPECT_THAT(mixed->text, Not(HasSubstr("device")));
}

TEST(ChaosJobTest, RefusesWorkersOfOthers) {
  const absl::Status status = ParseChaosJob("model: m.onnx\ncluster: c.yaml\n").status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--local N instead of --cluster"));
  EXPECT_EQ(ExitCodeOf(ParseChaosJob("model: m\nsweep: [lr=1]\n").status()), ExitCode::kUsage);
}

TEST(ShellTextTest, QuotesWhatAShellWouldRead) {
  EXPECT_EQ(ShellText({"train", "m.onnx", "--lr", "head/*=1e-2", "it's", ""}),
            "train m.onnx --lr 'head/*=1e-2' 'it'\\''s' ''");
}

}  // namespace
}  // namespace weft
