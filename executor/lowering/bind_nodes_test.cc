#include "executor/lowering/bind_nodes.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/lowering/step_description.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "platform/clock.h"
#include "tensor/cpu_device.h"
#include "tensor/testing/fake_device.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class NoInput final : public InputSource {
 public:
  absl::Status Fill(int64_t, const FeedInput&, int64_t, int64_t, void*) override {
    return absl::InternalError("never run");
  }
};

ValueType FloatType(const Shape& shape) { return {ValueKind::kTensor, DType::kFloat32, shape}; }

class BindNodesTest : public ::testing::Test {
 protected:
  BindNodesTest() : device_(NewCpuDevice({})), variables_(*device_) {
    partition_.rank = RankId(0);
    partition_.training = false;
    partition_.inputs = {{"x", InputRole::kData, DType::kFloat32, Shape{1, 2}}};
    partition_.actions = {{Action::Kind::kUpdate, 0}};
  }

  void Report(ValueId value) {
    partition_.end.AddOutput(value);
    partition_.reports.push_back(partition_.end.value(value).name);
  }
  std::string Text() { return TextOn(*device_); }
  std::string TextOn(Device& device) {
    const ExecutorEnvironment environment{&device, &variables_,  communicator_.get(),
                                          &input_, &RealClock(), nullptr};
    const auto schedule = ScheduleNodes(partition_);
    if (!schedule.ok()) return std::string(schedule.status().message());
    const auto program = BindNodes(*schedule, partition_, environment);
    return program.ok() ? Describe(*program) : std::string(program.status().message());
  }

  std::unique_ptr<Device> device_;
  VariableStore variables_;
  std::unique_ptr<Communicator> communicator_ = NewSoloCommunicator();
  NoInput input_;
  Partition partition_;
};

TEST_F(BindNodesTest, EveryValueHasItsOwnBufferAndAnInputIsFilledOnce) {
  GraphBuilder builder(partition_.end);
  const ValueId x = partition_.end.AddInput("x", FloatType({1, 2}));
  const ValueId y = builder.Op("Neg", {x});
  const ValueId z = builder.Op("Add", {x, y});
  builder.Name(z, "z");
  Report(z);
  EXPECT_EQ(Text(),
            "compute:\n"
            "  fill: -> b0\n"
            "  kernel Neg (Neg): b0 -> b1\n"
            "  kernel Add (Add): b0 b1 -> b2\n"
            "buffers:\n"
            "  b0 8 bytes\n"
            "  b1 8 bytes\n"
            "  b2 8 bytes\n"
            "report 'z': b2\n");
}

// Where the host cannot reach the device's memory, it fills all before it launches.
TEST_F(BindNodesTest, OnADeviceAMicroBatchBeginsWithItsFills) {
  partition_.inputs.push_back({"late", InputRole::kData, DType::kFloat32, Shape{1, 2}});
  GraphBuilder builder(partition_.end);
  const ValueId x = partition_.end.AddInput("x", FloatType({1, 2}));
  const ValueId late = partition_.end.AddInput("late", FloatType({1, 2}));
  const ValueId y = builder.Op("Neg", {x});
  const ValueId z = builder.Op("Add", {y, late});
  builder.Name(z, "z");
  Report(z);
  testing::FakeDevice fake;
  EXPECT_THAT(TextOn(fake), HasSubstr("compute:\n"
                                      "  fill: -> b0\n"
                                      "  fill: -> b2\n"
                                      "  kernel Neg (Neg): b0 -> b1\n"
                                      "  kernel Add (Add): b1 b2 -> b3\n"));
  EXPECT_THAT(Text(), HasSubstr("compute:\n"
                                "  fill: -> b0\n"
                                "  kernel Neg (Neg): b0 -> b1\n"
                                "  fill: -> b2\n"
                                "  kernel Add (Add): b1 b2 -> b3\n"));
}

TEST_F(BindNodesTest, AnAliasSharesItsBufferAndAConstantIsFixed) {
  GraphBuilder builder(partition_.end);
  const ValueId x = partition_.end.AddInput("x", FloatType({1, 2}));
  const ValueId flat = builder.Op("Reshape", {x, builder.Ints({2})});
  const ValueId y =
      builder.Op("Add", {flat, builder.Constant(Tensor::Of<float>({2}, std::vector<float>{1, 2}))});
  builder.Name(y, "y");
  Report(y);
  EXPECT_THAT(Text(), HasSubstr("compute:\n"
                                "  fill: -> b0\n"
                                "  kernel Add (Add): b0 fixed1 -> b2\n"));
}

// What only the run can size goes through slots; who wants it in a buffer waits for a load.
TEST_F(BindNodesTest, ValuesOfUnknownSizeLieInSlots) {
  GraphBuilder builder(partition_.end);
  const ValueId x = partition_.end.AddInput("x", FloatType({1, 2}));
  const ValueId found = builder.Op("NonZero", {x});
  const ValueId size = builder.Op("Size", {found});
  const ValueId y = builder.Op("Neg", {size});
  builder.Name(y, "y");
  Report(y);
  EXPECT_THAT(Text(), AllOf(HasSubstr("  values NonZero (NonZero): b0 -> s0\n"),
                            HasSubstr("  values Size (Size): s0 -> s1\n"),
                            HasSubstr("  kernel Neg (Neg): b1 -> b2\n"), Not(HasSubstr("load"))));
}

// The first output was read of one that has none; a model may come with any node.
TEST_F(BindNodesTest, ACollectiveWithoutOutputsIsRefused) {
  Graph::NodeSpec sum;
  sum.name = "nothing";
  sum.domain = std::string(kWeftDomain);
  sum.op = "AllReduce";
  partition_.end.AddNode(std::move(sum));
  EXPECT_EQ(Text(), "node 'nothing' (AllReduce): a collective needs each of its outputs");
}

TEST_F(BindNodesTest, AVariableOfAnotherRankIsNamed) {
  partition_.end.AddVariable("lost", FloatType({1, 2}), Tensor(), true);
  GraphBuilder builder(partition_.end);
  Report(builder.Op("Neg", {*partition_.end.FindValue("lost")}));
  EXPECT_THAT(Text(), HasSubstr("no variable 'lost' on this rank"));
}

}  // namespace
}  // namespace weft
