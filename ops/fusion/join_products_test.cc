// Which nodes are joined to a product, which are not, and that a graph stays what it was.
#include "ops/fusion/join_products.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "graph/expansion.h"
#include "graph/graph_builder.h"
#include "graph/verifier.h"
#include "gtest/gtest.h"
#include "ops/fusion/fused_node.h"
#include "ops/testing/graph_evaluator.h"
#include "ops/testing/test_tensors.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using weft::testing::EvaluateGraph;
using weft::testing::RandomTensor;

const Attributes kByTanh = {{"approximate", std::string("tanh")}};

class JoinProductsTest : public ::testing::Test {
 protected:
  ValueId Input(const Shape& shape, DType dtype = DType::kFloat32) {
    const ValueId value = graph_.AddInput("x", {ValueKind::kTensor, dtype, shape});
    feeds_[value] = RandomTensor(shape, 1 + feeds_.size(), -1, 1, dtype);
    return value;
  }
  ValueId Op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return builder_.Op(op, std::move(inputs), std::move(attributes));
  }
  ValueId WeftOp(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return builder_.WeftOp(op, std::move(inputs), std::move(attributes));
  }
  // [2,3,4] x [4,columns].
  ValueId Product(int64_t columns = 8) {
    return Op("MatMul", {Input({2, 3, 4}), Input({4, columns})});
  }
  void Output(ValueId value) { graph_.AddOutput(value); }

  // The ops of each node that is now parts, in the order of the graph. What the graph gives is what
  // it gave, and its nodes are in an order of execution.
  std::vector<std::vector<std::string>> Joined(const std::vector<int>& colors = {}) {
    EXPECT_TRUE(builder_.status().ok()) << builder_.status();
    const auto before = EvaluateGraph(graph_, feeds_, graph_.outputs());
    EXPECT_TRUE(before.ok()) << before.status();
    const int nodes = graph_.num_nodes();
    const auto counts = JoinProducts(
        graph_, [this](const Graph& body) { return takes_(body); }, colors);
    EXPECT_TRUE(counts.ok()) << counts.status();
    EXPECT_TRUE(VerifyGraph(graph_).ok()) << VerifyGraph(graph_);
    const auto order = graph_.TopologicalOrder();
    EXPECT_TRUE(order.ok() && std::is_sorted(order->begin(), order->end()));
    EXPECT_EQ(graph_.num_nodes(), nodes - counts->nodes + counts->regions);
    std::vector<std::vector<std::string>> parts;
    for (const NodeId id : graph_.node_ids()) {
      if (graph_.node(id).op != kJoinedProductOp) continue;
      std::vector<std::string>& ops = parts.emplace_back();
      const Graph& body = FusedBodyOf(graph_.node(id));
      for (const NodeId part : body.node_ids()) ops.push_back(body.node(part).op);
    }
    EXPECT_EQ(static_cast<int>(parts.size()), counts->regions);
    ExpectValues(*before);
    return parts;
  }
  // The parts, put back into a copy, give these values.
  void ExpectValues(const std::vector<Tensor>& expected) {
    Graph copy = graph_.Clone();
    for (const NodeId id : graph_.node_ids()) {
      if (copy.node(id).op != kJoinedProductOp) continue;
      EXPECT_TRUE(ExpandNode(copy, id).ok());
    }
    const auto after = EvaluateGraph(copy, feeds_, copy.outputs());
    ASSERT_TRUE(after.ok()) << after.status();
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(BitwiseEqual((*after)[i], expected[i])) << i;
    }
  }

  Graph graph_;
  GraphBuilder builder_{graph_};
  std::map<ValueId, Tensor> feeds_;
  std::function<absl::StatusOr<bool>(const Graph&)> takes_ = [](const Graph&) { return true; };
};

TEST_F(JoinProductsTest, OneRowOfAnyRankIsABias) {
  for (const Shape& row : {Shape{8}, Shape{1, 8}, Shape{1, 1, 8}}) {
    Output(Op("Add", {Product(), Input(row)}));
    Output(Op("Add", {Input(row), Product()}));
  }
  const std::vector<std::string> parts = {"MatMul", "Add"};
  EXPECT_THAT(Joined(), ElementsAre(parts, parts, parts, parts, parts, parts));
  EXPECT_EQ(graph_.num_nodes(), 6);
}

TEST_F(JoinProductsTest, ABiasMayBeComputed) {
  const ValueId product = Op("MatMul", {Input({3, 4}), Input({4, 8})});
  Output(Op("Add", {product, Op("MatMul", {Input({1, 4}), Input({4, 8})})}));
  EXPECT_THAT(Joined(), ElementsAre(std::vector<std::string>{"MatMul", "Add"}));
  EXPECT_EQ(graph_.num_nodes(), 2);
}

