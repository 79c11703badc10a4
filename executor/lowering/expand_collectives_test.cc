// Structure only; numbers are those of collective_lowering_test.
#include "executor/lowering/expand_collectives.h"

#include <string>
#include <utility>
#include <vector>

#include "executor/interfaces/communicator.h"
#include "executor/lowering/step_description.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;

// Remembers what is opened.
class OpeningCommunicator final : public Communicator {
 public:
  RankId rank() const override { return RankId(0); }
  absl::StatusOr<ChannelHandle> OpenChannel(const Channel&) override { return 0; }
  absl::StatusOr<CollectiveHandle> OpenCollective(const CollectiveSpec& spec) override {
    opened.push_back(spec.name + (spec.beside_compute ? " beside" : ""));
    return static_cast<CollectiveHandle>(opened.size()) - 1;
  }
  absl::Status Send(ChannelHandle, MessageKey, const void*) override { return absl::OkStatus(); }
  absl::Status WaitSent(ChannelHandle) override { return absl::OkStatus(); }
  absl::Status Receive(ChannelHandle, MessageKey, void*) override { return absl::OkStatus(); }
  absl::Status RunCollective(CollectiveHandle, MessageKey, void* const*) override {
    return absl::OkStatus();
  }
  void Abort(const absl::Status&) override {}

  std::vector<std::string> opened;
};

ValueType FloatType(const Shape& shape) { return {ValueKind::kTensor, DType::kFloat32, shape}; }

// An end graph with collectives of ranks 0 and 1, and a program in which its inputs are sums.
class ExpandCollectivesTest : public ::testing::Test {
 protected:
  BufferIndex AddSum(const std::string& name, const Shape& shape) {
    partition_.end.AddInput(name, FloatType(shape));
    partition_.accumulations.push_back({name + "_leaf", {{name, 0, 1}}, false});
    const BufferIndex buffer = program_.step.buffers.AddReserved(4 * shape.num_elements());
    program_.sums.push_back({name, buffer, DType::kFloat32, shape.num_elements(), 0, 1, false});
    return buffer;
  }
  // Returns the buffers of the outputs.
  std::vector<BufferIndex> AddCollective(const std::string& op, const std::vector<std::string>& in,
                                         const std::vector<BufferIndex>& inputs,
                                         const std::vector<Shape>& outputs, Attributes attributes) {
    attributes.Set("group", Ints{0, 1});
    attributes.Set("axis", std::string("data"));
    Graph::NodeSpec spec;
    spec.name = "of_" + in.front();
    spec.domain = std::string(kWeftDomain);
    spec.op = op;
    spec.attributes = std::move(attributes);
    for (const std::string& name : in) spec.inputs.push_back(*partition_.end.FindValue(name));
    for (const std::string& name : in) spec.outputs.push_back(name + "_all");
    const NodeId id = partition_.end.AddNode(std::move(spec));
    const Node& node = partition_.end.node(id);
    lowered::CollectiveNode collective{&partition_.end, &node, inputs, {}};
    for (size_t i = 0; i < outputs.size(); ++i) {
      partition_.end.value(node.outputs[i]).type = FloatType(outputs[i]);
      collective.outputs.push_back(program_.step.buffers.AddArena(4 * outputs[i].num_elements()));
    }
    nodes_.push_back(id);
    program_.step.compute.push_back({collective});
    return collective.outputs;
  }
  void Read(BufferIndex buffer) {
    program_.step.compute.push_back({lowered::Guard{buffer, DType::kFloat32}});
  }
  absl::StatusOr<LoweringProgram> Expand() {
    // Nodes may have moved as others were added.
    size_t next = 0;
    for (LoweredInstruction& instruction : program_.step.compute) {
      if (auto* const collective = instruction.As<lowered::CollectiveNode>()) {
        collective->node = &partition_.end.node(nodes_[next++]);
      }
    }
    ExecutorEnvironment environment;
    environment.communicator = &communicator_;
    partition_.rank = RankId(0);
    return ExpandCollectives(std::move(program_), partition_, environment);
  }

  Partition partition_;
  LoweringProgram program_;
  std::vector<NodeId> nodes_;
  OpeningCommunicator communicator_;
};

Attributes Ring() { return {{"algorithm", std::string("ring")}}; }

