// Every op that has a sharding rule, on random shapes, in every way in which the partitioner may
// split it over 2 and 3 ranks: with the real localizer and conversions, the ranks together make
// what one makes alone. An op with a rule and without a generator of cases fails here.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "graph/graph_builder.h"
#include "graph/inference.h"
#include "graph/op_schema.h"
#include "gtest/gtest.h"
#include "ops/node_runner.h"
#include "ops/testing/cases/random_cases.h"
#include "ops/testing/gradient_checker.h"
#include "ops/testing/graph_evaluator.h"
#include "ops/testing/op_tester.h"
#include "placement/graph_views/graph_node_view.h"
#include "placement/partition/local_graph.h"
#include "placement/pipeline/step_layout.h"
#include "placement/sharding/sharding_candidates.h"
#include "placement/testing/reference_interpreter.h"
#include "platform/status_macros.h"

namespace weft::testing {
namespace {

constexpr int kSeeds = 8;

bool IsPartial(const NodeSharding& sharding) {
  const auto partial = [](const AxisSharding& axis) { return axis.is_partial(); };
  return std::any_of(sharding.inputs.begin(), sharding.inputs.end(), partial) ||
         std::any_of(sharding.outputs.begin(), sharding.outputs.end(), partial);
}

std::string ToString(const NodeSharding& sharding) {
  std::string text;
  for (const AxisSharding& input : sharding.inputs) absl::StrAppend(&text, input.ToString(), " ");
  absl::StrAppend(&text, "->");
  for (const AxisSharding& output : sharding.outputs)
    absl::StrAppend(&text, " ", output.ToString());
  return text;
}

std::string CaseText(const OpCase& op_case) {
  std::string text = op_case.ToString();
  for (const auto& [name, attribute] : op_case.attributes.items()) {
    const auto* ints = std::get_if<std::vector<int64_t>>(&attribute);
    const auto* number = std::get_if<int64_t>(&attribute);
    const auto* word = std::get_if<std::string>(&attribute);
    if (number != nullptr) absl::StrAppend(&text, " ", name, "=", *number);
    if (ints != nullptr) absl::StrAppend(&text, " ", name, "=", absl::StrJoin(*ints, ","));
    if (word != nullptr) absl::StrAppend(&text, " ", name, "=", *word);
  }
  return text;
}

// Whether the value of an input is known when the node is split.
bool IsConstant(const OpSchema& schema, const CaseGenerator& generator, int input) {
  const auto has = [input](const std::vector<int>& inputs) {
    return std::find(inputs.begin(), inputs.end(), input) != inputs.end();
  };
  return has(schema.value_inputs()) || has(generator.constants);
}

// A node of a case as the partitioner sees it, with the constants of its generator.
class CaseNode final : public NodeView {
 public:
  CaseNode(const ConcreteNode& concrete, const CaseGenerator& generator)
      : concrete_(concrete), generator_(generator) {}

  const Node& node() const override { return concrete_.node(); }
  const Shape& InputShape(int i) const override { return concrete_.InputShape(i); }
  const Shape& OutputShape(int i) const override { return concrete_.OutputShape(i); }
  DType InputDType(int i) const override { return concrete_.InputDType(i); }
  DType OutputDType(int i) const override { return concrete_.OutputDType(i); }
  const Tensor* InputValue(int i) const override {
    const bool is_known = HasInput(i) && IsConstant(*node().schema, generator_, i);
    return is_known ? &concrete_.inputs()[i] : nullptr;
  }

