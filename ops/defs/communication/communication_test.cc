#include <map>
#include <string>
#include <vector>

#include "graph/graph_builder.h"
#include "graph/node_class.h"
#include "graph/op_schema.h"
#include "gtest/gtest.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft {
namespace {

using Ints = std::vector<int64_t>;

// The type of each output of a node of our domain over float32 inputs of these shapes, or the
// error.
absl::StatusOr<std::vector<std::string>> OutputTypes(const std::string& op,
                                                     const std::vector<Shape>& inputs,
                                                     Attributes attributes, int outputs = 1) {
  Graph graph;
  GraphBuilder builder(graph);
  std::vector<ValueId> values;
  for (const Shape& shape : inputs) {
    values.push_back(graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32, shape}));
  }
  const std::vector<ValueId> results =
      builder.Ops("ai.weft", op, values, attributes, std::vector<bool>(outputs, true));
  if (!builder.status().ok()) return builder.status();
  std::vector<std::string> types;
  for (const ValueId result : results) types.push_back(builder.type(result).ToString());
  return types;
}

void ExpectTypes(const absl::StatusOr<std::vector<std::string>>& actual,
                 const std::vector<std::string>& expected) {
  ASSERT_TRUE(actual.ok()) << actual.status();
  EXPECT_EQ(*actual, expected);
}

