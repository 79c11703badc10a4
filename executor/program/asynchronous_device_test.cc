// What a program asks of a device that works beside the host: how often it waits, what is recorded,
// what runs on the host. And that tests notice a wait that is missing.
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "executor/lowering/testing/hand_made_partition.h"
#include "executor/lowering/testing/lowering_fixture.h"
#include "executor/lowering/testing/mirror_communicator.h"
#include "executor/program/compile_step.h"
#include "executor/program/graph_programs.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/memory_work.h"
#include "tensor/testing/fake_device.h"
#include "tensor/testing/watched_device.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kMicroBatches = 6;

// Sample i is (i + 1) x (1, 10); says how many fills there were.
class CountedSource final : public InputSource {
 public:
  absl::Status Fill(int64_t step, const FeedInput& input, int64_t first, int64_t count,
                    void* target) override {
    ++fills;
    fills.notify_all();
    return source_.Fill(step, input, first, count, target);
  }
  std::atomic<int> fills{0};

 private:
  CountingSource source_;
};

// y = 2 x + 4 x - 2 x in four nodes; "sum" is the sum of y over all micro-batches, which is
// 4 x 21 x (1, 10); the guard is its first element; w becomes 3 w.
Partition TrainingPartition(bool sends = false) {
  Partition partition = NewPartition(kMicroBatches, [sends](GraphBuilder& b) {
    Scaled(b, "twice", "x", 2);
    Scaled(b, "more", "twice", 2);
    Scaled(b, "less", "x", -2);
    b.Name(b.WeftOp("AddN", {Find(b, "twice"), Find(b, "more"), Find(b, "less")}), "y");
    if (sends) AddSend(b, "y", 5);
  });
  if (sends) partition.channels = {ChannelOf(5, "y")};
  AddSum(partition, "y", "sum", 0, kMicroBatches);
  return partition;
}

void AddGuardAndUpdate(Partition& partition, const std::string& sum) {
  GraphBuilder end(partition.end);
  end.set_phase(Phase::kUpdate);
  const ValueId loss =
      end.Op("Slice", {Find(end, sum), end.Ints({0}), end.Ints({1}), end.Ints({1})});
  end.Name(loss, "loss");
  Scaled(end, "got", sum, 1);
  partition.end.AddOutput(loss);
  partition.end.AddOutput(Find(end, "got"));
  partition.end.SetVariableUpdate("w", end.WeftOp("Scale", {Find(end, "w"), end.Float(3)}));
  ASSERT_TRUE(end.status().ok()) << end.status();
  partition.guard = "loss";
  partition.reports = {"loss", "got"};
}

// One rank on a fake device behind a watched one.
class Rank {
 public:
  explicit Rank(uint64_t seed, const WatchedDeviceOptions& options = {})
      : fake_({.scheduling = {.seed = seed}}), device_(fake_, options), variables_(device_) {}

  void AddVariable(Partition& partition) {
    VariableShard shard;
    shard.name = "w";
    shard.dtype = DType::kFloat32;
    shard.global_shape = shard.local_shape = Shape{1, 2};
    partition.variables.push_back(shard);
    ASSERT_TRUE(variables_.Add({shard}).ok());
    ASSERT_TRUE(variables_.Write("w", Tensor::Of<float>({1, 2}, {1, 2})).ok());
    partition.end.AddVariable("w", FloatType({1, 2}), Tensor(), true);
  }
  ExecutorEnvironment Environment() {
    return {&device_, &variables_, &communicator_, &source_, &RealClock(), kernels_};
  }
  void Compile(const Partition& partition) {
    auto program = CompileStep(partition, Environment());
    ASSERT_TRUE(program.ok()) << program.status();
    program_ = *std::move(program);
  }
  // "got", and "loss" where it is reported.
  absl::StatusOr<std::vector<float>> Step(int64_t step = 0) {
    StepOptions options;
    options.step = step;
    auto result = program_->Run(options);
    if (!result.ok()) return result.status();
    const auto got = result->reports.at("got").data<float>();
    std::vector<float> values(got.begin(), got.end());
    const auto loss = result->reports.find("loss");
    if (loss != result->reports.end()) values.push_back(loss->second.data<float>()[0]);
    return values;
  }
  std::vector<float> Variable() {
    const auto read = variables_.Read("w");
    EXPECT_TRUE(read.ok()) << read.status();
    const auto data = read->data<float>();
    return {data.begin(), data.end()};
  }

