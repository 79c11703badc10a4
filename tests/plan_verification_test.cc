// Verification finds faults that are planted in a plan's partitions, and names the operator.
#include "training/verification/plan_verification.h"

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "graph/op_schema.h"
#include "gtest/gtest.h"
#include "placement/files/plan_file.h"
#include "platform/file_system.h"
#include "tests/testing/equivalence_models.h"
#include "tests/testing/random_plan.h"
#include "training/data/data_set.h"

namespace weft::testing {
namespace {

constexpr int64_t kBatch = 13;

using Partitions = std::vector<Partition>;
using NodeChange = std::function<void(Graph&, Node&, int rank)>;

struct Jobs {
  PreparedJob planned;
  PreparedJob single;
};

Jobs Prepare(const std::string& name, const Plan& plan) {
  EquivalenceModel model = BuildEquivalenceModel(name, kBatch).value();
  DataSpec data_spec;
  data_spec.batch = kBatch;
  for (const auto& [input, path] : WriteDataFiles(model, ::testing::TempDir())) {
    data_spec.files.push_back({input, path, 0});
  }
  const auto data = DataSet::Open(RealFileSystem(), data_spec);
  EXPECT_TRUE(data.ok()) << data.status();
  TrainingSpec training;
  training.optimizer.kind = "sgd";
  JobSpec spec;
  spec.cluster = ClusterSpec::Local(plan.mesh.size(), 1);
  spec.plan = plan;
  auto planned = PrepareTraining(model.graph, training, spec, *data);
  EXPECT_TRUE(planned.ok()) << planned.status();
  auto single = PrepareSingle(model.graph, training, planned->plan, *data);
  EXPECT_TRUE(single.ok()) << single.status();
  return {*std::move(planned), *std::move(single)};
}

std::vector<Graph*> GraphsOf(Partition& partition) {
  std::vector<Graph*> graphs = {&partition.begin};
  for (Graph& graph : partition.micro) graphs.push_back(&graph);
  graphs.push_back(&partition.end);
  return graphs;
}

// The name of node `index` among those that `wanted` accepts, on the first rank that has one.
std::string Find(Partitions& partitions,
                 const std::function<bool(const Graph&, const Node&)>& wanted, int index = 0) {
  for (Partition& partition : partitions) {
    int seen = 0;
    for (Graph* graph : GraphsOf(partition)) {
      for (const NodeId id : graph->node_ids()) {
        if (wanted(*graph, graph->node(id)) && seen++ == index) return graph->node(id).name;
      }
    }
  }
  ADD_FAILURE() << "no node to plant the fault in";
  return "";
}

std::string Find(Partitions& partitions, const std::string& op, Phase phase, int index = 0) {
  return Find(
      partitions,
      [&](const Graph&, const Node& node) { return node.op == op && node.phase == phase; }, index);
}

// Changes the node of that name in all graphs of all ranks (or of one).
void Change(Partitions& partitions, const std::string& name, const NodeChange& change,
            int only = -1) {
  int changed = 0;
  for (Partition& partition : partitions) {
    const int rank = partition.rank.value;
    if (only >= 0 && rank != only) continue;
    for (Graph* graph : GraphsOf(partition)) {
      const auto id = graph->FindNode(name);
      if (!id.has_value()) continue;
      change(*graph, graph->node(*id), rank);
      ++changed;
    }
  }
  EXPECT_GT(changed, 0) << name;
}

NodeChange Become(const std::string& op) {
  return [op](Graph&, Node& node, int) {
    node.op = op;
    node.domain = "";
    node.attributes = Attributes();
    node.schema = OpRegistry::Global().Find("", op);
  };
}

NodeChange With(const std::string& attribute, float value) {
  return [=](Graph&, Node& node, int) { node.attributes.Set(attribute, value); };
}

// The node reads half of input `index`.
NodeChange HalfOf(int index) {
  return [index](Graph& graph, Node& node, int) {
    Graph::NodeSpec spec;
    spec.name = "half";
    spec.op = "Mul";
    spec.inputs = {node.inputs[index],
                   graph.AddConstant("half_constant", Tensor::Scalar<float>(0.5f))};
    spec.outputs = {"half_value"};
    spec.phase = node.phase;
    spec.stage = node.stage;
    const NodeId self = node.id;
    const ValueType type = graph.value(node.inputs[index]).type;
    const ValueId half = graph.node(graph.AddNode(std::move(spec))).outputs[0];
    graph.value(half).type = type;
    graph.node(self).inputs[index] = half;
  };
}

// What planting does; returns the name of the operator that must be named.
struct Fault {
  std::string name;
  std::string model;
  Plan plan;
  std::function<std::string(Partitions&)> plant;
};

Plan TensorMlp() {
  Plan plan;
  plan.mesh = {1, 2, 1};
  plan.micro_batches = 2;
  plan.tensor_shardings = {{"fc1.weight", AxisSharding::Split(0)},
                           {"fc1.bias", AxisSharding::Split(0)},
                           {"fc2.weight", AxisSharding::Split(1)}};
  return plan;
}

Plan TensorGpt() {
  Plan plan;
  plan.mesh = {1, 2, 1};
  plan.micro_batches = 2;
  plan.tensor_shardings = {
      {"*.qkv.weight", AxisSharding::Split(1, 3)}, {"*.qkv.bias", AxisSharding::Split(0, 3)},
      {"*.out.weight", AxisSharding::Split(0)},    {"*.up.weight", AxisSharding::Split(1)},
      {"*.up.bias", AxisSharding::Split(0)},       {"*.down.weight", AxisSharding::Split(0)},
      {"tokens.weight", AxisSharding::Split(1)},   {"positions.weight", AxisSharding::Split(1)}};
  return plan;
}

Plan Recomputing(Plan plan) {
  plan.recompute = {{"*", "all"}};
  return plan;
}

Plan GptPlan(std::map<std::string, AxisSharding> shardings) {
  Plan plan = TensorGpt();
  plan.tensor_shardings = std::move(shardings);
  return plan;
}

// The sum over the heads' parts goes to the shards at once.
Plan ScatteringGpt() {
  Plan plan = TensorGpt();
  plan.tensor_shardings["block0/attention/MatMul_3"] = AxisSharding::Split(2);
  return plan;
}

// The weight is stored by rows and needed by columns.
Plan ExchangingGpt() {
  return GptPlan({{"block0.qkv.weight", AxisSharding::Split(0)},
                  {"block0/attention/MatMul", AxisSharding::Split(2)}});
}

Plan ZeroPlan(int zero) {
  Plan plan;
  plan.mesh = {2, 1, 1};
  plan.micro_batches = 4;
  plan.zero = zero;
  return plan;
}

Plan MeshPlan(int data, int pipeline) {
  Plan plan;
  plan.mesh = {data, 1, pipeline};
  plan.micro_batches = 4;
  return plan;
}

// `node` becomes `op` everywhere, and is what must be found.
std::function<std::string(Partitions&)> Becomes(const std::string& op, Phase phase, int index,
                                                const std::string& other, int only = -1) {
  return [=](Partitions& partitions) {
    const std::string node = Find(partitions, op, phase, index);
    Change(partitions, node, Become(other), only);
    return node;
  };
}

std::function<std::string(Partitions&)> Halves(const std::string& op, Phase phase, int index,
                                               int input, int only = -1) {
  return [=](Partitions& partitions) {
    const std::string node = Find(partitions, op, phase, index);
    Change(partitions, node, HalfOf(input), only);
    return node;
  };
}

// A Partial value passes through an operator that is not linear in it alone.
std::string BiasOnEveryPart(Partitions& partitions) {
  const auto adds_to_sum = [](const Graph& graph, const Node& node) {
    if (node.op != "Add") return false;
    const ValueDef& sum = graph.value(node.inputs[0]);
    return sum.source == ValueSource::kNode && graph.node(sum.producer).op == "AllReduce";
  };
  const std::string node = Find(partitions, adds_to_sum);
  Change(partitions, node, [](Graph& graph, Node& add, int) {
    add.inputs[0] = graph.node(graph.value(add.inputs[0]).producer).inputs[0];
  });
  return node;
}

std::string ReduceOverSelf(Partitions& partitions) {
  const std::string node = Find(partitions, "AllReduce", Phase::kUpdate);
  Change(partitions, node, [](Graph&, Node& reduce, int rank) {
    reduce.attributes.Set("group", std::vector<int64_t>{rank});
  });
  return node;
}

// Members take each other's part in a collective of two with even shards.
std::function<std::string(Partitions&)> SwapsMembers(const std::string& op, Phase phase) {
  return [=](Partitions& partitions) {
    const std::string node = Find(partitions, [&](const Graph&, const Node& found) {
      const std::vector<int64_t> sizes = found.attributes.Ints("sizes");
      return found.op == op && found.phase == phase && sizes.size() == 2 && sizes[0] == sizes[1];
    });
    Change(partitions, node, [](Graph&, Node& collective, int) {
      collective.attributes.Set("group", std::vector<int64_t>{1, 0});
    });
    return node;
  };
}

// Rows [rank * half, ...) of the axis of what the node reads, in place of what it makes.
NodeChange SliceInstead() {
  return [](Graph& graph, Node& node, int rank) {
    const int64_t dim = node.attributes.Int("dim", 0);
    const int64_t half = node.attributes.Ints("sizes")[0];
    const NodeId self = node.id;
    const std::vector<ValueId> bounds = {
        graph.AddConstant("fault_first", Tensor::Of<int64_t>({1}, {rank * half})),
        graph.AddConstant("fault_last", Tensor::Of<int64_t>({1}, {(rank + 1) * half})),
        graph.AddConstant("fault_axis", Tensor::Of<int64_t>({1}, {dim}))};
    Node& slice = graph.node(self);
    slice.op = "Slice";
    slice.domain = "";
    slice.attributes = Attributes();
    slice.schema = OpRegistry::Global().Find("", "Slice");
    slice.inputs.insert(slice.inputs.end(), bounds.begin(), bounds.end());
  };
}

// Each takes its part of its own addend: nobody adds.
std::string ScatterWithoutSum(Partitions& partitions) {
  const std::string node = Find(partitions, "ReduceScatter", Phase::kForward);
  Change(partitions, node, SliceInstead());
  return node;
}

// Shards of the last axis put side by side along the one before it, then called the whole.
std::string GatherAlongOtherAxis(Partitions& partitions) {
  const std::string node = Find(partitions, [](const Graph&, const Node& gather) {
    return gather.op == "AllGather" && gather.phase == Phase::kForward &&
           gather.attributes.Int("dim", 0) > 0 &&
           gather.attributes.Ints("sizes")[0] == gather.attributes.Ints("sizes")[1];
  });
  Change(partitions, node, [](Graph& graph, Node& gather, int) {
    const ValueId part = gather.inputs[0];
    const Shape shard = *graph.value(part).type.shape.ToConcrete();
    const int64_t other = gather.attributes.Int("dim", 0) - 1;
    gather.attributes.Set("dim", other);
    const int64_t size = shard.dim(static_cast<int>(other));
    gather.attributes.Set("sizes", std::vector<int64_t>{size, size});
    const ValueId whole = gather.outputs[0];
    const ValueType type = graph.value(whole).type;
    Shape wrong = shard;
    wrong.set_dim(static_cast<int>(other), 2 * size);
    Graph::NodeSpec spec;
    spec.name = absl::StrCat(gather.name, "/named_whole");
    spec.op = "Reshape";
    const Shape right = *type.shape.ToConcrete();
    const std::vector<int64_t> dims(right.dims().begin(), right.dims().end());
    spec.inputs = {
        whole, graph.AddConstant("fault_shape", Tensor::Of<int64_t>({int64_t(dims.size())}, dims))};
    spec.outputs = {"fault_whole"};
    spec.phase = gather.phase;
    spec.stage = gather.stage;
    const auto uses = graph.BuildUses();
    const NodeId reshape = graph.AddNode(std::move(spec));
    const ValueId renamed = graph.node(reshape).outputs[0];
    graph.value(renamed).type = type;
    for (const Graph::Use& use : uses[whole.value]) {
      graph.node(use.node).inputs[use.input_index] = renamed;
    }
    graph.value(whole).type.shape = wrong;
    const std::string name = graph.value(whole).name;
    graph.RenameValue(whole, "fault_gathered");
    graph.RenameValue(renamed, name);
  });
  return absl::StrCat(node, "/named_whole");
}

// Rank 0 keeps what is rank 1's, and the other way round.
std::string SwapSlices(Partitions& partitions) {
  const std::string node = Find(partitions, [](const Graph& graph, const Node& found) {
    return found.op == "Slice" && absl::StrContains(graph.value(found.outputs[0]).name, "@S(");
  });
  Change(partitions, node, [](Graph& graph, Node& slice, int rank) {
    const int64_t first = graph.value(slice.inputs[1]).constant.data<int64_t>()[0];
    const int64_t last = graph.value(slice.inputs[2]).constant.data<int64_t>()[0];
    const int64_t count = last - first;
    const int64_t other = rank == 0 ? count : 0;
    const NodeId self = slice.id;
    const ValueId begin = graph.AddConstant("fault_first", Tensor::Of<int64_t>({1}, {other}));
    const ValueId end = graph.AddConstant("fault_last", Tensor::Of<int64_t>({1}, {other + count}));
    graph.node(self).inputs[1] = begin;
    graph.node(self).inputs[2] = end;
  });
  return node;
}

// A fused query-key-value weight is cut as if it were one block.
std::string CutQkvInOneBlock(Partitions& partitions) {
  for (Partition& partition : partitions) {
    for (VariableShard& shard : partition.variables) {
      if (shard.name == "block0.qkv.weight") shard.tensor_sharding = AxisSharding::Split(1);
    }
  }
  return Find(partitions, [](const Graph& graph, const Node& node) {
    return node.phase == Phase::kForward && node.inputs.size() == 2 && node.inputs[1].valid() &&
           graph.value(node.inputs[1]).name == "block0.qkv.weight";
  });
}

std::string ForgetMicroBatch(Partitions& partitions) {
  Accumulation& sum = partitions[1].accumulations.back();
  ++sum.blocks[0].first;
  const std::string input = sum.blocks[0].end_input;
  return input.substr(0, input.rfind("/sum"));
}

std::string SwapShards(Partitions& partitions) {
  for (Partition& partition : partitions) {
    for (VariableShard& shard : partition.variables) {
      if (shard.name == "block0.out.weight") shard.tensor_index = 1 - shard.tensor_index;
    }
  }
  return Find(partitions, [](const Graph& graph, const Node& node) {
    return node.phase == Phase::kForward && node.inputs.size() == 2 && node.inputs[1].valid() &&
           graph.value(node.inputs[1]).name == "block0.out.weight";
  });
}

// Keeps its own part twice instead of gathering.
std::string GatherOnlyOwn(Partitions& partitions) {
  const std::string node = Find(partitions, "AllGather", Phase::kForward);
  Change(partitions, node, [](Graph&, Node& gather, int) {
    const int64_t dim = gather.attributes.Int("dim", 0);
    gather.op = "Concat";
    gather.domain = "";
    gather.attributes = Attributes();
    gather.attributes.Set("axis", dim);
    gather.schema = OpRegistry::Global().Find("", "Concat");
    gather.inputs = {gather.inputs[0], gather.inputs[0]};
  });
  return node;
}

std::string ReadKeysForQueries(Partitions& partitions) {
  const auto reads_split = [](const Graph& graph, const Node& node) {
    if (node.op != "Reshape") return false;
    const ValueDef& input = graph.value(node.inputs[0]);
    return input.source == ValueSource::kNode && input.output_index == 0 &&
           graph.node(input.producer).op == "Split";
  };
  const std::string node = Find(partitions, reads_split);
  Change(partitions, node, [](Graph& graph, Node& reshape, int) {
    const NodeId split = graph.value(reshape.inputs[0]).producer;
    reshape.inputs[0] = graph.node(split).outputs[1];
  });
  return node;
}

// A conversion of what is computed a second time.
std::string NoSecondAllReduce(Partitions& partitions) {
  const std::string node = Find(partitions, [](const Graph&, const Node& reduce) {
    return reduce.op == "AllReduce" && reduce.name.starts_with("recompute/");
  });
  Change(partitions, node, Become("Identity"));
  return node;
}

std::vector<Fault> Faults() {
  constexpr Phase kF = Phase::kForward;
  constexpr Phase kB = Phase::kBackward;
  constexpr Phase kU = Phase::kUpdate;
  const auto received = [](Phase phase, int index) {
    return [=](Partitions& partitions) {
      const std::string node = Find(partitions, "Send", phase, index);
      Change(partitions, node, HalfOf(0));
      return absl::StrCat("receive/", node.substr(5, node.rfind("/stage") - 5));
    };
  };
  return {
      {"AllReduceMissing", "gpt", TensorGpt(), Becomes("AllReduce", kF, 0, "Identity")},
      {"SecondAllReduceMissing", "gpt", TensorGpt(), Becomes("AllReduce", kF, 1, "Identity")},
      {"BackwardAllReduceMissing", "gpt", TensorGpt(), Becomes("AllReduce", kB, 0, "Identity")},
      {"BiasOnEveryPart", "mlp", TensorMlp(), BiasOnEveryPart},
      {"GatherOnlyOwn", "gpt", TensorGpt(), GatherOnlyOwn},
      {"ShardsSwapped", "gpt", TensorGpt(), SwapShards},
      {"KeysForQueries", "gpt", TensorGpt(), ReadKeysForQueries},
      {"OtherFunctionOnOneRank", "mlp", TensorMlp(), Becomes("Relu", kF, 0, "Identity", 1)},
      {"ScaledGradientOnOneRank", "mlp", TensorMlp(), Halves("MatMul", kB, 1, 0, 1)},
      {"ScaledGemm", "mlp", TensorMlp(),
       [](Partitions& partitions) {
         const std::string node = Find(partitions, "Gemm", Phase::kForward);
         Change(partitions, node, With("alpha", 0.5f), 0);
         return node;
       }},
      {"OtherEpsilon", "gpt", TensorGpt(),
       [](Partitions& partitions) {
         const std::string node = Find(partitions, "LayerNormalization", Phase::kForward, 2);
         Change(partitions, node, With("epsilon", 0.3f), 1);
         return node;
       }},
      {"SoftmaxOfHalf", "gpt", TensorGpt(), Halves("Softmax", kF, 1, 0)},
      {"ReductionOverSelf", "mlp", MeshPlan(2, 1), ReduceOverSelf},
      {"FirstMicroBatchOfAReplicaLeftOut", "mlp", MeshPlan(2, 1), ForgetMicroBatch},
      {"ScaledUpdateOnOneReplica", "lenet", MeshPlan(2, 1), Halves("Scale", kU, 3, 0, 1)},
      {"ConvolutionOfHalf", "lenet", MeshPlan(2, 1), Halves("Conv", kF, 1, 1, 1)},
      {"ActivationScaledOnItsWay", "encoder", MeshPlan(1, 2), received(kF, 0)},
      {"GradientScaledOnItsWay", "encoder", MeshPlan(1, 2), received(kB, 0)},
      {"VariableScaledOnItsWay", "encoder", MeshPlan(1, 2), received(Phase::kBegin, 0)},
      {"RecomputedOtherwise", "gpt", Recomputing(MeshPlan(2, 1)), Halves("Softmax", kB, 0, 0)},
      {"RecomputedWithoutAllReduce", "gpt", Recomputing(TensorGpt()), NoSecondAllReduce},
      {"SoftmaxOfHalfInDataAndPipeline", "encoder", MeshPlan(2, 2), Halves("Softmax", kF, 0, 0)},
      {"ReduceScatterOfTheOthersSlice", "gpt", ScatteringGpt(), SwapsMembers("ReduceScatter", kF)},
      {"ReduceScatterOfTheOthersRows", "gpt", ZeroPlan(2), SwapsMembers("ReduceScatter", kU)},
      {"ScatterWithoutSum", "gpt", ScatteringGpt(), ScatterWithoutSum},
      {"GatherAlongAnotherAxis", "gpt",
       GptPlan({{"block0.out.weight", AxisSharding::Split(1)},
                {"block0/attention/MatMul_3", AxisSharding::Replicated()}}),
       GatherAlongOtherAxis},
      {"SliceOffsetsSwapped", "gpt", GptPlan({{"block0.up.weight", AxisSharding::Split(0)}}),
       SwapSlices},
      {"QkvCutInOneBlock", "gpt", TensorGpt(), CutQkvInOneBlock},
      {"AllToAllMembersSwapped", "gpt", ExchangingGpt(), SwapsMembers("AllToAll", kF)},
      {"GatherOfRowsSwapped", "gpt", ZeroPlan(3), SwapsMembers("AllGather", kU)},
  };
}

class PlantedFault : public ::testing::TestWithParam<int> {};

TEST_P(PlantedFault, IsNamed) {
  Fault fault = Faults()[GetParam()];
  SCOPED_TRACE(fault.name);
  Jobs jobs = Prepare(fault.model, fault.plan);
  const std::string node = fault.plant(jobs.planned.programs[0].partitions);
  const auto report =
      VerifyPlan(RealFileSystem(), std::move(jobs.planned), std::move(jobs.single), {});
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_TRUE(report->first.has_value()) << "not found: " << node;
  EXPECT_EQ(report->first->node, node) << report->first->op << ", " << report->first->value;
  EXPECT_GT(report->first->largest, report->first->allowed);
}

INSTANTIATE_TEST_SUITE_P(All, PlantedFault, ::testing::Range(0, static_cast<int>(Faults().size())));

TEST(PlanVerification, RandomPlansAreEqual) {
  const std::vector<std::string> names = EquivalenceModelNames();
  for (int seed = 1; seed <= 24; ++seed) {
    const std::string& name = names[seed % names.size()];
    const Plan plan = RandomPlan(BuildEquivalenceModel(name, kBatch)->graph, seed);
    SCOPED_TRACE(absl::StrCat("seed ", seed, ", model ", name, ", plan:\n", PlanToYaml(plan)));
    Jobs jobs = Prepare(name, plan);
    const auto report =
        VerifyPlan(RealFileSystem(), std::move(jobs.planned), std::move(jobs.single), {});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_GT(report->compared, 4 * report->left_out);
    if (!report->first.has_value()) continue;
    ADD_FAILURE() << report->first->op << " " << report->first->node << " " << report->first->value
                  << " " << report->first->shape << ": " << report->first->largest << " > "
                  << report->first->allowed;
  }
}

}  // namespace
}  // namespace weft::testing