void ExpectRefused(const absl::StatusOr<std::vector<std::string>>& actual,
                   const std::string& text) {
  EXPECT_EQ(actual.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(actual.status().message().find(text), std::string::npos) << actual.status();
}

TEST(PointToPointTest, RecvDeclaresItsType) {
  ExpectTypes(OutputTypes("Recv", {},
                          {{"channel", int64_t{3}}, {"dtype", int64_t{1}}, {"shape", Ints{2, 5}}}),
              {"float32[2,5]"});
  ExpectRefused(
      OutputTypes("Recv", {},
                  {{"channel", int64_t{3}}, {"dtype", int64_t{99}}, {"shape", Ints{2, 5}}}),
      "dtype is 99");
}

TEST(PointToPointTest, SendHasNoOutput) {
  ExpectTypes(OutputTypes("Send", {{2, 5}}, {{"channel", int64_t{3}}}, 0), {});
}

Attributes AllReduceAttributes(const std::string& algorithm) {
  return {{"axis", std::string("data")}, {"group", Ints{0, 2}}, {"algorithm", algorithm}};
}

TEST(AllReduceTest, GivesEveryInputItsSum) {
  ExpectTypes(OutputTypes("AllReduce", {{2, 3}, {4}}, AllReduceAttributes("ring"), 2),
              {"float32[2,3]", "float32[4]"});
}

TEST(AllReduceTest, OrderedTreesTakeSeveralBlocksPerTensor) {
  Attributes attributes = AllReduceAttributes("ordered_tree");
  attributes.Set("blocks", int64_t{2});
  attributes.Set("block_ranges", Ints{0, 2, 2, 3});
  attributes.Set("total_blocks", int64_t{5});
  ExpectTypes(OutputTypes("AllReduce", {{2, 3}, {2, 3}, {4}, {4}}, attributes, 2),
              {"float32[2,3]", "float32[4]"});
  ExpectRefused(OutputTypes("AllReduce", {{2, 3}, {2, 3}, {4}}, attributes, 2),
                "2 outputs of 2 blocks each do not fit 3 inputs");
  attributes.Set("block_ranges", Ints{0, 2});
  ExpectRefused(OutputTypes("AllReduce", {{2, 3}, {2, 3}}, attributes, 1), "block_ranges has 2");
}

TEST(AllReduceTest, OrderedTreesTakeUnequalParts) {
  Attributes attributes = AllReduceAttributes("ordered_tree");
  attributes.Set("block_ranges", Ints{0, 4});
  attributes.Set("total_blocks", int64_t{5});
  const size_t members = attributes.Ints("group").size();
  Ints begins(members, 4);
  begins[0] = 0;
  attributes.Set("member_begins", begins);
  ExpectTypes(OutputTypes("AllReduce", {{2, 3}}, attributes), {"float32[2,3]"});
  begins.back() = 6;
  attributes.Set("member_begins", begins);
  ExpectRefused(OutputTypes("AllReduce", {{2, 3}}, attributes), "attribute member_begins [0,");
  begins.pop_back();
  attributes.Set("member_begins", begins);
  ExpectRefused(OutputTypes("AllReduce", {{2, 3}}, attributes),
                "must have the first micro-batch of each rank of the group");
}

// The schedule doubles the sizes of subtrees until they are as large.
TEST(AllReduceTest, RefusesATreeOfMoreLeavesThanAnyJobHas) {
  Attributes attributes = AllReduceAttributes("ring");
  attributes.Set("total_blocks", int64_t{1} << 30);
  ExpectRefused(OutputTypes("AllReduce", {{2}}, attributes),
                "attribute total_blocks is 1073741824; it must be 0 to 1048576");
}

TEST(AllReduceTest, RefusesUnknownAlgorithmsAndGroups) {
  ExpectRefused(OutputTypes("AllReduce", {{2}}, AllReduceAttributes("star")),
                "algorithm is 'star'");
  Attributes attributes = AllReduceAttributes("ring");
  attributes.Set("group", Ints{1, 1});
  ExpectRefused(OutputTypes("AllReduce", {{2}}, attributes), "group [1,1]");
}

// A dimension of 3 blocks of 5, of which three ranks have 2, 2 and 1.
Attributes ShardAttributes(int64_t index) {
  return {{"axis", std::string("tensor")}, {"group", Ints{4, 5, 6}}, {"dim", int64_t{1}},
          {"blocks", int64_t{3}},          {"sizes", Ints{2, 2, 1}}, {"index", index}};
}

TEST(AllGatherTest, MakesTheShardWhole) {
  ExpectTypes(OutputTypes("AllGather", {{7, 6}}, ShardAttributes(1)), {"float32[7,15]"});
  ExpectTypes(OutputTypes("AllGather", {{7, 3}}, ShardAttributes(2)), {"float32[7,15]"});
  ExpectRefused(OutputTypes("AllGather", {{7, 6}}, ShardAttributes(2)),
                "axis 1 of [7,6] must have size 3");
}

TEST(ReduceScatterTest, GivesTheShard) {
  ExpectTypes(OutputTypes("ReduceScatter", {{7, 15}}, ShardAttributes(0)), {"float32[7,6]"});
  ExpectTypes(OutputTypes("ReduceScatter", {{7, 15}}, ShardAttributes(2)), {"float32[7,3]"});
  ExpectRefused(OutputTypes("ReduceScatter", {{7, 14}}, ShardAttributes(0)),
                "axis 1 of [7,14] must have size 15");
  ExpectRefused(OutputTypes("ReduceScatter", {{7, 15}}, ShardAttributes(3)),
                "index is 3; the group has 3 ranks");
}

TEST(AllReduceTest, NamesAHostForEachRankOrNone) {
  for (const std::string algorithm :
       {"auto", "ring", "recursive_doubling", "halving_doubling", "tree", "hierarchical"}) {
    Attributes attributes = AllReduceAttributes(algorithm);
    ExpectTypes(OutputTypes("AllReduce", {{2}}, attributes), {"float32[2]"});
    attributes.Set("hosts", Ints{0, 1});
    ExpectTypes(OutputTypes("AllReduce", {{2}}, attributes), {"float32[2]"});
    attributes.Set("hosts", Ints{0});
    ExpectRefused(OutputTypes("AllReduce", {{2}}, attributes), "hosts has 1 numbers");
  }
}

TEST(AllToAllTest, ExchangesTheSplitAxes) {
  Attributes attributes = ShardAttributes(1);
  attributes.Set("split_dim", int64_t{0});
  attributes.Set("split_sizes", Ints{3, 2, 2});
  ExpectTypes(OutputTypes("AllToAll", {{7, 6, 4}}, attributes), {"float32[2,15,4]"});
  ExpectRefused(OutputTypes("AllToAll", {{7, 3, 4}}, attributes),
                "axis 1 of [7,3,4] must have size 6");
  ExpectRefused(OutputTypes("AllToAll", {{8, 6, 4}}, attributes),
                "axis 0 of [8,6,4] must have size 7");
  attributes.Set("split_dim", int64_t{1});
  ExpectRefused(OutputTypes("AllToAll", {{7, 6, 4}}, attributes), "dim and split_dim are both 1");
}

// -1 was taken for the last dimension here and for the one before the first by the schedule.
TEST(AllToAllTest, CountsDimensionsFromTheFirst) {
  Attributes attributes = ShardAttributes(1);
  attributes.Set("split_dim", int64_t{0});
  attributes.Set("split_sizes", Ints{3, 2, 2});
  attributes.Set("dim", int64_t{-1});
  ExpectRefused(OutputTypes("AllToAll", {{7, 6}}, attributes),
                "attribute dim is -1; it must be 0 or more and less than 2");
  attributes.Set("dim", int64_t{1});
  attributes.Set("split_dim", int64_t{-2});
  ExpectRefused(OutputTypes("AllToAll", {{7, 6}}, attributes),
                "attribute split_dim is -2; it must be 0 or more and less than 2");
}

TEST(BroadcastTest, HasTheTypeOfTheRoot) {
  Attributes attributes{
      {"axis", std::string("tensor")}, {"group", Ints{0, 1}}, {"root", int64_t{1}}};
  ExpectTypes(OutputTypes("Broadcast", {{7}}, attributes), {"float32[7]"});
  attributes.Set("dtype", int64_t{7});
  attributes.Set("shape", Ints{3});
  ExpectTypes(OutputTypes("Broadcast", {}, attributes), {"int64[3]"});
  attributes.Set("root", int64_t{2});
  ExpectRefused(OutputTypes("Broadcast", {}, attributes), "root is 2, which is not in the group");
}

TEST(SumOverReplicasTest, GivesEveryInputItsSum) {
  ExpectTypes(OutputTypes("SumOverReplicas", {{2, 3}, {5}}, {}, 2), {"float32[2,3]", "float32[5]"});
}

TEST(SumOverReplicasTest, RefusesAnOutputThatIsNoInputsSum) {
  ExpectRefused(OutputTypes("SumOverReplicas", {{2, 3}}, {}, 2),
                "2 outputs are the sums of 1 inputs; expected one for each");
}

TEST(AccumulateTest, KeepsTheTypeAndHasNoKernel) {
  ExpectTypes(OutputTypes("Accumulate", {{2, 3}}, {}), {"float32[2,3]"});
  const testing::OpCase op_case{
      .domain = "ai.weft", .op = "Accumulate", .inputs = {testing::RandomTensor({2}, 1)}};
  EXPECT_TRUE(testing::ExpectError(op_case, absl::StatusCode::kUnimplemented,
                                   {"the op runs only inside a program"}));
}

// What generic code asks instead of comparing names: each op has a kind, and no two the same.
TEST(CommunicationKindTest, EveryOpThatCommunicatesHasAKindOfItsOwn) {
  std::map<CommunicationKind, std::string> ops;
  for (const OpSchema* const schema : OpRegistry::Global().All()) {
    Node node;
    node.domain = schema->domain();
    node.op = schema->name();
    node.schema = schema;
    const CommunicationKind kind = KindOf(node);
    if (schema->op_class() != OpClass::kCommunication) {
      EXPECT_EQ(kind, CommunicationKind::kNone) << schema->FullName();
      continue;
    }
    EXPECT_NE(kind, CommunicationKind::kNone) << schema->FullName();
    EXPECT_NE(kind, CommunicationKind::kOther) << schema->FullName();
    EXPECT_TRUE(ops.emplace(kind, schema->FullName()).second) << schema->FullName();
  }
  EXPECT_EQ(ops[CommunicationKind::kSend], "ai.weft::Send");
  EXPECT_EQ(ops[CommunicationKind::kReceive], "ai.weft::Recv");
  EXPECT_EQ(ops.size(), 8u);
}

// The same name in a domain of somebody else is another op.
TEST(CommunicationKindTest, NamesOfOtherDomainsMeanNothing) {
  const OpSchema schema = OpSchema("elsewhere", "AllReduce").Class(OpClass::kCommunication);
  Node node;
  node.domain = "elsewhere";
  node.op = "AllReduce";
  EXPECT_EQ(KindOf(node), CommunicationKind::kNone);
  node.schema = &schema;
  EXPECT_EQ(KindOf(node), CommunicationKind::kOther);
}

}  // namespace
}  // namespace weft
