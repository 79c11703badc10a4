// The search and the partitioner see the same step: for plans of random models, drawn by a seed,
// the stage of each node, the owner of each variable, and the bytes of each bucket, scattered sum,
// gathered variable and channel that the search counts are those of the partitions. What it does
// not count, the channels of the end graph, carry single numbers.
#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/partition.h"
#include "gtest/gtest.h"
#include "ops/node_runner.h"
#include "placement/completion/plan_completion.h"
#include "placement/files/plan_file.h"
#include "placement/graph_views/graph_node_view.h"
#include "placement/partition/partitioner.h"
#include "placement/pipeline/recomputation.h"
#include "placement/pipeline/step_layout.h"
#include "placement/search/coarse_model.h"
#include "placement/search/plan_evaluator.h"
#include "placement/search/stage_traffic.h"
#include "training/graph/training_graph.h"

namespace weft::testing {
namespace {

constexpr int kModels = 90;
constexpr int kPlansOfModel = 8;
constexpr int64_t kBatch = 12;

// Draws whole numbers. The engine's sequence is fixed by the standard; its distributions are not.
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  // In [0, sides).
  int Roll(int sides) { return static_cast<int>(engine_() % static_cast<uint64_t>(sides)); }
  bool OneIn(int sides) { return Roll(sides) == 0; }
  template <typename T>
  T Of(const std::vector<T>& choices) {
    return choices[Roll(static_cast<int>(choices.size()))];
  }

