// A worker tells each step which one its program runs next: the rows of that one are on their way
// to the device before the step is over, and never those of a step that another program runs first.
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/coordinator.h"
#include "distributed/in_process_cluster.h"
#include "distributed/testing/sum_job.h"
#include "executor/lowering/executor_environment.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "tensor/testing/fake_device.h"
#include "tensor/testing/lazy_device.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

constexpr char kTestVersion[] = "test";
// A sample with just as many bytes as are worth it.
constexpr int64_t kWidth = kMinAheadBytes / static_cast<int64_t>(sizeof(float));

// The sample of step s: 1 + 100 s, then zeros.
class WideSource final : public InputSource {
 public:
  explicit WideSource(std::vector<std::string>& log) : log_(log) {}
  absl::Status Fill(int64_t step, const FeedInput&, int64_t, int64_t, void* target) override {
    log_.push_back(absl::StrCat("rows of ", step));
    std::memset(target, 0, kWidth * sizeof(float));
    *static_cast<float*>(target) = static_cast<float>(1 + 100 * step);
    return absl::OkStatus();
  }

 private:
  std::vector<std::string>& log_;
};

// As the sum job of one rank, with wide samples of which three elements count.
Partition WidePartition() {
  Partition partition = std::move(SumJobPartitions(1)[0]);
  partition.inputs[0].sample_shape = Shape{kWidth};
  Graph micro;
  const ValueId x = micro.AddInput("x", {ValueKind::kTensor, DType::kFloat32, Shape{1, kWidth}});
  GraphBuilder b(micro);
  const ValueId first =
      b.Op("Slice", {x, b.Ints({0}), b.Ints({kSumJobWidth}), b.Ints({1}), b.Ints({1})});
  const ValueId grad = b.WeftOp("Scale", {first, b.Float(2)});
  b.Name(grad, "grad");
  micro.AddOutput(grad);
  EXPECT_TRUE(b.status().ok()) << b.status();
  partition.micro[0] = std::move(micro);
  return partition;
}

struct WideOutcome {
  std::vector<std::string> log;  // rows that were asked for, steps that were reported
  std::map<std::string, float> losses;
};

// Two programs, "a" and "b", on a worker with this device.
WideOutcome RunOn(Device& device, const std::vector<StepRange>& ranges) {
  WideOutcome outcome;
  InProcessCluster cluster(
      std::vector<Device*>{&device},
      [&](const std::string&) -> absl::StatusOr<std::unique_ptr<InputSource>> {
        return std::make_unique<WideSource>(outcome.log);
      },
      kTestVersion);
  Coordinator coordinator(cluster.clients());
  JobMembership membership;
  membership.job_id = 17;
  membership.version = kTestVersion;
  EXPECT_TRUE(coordinator.Join(membership).ok());
  MemoryRequirement required;
  for (const std::string program : {"a", "b"}) {
    std::vector<Partition> partitions;
    partitions.push_back(WidePartition());
    const auto added = coordinator.AddProgram(program, std::move(partitions), "data");
    EXPECT_TRUE(added.ok()) << added.status();
    if (added.ok()) required = added->front();
  }
  const absl::Status run = cluster.clients()[0]->RunSteps(ranges, [&](const StepReport& report) {
    outcome.log.push_back(absl::StrCat("step ", report.step));
    outcome.losses[outcome.log.back()] = report.values.at("loss").data<float>()[0];
  });
  EXPECT_TRUE(run.ok()) << run;
  if (!device.info().host_accessible) {
    EXPECT_GE(required.arena_bytes, 2 * kMinAheadBytes);
    EXPECT_LE(static_cast<int64_t>(device.peak_bytes()), required.device_allocated());
  }
  return outcome;
}

StepRange RangeOf(const std::string& program, int64_t first, int64_t count) {
  StepRange range;
  range.program = program;
  range.first_step = first;
  range.count = count;
  range.scalars = {{"rate", 0.5}};
  return range;
}

TEST(NextStepTest, RowsOfTheStepThatTheProgramRunsNextAreAskedForAhead) {
  FakeDevice device;
  const WideOutcome outcome = RunOn(
      device, {RangeOf("a", 0, 2), RangeOf("a", 2, 1), RangeOf("b", 3, 1), RangeOf("a", 4, 1)});
  EXPECT_THAT(outcome.log, ElementsAre("rows of 0", "rows of 1", "step 0", "rows of 2", "step 1",
                                       "step 2", "rows of 3", "step 3", "rows of 4", "step 4"));
  EXPECT_TRUE(device.Verify().ok()) << device.Verify();
}

// Twice the first element of the sample.
TEST(NextStepTest, EachStepHasItsOwnRows) {
  const std::vector<StepRange> ranges = {RangeOf("a", 0, 3), RangeOf("b", 3, 2), RangeOf("a", 7, 2),
                                         RangeOf("a", 10, 2)};
  const WideOutcome cpu = RunOn(CpuDevice(), ranges);
  EXPECT_EQ(cpu.losses.size(), 9u);
  for (const int64_t step : {0, 1, 2, 3, 4, 7, 8, 10, 11}) {
    EXPECT_EQ(cpu.losses.at(absl::StrCat("step ", step)), static_cast<float>(2 + 200 * step));
  }
  EXPECT_EQ(cpu.log[1], "step 0") << "where the host computes, nothing goes ahead";
  for (const uint64_t seed : {1, 2, 3}) {
    FakeDevice fake({.scheduling = {.seed = seed}});
    EXPECT_EQ(RunOn(fake, ranges).losses, cpu.losses) << seed;
    EXPECT_TRUE(fake.Verify().ok()) << fake.Verify();
  }
  LazyDevice lazy;
  EXPECT_EQ(RunOn(lazy, ranges).losses, cpu.losses);
  EXPECT_TRUE(lazy.Verify().ok()) << lazy.Verify();
}

}  // namespace
}  // namespace weft::testing