 private:
  const ConcreteNode& concrete_;
  const CaseGenerator& generator_;
};

// All ways to split a tensor of the shape, also inside 2 and 3 blocks, with a row for every rank.
std::vector<AxisSharding> SplitsOf(const Shape& shape, int shards) {
  std::vector<AxisSharding> splits;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    for (const int64_t blocks : {1, 2, 3}) {
      const int64_t size = shape.dim(axis);
      if (size % blocks == 0 && size / blocks >= shards) {
        splits.push_back(AxisSharding::Split(axis, blocks));
      }
    }
  }
  return splits;
}

// Replicated or one of the splits.
AxisSharding AnySharding(CaseRandom& random, const Shape& shape, int shards) {
  std::vector<AxisSharding> choices = SplitsOf(shape, shards);
  choices.push_back(AxisSharding::Replicated());
  return random.OneOf(choices);
}

// What the partitioner would consider for the node, however its inputs lie.
std::vector<NodeSharding> AllCandidates(const NodeView& node, int shards) {
  std::vector<std::vector<AxisSharding>> arrivals = {
      std::vector<AxisSharding>(node.num_inputs()),
      std::vector<AxisSharding>(node.num_inputs(), AxisSharding::Partial())};
  for (int i = 0; i < node.num_inputs(); ++i) {
    if (!node.HasInput(i)) continue;
    for (const AxisSharding& split : SplitsOf(node.InputShape(i), shards)) {
      arrivals.emplace_back(node.num_inputs());
      arrivals.back()[i] = split;
    }
  }
  std::vector<NodeSharding> all;
  std::set<std::string> seen;
  for (const std::vector<AxisSharding>& current : arrivals) {
    auto candidates = ShardingCandidates(node, current, shards);
    EXPECT_TRUE(candidates.ok()) << candidates.status();
    if (!candidates.ok()) return {};
    for (NodeSharding& candidate : *candidates) {
      if (seen.insert(ToString(candidate)).second) all.push_back(std::move(candidate));
    }
  }
  return all;
}

// A graph with a decision for each node, on `shards` ranks.
class ShardedGraph {
 public:
  explicit ShardedGraph(int shards) { plan_.mesh = {1, shards, 1}; }

  Graph& graph() { return sized_.graph; }
  int shards() const { return plan_.mesh.tensor; }
  StepValues& values() { return values_; }

  ValueId AddVariable(const std::string& name, const Tensor& value, const AxisSharding& sharding) {
    const ValueId id = graph().AddVariable(name, {ValueKind::kTensor, value.dtype(), value.shape()},
                                           Tensor(), true);
    values_.variables[name] = value;
    layout_.owner[name] = 0;
    sized_.shardings.variables[name] = sharding;
    Lies(id, sharding);
    return id;
  }
  void Lies(ValueId value, const AxisSharding& sharding) {
    sized_.shardings.values.resize(graph().value_capacity());
    sized_.shardings.values[value.value] = sharding;
  }
  const AxisSharding& Of(ValueId value) {
    sized_.shardings.values.resize(graph().value_capacity());
    return sized_.shardings.values[value.value];
  }
  // The node's outputs lie as it makes them.
  void Decide(NodeId id, const NodeSharding& sharding) {
    sized_.shardings.nodes.resize(graph().node_capacity());
    sized_.shardings.nodes[id.value] = sharding;
    const Node& node = graph().node(id);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i].valid()) Lies(node.outputs[i], sharding.outputs[i]);
    }
  }

  // The graph's outputs, whole, as all ranks together make them.
  absl::StatusOr<std::vector<Tensor>> Run(const KernelRegistry* kernels) {
    layout_.plan = &plan_;
    sized_.shardings.values.resize(graph().value_capacity());
    std::vector<Partition> partitions;
    for (int index = 0; index < shards(); ++index) {
      WEFT_ASSIGN_OR_RETURN(partitions.emplace_back(), PartitionOf(index));
    }
    WEFT_ASSIGN_OR_RETURN(StepOutcome outcome, InterpretStep(partitions, values_, kernels));
    std::vector<Tensor> results;
    for (const std::string& report : partitions[0].reports) {
      results.push_back(outcome.reports.at(report));
    }
    return results;
  }

 private:
  absl::StatusOr<Partition> PartitionOf(int index) {
    LocalGraph local(layout_, sized_, no_edges_, {0, index, 0});
    for (const ValueId input : graph().inputs()) {
      const ValueDef& def = graph().value(input);
      local.Bind(input, local.graph().AddInput(def.name, def.type, InputRole::kStep));
    }
    WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph().TopologicalOrder());
    for (const NodeId id : order) WEFT_RETURN_IF_ERROR(local.AddNode(id));
    Partition partition;
    for (const ValueId output : graph().outputs()) {
      WEFT_ASSIGN_OR_RETURN(const ValueId whole,
                            local.Get(output, AxisSharding::Replicated(), Phase::kUpdate));
      local.graph().AddOutput(whole);
      partition.reports.push_back(local.graph().value(whole).name);
    }
    partition.rank = RankId(index);
    partition.mesh = plan_.mesh;
    partition.actions = {{Action::Kind::kUpdate}};
    for (const auto& [name, sharding] : sized_.shardings.variables) {
      VariableShard shard;
      shard.name = name;
      shard.global_shape = values_.variables.at(name).shape();
      shard.dtype = values_.variables.at(name).dtype();
      shard.local_shape = sharding.is_split()
                              ? sharding.LocalShape(shard.global_shape, shards(), index)
                              : shard.global_shape;
      shard.tensor_sharding = sharding;
      shard.tensor_shards = shards();
      shard.tensor_index = index;
      shard.is_primary = sharding.is_split() || index == 0;
      partition.variables.push_back(std::move(shard));
    }
    partition.end = std::move(local.graph());
    return partition;
  }

  Plan plan_;
  StepLayout layout_;
  SizedGraph sized_;
  StageEdges no_edges_;
  StepValues values_;
};