  FakeDevice fake_;
  WatchedDevice device_;
  VariableStore variables_;
  MirrorCommunicator communicator_;
  CountedSource source_;
  const KernelRegistry* kernels_ = nullptr;
  std::unique_ptr<StepProgram> program_;
};

TEST(AsynchronousDeviceTest, AStepWaitsForTheDeviceAtItsGuardAndAtItsEnd) {
  for (const uint64_t seed : {1, 2, 3}) {
    Rank rank(seed);
    Partition partition = TrainingPartition();
    rank.AddVariable(partition);
    AddGuardAndUpdate(partition, "sum");
    rank.Compile(partition);
    ASSERT_TRUE(rank.program_->Prepare().ok());
    for (int step = 0; step < 3; ++step) {
      const int64_t before = rank.device_.calls().synchronizations;
      const auto got = rank.Step();
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_THAT(*got, ElementsAre(84, 840, 84));
      EXPECT_EQ(rank.device_.calls().synchronizations - before, 2);
    }
    EXPECT_THAT(rank.Variable(), ElementsAre(27, 54));
    EXPECT_TRUE(rank.fake_.Verify().ok());
  }
}

TEST(AsynchronousDeviceTest, SendsDoNotMakeTheStepWait) {
  for (const uint64_t seed : {1, 2, 3}) {
    Rank rank(seed);
    Partition partition = TrainingPartition(/*sends=*/true);
    rank.AddVariable(partition);
    AddGuardAndUpdate(partition, "sum");
    rank.Compile(partition);
    ASSERT_TRUE(rank.program_->Prepare().ok());
    const int64_t before = rank.device_.calls().synchronizations;
    ASSERT_TRUE(rank.Step().ok());
    EXPECT_EQ(rank.device_.calls().synchronizations - before, 2);
    // A channel is waited for before it is used again: so each has been sent by then, in order.
    EXPECT_THAT(rank.communicator_.calls,
                ElementsAre("send 5 mb0 4", "wait 5", "send 5 mb1 8", "wait 5", "send 5 mb2 12",
                            "wait 5", "send 5 mb3 16", "wait 5", "send 5 mb4 20", "wait 5",
                            "send 5 mb5 24", "wait 5"));
  }
}

// While the device does nothing at all, the host fills both blocks of staging memory.
TEST(AsynchronousDeviceTest, TheHostGoesAheadOfTheDevice) {
  Rank rank(1);
  Partition partition = TrainingPartition();
  rank.AddVariable(partition);
  AddGuardAndUpdate(partition, "sum");
  rank.Compile(partition);
  ASSERT_TRUE(rank.program_->Prepare().ok());
  rank.fake_.scheduler().Pause();
  absl::StatusOr<std::vector<float>> got;
  std::thread host([&] { got = rank.Step(); });
  for (int fills = rank.source_.fills; fills < 2; fills = rank.source_.fills) {
    rank.source_.fills.wait(fills);
  }
  rank.fake_.scheduler().Resume();
  host.join();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(*got, ElementsAre(84, 840, 84));
}

// ---- A missing wait

