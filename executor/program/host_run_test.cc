// Nodes whose operator the device has no kernel for, on its host: with copies on both sides, in the
// order of the stream, and only where the partition says so.
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "executor/lowering/testing/hand_made_partition.h"
#include "executor/lowering/testing/lowering_fixture.h"
#include "executor/program/compile_step.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "tensor/testing/fake_device.h"
#include "tensor/testing/watched_device.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kMicroBatches = 3;
constexpr char kScale[] = "ai.weft::Scale";

// Sample i is (i + 1) x (1, 10), or infinite.
class SampleSource final : public InputSource {
 public:
  absl::Status Fill(int64_t step, const FeedInput& input, int64_t first, int64_t count,
                    void* target) override {
    if (is_infinite) {
      static_cast<float*>(target)[0] = std::numeric_limits<float>::infinity();
      return absl::OkStatus();
    }
    return source_.Fill(step, input, first, count, target);
  }
  bool is_infinite = false;

 private:
  CountingSource source_;
};

// "got_sum" is the sum of y = 2 x + 4 x - 2 x over all micro-batches: 4 x 6 x (1, 10).
Partition SumOfProducts(std::vector<std::string> host_ops) {
  Partition partition = NewPartition(kMicroBatches, [](GraphBuilder& b) {
    Scaled(b, "twice", "x", 2);
    Scaled(b, "more", "twice", 2);
    Scaled(b, "less", "x", -2);
    b.Name(b.WeftOp("AddN", {Find(b, "twice"), Find(b, "more"), Find(b, "less")}), "y");
  });
  AddSum(partition, "y", "sum", 0, kMicroBatches);
  ReportSums(partition);
  partition.host_ops = std::move(host_ops);
  return partition;
}

// A device that is no CPU, whose kernels are those of the CPU, for the operators it has.
class HostRunTest : public ::testing::TestWithParam<int> {
 protected:
  HostRunTest()
      : device_(
            {.kind = DeviceKind::kCuda, .scheduling = {.seed = static_cast<uint64_t>(GetParam())}}),
        variables_(device_) {}

  void SetUp() override {
    Add("AddN", DeviceKind::kCuda);
    Add("Scale", DeviceKind::kCpu);
  }
  void Add(const std::string& op, DeviceKind device) {
    const KernelFactory* const factory =
        KernelRegistry::Global().Find(kWeftDomain, op, DeviceKind::kCpu);
    ASSERT_NE(factory, nullptr);
    ASSERT_TRUE(kernels_.Register(kWeftDomain, op, device, *factory).ok());
  }
  absl::Status Compile(const Partition& partition) {
    auto program = CompileStep(
        partition, {&device_, &variables_, communicator_.get(), &source_, &RealClock(), &kernels_});
    if (program.ok()) program_ = *std::move(program);
    return program.status();
  }
  absl::StatusOr<std::vector<float>> Step(bool check_numerics = false) {
    StepOptions options;
    options.check_numerics = check_numerics;
    const auto result = program_->Run(options);
    if (!result.ok()) return result.status();
    const auto got = result->reports.at("got_sum").data<float>();
    return std::vector<float>(got.begin(), got.end());
  }

  FakeDevice device_;
  VariableStore variables_;
  KernelRegistry kernels_;
  std::unique_ptr<Communicator> communicator_ = NewSoloCommunicator();
  SampleSource source_;
  std::unique_ptr<StepProgram> program_;
};

INSTANTIATE_TEST_SUITE_P(Seeds, HostRunTest, ::testing::Values(1, 2, 3));

TEST_P(HostRunTest, HasTheResultOfTheCpu) {
  ASSERT_TRUE(Compile(SumOfProducts({kScale})).ok());
  for (int step = 0; step < 3; ++step) {
    const auto got = Step();
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_THAT(*got, ElementsAre(24, 240));
  }
  EXPECT_TRUE(device_.Verify().ok()) << device_.Verify();
  const std::string text = program_->DebugString();
  EXPECT_THAT(text, AllOf(HasSubstr("  host_kernel Scale"), HasSubstr("  kernel AddN"),
                          Not(HasSubstr("  kernel Scale"))));
}

TEST_P(HostRunTest, AnyOperatorIsMeantByAStar) {
  ASSERT_TRUE(Compile(SumOfProducts({"*"})).ok());
  const auto got = Step();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(*got, ElementsAre(24, 240));
  EXPECT_THAT(program_->DebugString(), HasSubstr("  kernel AddN"));  // where it has one
}

