// EmbeddingBag as PyTorch's dynamo exporter writes it: which Loops are recognised, what they give,
// and which stay. Whole files are in tests/zoo.
#include "ops/rewrites/embedding_bag_sequence.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "graph/node_bodies.h"
#include "graph/verifier.h"
#include "gtest/gtest.h"
#include "ops/rewrites/rewrites.h"
#include "ops/testing/graph_evaluator.h"
#include "ops/testing/test_tensors.h"

namespace weft {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::Pointwise;
using weft::testing::EvaluateGraph;
using weft::testing::RandomTensor;

constexpr int64_t kSize = 3;

// What a test plants.
struct Deviation {
  int64_t first_round = 0;
  int64_t step = 1;
  int64_t end = 2;  // a bag is from offset i to offset i + end - 1
  int64_t bags_left_out = 0;
  bool in_front = false;  // each bag is put before those that came earlier
};

class SequencedBags : public ::testing::Test {
 protected:
  SequencedBags() { table_ = Input("table", DType::kFloat32, {5, kSize}); }

  ValueId Input(const std::string& name, DType dtype, std::vector<Dim> dims) {
    return graph_.AddInput(name, {ValueKind::kTensor, dtype, SymbolicShape(std::move(dims))});
  }
  ValueId Scalar(int64_t value) { return builder_.Constant(Tensor::Scalar<int64_t>(value)); }
  ValueId Op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return builder_.Op(op, std::move(inputs), std::move(attributes));
  }

  // A body that captures values of `outer`: made by `fill`, which gets the captured ones.
  struct Body {
    std::shared_ptr<Graph> graph = std::make_shared<Graph>();
    std::vector<std::string> names = {};
    std::vector<ValueId> inside = {};
  };
  static Body Capturing(const Graph& outer, const std::vector<ValueId>& captured) {
    Body body;
    for (const ValueId value : captured) {
      const std::string name = absl::StrCat("captured", value.value);
      body.names.push_back(name);
      body.inside.push_back(body.graph->AddInput(name, outer.value(value).type));
    }
    return body;
  }
  // An If whose branches capture the same values; each adds its output by itself.
  static ValueId If(GraphBuilder& builder, ValueId condition, const std::vector<ValueId>& captured,
                    const Body& then_branch, const Body& else_branch) {
    std::vector<ValueId> inputs = {condition};
    inputs.insert(inputs.end(), captured.begin(), captured.end());
    inputs.insert(inputs.end(), captured.begin(), captured.end());
    return builder.Op("If", inputs,
                      {{"then_branch", then_branch.graph},
                       {"else_branch", else_branch.graph},
                       {CapturesAttribute("then_branch"), then_branch.names},
                       {CapturesAttribute("else_branch"), else_branch.names}});
  }

  // The rows from start to end, reduced. A mean of the last bag is a sum over what is left.
  static void Reduce(Graph& graph, const std::string& reduction, ValueId rows, ValueId start,
                     ValueId end, ValueId round, ValueId bags, ValueId count) {
    GraphBuilder builder(graph);
    const ValueId bag = builder.Op("Slice", {rows, start, end});
    const ValueId axes = builder.Ints({0});
    if (reduction != "ReduceMean") {
      graph.AddOutput(builder.Op(reduction, {bag, axes}));
      EXPECT_TRUE(builder.status().ok()) << builder.status();
      return;
    }
    const ValueId one = builder.Constant(Tensor::Scalar<int64_t>(1));
    const ValueId is_last = builder.Op("Equal", {round, builder.Op("Sub", {bags, one})});
    const std::vector<ValueId> captured = {bag, count, start};
    Body last = Capturing(graph, captured);
    GraphBuilder in_last(*last.graph);
    const ValueId sum = in_last.Op("ReduceSum", {last.inside[0], in_last.Ints({0})});
    const ValueId rest = in_last.Op("Sub", {last.inside[1], last.inside[2]});
    const ValueId divisor =
        in_last.Op("Cast", {rest}, {{"to", static_cast<int64_t>(DType::kFloat32)}});
    last.graph->AddOutput(in_last.Op("Div", {sum, divisor}));
    EXPECT_TRUE(in_last.status().ok()) << in_last.status();
    Body other = Capturing(graph, captured);
    GraphBuilder in_other(*other.graph);
    other.graph->AddOutput(in_other.Op("ReduceMean", {other.inside[0], in_other.Ints({0})}));
    graph.AddOutput(If(builder, is_last, captured, last, other));
    EXPECT_TRUE(builder.status().ok()) << builder.status();
  }