TEST_F(JoinProductsTest, AllProductsAreKnown) {
  Output(Op("Add", {WeftOp("MatMul", {Input({4, 3}), Input({8, 4})},
                           {{"transA", int64_t{1}}, {"transB", int64_t{1}}}),
                    Input({8})}));
  Output(Op("Add", {Op("Gemm", {Input({3, 4}), Input({4, 8})}, {{"alpha", 2.0f}}), Input({8})}));
  Output(
      Op("Add", {WeftOp("MatMulReduceBatch", {Input({2, 3, 4}), Input({2, 3, 8})}), Input({8})}));
  Output(Op("Add", {Op("MatMul", {Input({2, 3, 4}), Input({2, 4, 8})}), Input({8})}));
  EXPECT_EQ(Joined().size(), 4u);
}

TEST_F(JoinProductsTest, OtherAddendsAreNoBias) {
  for (const Shape& addend : {Shape{3, 1}, Shape{1}, Shape{}, Shape{3, 8}, Shape{1, 1, 1, 8}}) {
    Output(Op("Add", {Product(), Input(addend)}));
  }
  const ValueId both = Product();
  Output(Op("Add", {both, both}));
  EXPECT_THAT(Joined(), IsEmpty());
}

TEST_F(JoinProductsTest, AMatrixOfTheSameShapeIsAddedLast) {
  const ValueId layer = Op("Add", {Product(), Input({8})});
  Output(Op("Add", {Input({2, 3, 8}), layer}));
  Output(Op("Add", {Product(), Input({2, 3, 8})}));
  Output(Op("Add", {Op("Gemm", {Input({3, 4}), Input({4, 8}), Input({8})}), Input({3, 8})}));
  EXPECT_THAT(Joined(), ElementsAre(std::vector<std::string>{"MatMul", "Add", "Add"},
                                    std::vector<std::string>{"MatMul", "Add"},
                                    std::vector<std::string>{"Gemm", "Add"}));
}

// The sum of two products: one adds what the other gives.
TEST_F(JoinProductsTest, OfTwoProductsOneIsAddedToTheOther) {
  Output(Op("Add", {Product(), Product()}));
  EXPECT_THAT(Joined(), ElementsAre(std::vector<std::string>{"MatMul", "Add"}));
  EXPECT_EQ(graph_.num_nodes(), 2);
}

TEST_F(JoinProductsTest, NothingIsJoinedBehindAMatrixThatIsAdded) {
  const ValueId sum = Op("Add", {Op("Add", {Product(), Input({8})}), Input({2, 3, 8})});
  Output(Op("Gelu", {Op("Add", {sum, Input({2, 3, 8})})}, kByTanh));
  EXPECT_THAT(Joined(), ElementsAre(std::vector<std::string>{"MatMul", "Add", "Add"}));
  EXPECT_EQ(graph_.num_nodes(), 3);
}

TEST_F(JoinProductsTest, AProductThatOthersNeedStays) {
  const ValueId read_twice = Product();
  Output(Op("Add", {read_twice, Input({8})}));
  Output(Op("Neg", {read_twice}));
  const ValueId given = Product();
  Output(given);
  Output(Op("Add", {given, Input({8})}));
  EXPECT_THAT(Joined(), IsEmpty());
}

TEST_F(JoinProductsTest, TypesWithoutEpiloguesStay) {
  for (const DType dtype : {DType::kFloat64, DType::kInt32}) {
    Output(
        Op("Add", {Op("MatMul", {Input({3, 4}, dtype), Input({4, 8}, dtype)}), Input({8}, dtype)}));
  }
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    Output(
        Op("Add", {Op("MatMul", {Input({3, 4}, dtype), Input({4, 8}, dtype)}), Input({8}, dtype)}));
  }
  EXPECT_EQ(Joined().size(), 2u);
}

TEST_F(JoinProductsTest, VectorsAndEmptyMatricesStay) {
  Output(Op("Add", {Op("MatMul", {Input({4}), Input({4, 8})}), Input({8})}));
  Output(Op("Add", {Op("MatMul", {Input({3, 4}), Input({4, 1})}), Input({1})}));
  Output(Op("Add", {Op("MatMul", {Input({3, 0}), Input({0, 8})}), Input({8})}));
  EXPECT_THAT(Joined(), IsEmpty());
}