// `shards` tensors that add up to `whole`, stacked.
Tensor PartsOf(CaseRandom& random, const Tensor& whole, int shards) {
  Shape stacked{shards};
  for (const int64_t size : whole.shape().dims()) stacked.AddDim(size);
  Tensor parts = random.Values(stacked, -2, 2, whole.dtype());
  const int64_t count = whole.shape().num_elements();
  const auto fill = [&](auto zero) {
    using T = decltype(zero);
    const std::span<T> data = parts.mutable_data<T>();
    for (int64_t i = 0; i < count; ++i) {
      T rest = whole.data<T>()[i];
      for (int part = 0; part + 1 < shards; ++part) rest -= data[part * count + i];
      data[(shards - 1) * count + i] = rest;
    }
  };
  whole.dtype() == DType::kFloat64 ? fill(double{}) : fill(float{});
  return parts;
}

// One node between values that lie anyhow.
class ShardedNode {
 public:
  ShardedNode(const OpCase& op_case, const CaseGenerator& generator, int shards, CaseRandom& random)
      : case_(op_case), generator_(generator), random_(random), sharded_(shards) {}

  absl::StatusOr<std::vector<Tensor>> Run(const NodeSharding& sharding,
                                          const KernelRegistry* kernels) {
    builder_.set_phase(Phase::kUpdate);
    std::vector<ValueId> inputs;
    for (int i = 0; i < static_cast<int>(case_.inputs.size()); ++i) {
      inputs.push_back(AddInput(i, sharding.inputs[i]));
    }
    const std::vector<ValueId> outputs =
        builder_.Ops(case_.domain, case_.op, inputs, case_.attributes, case_.outputs);
    if (!builder_.status().ok()) return builder_.status();
    for (const ValueId output : outputs) {
      if (output.valid()) sharded_.Decide(graph().value(output).producer, sharding);
    }
    for (const ValueId output : outputs) {
      if (!output.valid()) continue;
      const AxisSharding wanted = AnySharding(random_, ShapeOf(graph(), output), sharded_.shards());
      const ValueId copy = builder_.Op("Identity", {output});
      if (!builder_.status().ok()) return builder_.status();
      sharded_.Decide(graph().value(copy).producer, {{wanted}, {wanted}});
      graph().AddOutput(copy);
    }
    return sharded_.Run(kernels);
  }