// The all-reduce of the sum runs beside the compute list, on a stream of its own.
absl::StatusOr<std::vector<float>> RunReduced(uint64_t seed, const std::string& without_waits) {
  Rank rank(seed, {.stream_without_waits = without_waits});
  Partition partition = TrainingPartition();
  rank.AddVariable(partition);
  GraphBuilder end(partition.end);
  end.set_phase(Phase::kUpdate);
  const std::vector<ValueId> sums =
      end.Ops(std::string(kWeftDomain), "AllReduce", {Find(end, "sum")},
              {{"axis", std::string("data")},
               {"group", std::vector<int64_t>{0, 1}},
               {"algorithm", std::string("ring")}},
              {true});
  EXPECT_TRUE(end.status().ok()) << end.status();
  end.Name(sums[0], "reduced");
  AddGuardAndUpdate(partition, "reduced");
  rank.Compile(partition);
  // The device stands still from the end of the collective until the host has enqueued all that
  // comes after it: so any order of the two streams may follow that events allow.
  std::atomic<int64_t> waits_before{-1};
  std::atomic<bool> is_over{false};
  std::atomic<int64_t>& waits = rank.device_.calls().synchronizations;
  rank.communicator_.after_collective = [&] {
    rank.fake_.scheduler().Pause();
    waits_before = waits.load();
    waits_before.notify_one();
  };
  std::thread resumes([&] {
    waits_before.wait(-1);
    while (!is_over && waits == waits_before) std::this_thread::yield();  // until the guard waits
    rank.fake_.scheduler().Resume();
  });
  auto got = rank.Step();
  is_over = true;  // also where it failed before the collective
  waits_before = 0;
  waits_before.notify_one();
  resumes.join();
  return got;
}

// In some orders; without the fault it is right in all of them.
TEST(AsynchronousDeviceTest, AMissingWaitIsSeen) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "work without its order is a race, which this sanitizer ends";
#endif
  for (const std::string without_waits : {"communication", "compute"}) {
    int wrong = 0;
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      const auto right = RunReduced(seed, "");
      ASSERT_TRUE(right.ok()) << right.status();
      EXPECT_THAT(*right, ElementsAre(168, 1680, 168));
      const auto got = RunReduced(seed, without_waits);
      wrong += got.ok() && *got == *right ? 0 : 1;
    }
    EXPECT_GT(wrong, 0) << without_waits;
  }
}

// ---- Recordings

TEST(AsynchronousDeviceTest, WhatIsTheSameInEachStepIsRecordedAtItsSecondRun) {
  Rank rank(1, {.records = true});
  Partition partition = TrainingPartition();
  rank.AddVariable(partition);
  AddGuardAndUpdate(partition, "sum");
  rank.Compile(partition);
  for (int step = 0; step < 4; ++step) {
    const auto got = rank.Step();
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_THAT(*got, ElementsAre(84, 840, 84));
    // A segment for each micro-batch; what comes after is too little.
    EXPECT_EQ(rank.device_.calls().recordings, step == 0 ? 0 : kMicroBatches);
    EXPECT_EQ(rank.device_.calls().recorded_runs, step * kMicroBatches);
  }
  EXPECT_THAT(rank.Variable(), ElementsAre(81, 162));
  EXPECT_TRUE(rank.fake_.Verify().ok());
}

// Another program makes the arena grow, and so move.
TEST(AsynchronousDeviceTest, ARecordingIsMadeAnewWhenTheArenaHasMoved) {
  Rank rank(1, {.records = true});
  Partition partition = TrainingPartition();
  rank.AddVariable(partition);
  AddGuardAndUpdate(partition, "sum");
  Arena arena(rank.device_);
  ExecutorEnvironment environment = rank.Environment();
  environment.arena = &arena;
  auto program = CompileStep(partition, environment);
  ASSERT_TRUE(program.ok()) << program.status();
  rank.program_ = *std::move(program);
  for (int step = 0; step < 2; ++step) ASSERT_TRUE(rank.Step().ok());
  EXPECT_EQ(rank.device_.calls().recordings, kMicroBatches);
  arena.Reserve(2 * arena.reserved_bytes() + 4096);
  const auto blocker = rank.device_.Allocate(64);  // the old place is too small
  for (int step = 0; step < 3; ++step) {
    const auto got = rank.Step();
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_THAT(*got, ElementsAre(84, 840, 84));
  }
  EXPECT_EQ(rank.device_.calls().recordings, 2 * kMicroBatches);
  EXPECT_TRUE(rank.fake_.Verify().ok());
  rank.program_.reset();
}