  std::shared_ptr<Graph> Rounds(const std::string& reduction, const std::vector<ValueId>& captured,
                                const Deviation& deviation) {
    const auto type = [](DType dtype) {
      return ValueType{ValueKind::kTensor, dtype, SymbolicShape(Shape{})};
    };
    auto body = std::make_shared<Graph>();
    body->AddInput("number", type(DType::kInt64));
    body->AddInput("go", type(DType::kBool));
    const ValueId round = body->AddInput("round", type(DType::kInt64));
    const ValueId sequence =
        body->AddInput("sequence", {ValueKind::kSequence, DType::kFloat32, SymbolicShape()});
    std::vector<ValueId> inside;
    for (const ValueId value : captured) {
      inside.push_back(
          body->AddInput(absl::StrCat("captured", value.value), graph_.value(value).type));
    }
    GraphBuilder inner(*body);
    const auto scalar = [&](int64_t value) {
      return inner.Constant(Tensor::Scalar<int64_t>(value));
    };
    const auto plus = [&](ValueId value, int64_t number) {
      return number == 0 ? value : inner.Op("Add", {value, scalar(number)});
    };
    const ValueId at = inner.Op("Reshape", {round, inner.Ints({-1})});
    const auto offset = [&](int64_t number) {
      return inner.Op("Slice", {inside[1], plus(at, number), plus(at, number + 1)});
    };
    const ValueId start = offset(0);
    const ValueId end = offset(deviation.end - 1);
    const ValueId is_empty = inner.Op("Equal", {start, end});
    const std::vector<ValueId> of_bag = {inside[0], start, end, round, inside[2], inside[3]};
    Body empty = Capturing(*body, of_bag);
    GraphBuilder in_empty(*empty.graph);
    empty.graph->AddOutput(in_empty.Constant(Tensor::Of<float>({1, kSize}, {0.0f, 0.0f, 0.0f})));
    Body full = Capturing(*body, of_bag);
    Reduce(*full.graph, reduction, full.inside[0], full.inside[1], full.inside[2], full.inside[3],
           full.inside[4], full.inside[5]);
    const ValueId row = If(inner, is_empty, of_bag, empty, full);
    const ValueId next = plus(round, deviation.step);
    std::vector<ValueId> inserted = {sequence, row};
    if (deviation.in_front) inserted.push_back(scalar(0));
    const ValueId longer = inner.Op("SequenceInsert", inserted);
    const ValueId limit = deviation.bags_left_out == 0
                              ? inside[2]
                              : inner.Op("Sub", {inside[2], scalar(deviation.bags_left_out)});
    body->AddOutput(inner.Op("Less", {next, limit}));
    body->AddOutput(next);
    body->AddOutput(longer);
    EXPECT_TRUE(inner.status().ok()) << inner.status();
    return body;
  }