TEST_F(JoinProductsTest, GeluByTanhFollows) {
  Output(Op("Gelu", {Op("Add", {Product(), Input({8})})}, kByTanh));
  Output(Op("Gelu", {Product()}, kByTanh));
  Output(Op("Gelu", {Op("Gemm", {Input({3, 4}), Input({4, 8}), Input({8})})}, kByTanh));
  EXPECT_THAT(Joined(), ElementsAre(std::vector<std::string>{"MatMul", "Add", "Gelu"},
                                    std::vector<std::string>{"MatMul", "Gelu"},
                                    std::vector<std::string>{"Gemm", "Gelu"}));
}

// Relu: that of the library makes 0 of NaN.
TEST_F(JoinProductsTest, OtherActivationsStay) {
  Output(Op("Gelu", {Op("Add", {Product(), Input({8})})}));
  Output(Op("Relu", {Op("Add", {Product(), Input({8})})}));
  Output(Op("Relu", {Product()}));
  const std::vector<std::string> bias = {"MatMul", "Add"};
  EXPECT_THAT(Joined(), ElementsAre(bias, bias));
  EXPECT_EQ(graph_.num_nodes(), 6);
}

TEST_F(JoinProductsTest, AnAddendThatIsScaledOrAMatrixStaysWithItsGemm) {
  const auto gemm = [&](const Shape& c, float beta) {
    return Op("Gemm", {Input({3, 4}), Input({4, 8}), Input(c)}, {{"beta", beta}});
  };
  Output(Op("Gelu", {gemm({8}, 0.5f)}, kByTanh));
  Output(Op("Gelu", {gemm({3, 8}, 1)}, kByTanh));
  Output(Op("Gelu", {gemm({}, 1)}, kByTanh));
  Output(Op("Add", {gemm({8}, 1), Input({8})}));  // its second bias
  EXPECT_THAT(Joined(), IsEmpty());
  // One that does not count is none.
  Output(Op("Add", {gemm({3, 8}, 0), Input({8})}));
  EXPECT_THAT(Joined(), ElementsAre(std::vector<std::string>{"Gemm", "Add"}));
}

TEST_F(JoinProductsTest, WhatGeluReadsIsGivenTooWhereOthersNeedIt) {
  const ValueId z = Op("Add", {Product(), Input({8})});
  const ValueId h = Op("Gelu", {z}, kByTanh);
  Output(WeftOp("TanhGeluGrad", {h, z}));
  EXPECT_THAT(Joined(), ElementsAre(std::vector<std::string>{"MatMul", "Add", "Gelu"}));
  const Node& joined = graph_.node(graph_.value(z).producer);
  EXPECT_EQ(joined.op, kJoinedProductOp);
  EXPECT_THAT(joined.outputs, ElementsAre(z, h));
}

// Rows of Aux begin at multiples of eight elements.
TEST_F(JoinProductsTest, RowsThatTheLibraryDoesNotWriteAreNotGiven) {
  const ValueId z = Op("Add", {Product(12), Input({12})});
  Output(z);
  Output(Op("Gelu", {z}, kByTanh));
  Output(Op("Gelu", {Op("Add", {Product(12), Input({12})})}, kByTanh));  // nobody else reads this
  EXPECT_THAT(Joined(), ElementsAre(std::vector<std::string>{"MatMul", "Add"},
                                    std::vector<std::string>{"MatMul", "Add", "Gelu"}));
}

TEST_F(JoinProductsTest, AGradientOfGeluIsJoinedToTheProductOfItsGradient) {
  const ValueId z = Input({3, 8});
  const auto product = [&](int64_t columns) {
    return WeftOp("MatMul", {Input({3, 4}), Input({columns, 4})}, {{"transB", int64_t{1}}});
  };
  // By erf, of the operand, with odd rows, or with a bias between.
  Output(WeftOp("GeluGrad", {product(8), z}));
  Output(WeftOp("TanhGeluGrad", {z, product(8)}));
  Output(WeftOp("TanhGeluGrad", {product(12), Input({3, 12})}));
  Output(WeftOp("TanhGeluGrad", {Op("Gemm", {Input({3, 4}), Input({4, 8}), Input({8})}), z}));
  EXPECT_THAT(Joined(), IsEmpty());
  Output(WeftOp("TanhGeluGrad", {product(8), z}));
  EXPECT_THAT(Joined(), ElementsAre(std::vector<std::string>{"MatMul", "TanhGeluGrad"}));
}