 private:
  Graph& graph() { return sharded_.graph(); }

  ValueId AddInput(int i, const AxisSharding& needed) {
    const Tensor& input = case_.inputs[i];
    if (!input.valid()) return kNoValue;
    const OpSchema* schema = OpRegistry::Global().Find(case_.domain, case_.op);
    if (IsConstant(*schema, generator_, i)) return builder_.Constant(input);
    const std::string name = absl::StrCat("x", i);
    if (!needed.is_partial()) {
      return sharded_.AddVariable(name, input,
                                  AnySharding(random_, input.shape(), sharded_.shards()));
    }
    const AxisSharding rows = AxisSharding::Split(0);
    const ValueId parts =
        sharded_.AddVariable(name, PartsOf(random_, input, sharded_.shards()), rows);
    const ValueId sum =
        builder_.Op("ReduceSum", {parts, builder_.Ints({0})}, {{"keepdims", int64_t{0}}});
    sharded_.Decide(graph().value(sum).producer,
                    {{rows, AxisSharding::Replicated()}, {AxisSharding::Partial()}});
    return sum;
  }

  const OpCase& case_;
  const CaseGenerator& generator_;
  CaseRandom& random_;
  ShardedGraph sharded_;
  GraphBuilder builder_{sharded_.graph()};
};

// Sums in any order in float64, or in float32 by production kernels.
Tolerance ToleranceOf(DType dtype) {
  return dtype == DType::kFloat64 ? Tolerance{.of_magnitude = 1e-11, .absolute = 1e-13}
                                  : Tolerance{.of_magnitude = 2e-5, .absolute = 1e-6};
}

::testing::AssertionResult AllNear(const std::vector<Tensor>& actual,
                                   const std::vector<Tensor>& expected, bool exact) {
  size_t next = 0;
  for (const Tensor& tensor : expected) {
    if (!tensor.valid()) continue;
    const Tolerance tolerance =
        exact ? Tolerance{.of_magnitude = 0, .absolute = 0} : ToleranceOf(tensor.dtype());
    const ::testing::AssertionResult near = TensorsNear(actual[next], tensor, tolerance);
    if (!near) return ::testing::AssertionFailure() << "output " << next << ": " << near.message();
    ++next;
  }
  return ::testing::AssertionSuccess();
}

// By the full name of an op.
class ShardingRulesTest : public ::testing::TestWithParam<std::string> {
 protected:
  const CaseGenerator& generator() const { return RandomCases().at(GetParam()); }

  // Runs the case sharded, with one set of kernels, and compares it with one rank.
  void Compare(const OpCase& op_case, const std::vector<Tensor>& expected,
               const NodeSharding& sharding, int shards, uint64_t seed,
               const KernelRegistry* kernels, bool exact) const {
    SCOPED_TRACE(absl::StrCat(CaseText(op_case), " on ", shards, " ranks as ", ToString(sharding),
                              ", seed ", seed));
    CaseRandom random(seed);
    const auto actual = ShardedNode(op_case, generator(), shards, random).Run(sharding, kernels);
    ASSERT_TRUE(actual.ok()) << actual.status();
    EXPECT_TRUE(AllNear(*actual, expected, exact));
  }
};