// y = x + step, as the host says it: from the first run on, or known after that alone.
class AddStep final : public Kernel {
 public:
  explicit AddStep(bool is_known) : is_known_(is_known) {}
  absl::Status Run(const KernelContext& context) override {
    const auto* const x = static_cast<const float*>(context.inputs[0]);
    auto* const y = static_cast<float*>(context.outputs[0]);
    for (int i = 0; i < 2; ++i) y[i] = x[i] + static_cast<float>(context.step);
    is_known_ = true;
    return absl::OkStatus();
  }
  bool depends_on_step() const override { return is_known_; }

 private:
  std::atomic<bool> is_known_;
};

// y = x + step, as the device has it.
class AddStepOfDevice final : public StepReadingKernel {
 public:
  absl::Status Run(const KernelContext& context) override {
    if (context.step_on_device == nullptr) return absl::InternalError("no step on the device");
    const auto* const x = static_cast<const float*>(context.inputs[0]);
    auto* const y = static_cast<float*>(context.outputs[0]);
    for (int i = 0; i < 2; ++i) y[i] = x[i] + static_cast<float>(*context.step_on_device);
    return absl::OkStatus();
  }
};

enum class StepFrom { kHost, kHostUnsaid, kDevice };

// Kernels of Scale that copy, but for those of the named nodes, which add the step.
void RegisterChain(KernelRegistry& kernels, const std::map<std::string, StepFrom>& adds) {
  const absl::Status status = kernels.Register(
      kWeftDomain, "Scale", DeviceKind::kCpu,
      [adds](const PrepareContext& context) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        if (const auto add = adds.find(context.node().name); add != adds.end()) {
          if (add->second == StepFrom::kDevice) return std::make_unique<AddStepOfDevice>();
          return std::make_unique<AddStep>(/*is_known=*/add->second == StepFrom::kHost);
        }
        return MakeKernel([](const KernelContext& run) {
          const auto* const x = static_cast<const float*>(run.inputs[0]);
          auto* const y = static_cast<float*>(run.outputs[0]);
          for (int i = 0; i < 2; ++i) y[i] = x[i];
          return absl::OkStatus();
        });
      });
  ASSERT_TRUE(status.ok()) << status;
}

// So many nodes in a chain, whose kernels are those above.
Partition ChainPartition(int nodes) {
  Partition partition = NewPartition(1, [nodes](GraphBuilder& b) {
    std::string from = "x";
    for (int i = 0; i < nodes; ++i) {
      const std::string to = i + 1 == nodes ? "y" : absl::StrCat("v", i);
      Scaled(b, to, from, 1);
      from = to;
    }
  });
  AddSum(partition, "y", "sum", 0, 1);
  GraphBuilder end(partition.end);
  end.set_phase(Phase::kUpdate);
  Scaled(end, "got", "sum", 1);
  partition.end.AddOutput(Find(end, "got"));
  partition.reports = {"got"};
  return partition;
}

TEST(AsynchronousDeviceTest, AKernelThatDependsOnTheStepIsNotRecorded) {
  KernelRegistry kernels;
  RegisterChain(kernels, {{"Scale_1", StepFrom::kHost}});
  Rank rank(1, {.records = true});
  rank.kernels_ = &kernels;
  // Three nodes, the second of which depends on the step: too little is left to record.
  rank.Compile(ChainPartition(3));
  for (int step = 0; step < 4; ++step) {
    const auto got = rank.Step(step);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_THAT(*got, ElementsAre(1 + step, 10 + step));
    EXPECT_EQ(rank.device_.calls().recorded_runs, 0);
  }
}

