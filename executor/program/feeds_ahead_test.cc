// Rows that are copied to a device while it computes: they overlap, no step's values depend on it,
// and their memory is counted.
#include "executor/program/feeds_ahead.h"

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "executor/lowering/executor_environment.h"
#include "executor/lowering/testing/hand_made_partition.h"
#include "executor/lowering/testing/lowering_fixture.h"
#include "executor/lowering/testing/mirror_communicator.h"
#include "executor/memory/arena.h"
#include "executor/program/compile_step.h"
#include "executor/program/planned_memory.h"
#include "executor/variables/variable_store.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "platform/clock.h"
#include "tensor/testing/fake_device.h"
#include "tensor/testing/lazy_device.h"
#include "tensor/testing/test_device.h"
#include "tensor/testing/watched_device.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// Sample i of step s: (i + 1 + 100 s) x (1, 10), of "z" three times that.
class PlacedSource final : public InputSource {
 public:
  absl::Status Fill(int64_t step, const FeedInput& input, int64_t first, int64_t count,
                    void* target) override {
    if (fails != nullptr && fails(step, input.name, first)) {
      return absl::DataLossError(absl::StrCat("no row ", first, " of ", input.name));
    }
    float* out = static_cast<float*>(target);
    const float factor = input.name == "z" ? 3 : 1;
    for (int64_t i = first; i < first + count; ++i) {
      const auto value = static_cast<float>(i + 1 + 100 * step);
      *out++ = factor * value;
      *out++ = 10 * factor * value;
    }
    asked.push_back(absl::StrCat(step, input.name, first));
    return absl::OkStatus();
  }
  std::function<bool(int64_t, const std::string&, int64_t)> fails;
  std::vector<std::string> asked;
};

// y = 4 x + 2 z - 2 x in four nodes; "got_sum" is the sum of y over the micro-batches.
Partition TwoInputs(int micro_batches, bool has_guard = false) {
  Partition partition = NewPartition(micro_batches, [](GraphBuilder& b) {
    b.graph().AddInput("z", FloatType({1, 2}));
    Scaled(b, "twice", "x", 4);
    Scaled(b, "more", "z", 2);
    Scaled(b, "less", "x", -2);
    b.Name(b.WeftOp("AddN", {Find(b, "twice"), Find(b, "more"), Find(b, "less")}), "y");
  });
  partition.inputs.push_back({"z", InputRole::kData, DType::kFloat32, Shape{2}});
  AddSum(partition, "y", "sum", 0, micro_batches);
  ReportSums(partition);
  if (!has_guard) return partition;
  GraphBuilder end(partition.end);
  const ValueId loss =
      end.Op("Slice", {Find(end, "sum"), end.Ints({0}), end.Ints({1}), end.Ints({1})});
  end.Name(loss, "loss");
  partition.end.AddOutput(loss);
  partition.guard = "loss";
  return partition;
}

// What "got_sum" is, by arithmetic.
std::vector<float> SumOf(int64_t step, int micro_batches) {
  int64_t samples = 0;
  for (int i = 0; i < micro_batches; ++i) samples += i + 1 + 100 * step;
  return {static_cast<float>(8 * samples), static_cast<float>(80 * samples)};
}

// Programs of one rank that share an arena.
class Programs {
 public:
  explicit Programs(Device& device, int64_t min_ahead_bytes = 0,
                    const KernelRegistry* kernels = nullptr)
      : variables_(device), arena_(device) {
    environment_.device = &device;
    environment_.variables = &variables_;
    environment_.communicator = &communicator_;
    environment_.input = &source_;
    environment_.clock = &RealClock();
    environment_.kernels = kernels;
    environment_.arena = &arena_;
    environment_.min_ahead_bytes = min_ahead_bytes;
  }

  StepProgram& Add(const Partition& partition) {
    auto program = CompileStep(partition, environment_);
    EXPECT_TRUE(program.ok()) << program.status();
    programs_.push_back(*std::move(program));
    return *programs_.back();
  }
  static absl::StatusOr<std::vector<float>> Run(StepProgram& program, int64_t step,
                                                int64_t next_step) {
    StepOptions options;
    options.step = step;
    options.next_step = next_step;
    auto result = program.Run(options);
    if (!result.ok()) return result.status();
    const auto got = result->reports.at("got_sum").data<float>();
    return std::vector<float>(got.begin(), got.end());
  }
  // The step is as it should be.
  static void Expect(StepProgram& program, int64_t step, int64_t next_step, int micro_batches) {
    const auto got = Run(program, step, next_step);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(*got, SumOf(step, micro_batches)) << "step " << step;
  }
  PlacedSource& source() { return source_; }
  Arena& arena() { return arena_; }