// The sums then grow side by side where the collective works.
TEST_F(ExpandCollectivesTest, AnAllReduceOfSumsAloneGoesToTheCommunicationList) {
  const BufferIndex a = AddSum("a", {2}), b = AddSum("b", {40});
  const std::vector<BufferIndex> all =
      AddCollective("AllReduce", {"a", "b"}, {a, b}, {{2}, {40}}, Ring());
  Read(all[1]);
  const auto program = Expand();
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_EQ(program->step.communication.size(), 1u);
  const auto& collective = *program->step.communication[0].As<lowered::Collective>();
  EXPECT_THAT(collective.outputs, ElementsAre(program->sums[0].buffer, program->sums[1].buffer));
  EXPECT_TRUE(program->step.buffers.in_group(collective.outputs[0]));
  EXPECT_EQ(collective.region_bytes, 64 + 192);  // each tensor padded to cache lines
  EXPECT_THAT(program->sums_of_communication[0], ElementsAre(0, 1));
  ASSERT_EQ(program->step.compute.size(), 1u);
  EXPECT_EQ(program->step.compute[0].As<lowered::Guard>()->value, collective.outputs[1]);
}

// A value that is no sum is copied into the region, at its place in the compute list.
TEST_F(ExpandCollectivesTest, AnotherAllReduceStaysInTheComputeList) {
  const BufferIndex x = program_.step.buffers.AddArena(8);
  partition_.end.AddInput("x", FloatType({2}));
  AddCollective("AllReduce", {"x"}, {x}, {{2}}, Ring());
  const auto program = Expand();
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE(program->step.communication.empty());
  ASSERT_EQ(program->step.compute.size(), 2u);
  const auto* const copy = program->step.compute[0].As<lowered::Copy>();
  const auto* const collective = program->step.compute[1].As<lowered::Collective>();
  ASSERT_TRUE(copy != nullptr && collective != nullptr);
  EXPECT_EQ(copy->from, x);
  EXPECT_EQ(copy->into, collective->buffers.front());
  EXPECT_EQ(copy->bytes, 8);
}

// All ranks number the messages alike.
TEST_F(ExpandCollectivesTest, ThoseBesideComputeAreOpenedFirst) {
  const BufferIndex x = program_.step.buffers.AddArena(8);
  partition_.end.AddInput("x", FloatType({2}));
  AddCollective("AllReduce", {"x"}, {x}, {{2}}, Ring());
  AddCollective("AllReduce", {"s"}, {AddSum("s", {2})}, {{2}}, Ring());
  ASSERT_TRUE(Expand().ok());
  EXPECT_THAT(communicator_.opened, ElementsAre("of_s beside", "of_x"));
}

TEST_F(ExpandCollectivesTest, GatheredRowsAreTheTensorAndGatheredColumnsAreUnpacked) {
  for (const int64_t axis : {0, 1}) {
    partition_ = Partition();
    program_ = LoweringProgram();
    nodes_.clear();
    const BufferIndex x = program_.step.buffers.AddArena(16);
    partition_.end.AddInput("x", FloatType({2, 2}));
    const Shape whole = axis == 0 ? Shape{4, 2} : Shape{2, 4};
    const std::vector<BufferIndex> all = AddCollective(
        "AllGather", {"x"}, {x}, {whole},
        {{"dim", axis}, {"blocks", int64_t{1}}, {"sizes", Ints{2, 2}}, {"index", int64_t{0}}});
    const auto program = Expand();
    ASSERT_TRUE(program.ok()) << program.status();
    // One to put the own shard in its place; two to take columns out.
    EXPECT_EQ(program->step.compute.size(), axis == 0 ? 2u : 4u);
    const auto& collective = *program->step.compute[1].As<lowered::Collective>();
    EXPECT_EQ(collective.buffers.front() == all[0], axis == 0);
  }
}

TEST_F(ExpandCollectivesTest, ErrorsNameTheNode) {
  const BufferIndex x = program_.step.buffers.AddArena(8);
  partition_.end.AddInput("x", FloatType({2}));
  AddCollective("Gossip", {"x"}, {x}, {{2}}, {});
  const absl::Status status = Expand().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("node 'of_x' (Gossip): the executor does not know this collective"));
}

}  // namespace
}  // namespace weft