// The device has a kernel, which does not do these types: entries with types mean such nodes alone.
TEST_P(HostRunTest, TypesThatAKernelLacksRunOnTheHost) {
  ASSERT_TRUE(
      kernels_
          .Register(kWeftDomain, "Scale", DeviceKind::kCuda,
                    [](const PrepareContext& context) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                      return context.Unimplemented("not these types");
                    })
          .ok());
  ASSERT_TRUE(Compile(SumOfProducts({"ai.weft::Scale(float32, float32) -> float32"})).ok());
  const auto got = Step();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(*got, ElementsAre(24, 240));
  EXPECT_THAT(program_->DebugString(), HasSubstr("  host_kernel Scale"));
  for (const char* other :
       {"ai.weft::Scale(float64, float64) -> float64", "Scale(float32, float32) -> float32"}) {
    const absl::Status refused = Compile(SumOfProducts({other}));
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented) << other;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("not these types"));
  }
}

// Each operand has its own: x, factor and y of three nodes in three micro-batches and of one at the
// end, 8 + 4 + 8 bytes.
TEST_P(HostRunTest, ItsCopiesHaveMemoryOfTheHost) {
  ASSERT_TRUE(Compile(SumOfProducts({kScale})).ok());
  const int64_t with = program_->memory().staging_bytes;
  Add("Scale", DeviceKind::kCuda);
  ASSERT_TRUE(Compile(SumOfProducts({kScale})).ok());
  EXPECT_EQ(with - program_->memory().staging_bytes, (3 * kMicroBatches + 1) * (8 + 4 + 8));
}

// The host keeps the constants of the graphs, and the device has a copy of each: of two floats
// here. Both were once counted on both sides. Where the host reaches the device there is one.
TEST_P(HostRunTest, ConstantsAreCountedOnceOnEachSide) {
  const Partition partition = NewPartition(1, [](GraphBuilder& b) {
    const ValueId c = b.Constant(Tensor::Of<float>({1, 2}, {3, 5}));
    b.Name(b.WeftOp("AddN", {Find(b, "x"), c}), "y");
  });
  ASSERT_TRUE(Compile(partition).ok());
  const ProgramMemory on_device = program_->memory();
  EXPECT_TRUE(on_device.on_device);
  EXPECT_EQ(on_device.constant_bytes, 8);
  EXPECT_EQ(on_device.device_constant_bytes, 8);

  VariableStore variables(CpuDevice());
  const auto here = CompileStep(
      partition, {&CpuDevice(), &variables, communicator_.get(), &source_, &RealClock(), nullptr});
  ASSERT_TRUE(here.ok()) << here.status();
  EXPECT_FALSE((*here)->memory().on_device);
  EXPECT_EQ((*here)->memory().constant_bytes, 8);
  EXPECT_EQ((*here)->memory().device_constant_bytes, 0);
}

// Four nodes of one operator, and none where the device is the host.
TEST_P(HostRunTest, NamesTheNodesThatRunOnTheHost) {
  const Partition partition = SumOfProducts({kScale});
  ASSERT_TRUE(Compile(partition).ok());
  std::set<std::string> scales;
  const auto add = [&scales](const Graph& graph) {
    for (const NodeId id : graph.node_ids()) {
      if (graph.node(id).op == "Scale") scales.insert(graph.node(id).name);
    }
  };
  add(partition.begin);
  for (const Graph& micro : partition.micro) add(micro);
  add(partition.end);
  ASSERT_FALSE(scales.empty());
  EXPECT_EQ(program_->host_nodes(), std::vector<std::string>(scales.begin(), scales.end()));
  Add("Scale", DeviceKind::kCuda);
  ASSERT_TRUE(Compile(partition).ok());
  EXPECT_TRUE(program_->host_nodes().empty());
}

// The device's memory has room for what kernels of the device keep.
TEST_P(HostRunTest, WhatItsKernelKeepsIsInTheHostsMemory) {
  class Keeping final : public Kernel {
   public:
    absl::Status Run(const KernelContext&) override { return absl::OkStatus(); }
    size_t retained_bytes() const override { return 1000; }
  };
  ASSERT_TRUE(Compile(SumOfProducts({kScale})).ok());
  const ProgramMemory plain = program_->memory();
  kernels_ = KernelRegistry();
  Add("AddN", DeviceKind::kCuda);
  ASSERT_TRUE(kernels_
                  .Register(kWeftDomain, "Scale", DeviceKind::kCpu,
                            [](const PrepareContext&) { return std::make_unique<Keeping>(); })
                  .ok());
  ASSERT_TRUE(Compile(SumOfProducts({kScale})).ok());
  EXPECT_EQ(program_->memory().packed_bytes, plain.packed_bytes);
  // Four nodes; micro-batches share their kernels.
  EXPECT_EQ(program_->memory().staging_bytes, plain.staging_bytes + 4 * 1000);
}

// Notes how often the host had waited for its device when something was sent.
class SendWatch final : public Communicator {
 public:
  explicit SendWatch(WatchedDevice& device) : device_(device) {}
  RankId rank() const override { return RankId(0); }
  absl::StatusOr<ChannelHandle> OpenChannel(const Channel&) override { return 0; }
  absl::StatusOr<CollectiveHandle> OpenCollective(const CollectiveSpec&) override { return 0; }
  absl::Status Send(ChannelHandle, MessageKey, const void*) override {
    waits_before.push_back(device_.calls().synchronizations);
    return absl::OkStatus();
  }
  absl::Status WaitSent(ChannelHandle) override { return absl::OkStatus(); }
  absl::Status Receive(ChannelHandle, MessageKey, void*) override { return absl::OkStatus(); }
  absl::Status RunCollective(CollectiveHandle, MessageKey, void* const*) override {
    return absl::OkStatus();
  }
  void Abort(const absl::Status&) override {}