TEST(AsynchronousDeviceTest, AKernelThatReadsTheStepOnTheDeviceIsRecordedWithTheOthers) {
  for (const uint64_t seed : {1, 2, 3}) {
    KernelRegistry kernels;
    RegisterChain(kernels, {{"Scale_1", StepFrom::kDevice}, {"Scale_3", StepFrom::kDevice}});
    Rank rank(seed, {.records = true});
    rank.kernels_ = &kernels;
    rank.Compile(ChainPartition(5));
    int64_t runs = 0;
    for (const int64_t step : {0, 1, 2, 1000, 7, 1001}) {
      const auto got = rank.Step(step);
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_THAT(*got, ElementsAre(1 + 2 * step, 10 + 2 * step));
      EXPECT_EQ(rank.device_.calls().recorded_runs, runs);
      EXPECT_EQ(rank.device_.calls().recordings, runs == 0 ? 0 : 1);
      ++runs;
    }
    EXPECT_TRUE(rank.fake_.Verify().ok());
  }
}

// As an operator of a library, of which nobody knows before it runs whether it asks for the step.
TEST(AsynchronousDeviceTest, AKernelThatTurnsOutToDependOnTheStepCutsItsRecording) {
  KernelRegistry kernels;
  RegisterChain(kernels, {{"Scale_4", StepFrom::kHostUnsaid}});
  Rank rank(1, {.records = true});
  rank.kernels_ = &kernels;
  rank.Compile(ChainPartition(9));
  for (int step = 0; step < 5; ++step) {
    const auto got = rank.Step(step);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_THAT(*got, ElementsAre(1 + step, 10 + step));
    // Nodes 0 to 3, and 5 to 8.
    EXPECT_EQ(rank.device_.calls().recordings, step < 2 ? 0 : 2);
    EXPECT_EQ(rank.device_.calls().recorded_runs, step < 2 ? 0 : 2 * (step - 1));
  }
}

// y = x + 100 (the first sample) + the micro-batch.
absl::StatusOr<std::unique_ptr<Kernel>> NewAddPlace(const PrepareContext&) {
  return MakeKernel([](const KernelContext& run) {
    const auto* const x = static_cast<const float*>(run.inputs[0]);
    auto* const y = static_cast<float*>(run.outputs[0]);
    const auto place = static_cast<float>(100 * run.first_sample + run.micro_batch);
    for (int i = 0; i < 2; ++i) y[i] = x[i] + place;
    return absl::OkStatus();
  });
}

// An instruction is of one micro-batch, and so is its recording: what a kernel reads of the
// micro-batch on the host (RunningTerm, PlaceSamples) is the same in each step.
TEST(AsynchronousDeviceTest, ARecordingHasTheMicroBatchOfItsInstructions) {
  KernelRegistry kernels;
  ASSERT_TRUE(kernels.Register(kWeftDomain, "Scale", DeviceKind::kCpu, NewAddPlace).ok());
  Rank rank(1, {.records = true});
  rank.kernels_ = &kernels;
  Partition partition = NewPartition(3, [](GraphBuilder& b) {
    Scaled(b, "a", "x", 1);
    Scaled(b, "b", "a", 1);
    Scaled(b, "c", "b", 1);
    Scaled(b, "y", "c", 1);
  });
  AddSum(partition, "y", "sum", 0, 3);
  GraphBuilder end(partition.end);
  end.set_phase(Phase::kUpdate);
  Scaled(end, "got", "sum", 1);
  partition.end.AddOutput(Find(end, "got"));
  partition.reports = {"got"};
  rank.Compile(partition);
  for (int step = 0; step < 4; ++step) {
    const auto got = rank.Step(step);
    ASSERT_TRUE(got.ok()) << got.status();
    // Four nodes, micro-batches 0, 1 and 2 of one sample each.
    EXPECT_THAT(*got, ElementsAre(6 + 4 * 303, 60 + 4 * 303));
    EXPECT_GT(rank.device_.calls().recorded_runs, step == 0 ? -1 : 0);
  }
}