 private:
  VariableStore variables_;
  Arena arena_;
  MirrorCommunicator communicator_;
  PlacedSource source_;
  ExecutorEnvironment environment_;
  std::vector<std::unique_ptr<StepProgram>> programs_;
};

// ---- Values

class FeedsAheadTest : public ::testing::TestWithParam<int> {
 protected:
  ~FeedsAheadTest() override { EXPECT_TRUE(VerifyTestDevice(*device_).ok()); }
  const std::unique_ptr<Device> device_ = NewTestDevice(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Devices, FeedsAheadTest, ::testing::Values(kOnCpu, kLazyOrder, 1, 2, 3, 4),
                         [](const auto& info) { return TestDeviceName(info.param); });

TEST_P(FeedsAheadTest, StepsHaveTheirOwnRows) {
  for (const int micro_batches : {1, 2, 3, 5}) {
    Programs programs(*device_);
    StepProgram& program = programs.Add(TwoInputs(micro_batches, /*has_guard=*/true));
    for (int64_t step = 0; step < 6; ++step) {
      Programs::Expect(program, step, step < 5 ? step + 1 : -1, micro_batches);
    }
  }
}

// A job that goes on elsewhere, a step that is repeated, a step of which nobody said anything.
TEST_P(FeedsAheadTest, AnotherStepThanTheOneThatWasToldHasItsOwnRows) {
  for (const int micro_batches : {1, 3}) {
    Programs programs(*device_);
    StepProgram& program = programs.Add(TwoInputs(micro_batches));
    const std::vector<std::pair<int64_t, int64_t>> steps = {{0, 1}, {1, 2},  {7, 8}, {7, 8},
                                                            {8, 9}, {3, -1}, {4, 5}, {5, -1}};
    for (const auto& [step, next] : steps) Programs::Expect(program, step, next, micro_batches);
  }
}

// The rows of the next step lie in the arena, which another program writes over meanwhile.
TEST_P(FeedsAheadTest, AProgramBetweenTwoStepsChangesNothing) {
  Programs programs(*device_);
  StepProgram& train = programs.Add(TwoInputs(1, /*has_guard=*/true));
  StepProgram& evaluate = programs.Add(TwoInputs(4));
  for (int64_t step = 0; step < 4; ++step) {
    Programs::Expect(train, step, step + 1, 1);
    Programs::Expect(evaluate, 50 + step, 51 + step, 4);
  }
}

// As where variables are read between two steps: the memory is another one then.
TEST_P(FeedsAheadTest, AnArenaThatWasGivenBackBetweenTwoStepsChangesNothing) {
  Programs programs(*device_);
  StepProgram& program = programs.Add(TwoInputs(2));
  std::vector<std::shared_ptr<Buffer>> blockers;
  for (int64_t step = 0; step < 4; ++step) {
    Programs::Expect(program, step, step + 1, 2);
    programs.arena().Release();
    blockers.push_back(*device_->Allocate(64));
  }
}

// ---- Errors

TEST_P(FeedsAheadTest, RowsThatCannotBeHadAreTheErrorOfTheirOwnStep) {
  Programs programs(*device_);
  StepProgram& program = programs.Add(TwoInputs(2, /*has_guard=*/true));
  bool is_broken = true;
  programs.source().fails = [&](int64_t step, const std::string& name, int64_t first) {
    return is_broken && step == 1 && name == "z" && first == 0;
  };
  Programs::Expect(program, 0, 1, 2);
  const absl::Status failed = Programs::Run(program, 1, 2).status();
  EXPECT_TRUE(absl::IsDataLoss(failed)) << failed;
  EXPECT_THAT(std::string(failed.message()),
              AllOf(HasSubstr("step 1, micro-batch 0, input 'z'"), HasSubstr("no row 0 of z")));
  is_broken = false;
  Programs::Expect(program, 1, 2, 2);
  Programs::Expect(program, 2, -1, 2);
}

TEST_P(FeedsAheadTest, AnErrorOfALaterMicroBatchNamesIt) {
  Programs programs(*device_);
  StepProgram& program = programs.Add(TwoInputs(3));
  programs.source().fails = [&](int64_t, const std::string& name, int64_t first) {
    return name == "x" && first == 2;
  };
  const absl::Status failed = Programs::Run(program, 0, 1).status();
  EXPECT_THAT(std::string(failed.message()), HasSubstr("step 0, micro-batch 2, input 'x'"));
}

// ---- Overlap

// y = what its node says of x, as on the CPU; before that a kernel of micro-batch m waits until the
// device has made so many copies from the host that the rows of the next one are there.
class WaitingKernels {
 public:
  // `can_wait`: other streams go on while a kernel runs; else a kernel looks and goes on.
  explicit WaitingKernels(bool can_wait) : can_wait_(can_wait) {
    const absl::Status status = registry_.Register(
        kWeftDomain, "Scale", DeviceKind::kCpu,
        [this](const PrepareContext&) -> absl::StatusOr<std::unique_ptr<Kernel>> {
          return MakeKernel([this](const KernelContext& run) {
            if (run.samples > 0) Await(run.micro_batch);
            const auto* const x = static_cast<const float*>(run.inputs[0]);
            auto* const y = static_cast<float*>(run.outputs[0]);
            for (int i = 0; i < 2; ++i) y[i] = x[i];
            return absl::OkStatus();
          });
        });
    EXPECT_TRUE(status.ok()) << status;
    const KernelFactory* const slice = KernelRegistry::Global().Find("", "Slice", DeviceKind::kCpu);
    EXPECT_TRUE(registry_.Register("", "Slice", DeviceKind::kCpu, *slice).ok());
  }