std::vector<std::string> GeneratorNames() {
  std::vector<std::string> names;
  for (const auto& [name, generator] : RandomCases()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Ops, ShardingRulesTest, ::testing::ValuesIn(GeneratorNames()),
                         [](const auto& info) {
                           return absl::StrReplaceAll(info.param, {{"ai.weft::", "Weft"}});
                         });

TEST(ShardingRules, EveryOpWithARuleHasRandomCases) {
  std::set<std::string> with_rule;
  for (const OpSchema* schema : OpRegistry::Global().All()) {
    // What is compiled away (Accumulate) runs on no rank.
    if (!schema->sharding() || schema->op_class() == OpClass::kBoundary) continue;
    with_rule.insert(schema->FullName());
    EXPECT_TRUE(RandomCases().contains(schema->FullName()))
        << schema->FullName() << " has a sharding rule; add a generator of cases for it to "
        << "ops/testing/random_*_cases.cc";
  }
  for (const auto& [name, generator] : RandomCases()) EXPECT_TRUE(with_rule.contains(name)) << name;
}

TEST_P(ShardingRulesTest, EverySplitMakesWhatOneRankMakes) {
  std::map<int, int> splits;  // by number of shards
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    CaseRandom random(seed);
    const OpCase op_case = generator().make(random);
    const bool has_float64 = generator().has_float64;
    const OpCase in_double = has_float64 ? InFloat64(op_case) : op_case;
    const auto expected = RunOp(op_case);
    const auto precise = has_float64 ? RunOp(in_double, Kernels::kReference) : expected;
    ASSERT_TRUE(expected.ok()) << expected.status();
    ASSERT_TRUE(precise.ok()) << precise.status();
    const SingleNodeGraph single = MakeSingleNodeGraph(op_case);
    const auto concrete = ConcreteNode::Create(single.graph->node(single.node), op_case.inputs);
    ASSERT_TRUE(concrete.ok()) << concrete.status();
    const CaseNode view(*concrete, generator());
    for (const int shards : {2, 3}) {
      for (const NodeSharding& sharding : AllCandidates(view, shards)) {
        if (sharding.is_sharded() || IsPartial(sharding)) ++splits[shards];
        const bool exact = generator().only_moves && !IsPartial(sharding);
        Compare(op_case, *expected, sharding, shards, seed, &KernelRegistry::Global(), exact);
        if (has_float64) Compare(in_double, *precise, sharding, shards, seed, nullptr, exact);
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(splits[2], 0) << "no case of " << GetParam() << " can be split over 2 ranks";
  EXPECT_GT(splits[3], 0) << "no case of " << GetParam() << " can be split over 3 ranks";
}

// The nodes of a gradient, each sharded in any way, after one another.
void DecideAtRandom(ShardedGraph& sharded, CaseRandom& random) {
  const auto order = sharded.graph().TopologicalOrder();
  ASSERT_TRUE(order.ok()) << order.status();
  for (const NodeId id : *order) {
    const Node& node = sharded.graph().node(id);
    const auto view = GraphNodeView::Create(sharded.graph(), node);
    ASSERT_TRUE(view.ok()) << view.status();
    std::vector<AxisSharding> current;
    for (const ValueId input : node.inputs) {
      current.push_back(input.valid() ? sharded.Of(input) : AxisSharding::Replicated());
    }
    const auto candidates = ShardingCandidates(*view, current, sharded.shards());
    ASSERT_TRUE(candidates.ok()) << candidates.status();
    std::vector<NodeSharding> possible;
    for (const NodeSharding& candidate : *candidates) {
      bool converts = true;  // nothing becomes Partial
      for (size_t i = 0; i < current.size(); ++i) {
        converts &= !candidate.inputs[i].is_partial() || current[i].is_partial();
      }
      if (converts) possible.push_back(candidate);
    }
    sharded.Decide(id, random.OneOf(possible));
  }
}

std::string DecisionsText(ShardedGraph& sharded) {
  std::string text;
  for (const NodeId id : sharded.graph().node_ids()) {
    const Node& node = sharded.graph().node(id);
    absl::StrAppend(&text, "\n  ", node.op);
    for (const ValueId output : node.outputs) {
      if (output.valid()) absl::StrAppend(&text, " ", sharded.Of(output).ToString());
    }
  }
  return text;
}

// The inputs of a case whose gradients are asked for.
std::vector<int> FloatInputs(const OpCase& op_case, const OpSchema& schema) {
  std::vector<int> inputs;
  for (int i = 0; i < static_cast<int>(op_case.inputs.size()); ++i) {
    const auto& fixed = schema.value_inputs();
    const bool is_fixed = std::find(fixed.begin(), fixed.end(), i) != fixed.end();
    const Tensor& input = op_case.inputs[i];
    if (input.valid() && IsFloatingPoint(input.dtype()) && !is_fixed) inputs.push_back(i);
  }
  return inputs;
}

TEST_P(ShardingRulesTest, GradientsOfShardsMakeTheGradient) {
  const size_t name_at = GetParam().rfind(':') == std::string::npos ? 0 : GetParam().rfind(':') + 1;
  const OpSchema* schema = OpRegistry::Global().Find(name_at == 0 ? "" : std::string(kWeftDomain),
                                                     GetParam().substr(name_at));
  ASSERT_NE(schema, nullptr);
  if (schema->gradient_kind() != GradientKind::kRule) GTEST_SKIP() << "the op has no gradient rule";
  if (!generator().has_float64) GTEST_SKIP() << "the op has no kernel in double precision";
  for (uint64_t seed = 1; seed <= 2 * kSeeds; ++seed) {
    CaseRandom random(seed);
    OpCase op_case = InFloat64(generator().make(random));
    std::vector<int> inputs = FloatInputs(op_case, *schema);
    const auto outputs = RunOp(op_case, Kernels::kReference);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    if (!IsFloatingPoint(outputs->front().dtype())) continue;  // a Cast to whole numbers
    auto gradient = BuildGradientGraph(op_case, inputs);
    if (absl::IsUnimplemented(gradient.status())) {  // through statistics beside the result
      op_case.outputs = {true};
      gradient = BuildGradientGraph(op_case, inputs);
    }
    if (absl::IsUnimplemented(gradient.status())) {  // to tables beside the data
      inputs = {0};
      gradient = BuildGradientGraph(op_case, inputs);
    }
    ASSERT_TRUE(gradient.ok()) << gradient.status();
    Graph& graph = *gradient->graph;
    StepValues values;
    std::map<ValueId, Tensor> feeds;
    const auto feed = [&](ValueId id, const Tensor& tensor) {
      feeds[id] = values.scalars[graph.value(id).name] = tensor;
    };
    for (size_t i = 0; i < gradient->inputs.size(); ++i) {
      const ValueId input = gradient->inputs[i];
      if (input.valid() && graph.value(input).source == ValueSource::kInput) {
        feed(input, op_case.inputs[i]);
      }
    }
    for (const ValueId dy : gradient->output_gradients) {
      if (dy.valid()) feed(dy, random.Values(ShapeOf(graph, dy), -1, 1, DType::kFloat64));
    }
    std::vector<ValueId> wanted;
    for (const ValueId value : gradient->input_gradients) {
      if (value.valid() && std::find(wanted.begin(), wanted.end(), value) == wanted.end()) {
        wanted.push_back(value);
      }
    }
    for (const ValueId value : wanted) graph.AddOutput(value);
    const auto expected = EvaluateGraph(graph, feeds, wanted, KernelRegistry::Reference());
    ASSERT_TRUE(expected.ok()) << expected.status();
    auto specialized = Specialize(graph, {}, CpuNodeEvaluator());
    ASSERT_TRUE(specialized.ok()) << specialized.status();
    for (const int shards : {2, 3}) {
      ShardedGraph sharded(shards);
      sharded.graph() = specialized->Clone();
      sharded.values() = values;
      DecideAtRandom(sharded, random);
      SCOPED_TRACE(absl::StrCat(CaseText(op_case), " on ", shards, " ranks, seed ", seed,
                                DecisionsText(sharded)));
      const auto actual = sharded.Run(nullptr);
      ASSERT_TRUE(actual.ok()) << actual.status();
      ASSERT_TRUE(AllNear(*actual, *expected, /*exact=*/false));
    }
  }
}

}  // namespace
}  // namespace weft::testing