 private:
  std::mt19937_64 engine_;
};

// A forward graph of layers with branches, weights that several layers read, and running
// statistics.
class RandomModel {
 public:
  explicit RandomModel(Dice& dice) : dice_(dice) {
    graph_.opsets[""] = 17;
    width_ = dice.Of<int64_t>({4, 6, 8});
    ValueId x = graph_.AddInput(
        "x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape({Dim::Symbol("N"), Dim(width_)})});
    made_.push_back(x);
    const int layers = 4 + dice.Roll(5);
    for (int i = 0; i < layers; ++i) {
      builder_.set_name_prefix(absl::StrCat("layer", i, "/"));
      x = Layer(absl::StrCat("layer", i), x);
      made_.push_back(x);
    }
    builder_.set_name_prefix("head/");
    graph_.AddOutput(builder_.Op("MatMul", {x, Weight("head.weight", {width_, 5})}));
    EXPECT_TRUE(builder_.status().ok()) << builder_.status();
  }
  const Graph& graph() const { return graph_; }

 private:
  ValueId Weight(const std::string& name, const Shape& shape, bool trainable = true) {
    return graph_.AddVariable(name, {ValueKind::kTensor, DType::kFloat32, shape}, Tensor(),
                              trainable);
  }
  ValueId Linear(const std::string& name, ValueId x) {
    if (squares_.empty() || !dice_.OneIn(4)) {
      squares_.push_back(Weight(name + ".weight", {width_, width_}));
      x = builder_.Op("MatMul", {x, squares_.back()});
    } else {
      ValueId tied = dice_.Of(squares_);
      if (dice_.OneIn(2)) {
        tied = builder_.Op("Transpose", {tied}, {{"perm", std::vector<int64_t>{1, 0}}});
      }
      x = builder_.Op("MatMul", {x, tied});
    }
    return dice_.OneIn(2) ? x : builder_.Op("Add", {x, Weight(name + ".bias", {width_})});
  }
  ValueId Layer(const std::string& name, ValueId x) {
    switch (dice_.Roll(6)) {
      case 0:  // a skip connection, from anywhere
        return builder_.Op("Add", {Linear(name, x), dice_.Of(made_)});
      case 1: {  // two branches that are joined
        const ValueId other = Linear(name + ".other", dice_.Of(made_));
        const ValueId both =
            builder_.Op("Concat", {Linear(name, x), other}, {{"axis", int64_t{1}}});
        return builder_.Op("MatMul", {both, Weight(name + ".join", {2 * width_, width_})});
      }
      case 2:
        return builder_.Op(
            "BatchNormalization",
            {x, Weight(name + ".scale", {width_}), Weight(name + ".shift", {width_}),
             Weight(name + ".mean", {width_}, false), Weight(name + ".var", {width_}, false)},
            {{"training_mode", int64_t{1}}});
      case 3:  // a parameter of one row, and a scalar
        x = builder_.Op("Mul", {x, Weight(name + ".gain", {1, width_})});
        return builder_.Op("Mul", {x, Weight(name + ".scalar", {})});
      default:
        return builder_.Op(dice_.Of<std::string>({"Relu", "Tanh"}), {Linear(name, x)});
    }
  }

  Dice& dice_;
  Graph graph_;
  GraphBuilder builder_{graph_};
  int64_t width_ = 0;
  std::vector<ValueId> made_;
  std::vector<ValueId> squares_;
};

TrainingSpec RandomTraining(Dice& dice) {
  TrainingSpec spec;
  spec.optimizer.kind = dice.Of(OptimizerKinds());
  if (dice.OneIn(3)) spec.clip_norm = 1;
  if (dice.OneIn(4)) spec.clip_value = 0.5;
  if (dice.OneIn(4)) spec.average_decay = 0.9;
  if (dice.OneIn(4)) spec.precision = Precision::kFloat16;
  if (dice.OneIn(5)) spec.report_gradients = true;
  return spec;
}

// A guard that reads some gradients: their sums then come first.
void AddGuard(Dice& dice, Graph& graph) {
  GraphBuilder builder(graph);
  builder.set_phase(Phase::kUpdate);
  builder.set_name_prefix("guard/");
  std::vector<ValueId> squares;
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    if (node.op != "Accumulate" || !node.origin.is_gradient || dice.OneIn(2)) continue;
    const ValueId sum = node.outputs[0];
    squares.push_back(builder.Op("ReduceSumSquare", {sum}, {{"keepdims", int64_t{0}}}));
  }
  if (squares.empty()) return;
  const ValueId guard = builder.WeftOp("AddN", squares);
  builder.Name(guard, kStepGuard);
  graph.AddOutput(guard);
  EXPECT_TRUE(builder.status().ok()) << builder.status();
}

PlanChoice RandomChoice(Dice& dice, int units) {
  PlanChoice choice;
  choice.mesh = dice.Of<Mesh>({{1, 1, 2},
                               {1, 1, 3},
                               {1, 1, 4},
                               {2, 1, 1},
                               {3, 1, 1},
                               {2, 1, 2},
                               {2, 1, 3},
                               {3, 1, 2},
                               {1, 2, 1},
                               {1, 2, 2},
                               {2, 2, 1},
                               {2, 2, 2}});
  choice.mesh.pipeline = std::min(choice.mesh.pipeline, units);
  choice.micro_batches = choice.mesh.data * choice.mesh.pipeline * (1 + dice.Roll(2));
  if (choice.mesh.pipeline > 1) {
    choice.schedule = dice.Of<std::string>({"gpipe", "1f1b", "zero_bubble", "interleaved"});
    if (choice.schedule == "interleaved") choice.chunks = 2;
    if (choice.num_stages() > units) choice.schedule = "1f1b";
    if (choice.schedule != "interleaved") choice.chunks = 1;
  }
  if (choice.mesh.data > 1) choice.zero = dice.Roll(4);
  if (dice.OneIn(4) && choice.schedule != "zero_bubble")
    choice.recompute_segments = 1 + dice.Roll(3);
  for (int rank = 0; rank < choice.mesh.size(); ++rank) choice.workers.push_back(rank);
  return choice;
}

std::vector<int> RandomBegins(Dice& dice, int stages, int units) {
  std::vector<int> all(units - 1);
  for (int i = 1; i < units; ++i) all[i - 1] = i;
  for (int i = units - 2; i > 0; --i) std::swap(all[i], all[dice.Roll(i + 1)]);
  std::vector<int> begins(all.begin(), all.begin() + stages - 1);
  begins.push_back(0);
  begins.push_back(units);
  std::sort(begins.begin(), begins.end());
  return begins;
}

// Bytes of the messages from place to place in a phase.
using PlaceBytes = std::map<std::tuple<Phase, int, int>, int64_t>;

// What partitions say of the ranks at replica 0 and shard 0, by place.
struct PartitionView {
  std::vector<std::vector<int64_t>> buckets;
  std::vector<std::vector<int64_t>> scattered;
  std::vector<std::vector<int64_t>> gathered;
  PlaceBytes messages;
  // Bytes of each value that is sent once per step after the last micro-batch. The search lets it
  // take no time.
  std::vector<int64_t> end_sends;
  bool splits_tensors = false;
};

bool IsOverData(const Node& node, const char* op) {
  return node.op == op && node.attributes.String("axis", "") == "data";
}

void AddSends(const Graph& graph, const Partition& partition, PlaceBytes& messages) {
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    if (node.op != "Send") continue;
    for (const Channel& channel : partition.channels) {
      if (channel.id.value != node.attributes.Int("channel", -1)) continue;
      const int from = partition.mesh.CoordinateOf(channel.from).pipeline;
      const int to = partition.mesh.CoordinateOf(channel.to).pipeline;
      messages[{node.phase, from, to}] += BytesOf(graph, node.inputs[0]);
    }
  }
}