TEST_F(JoinProductsTest, SumsOfRowsAreJoinedToTheProductOfThem) {
  const ValueId x = Input({2, 3, 4}), dy = Input({2, 3, 8});
  Output(WeftOp("MatMulReduceBatch", {x, dy}));
  Output(WeftOp("SumToShape", {dy, builder_.Ints({8})}));
  EXPECT_THAT(Joined(), ElementsAre(std::vector<std::string>{"MatMulReduceBatch", "SumToShape"}));
}

TEST_F(JoinProductsTest, SumsOfEitherOperandAndInEitherForm) {
  const ValueId x = Input({6, 4}), dy = Input({6, 8});
  Output(Op("ReduceSum", {dy, builder_.Ints({0})}, {{"keepdims", int64_t{0}}}));
  Output(WeftOp("MatMul", {dy, x}, {{"transA", int64_t{1}}}));
  const ValueId other = Input({6, 8});
  Output(Op("Gemm", {x, other}, {{"transA", int64_t{1}}}));
  Output(WeftOp("SumToShape", {other, builder_.Ints({1, 8})}));
  EXPECT_THAT(Joined(), ElementsAre(std::vector<std::string>{"ReduceSum", "MatMul"},
                                    std::vector<std::string>{"Gemm", "SumToShape"}));
}

TEST_F(JoinProductsTest, OtherSumsStay) {
  const ValueId x = Input({2, 3, 4}), dy = Input({2, 3, 8});
  Output(WeftOp("MatMulReduceBatch", {x, dy}));
  Output(Op("ReduceSum", {dy, builder_.Ints({-1})}));
  Output(Op("ReduceSum", {dy, builder_.Ints({0})}));
  Output(WeftOp("SumToShape", {dy, builder_.Ints({3, 8})}));
  Output(WeftOp("SumToShape", {dy, builder_.Ints({})}));
  // Of another product than one of rows, or a scaled one.
  const ValueId a = Input({6, 4}), b = Input({4, 8}), c = Input({6, 8});
  Output(Op("MatMul", {a, b}));
  Output(WeftOp("SumToShape", {b, builder_.Ints({8})}));
  Output(Op("Gemm", {a, c}, {{"transA", int64_t{1}}, {"alpha", 2.0f}}));
  Output(WeftOp("SumToShape", {c, builder_.Ints({8})}));
  EXPECT_THAT(Joined(), IsEmpty());
}

// Joined, the product would wait for what its own sums become.
TEST_F(JoinProductsTest, NodesWithoutACommonPlaceStay) {
  const ValueId x = Input({6, 8}), dy = Input({6, 8});
  const ValueId sums = WeftOp("SumToShape", {dy, builder_.Ints({8})});
  Output(WeftOp("MatMulReduceBatch", {Op("Mul", {x, sums}), dy}));
  EXPECT_THAT(Joined(), IsEmpty());
}

TEST_F(JoinProductsTest, PhasesStagesAndColorsAreBorders) {
  const ValueId forward = Product();
  builder_.set_phase(Phase::kBackward);
  Output(Op("Add", {forward, Input({8})}));
  const ValueId first = Product();
  builder_.set_stage(StageId(1));
  Output(Op("Add", {first, Input({8})}));
  EXPECT_THAT(Joined(), IsEmpty());
  const ValueId product = Product();
  const ValueId sum = Op("Add", {product, Input({8})});
  Output(sum);
  std::vector<int> colors(graph_.node_capacity());
  colors[graph_.value(sum).producer.value] = 1;
  EXPECT_THAT(Joined(colors), IsEmpty());
  EXPECT_EQ(Joined().size(), 1u);
}

TEST_F(JoinProductsTest, TheLongestChainThatIsTakenIsJoined) {
  std::vector<int> asked;
  takes_ = [&asked](const Graph& body) {
    asked.push_back(body.num_nodes());
    return body.num_nodes() == 2;
  };
  Output(Op("Gelu", {Op("Add", {Product(), Input({8})})}, kByTanh));
  EXPECT_THAT(Joined(), ElementsAre(std::vector<std::string>{"MatMul", "Add"}));
  EXPECT_THAT(asked, ElementsAre(3, 2));
}

TEST_F(JoinProductsTest, WhatIsRefusedStaysAndErrorsComeThrough) {
  Output(Op("Add", {Product(), Input({8})}));
  takes_ = [](const Graph&) { return false; };
  EXPECT_THAT(Joined(), IsEmpty());
  const auto failed = JoinProducts(graph_, [](const Graph&) -> absl::StatusOr<bool> {
    return absl::InternalError("the card is gone");
  });
  EXPECT_EQ(failed.status().message(), "the card is gone");
}

}  // namespace
}  // namespace weft