  // From now on `copies` are counted; a micro-batch of a step has one, `last_step` is the last.
  void Begin(const std::atomic<int64_t>& copies, int micro_batches, int64_t last_step) {
    copies_ = &copies;
    before_ = copies;
    micro_batches_ = micro_batches;
    last_step_ = last_step;
  }
  void BeginStep(int64_t step) { step_ = step; }
  int kernels_too_early() const { return too_early_; }
  int kernels() const { return kernels_; }
  const KernelRegistry& registry() const { return registry_; }

 private:
  void Await(int micro_batch) {
    ++kernels_;
    const int64_t step = step_;  // what was recorded has that of then
    if (step == last_step_ && micro_batch + 1 == micro_batches_) return;  // nothing comes after it
    const int64_t needed = before_ + step * micro_batches_ + micro_batch + 2;
    const absl::Time deadline = RealClock().Now() + absl::Seconds(30);
    while (*copies_ < needed && can_wait_ && too_early_ == 0 && RealClock().Now() < deadline) {
      std::this_thread::yield();
    }
    if (*copies_ < needed) ++too_early_;
  }

  const bool can_wait_;
  KernelRegistry registry_;
  const std::atomic<int64_t>* copies_ = nullptr;
  int64_t before_ = 0;
  int micro_batches_ = 0;
  int64_t last_step_ = 0;
  std::atomic<int64_t> step_{0};
  std::atomic<int> too_early_{0};
  std::atomic<int> kernels_{0};
};

// "got_sum" is the sum of x, whose rows are copied once a micro-batch.
Partition CopiesOfX(int micro_batches, bool has_guard) {
  Partition partition = NewPartition(micro_batches, [](GraphBuilder& b) {
    Scaled(b, "a", "x", 1);
    Scaled(b, "b", "a", 1);
    Scaled(b, "y", "b", 1);
  });
  AddSum(partition, "y", "sum", 0, micro_batches);
  ReportSums(partition);
  if (!has_guard) return partition;
  GraphBuilder end(partition.end);
  const ValueId loss =
      end.Op("Slice", {Find(end, "sum"), end.Ints({0}), end.Ints({1}), end.Ints({1})});
  end.Name(loss, "loss");
  partition.end.AddOutput(loss);
  partition.guard = "loss";
  return partition;
}

// The number of kernels that ran before the next rows had come. `records`: from their second run on
// kernels are part of recordings.
int KernelsTooEarly(Device& device, bool can_wait, int micro_batches, bool has_guard,
                    int64_t min_ahead_bytes, bool records = false) {
  constexpr int64_t kSteps = 4;
  WatchedDevice watched(device, {.records = records, .counts_copies = true});
  WaitingKernels kernels(can_wait);
  Programs programs(watched, min_ahead_bytes, &kernels.registry());
  StepProgram& program = programs.Add(CopiesOfX(micro_batches, has_guard));
  EXPECT_TRUE(program.Prepare().ok());
  kernels.Begin(watched.calls().copies_made, micro_batches, kSteps - 1);
  for (int64_t step = 0; step < kSteps; ++step) {
    kernels.BeginStep(step);
    const auto got = Programs::Run(program, step, step + 1 < kSteps ? step + 1 : -1);
    EXPECT_TRUE(got.ok()) << got.status();
    if (!got.ok()) break;
    const std::vector<float> sum = SumOf(step, micro_batches);
    EXPECT_THAT(*got, ElementsAre(sum[0] / 8, sum[1] / 8));
  }
  EXPECT_EQ(kernels.kernels(), kSteps * micro_batches * 3);
  EXPECT_EQ(watched.calls().recordings > 0, records);
  return kernels.kernels_too_early();
}

// Each kernel stands still until the next rows are on the device, of the next step too.
TEST(FeedsOverlapTest, TheNextRowsComeWhileKernelsRun) {
  for (const int micro_batches : {1, 2, 3}) {
    for (const bool has_guard : {false, true}) {
      for (const bool records : {false, true}) {
        SCOPED_TRACE(absl::StrCat(micro_batches, " micro-batches, ", has_guard, " ", records));
        FakeDevice device({.scheduling = {.seed = 3}});
        EXPECT_EQ(KernelsTooEarly(device, /*can_wait=*/true, micro_batches, has_guard,
                                  /*min_ahead_bytes=*/0, records),
                  0);
        EXPECT_TRUE(device.Verify().ok()) << device.Verify();
      }
    }
  }
}

// The same without any thread that could be late: all copies that may go ahead are made at once,
// all kernels as late as can be.
TEST(FeedsOverlapTest, TheHostHasAskedForTheNextRowsBeforeItWaits) {
  for (const int micro_batches : {1, 3}) {
    LazyDevice ahead({}, /*eager_stream=*/"feeds");
    EXPECT_EQ(KernelsTooEarly(ahead, /*can_wait=*/false, micro_batches, /*has_guard=*/true, 0), 0);
    EXPECT_TRUE(ahead.Verify().ok()) << ahead.Verify();
    // Copied in their turn, no rows are there before the kernels that come first.
    LazyDevice in_turn({}, /*eager_stream=*/"feeds");
    EXPECT_GT(KernelsTooEarly(in_turn, /*can_wait=*/false, micro_batches, true, kNever), 0);
  }
}

// A node on the host, a receive and their like make the host wait in the midst of a step.
TEST(FeedsOverlapTest, TheHostAsksForTheNextRowsBeforeItWaitsForAPeer) {
  FakeDevice device;
  Programs programs(device);
  Partition partition = TwoInputs(2);
  {
    GraphBuilder b(partition.micro.front());
    const auto outputs = b.Ops(std::string(kWeftDomain), "Recv", {},
                               {{"channel", int64_t{3}},
                                {"dtype", static_cast<int64_t>(DType::kFloat32)},
                                {"shape", std::vector<int64_t>{1, 2}}},
                               {true});
    b.Name(b.Op("Add", {Find(b, "y"), outputs[0]}), "both");
    ASSERT_TRUE(b.status().ok()) << b.status();
  }
  partition.channels = {
      {ChannelId(3), RankId(1), RankId(0), "more", DType::kFloat32, Shape{1, 2}, true}};
  AddSum(partition, "both", "received", 0, 2);
  StepProgram& program = programs.Add(partition);
  Programs::Expect(program, 0, 1, 2);
  EXPECT_THAT(programs.source().asked, ElementsAre("0x0", "0z0", "0x1", "0z1", "1x0", "1z0"));
  Programs::Expect(program, 1, -1, 2);
  EXPECT_THAT(programs.source().asked,
              ElementsAre("0x0", "0z0", "0x1", "0z1", "1x0", "1z0", "1x1", "1z1"));
}

// ---- What it costs

TEST(FeedsCostTest, OneMoreWaitAStepAndOnlyForRowsOfTheNextOne) {
  FakeDevice fake;
  WatchedDevice device(fake, {.records = true});
  Programs programs(device);
  StepProgram& program = programs.Add(TwoInputs(2, /*has_guard=*/true));
  ASSERT_TRUE(program.Prepare().ok());
  for (int64_t step = 0; step < 4; ++step) {
    const bool is_last = step == 3;
    const int64_t before = device.calls().synchronizations;
    Programs::Expect(program, step, is_last ? -1 : step + 1, 2);
    EXPECT_EQ(device.calls().synchronizations - before, is_last ? 2 : 3);
    // A segment for each micro-batch, as without it: fills are not recorded.
    EXPECT_EQ(device.calls().recordings, step == 0 ? 0 : 2);
    EXPECT_EQ(device.calls().recorded_runs, 2 * step);
  }
}

TEST(FeedsCostTest, ADeviceHoldsTheRowsTwiceAndThatIsCounted) {
  const Partition partition = TwoInputs(3, /*has_guard=*/true);
  std::optional<ProgramMemory> in_turn;
  for (const int64_t min_ahead_bytes : {kNever, int64_t{0}}) {
    FakeDevice device;
    Programs programs(device, min_ahead_bytes);
    StepProgram& program = programs.Add(partition);
    const ProgramMemory memory = program.memory();
    for (int64_t step = 0; step < 3; ++step) Programs::Expect(program, step, step + 1, 3);
    EXPECT_LE(static_cast<int64_t>(device.peak_bytes()),
              memory.arena_bytes + memory.variable_bytes + memory.device_constant_bytes +
                  memory.packed_bytes);
    if (!in_turn.has_value()) {
      in_turn = memory;
      continue;
    }
    const auto copies = static_cast<int64_t>(2 * kAlignment);  // of two inputs, 8 bytes each
    EXPECT_EQ(memory.lower_bound_bytes, in_turn->lower_bound_bytes + copies);
    EXPECT_GE(memory.arena_bytes, memory.lower_bound_bytes);
    EXPECT_EQ(memory.staging_bytes, in_turn->staging_bytes);
  }
}

// A sample of "x" has half of what is worth it.
Partition LargeInput(int64_t samples) {
  Partition partition = NewPartition(1, [](GraphBuilder&) {});
  const int64_t elements = kMinAheadBytes / 2 / static_cast<int64_t>(sizeof(float));
  partition.global_batch = samples;
  partition.micro_batches[0].samples = samples;
  partition.inputs = {{"x", InputRole::kData, DType::kFloat32, Shape{elements}}};
  Graph micro;
  micro.AddInput("x", FloatType({samples, elements}));
  GraphBuilder b(micro);
  b.Name(b.Op("ReduceSum", {Find(b, "x"), b.Ints({0, 1})}, {{"keepdims", int64_t{0}}}), "y");
  EXPECT_TRUE(b.status().ok()) << b.status();
  partition.micro[0] = std::move(micro);
  partition.end.AddInput("sum", FloatType(Shape{}));
  partition.accumulations.push_back({"y", {{"sum", 0, 1}}, false});
  ReportSums(partition);
  return partition;
}

// The plan of a rank, which has no settings, counts what a worker takes that has none.
TEST(FeedsCostTest, IsPlannedAsItIsCompiled) {
  for (const int64_t samples : {1, 2}) {
    const Partition partition = LargeInput(samples);
    FakeDevice device;
    const auto planned = PlanProgramMemory(partition, device);
    ASSERT_TRUE(planned.ok()) << planned.status();
    Programs programs(device, ExecutorEnvironment{}.min_ahead_bytes);
    EXPECT_EQ(programs.Add(partition).memory().arena_bytes, planned->arena_bytes);
    const int64_t rows = samples * kMinAheadBytes / 2;
    EXPECT_GE(planned->lower_bound_bytes, samples == 1 ? rows : 2 * rows);
    EXPECT_LT(planned->lower_bound_bytes, samples == 1 ? 2 * rows : 3 * rows);
  }
}

TEST(FeedsCostTest, TheCpuHasNoSecondCopy) {
  const Partition partition = LargeInput(2);
  std::vector<int64_t> arenas;
  for (const int64_t min_ahead_bytes : {kNever, int64_t{0}}) {
    Programs programs(CpuDevice(), min_ahead_bytes);
    arenas.push_back(programs.Add(partition).memory().arena_bytes);
  }
  EXPECT_EQ(arenas[0], arenas[1]);
}

}  // namespace
}  // namespace weft::testing