PartitionView ViewOf(const std::vector<Partition>& partitions) {
  PartitionView view;
  for (const Partition& partition : partitions) {
    const Mesh::Coordinate at = partition.mesh.CoordinateOf(partition.rank);
    if (at.data > 0 || at.tensor > 0) continue;
    std::vector<int64_t> buckets, scattered, gathered;
    for (const Graph* graph : {&partition.begin, &partition.end}) {
      for (const NodeId id : graph->node_ids()) {
        const Node& node = graph->node(id);
        // Ordered sums of one replica are nodes too, but nothing travels.
        if (IsOverData(node, "AllReduce") && partition.mesh.data > 1) {
          int64_t bytes = 0;
          for (const ValueId output : node.outputs) bytes += BytesOf(*graph, output);
          buckets.push_back(bytes);
        }
        if (IsOverData(node, "ReduceScatter")) scattered.push_back(BytesOf(*graph, node.inputs[0]));
        if (IsOverData(node, "AllGather")) gathered.push_back(BytesOf(*graph, node.outputs[0]));
      }
    }
    std::sort(gathered.begin(), gathered.end());
    view.buckets.push_back(buckets);
    view.scattered.push_back(scattered);
    view.gathered.push_back(gathered);
    AddSends(partition.begin, partition, view.messages);
    const int longest = partition.micro_batches.front().graph;
    AddSends(partition.micro[longest], partition, view.messages);
    for (const NodeId id : partition.end.node_ids()) {
      const Node& node = partition.end.node(id);
      if (node.op == "Send") view.end_sends.push_back(BytesOf(partition.end, node.inputs[0]));
    }
    for (const VariableShard& shard : partition.variables) {
      view.splits_tensors |= shard.tensor_shards > 1 && shard.tensor_sharding.is_split();
    }
  }
  return view;
}

// What the search says of them.
PartitionView ViewOf(const EvaluatedChoice& one, const DataSplit& split, int64_t bucket_bytes) {
  PartitionView view;
  const PlanChoice& choice = one.choice;
  const StagesOfUnits stages = {one.begins, choice.mesh.pipeline};
  const std::vector<PlaceSums> sums = SumsOfPlaces(*one.graph, stages, split, bucket_bytes);
  for (const PlaceSums& place : sums) {
    std::vector<int64_t> buckets, scattered;
    for (const std::vector<SumGroup>* groups : {&place.groups.first, &place.groups.later}) {
      for (const SumGroup& group : *groups) {
        (group.is_scattered ? scattered : buckets).push_back(BytesOf(group, place.sums));
      }
    }
    if (choice.mesh.data == 1) buckets.clear();  // of one replica nothing travels
    view.buckets.push_back(buckets);
    view.scattered.push_back(scattered);
    view.gathered.emplace_back();
  }
  for (int stage = 0; stage < choice.num_stages(); ++stage) {
    std::vector<int64_t>& gathered = view.gathered[stage % choice.mesh.pipeline];
    for (int unit = one.begins[stage]; unit < one.begins[stage + 1]; ++unit) {
      for (const PlannedVariable& variable : one.graph->units[unit].variables) {
        if (split.Has(variable)) gathered.push_back(variable.parameter_bytes);
      }
    }
  }
  for (std::vector<int64_t>& gathered : view.gathered) {
    std::sort(gathered.begin(), gathered.end());
  }
  for (const StageMessage& message : MessagesOfStages(*one.graph, stages)) {
    view.messages[{message.phase, message.from % stages.places, message.to % stages.places}] +=
        message.bytes;
  }
  return view;
}

