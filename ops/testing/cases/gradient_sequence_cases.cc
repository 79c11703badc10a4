// Sequences and optionals: small graphs, so that the outputs are tensors.
#include "ops/testing/cases/gradient_cases.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

using Values = std::vector<ValueId>;

ValueId Position(GraphBuilder& b, int64_t position) {
  return b.Constant(Tensor::Scalar<int64_t>(position));
}

GradientCase OfGraph(std::string name, std::vector<Tensor> inputs,
                     std::function<Values(GraphBuilder&, const Values&)> build) {
  GradientCase result;
  result.name = std::move(name);
  result.inputs = std::move(inputs);
  result.build = std::move(build);
  return result;
}

// Elements of different shapes; one is read twice, one never.
GradientCase ConstructAndAt(CaseRandom& random) {
  return OfGraph("SequenceConstruct and SequenceAt",
                 {random.Values({2, 3}), random.Values({1, 4}), random.Values({3, 2})},
                 [](GraphBuilder& b, const Values& x) -> Values {
                   const ValueId sequence = b.Op("SequenceConstruct", x);
                   const ValueId first = b.Op("SequenceAt", {sequence, Position(b, 0)});
                   const ValueId again = b.Op("SequenceAt", {sequence, Position(b, -3)});
                   return {b.Op("Tanh", {first}), b.Op("Exp", {again}),
                           b.Op("SequenceAt", {sequence, Position(b, -1)})};
                 });
}

GradientCase InsertAndErase(CaseRandom& random) {
  const int64_t insert = random.Between(-2, 2);
  const int64_t erase = random.Between(-3, 2);
  return OfGraph(
      "SequenceInsert and SequenceErase",
      {random.Values({2, 2}), random.Values({1, 2}), random.Values({3, 2})},
      [=](GraphBuilder& b, const Values& x) -> Values {
        ValueId sequence = b.Op("SequenceConstruct", {x[0], x[1]});
        sequence = b.Op("SequenceInsert", {sequence, x[2], Position(b, insert)});
        const ValueId all = b.Op("ConcatFromSequence", {sequence}, {{"axis", int64_t{0}}});
        sequence = b.Op("SequenceErase", {sequence, Position(b, erase)});
        const ValueId rest = b.Op("ConcatFromSequence", {sequence}, {{"axis", int64_t{0}}});
        return {b.Op("Sin", {all}), b.Op("Exp", {rest})};
      });
}

GradientCase InsertAndEraseAtTheEnd(CaseRandom& random) {
  return OfGraph("SequenceInsert and SequenceErase at the end",
                 {random.Values({2}), random.Values({2}), random.Values({2})},
                 [](GraphBuilder& b, const Values& x) -> Values {
                   ValueId sequence = b.Op("SequenceConstruct", {x[0], x[1]});
                   sequence = b.Op("SequenceInsert", {sequence, x[2]});
                   const ValueId all = b.Op("ConcatFromSequence", {sequence},
                                            {{"axis", int64_t{-1}}, {"new_axis", int64_t{1}}});
                   sequence = b.Op("SequenceErase", {sequence});
                   return {b.Op("Sin", {all}), b.Op("SequenceAt", {sequence, Position(b, 1)})};
                 });
}

GradientCase SplitAndConcat(CaseRandom& random) {
  const int64_t axis = random.OneOf<int64_t>({1, -2});
  const bool split = random.Coin();
  const int64_t keep = random.Between(0, 1);
  return OfGraph("SplitToSequence", {random.Values({2, 5, 2})},
                 [=](GraphBuilder& b, const Values& x) -> Values {
                   Values inputs = {x[0]};
                   if (split) inputs.push_back(b.Ints({2, 3}));
                   const ValueId sequence =
                       b.Op("SplitToSequence", inputs, {{"axis", axis}, {"keepdims", keep}});
                   return {b.Op("Tanh", {b.Op("SequenceAt", {sequence, Position(b, 1)})}),
                           b.Op("SequenceAt", {sequence, Position(b, 0)})};
                 });
}

GradientCase Optionals(CaseRandom& random) {
  return OfGraph("Optional and OptionalGetElement", {random.Values({2, 3})},
                 [](GraphBuilder& b, const Values& x) -> Values {
                   const ValueId optional = b.Op("Optional", x);
                   const ValueId first = b.Op("OptionalGetElement", {optional});
                   const ValueId second = b.Op("OptionalGetElement", {optional});
                   const ValueId plain = b.Op("OptionalGetElement", x);
                   return {b.Op("Tanh", {first}), b.Op("Exp", {second}), plain};
                 });
}

}  // namespace

void AddSequenceGradients(GradientGenerators& g) {
  for (const char* op : {"SequenceConstruct", "SequenceAt"}) g[op].push_back(ConstructAndAt);
  for (const char* op : {"SequenceInsert", "SequenceErase", "ConcatFromSequence"}) {
    g[op].push_back(InsertAndErase);
    g[op].push_back(InsertAndEraseAtTheEnd);
  }
  g["SplitToSequence"].push_back(SplitAndConcat);
  for (const char* op : {"Optional", "OptionalGetElement"}) g[op].push_back(Optionals);
}

}  // namespace weft::testing