  // Bags of `rows` [n, kSize], whose `count` is n, from one offset to the next.
  void Bags(const std::string& reduction, ValueId rows, ValueId offsets, ValueId bags,
            ValueId count, const Deviation& deviation = {}) {
    const ValueId first = Scalar(deviation.first_round);
    const std::vector<ValueId> captured = {rows, offsets, bags, count};
    std::vector<ValueId> inputs = {kNoValue, Op("Less", {first, bags}), first,
                                   Op("SequenceEmpty", {})};
    inputs.insert(inputs.end(), captured.begin(), captured.end());
    std::vector<std::string> names;
    for (const ValueId value : captured) names.push_back(absl::StrCat("captured", value.value));
    const std::vector<ValueId> loop = builder_.Ops(
        "", "Loop", inputs,
        {{"body", Rounds(reduction, captured, deviation)}, {CapturesAttribute("body"), names}},
        {true, true});
    ASSERT_TRUE(builder_.status().ok()) << builder_.status();
    sequence_ = loop[1];
    const ValueId joined = Op("ConcatFromSequence", {sequence_}, {{"axis", int64_t{0}}});
    ASSERT_TRUE(builder_.status().ok()) << builder_.status();
    graph_.AddOutput(joined);
  }
  // Bags of the rows with these indices.
  void KnownBags(const std::string& reduction, const std::vector<int64_t>& indices,
                 const std::vector<int64_t>& offsets, const Deviation& deviation = {}) {
    const ValueId rows = Op("Gather", {table_, builder_.Ints(indices)}, {{"axis", int64_t{0}}});
    Bags(reduction, rows, builder_.Ints(offsets), Scalar(static_cast<int64_t>(offsets.size()) - 1),
         Scalar(static_cast<int64_t>(indices.size())), deviation);
  }
  // Bags of indices [N, 2] for any N: offsets are 0, 2, 4, ... below their number.
  ValueId BagsOfATable(const std::string& reduction, bool is_weighted) {
    const ValueId indices = Input("indices", DType::kInt64, {Dim::Symbol("N"), 2});
    const ValueId flat = Op("Reshape", {indices, builder_.Ints({-1})});
    const ValueId batch =
        Op("Squeeze", {Op("Shape", {indices}, {{"start", int64_t{0}}, {"end", int64_t{1}}})});
    const ValueId starts = Op("Range", {Scalar(0), Op("Mul", {batch, Scalar(2)}), Scalar(2)});
    const ValueId count = Op("Shape", {flat});
    ValueId rows = Op("Gather", {table_, flat}, {{"axis", int64_t{0}}});
    const ValueId weights =
        is_weighted ? Op("Reshape", {Input("weights", DType::kFloat32, {Dim::Symbol("N"), 2}),
                                     builder_.Ints({-1})})
                    : Op("Expand", {builder_.Constant(Tensor::Of<float>({1}, {1.0f})), count});
    rows = Op("Mul", {rows, Op("Unsqueeze", {weights, builder_.Ints({1})})});
    Bags(reduction, rows, Op("Concat", {starts, count}, {{"axis", int64_t{0}}}),
         Op("Size", {starts}), count);
    return indices;
  }

  RewriteCounts Rewritten() {
    const auto counts = RewritePatterns(graph_, RewriteUse::kTraining);
    EXPECT_TRUE(counts.ok()) << counts.status();
    EXPECT_TRUE(VerifyGraph(graph_).ok()) << VerifyGraph(graph_);
    return counts.ok() ? *counts : RewriteCounts();
  }

  // Bags of `length` rows each, times their weights, reduced by hand.
  static std::vector<double> Expected(const std::string& reduction, const Tensor& table,
                                      const std::vector<int64_t>& indices, size_t length,
                                      const std::vector<double>& weights = {}) {
    const std::vector<double> rows = ToDoubles(table).value();
    std::vector<double> bags;
    for (size_t bag = 0; bag < indices.size(); bag += length) {
      for (size_t e = 0; e < kSize; ++e) {
        double sum = 0;
        double largest = -1e300;
        for (size_t i = bag; i < bag + length; ++i) {
          const double weight = weights.empty() ? 1.0 : weights[i];
          const double value = weight * rows[static_cast<size_t>(indices[i]) * kSize + e];
          sum += value;
          largest = std::max(largest, value);
        }
        bags.push_back(reduction == "ReduceMax"    ? largest
                       : reduction == "ReduceMean" ? sum / static_cast<double>(length)
                                                   : sum);
      }
    }
    return bags;
  }

  Graph graph_;
  GraphBuilder builder_{graph_};
  ValueId table_ = kNoValue;
  ValueId sequence_ = kNoValue;
};

class EachReduction : public SequencedBags, public ::testing::WithParamInterface<const char*> {};

TEST_P(EachReduction, OfKnownOffsetsIsAGatherAndAReduction) {
  const std::vector<int64_t> indices = {4, 0, 2, 1, 1, 3};
  KnownBags(GetParam(), indices, {0, 3, 6});
  EXPECT_THAT(Rewritten(), ElementsAre(Pair("embedding_bag", 1)));
  const Tensor table = RandomTensor({5, kSize}, 7);
  const auto y = EvaluateGraph(graph_, {{table_, table}}, graph_.outputs());
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(y->front().shape(), (Shape{2, kSize}));
  EXPECT_THAT(ToDoubles(y->front()).value(),
              Pointwise(DoubleNear(1e-6), Expected(GetParam(), table, indices, 3)));
}