PlaceBytes MessagesOf(const StepModel& model, int places) {
  PlaceBytes messages;
  for (const StepChannel& channel : model.channels) {
    if (channel.from >= places || channel.to >= places) continue;  // of another replica
    const std::string& name = model.names[channel.name];
    const Phase phase = name == "activations" ? Phase::kForward
                        : name == "gradients" ? Phase::kBackward
                                              : Phase::kBegin;
    messages[{phase, channel.from, channel.to}] += channel.bytes;
  }
  return messages;
}

// Stages of nodes and places of owners, by name.
using Stages = std::map<std::string, int>;

std::pair<Stages, Stages> StagesOf(const EvaluatedChoice& one, const UnitLayout& layout) {
  const auto stage_of = [&](int unit) {
    const auto after = std::upper_bound(one.begins.begin(), one.begins.end(), unit);
    return static_cast<int>(after - one.begins.begin()) - 1;
  };
  std::pair<Stages, Stages> stages;
  for (const NodeId id : one.graph->graph->node_ids()) {
    const Node& node = one.graph->graph->node(id);
    stages.first[node.name] = stage_of(node.stage.value);
  }
  for (const auto& [name, unit] : layout.owners) {
    stages.second[name] = stage_of(unit) % one.choice.mesh.pipeline;
  }
  return stages;
}

std::pair<Stages, Stages> StagesOf(const StepLayout& layout) {
  std::pair<Stages, Stages> stages;
  for (const NodeId id : layout.step().graph.node_ids()) {
    const Node& node = layout.step().graph.node(id);
    if (!IsRecomputed(node)) stages.first[node.name] = node.stage.value;
  }
  stages.second = layout.owner;
  return stages;
}

struct Counts {
  int plans = 0;
  int buckets = 0;
  int scattered = 0;
  int gathered = 0;
  int messages = 0;
  int variables_sent = 0;
  int end_sends = 0;
  int tensor_splits = 0;
  int refused = 0;
};

void Count(const PartitionView& view, Counts& counts) {
  ++counts.plans;
  for (const auto& one : view.buckets) counts.buckets += one.size() > 2;
  for (const auto& one : view.scattered) counts.scattered += !one.empty();
  for (const auto& one : view.gathered) counts.gathered += !one.empty();
  counts.messages += static_cast<int>(view.messages.size());
  counts.end_sends += static_cast<int>(view.end_sends.size());
  counts.tensor_splits += view.splits_tensors;
  for (const auto& [key, bytes] : view.messages) {
    counts.variables_sent += std::get<0>(key) == Phase::kBegin;
  }
}

// A loss, a norm of a gradient, a learning rate.
constexpr int64_t kNumberBytes = 8;

int64_t LargestVariable(const Graph& graph) {
  int64_t bytes = 0;
  for (const Variable& variable : graph.variables()) {
    bytes = std::max(bytes, BytesOf(graph, variable.value));
  }
  return bytes;
}

// A model and its plans.
struct Story {
  std::string text;
  // Of each value of an end graph that is sent: a number, but whole gradients where these are
  // reported, or read by a guard that does not run where they are.
  int64_t max_end_send = kNumberBytes;
};

