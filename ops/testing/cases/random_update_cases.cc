// Cases of the ops that updates are made of: what each optimizer declares says which they are and
// what they read.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/defs/optimizer/optimizer.h"
#include "ops/testing/cases/random_cases.h"

namespace weft::testing {
namespace {

Shape AnyShape(CaseRandom& random) { return random.OfRank(random.Between(1, 3)); }

// Some options at half of what they may be, the others as they usually are.
std::map<std::string, double> AnyOptions(CaseRandom& random, const OptimizerKind& kind) {
  std::map<std::string, double> options;
  for (const OptimizerOption& option : kind.options) {
    if (!random.Coin()) continue;
    options[option.name] = option.is_switch ? 1 : (option.low + std::min(option.high, 1.0)) / 2;
  }
  return options;
}

// The update of one parameter, as a job's graph has it.
struct UpdateGraph {
  Graph graph;
  ValueId rate;
  ValueId step;
};

absl::Status AddUpdate(UpdateGraph& update, const OptimizerKind& kind, const Shape& shape,
                       std::map<std::string, double> options) {
  const ValueType type{ValueKind::kTensor, DType::kFloat32, shape};
  update.graph.AddVariable("w", type, Tensor(), /*trainable=*/true);
  const ValueId gradient = update.graph.AddInput("g", type);
  update.rate = update.graph.AddInput("rate", {ValueKind::kTensor, DType::kFloat32, Shape{}});
  update.step = update.graph.AddInput("step", {ValueKind::kTensor, DType::kInt64, Shape{}});
  GraphBuilder builder(update.graph);
  return AddOptimizerUpdate(builder, kind,
                            {.variable = "w",
                             .gradient = gradient,
                             .learning_rate = update.rate,
                             .step = update.step,
                             .weight_decay = 0.1,
                             .options = std::move(options)});
}

// Whether the variable is state that is never below zero.
bool IsNonNegative(const Graph& graph, const OptimizerKind& kind, ValueId value) {
  const Variable* const variable = graph.VariableOf(value);
  return variable != nullptr &&
         std::any_of(kind.slots.begin(), kind.slots.end(), [variable](const OptimizerSlot& slot) {
           return slot.non_negative && variable->name == "w/" + slot.name;
         });
}

Tensor AnyOperand(CaseRandom& random, const UpdateGraph& update, const OptimizerKind& kind,
                  ValueId value) {
  if (!value.valid()) return Tensor();
  if (value == update.step) return Tensor::Scalar<int64_t>(random.Between(1, 5));
  const Shape shape = *update.graph.value(value).type.shape.ToConcrete();
  if (shape.rank() == 0) return random.Values(shape, 0.1, 1);
  // Mean squares are above the square of a mean.
  const bool is_square = IsNonNegative(update.graph, kind, value);
  return is_square ? random.Values(shape, 2, 3) : random.Values(shape);
}

OpCase CaseOfOp(CaseRandom& random, const OptimizerKind& kind, const std::string& op) {
  UpdateGraph update;
  const absl::Status added = AddUpdate(update, kind, AnyShape(random), AnyOptions(random, kind));
  EXPECT_TRUE(added.ok()) << kind.name << ": " << added;
  OpCase op_case{.domain = std::string(kWeftDomain), .op = op, .inputs = {}};
  for (const NodeId id : update.graph.node_ids()) {
    const Node& node = update.graph.node(id);
    if (node.op != op) continue;
    op_case.attributes = node.attributes;
    for (const ValueId input : node.inputs) {
      op_case.inputs.push_back(AnyOperand(random, update, kind, input));
    }
    op_case.outputs.clear();
    for (const ValueId output : node.outputs) op_case.outputs.push_back(output.valid());
  }
  return op_case;
}

// The ops of our own that an update of this kind is made of.
std::set<std::string> OpsOf(const OptimizerKind& kind) {
  UpdateGraph update;
  const absl::Status added = AddUpdate(update, kind, Shape{2}, {});
  EXPECT_TRUE(added.ok()) << kind.name << ": " << added;
  std::set<std::string> ops;
  for (const NodeId id : update.graph.node_ids()) {
    const Node& node = update.graph.node(id);
    if (node.domain == kWeftDomain) ops.insert(node.op);
  }
  return ops;
}

// The norms of one parameter are one number each; the op takes any number of them.
OpCase TrustRatioCase(CaseRandom& random) {
  const Shape shape = AnyShape(random);
  return {.domain = "ai.weft",
          .op = "TrustRatio",
          .attributes = {{"weight_decay", 0.1f}},
          .inputs = {random.Values(shape, 0.1, 1), random.Values(shape, 0.1, 1)}};
}

OpCase EmaCase(CaseRandom& random) {
  const Shape shape = AnyShape(random);
  return {.domain = "ai.weft",
          .op = "EmaUpdate",
          .attributes = {{"decay", 0.9f}},
          .inputs = {random.Values(shape), random.Values(shape)}};
}

OpCase RateFactorCase(CaseRandom& random) {
  return {.domain = "ai.weft",
          .op = "RateFactor",
          .attributes = {{"kind", std::string("cosine")}, {"total", int64_t{6}}},
          .inputs = {random.Values(AnyShape(random), 1, 5, DType::kInt64)}};
}

}  // namespace

void AddUpdateCases(CaseGenerators& generators) {
  std::map<std::string, std::vector<const OptimizerKind*>> kinds_of;
  for (const OptimizerKind* const kind : AllOptimizers()) {
    for (const std::string& op : OpsOf(*kind)) kinds_of[op].push_back(kind);
  }
  for (const auto& [op, kinds] : kinds_of) {
    generators["ai.weft::" + op] = {[op = op, kinds = kinds](CaseRandom& random) {
      return CaseOfOp(random, *random.OneOf(kinds), op);
    }};
  }
  generators["ai.weft::TrustRatio"] = {TrustRatioCase};
  generators["ai.weft::EmaUpdate"] = {EmaCase};
  generators["ai.weft::RateFactor"] = {RateFactorCase};
}

}  // namespace weft::testing