TEST_P(EachReduction, OfATableOfIndicesKeepsItsBatch) {
  const ValueId indices = BagsOfATable(GetParam(), /*is_weighted=*/false);
  EXPECT_THAT(Rewritten(), ElementsAre(Pair("embedding_bag", 1)));
  EXPECT_EQ(graph_.value(graph_.outputs()[0]).type.ToString(), "float32[N,3]");
  const Tensor table = RandomTensor({5, kSize}, 8);
  const std::vector<int64_t> rows = {1, 4, 0, 0, 3, 2};
  const auto y = EvaluateGraph(
      graph_, {{table_, table}, {indices, Tensor::Of<int64_t>({3, 2}, rows)}}, graph_.outputs());
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_THAT(ToDoubles(y->front()).value(),
              Pointwise(DoubleNear(1e-6), Expected(GetParam(), table, rows, 2)));
}

TEST_P(EachReduction, OfWeightedRows) {
  const ValueId indices = BagsOfATable(GetParam(), /*is_weighted=*/true);
  EXPECT_THAT(Rewritten(), ElementsAre(Pair("embedding_bag", 1)));
  const Tensor table = RandomTensor({5, kSize}, 9);
  const std::vector<int64_t> rows = {1, 4, 0, 0};
  const Tensor weights = RandomTensor({2, 2}, 10);
  const auto y = EvaluateGraph(graph_,
                               {{table_, table},
                                {indices, Tensor::Of<int64_t>({2, 2}, rows)},
                                {graph_.FindValue("weights").value(), weights}},
                               graph_.outputs());
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_THAT(ToDoubles(y->front()).value(),
              Pointwise(DoubleNear(1e-6),
                        Expected(GetParam(), table, rows, 2, ToDoubles(weights).value())));
}

INSTANTIATE_TEST_SUITE_P(Reductions, EachReduction,
                         ::testing::Values("ReduceSum", "ReduceMean", "ReduceMax"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(SequencedBags, OfSeveralLengthsStayALoop) {
  KnownBags("ReduceSum", {4, 0, 2, 1, 1, 3}, {0, 2, 6});
  EXPECT_THAT(Rewritten(), IsEmpty());
}

TEST_F(SequencedBags, ThatLeaveRowsOutStayALoop) {
  KnownBags("ReduceSum", {4, 0, 2, 1, 1, 3}, {0, 2, 4});
  EXPECT_THAT(Rewritten(), IsEmpty());
}

TEST_F(SequencedBags, WhoseOffsetsAreDataStayALoop) {
  const ValueId rows = Op("Gather", {table_, builder_.Ints({4, 0, 2, 1})}, {{"axis", int64_t{0}}});
  Bags("ReduceSum", rows, Input("offsets", DType::kInt64, {3}), Scalar(2), Scalar(4));
  EXPECT_THAT(Rewritten(), IsEmpty());
}

TEST_F(SequencedBags, ThatAnotherNodeReadsStayALoop) {
  KnownBags("ReduceSum", {4, 0, 2, 1, 1, 3}, {0, 3, 6});
  graph_.AddOutput(Op("SequenceLength", {sequence_}));
  EXPECT_THAT(Rewritten(), IsEmpty());
}

struct Planted {
  const char* name = "";
  Deviation deviation = {};
};

class Deviations : public SequencedBags, public ::testing::WithParamInterface<Planted> {};

TEST_P(Deviations, StayALoop) {
  KnownBags("ReduceSum", {4, 0, 2, 1, 1, 3}, {0, 2, 4, 6}, GetParam().deviation);
  EXPECT_THAT(Rewritten(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Each, Deviations,
                         ::testing::Values(Planted{"StartsWithTheSecond", {.first_round = 1}},
                                           Planted{"EverySecond", {.step = 2}},
                                           Planted{"Overlapping", {.end = 3}},
                                           Planted{"WithoutTheLast", {.bags_left_out = 1}},
                                           Planted{"InReverse", {.in_front = true}}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(SequencedBags, WithoutADeviationAreRewritten) {
  KnownBags("ReduceSum", {4, 0, 2, 1, 1, 3}, {0, 2, 4, 6});
  EXPECT_THAT(Rewritten(), ElementsAre(Pair("embedding_bag", 1)));
}

}  // namespace
}  // namespace weft