// ---- Nodes without a kernel

DeviceInfo LaunchingInfo() {
  DeviceInfo info;
  info.kind = DeviceKind::kCuda;
  info.host_accessible = false;
  info.runs_host_work = false;
  info.name = "cuda:0";
  return info;
}

Graph GraphOf(const std::function<ValueId(GraphBuilder&, ValueId)>& build) {
  Graph graph;
  const ValueId x = graph.AddInput("x", FloatType({2, 3}));
  GraphBuilder builder(graph);
  const ValueId y = build(builder, x);
  builder.Name(y, "y");
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  graph.AddOutput(y);
  return graph;
}

absl::Status NeverWork(void*, Stream&) { return absl::InternalError("nothing is to be done"); }

// The result of a graph on a device that launches, and has no kernels.
absl::StatusOr<Tensor> RunOnLaunching(Graph graph, bool runs_nodes_on_host) {
  if (FindMemoryWork(DeviceKind::kCuda) == nullptr) {
    RegisterMemoryWork(DeviceKind::kCuda, {NeverWork, NeverWork, NeverWork});
  }
  const DeviceInfo info = LaunchingInfo();
  FakeDevice fake;
  WatchedDevice device(fake, {.info = &info});
  GraphPrograms programs(std::move(graph),
                         {.device = &device, .runs_nodes_on_host = runs_nodes_on_host});
  auto results = programs.Run({Value(Tensor::Of<float>({2, 3}, {0, 1, 0, 2, 0, 3}))});
  if (!results.ok()) return results.status();
  return results->front().tensor();
}

Graph NonZeroGraph() {
  return GraphOf([](GraphBuilder& b, ValueId x) { return b.Op("NonZero", {x}); });
}

TEST(NodesWithoutAKernelTest, AreRefusedByNodeOpAndDevice) {
  const absl::Status unsized = RunOnLaunching(NonZeroGraph(), false).status();
  EXPECT_EQ(unsized.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(unsized.message()),
              ::testing::AllOf(HasSubstr("node 'NonZero' (NonZero)"), HasSubstr("cuda:0"),
                               HasSubstr("give it to a CPU worker")));
  const absl::Status computed = RunOnLaunching(GraphOf([](GraphBuilder& b, ValueId x) {
                                                 return b.WeftOp("Scale", {x, b.Float(2)});
                                               }),
                                               false)
                                    .status();
  EXPECT_EQ(computed.code(), absl::StatusCode::kUnimplemented) << computed;
}

TEST(NodesWithoutAKernelTest, RunOnTheHostWhereThatIsAskedFor) {
  const absl::StatusOr<Tensor> places = RunOnLaunching(NonZeroGraph(), true);
  ASSERT_TRUE(places.ok()) << places.status();
  EXPECT_EQ(places->shape(), (Shape{2, 3}));
  EXPECT_THAT(places->data<int64_t>(), ElementsAre(0, 1, 1, 1, 0, 2));
}

// What shapes say is a constant before anything is compiled, and a view is no work.
TEST(NodesWithoutAKernelTest, ShapesAndViewsNeedNone) {
  const absl::StatusOr<Tensor> column =
      RunOnLaunching(GraphOf([](GraphBuilder& b, ValueId x) {
                       const ValueId size = b.Op("Unsqueeze", {b.Op("Size", {x}), b.Ints({0})});
                       return b.Op("Reshape", {b.Op("Flatten", {x}), size});
                     }),
                     false);
  ASSERT_TRUE(column.ok()) << column.status();
  EXPECT_EQ(column->shape(), (Shape{6}));
  EXPECT_THAT(column->data<float>(), ElementsAre(0, 1, 0, 2, 0, 3));
}

}  // namespace
}  // namespace weft::testing