  std::vector<int64_t> waits_before;

 private:
  WatchedDevice& device_;
};

// A node on the host waits for the stream, where a collective may wait for a peer that waits for
// what is sent: with a kernel, and where only a run shows its output's size.
TEST_P(HostRunTest, WhatIsToBeSentIsSentBeforeTheHostWaits) {
  KernelRegistry slow;  // so that it is not done when the host looks
  ASSERT_TRUE(slow.Register(kWeftDomain, "AddN", DeviceKind::kCuda,
                            [](const PrepareContext&) {
                              return MakeKernel([](const KernelContext& run) {
                                std::this_thread::sleep_for(std::chrono::milliseconds(20));
                                float* const sum = static_cast<float*>(run.outputs[0]);
                                sum[0] = sum[1] = 1;
                                return absl::OkStatus();
                              });
                            })
                  .ok());
  ASSERT_TRUE(slow.Register(kWeftDomain, "Scale", DeviceKind::kCpu,
                            *kernels_.Find(kWeftDomain, "Scale", DeviceKind::kCpu))
                  .ok());
  for (const bool has_size : {true, false}) {
    SCOPED_TRACE(has_size ? "Scale" : "NonZero");
    Partition partition = NewPartition(1, [has_size](GraphBuilder& b) {
      b.Name(b.WeftOp("AddN", {Find(b, "x"), Find(b, "x")}), "sum");
      AddSend(b, "sum", 5);
      if (has_size) {
        Scaled(b, "scaled", "sum", 2);
      } else {
        b.Op("NonZero", {Find(b, "sum")});
      }
    });
    partition.channels = {ChannelOf(5, "sum")};
    partition.host_ops = {kScale, "NonZero"};
    WatchedDevice watched(device_, {});
    VariableStore variables(watched);
    SendWatch communicator(watched);
    const auto program = CompileStep(
        partition, {&watched, &variables, &communicator, &source_, &RealClock(), &slow});
    ASSERT_TRUE(program.ok()) << program.status();
    ASSERT_TRUE((*program)->Prepare().ok());
    const int64_t before = watched.calls().synchronizations;
    const auto result = (*program)->Run({});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_THAT(communicator.waits_before, ElementsAre(before));
    EXPECT_EQ(watched.calls().synchronizations, before + 2);  // the node's, and the step's end
  }
}

TEST_P(HostRunTest, WithoutAWordTheNodeIsRefused) {
  const absl::Status status = Compile(SumOfProducts({"Relu"}));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("node 'Scale"), HasSubstr(kScale), HasSubstr("cuda:0")));
}

TEST_P(HostRunTest, ItIsFoundWhenItMakesANumberInfinite) {
  ASSERT_TRUE(Compile(SumOfProducts({kScale})).ok());
  source_.is_infinite = true;
  const auto got = Step(/*check_numerics=*/true);
  EXPECT_EQ(got.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(got.status().message()),
              AllOf(HasSubstr("node 'Scale"), HasSubstr("output 0 has a NaN or infinity")));
}

// Its kernel is told of step and micro-batch as one of the device is.
TEST_P(HostRunTest, ItsKernelKnowsItsPlace) {
  KernelRegistry own;
  std::vector<std::pair<int64_t, int>> places;
  ASSERT_TRUE(own.Register(kWeftDomain, "Scale", DeviceKind::kCpu,
                           [&places](const PrepareContext&) {
                             return MakeKernel([&places](const KernelContext& run) {
                               places.emplace_back(run.first_sample, run.micro_batch);
                               static_cast<float*>(run.outputs[0])[0] = 0;
                               static_cast<float*>(run.outputs[0])[1] = 0;
                               return absl::OkStatus();
                             });
                           })
                  .ok());
  ASSERT_TRUE(own.Register(kWeftDomain, "AddN", DeviceKind::kCuda,
                           *KernelRegistry::Global().Find(kWeftDomain, "AddN", DeviceKind::kCpu))
                  .ok());
  kernels_ = own;
  ASSERT_TRUE(Compile(SumOfProducts({kScale})).ok());
  ASSERT_TRUE(Step().ok());
  ASSERT_EQ(places.size(), 3 * kMicroBatches + 1u);
  for (int micro_batch = 0; micro_batch < kMicroBatches; ++micro_batch) {
    EXPECT_EQ(places[3 * micro_batch], std::pair(int64_t{micro_batch}, micro_batch));
  }
}

}  // namespace
}  // namespace weft::testing