void ExpectTheSame(PlanEvaluator& plans, const EvaluatedChoice& one, const Graph& graph,
                   const Story& story, Counts& counts) {
  const ClusterSpec cluster = ClusterSpec::Local(one.choice.mesh.size(), 1);
  const StepShape shape = {/*training=*/true, kBatch};
  const auto plan = CompletePlan(graph, cluster, plans.PlanOf(one), kBatch);
  if (!plan.ok()) {
    ++counts.refused;
    return;
  }
  const auto layout = LayOutStep(graph, *plan, shape, CpuNodeEvaluator());
  const auto partitions = PartitionStep(graph, *plan, shape, CpuNodeEvaluator());
  if (!layout.ok() || !partitions.ok()) {
    ++counts.refused;
    return;
  }
  const std::string said = absl::StrCat(story.text, "\n", PlanToYaml(*plan));
  const auto [nodes, owners] = StagesOf(*layout);
  const auto [units, unit_owners] = StagesOf(one, plans.layout());
  EXPECT_EQ(units, nodes) << said;
  EXPECT_EQ(unit_owners, owners) << said;
  const DataSplit& split = plans.SplitOf(one.choice, *one.graph);
  const PartitionView truth = ViewOf(*partitions);
  const PartitionView search = ViewOf(one, split, plan->bucket_bytes);
  EXPECT_EQ(search.buckets, truth.buckets) << said;
  EXPECT_EQ(search.scattered, truth.scattered) << said;
  EXPECT_EQ(search.gathered, truth.gathered) << said;
  EXPECT_EQ(search.messages, truth.messages) << said;
  for (const int64_t bytes : truth.end_sends) EXPECT_LE(bytes, story.max_end_send) << said;
  // What is simulated has these very bytes.
  CollectiveCosts collectives(plans.cost());
  const StageCosts costs(*one.graph, one.choice, collectives, split);
  const auto model =
      MakeCoarseModel(costs, one.choice, one.begins, plans.cost(), collectives, plan->bucket_bytes);
  ASSERT_TRUE(model.ok()) << model.status() << "\n" << said;
  EXPECT_EQ(MessagesOf(*model, one.choice.mesh.pipeline), truth.messages) << said;
  Count(truth, counts);
}

TEST(PlacementRules, TheSearchSeesWhatPartitionsHave) {
  Counts counts;
  for (int seed = 0; seed < kModels && !HasFailure(); ++seed) {
    Dice dice(seed);
    const RandomModel model(dice);
    const TrainingSpec training = RandomTraining(dice);
    auto graph = BuildTrainingGraph(model.graph(), training);
    ASSERT_TRUE(graph.ok()) << graph.status() << ", seed " << seed;
    Story story;
    if (training.report_gradients) story.max_end_send = LargestVariable(*graph);
    if (training.precision == Precision::kFloat32 && dice.OneIn(3)) {
      AddGuard(dice, *graph);
      story.max_end_send = LargestVariable(*graph);
    }
    SearchOptions options;
    options.global_batch = kBatch;
    options.max_units = dice.Of<int>({6, 12, 192});
    options.given.bucket_bytes = dice.Of<int64_t>({100, 700, 3000, int64_t{4} << 20});
    if (dice.OneIn(5)) options.given.reduction = Reduction::kOrderedTree;
    const CostModel cost = CostModel::OfSpec(ClusterSpec::Local(8, 1)).value();
    const auto plans = PlanEvaluator::Create(*graph, cost, options, CpuNodeEvaluator());
    ASSERT_TRUE(plans.ok()) << plans.status() << ", seed " << seed;
    for (int i = 0; i < kPlansOfModel && !HasFailure(); ++i) {
      EvaluatedChoice one;
      one.choice = RandomChoice(dice, (*plans)->layout().size());
      const auto planned = (*plans)->GraphOf(one.choice);
      ASSERT_TRUE(planned.ok()) << planned.status() << ", seed " << seed;
      one.graph = *planned;
      one.begins = RandomBegins(dice, one.choice.num_stages(), (*plans)->layout().size());
      story.text = absl::StrCat("seed ", seed, ", plan ", i);
      ExpectTheSame(**plans, one, *graph, story, counts);
    }
  }
  EXPECT_GE(counts.plans, 500) << counts.refused << " were refused";
  EXPECT_GE(counts.buckets, 100);
  EXPECT_GE(counts.scattered, 20);
  EXPECT_GE(counts.gathered, 50);
  EXPECT_GE(counts.messages, 500);
  EXPECT_GE(counts.variables_sent, 20);
  EXPECT_GE(counts.end_sends, 300);
  EXPECT_GE(counts.tensor_splits, 100);
}

}  // namespace
}  // namespace weft::testing
