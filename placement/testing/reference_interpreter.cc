#include "placement/testing/reference_interpreter.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "graph/inference.h"
#include "graph/node_class.h"
#include "graph/op_schema.h"
#include "graph/schedule/action_nodes.h"
#include "graph/schedule/collective_schedule.h"
#include "ops/node_runner.h"
#include "placement/sharding/tensor_shard.h"
#include "placement/testing/tensor_arithmetic.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft::testing {
namespace {

// One run of a graph.
struct Run {
  const Graph* graph = nullptr;
  const MicroBatch* micro_batch = nullptr;  // null: once per step
  std::vector<Tensor> values;               // by ValueId
};

struct Instruction {
  Run* run;
  NodeId node;
};

// Messages between ranks and meetings of groups.
struct Exchange {
  std::map<std::pair<int64_t, int>, std::deque<Tensor>> messages;  // by channel, micro-batch
  struct Meeting {
    std::map<int, std::pair<const Node*, std::vector<Tensor>>> members;  // by rank
    size_t left = 0;
  };
  // By group and how many collectives of it came before (and in which micro-batch).
  std::map<std::pair<std::vector<int64_t>, int64_t>, Meeting> meetings;
};

absl::StatusOr<std::vector<Tensor>> ReduceTree(const Exchange::Meeting& meeting,
                                               const std::vector<int64_t>& group, size_t outputs) {
  std::vector<Tensor> results;
  for (size_t tensor = 0; tensor < outputs; ++tensor) {
    std::vector<LeafRange> blocks;
    std::vector<Tensor> terms;
    for (const int64_t rank : group) {
      const auto& [node, inputs] = meeting.members.at(static_cast<int>(rank));
      const std::vector<int64_t> ranges = node->attributes.Ints("block_ranges");
      for (size_t block = 0; block < ranges.size() / 2; ++block) {
        if (ranges[2 * block] == ranges[2 * block + 1]) continue;
        blocks.push_back(
            {static_cast<int>(ranges[2 * block]), static_cast<int>(ranges[2 * block + 1])});
        terms.push_back(inputs[tensor * ranges.size() / 2 + block]);
      }
    }
    for (const auto& [target, source] : TreeAdditions(blocks)) {
      WEFT_ASSIGN_OR_RETURN(terms[target], AddTensors(terms[target], terms[source]));
    }
    results.push_back(terms.front());
  }
  return results;
}

// What `rank` gets when all members are there.
absl::StatusOr<std::vector<Tensor>> RunCollective(const Exchange::Meeting& meeting,
                                                  const Node& node, int rank) {
  const std::vector<int64_t> group = node.attributes.Ints("group");
  if (node.attributes.String("algorithm", "") == "ordered_tree") {
    return ReduceTree(meeting, group, node.outputs.size());
  }
  std::vector<Tensor> results;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    std::vector<Tensor> terms;
    for (const int64_t member : group) {
      terms.push_back(meeting.members.at(static_cast<int>(member)).second[i]);
    }
    const AxisSharding split = AxisSharding::Split(static_cast<int>(node.attributes.Int("dim", 0)),
                                                   node.attributes.Int("blocks", 1));
    absl::StatusOr<Tensor> result = absl::UnimplementedError(node.op);
    const CommunicationKind kind = KindOf(node);
    if (kind == CommunicationKind::kAllReduce) result = SumInOrder(terms);
    if (kind == CommunicationKind::kAllGather) result = JoinShards(terms, split);
    if (kind == CommunicationKind::kReduceScatter) {
      WEFT_ASSIGN_OR_RETURN(const Tensor sum, SumInOrder(terms));
      const auto index = std::find(group.begin(), group.end(), rank) - group.begin();
      result = ShardOfTensor(sum, split, static_cast<int>(group.size()), static_cast<int>(index));
    }
    if (kind == CommunicationKind::kAllToAll) {
      WEFT_ASSIGN_OR_RETURN(const Tensor whole, JoinShards(terms, split));
      const auto index = std::find(group.begin(), group.end(), rank) - group.begin();
      const AxisSharding other =
          AxisSharding::Split(static_cast<int>(node.attributes.Int("split_dim", 0)),
                              node.attributes.Int("split_blocks", 1));
      result = ShardOfTensor(whole, other, static_cast<int>(group.size()), static_cast<int>(index));
    }
    WEFT_RETURN_IF_ERROR(result.status());
    results.push_back(*std::move(result));
  }
  return results;
}

// One rank's program and where it stands.
class Rank {
 public:
  Rank(const Partition& partition, const StepValues& values, const KernelRegistry* kernels)
      : partition_(partition), values_(values), kernels_(kernels) {}

  absl::Status Begin();
  // Runs until it waits or is done; sets `moved` when anything ran.
  absl::Status Advance(Exchange& exchange, bool& moved);
  bool is_done() const { return next_ == instructions_.size() && end_ready_; }
  std::string WaitsFor() const;
  absl::StatusOr<Tensor> Report(const std::string& name) const;
  // This rank's shard after the step.
  absl::StatusOr<Tensor> Variable(const std::string& name) const;

 private:
  absl::Status BindSources(Run& run);
  absl::StatusOr<Tensor> Source(const Run& run, const ValueDef& value) const;
  absl::Status SumUp();
  absl::StatusOr<Tensor> Sum(const Accumulation& accumulation,
                             const Accumulation::Block& block) const;
  absl::Status Execute(Exchange& exchange, const Instruction& instruction, bool& done);
  absl::Status Communicate(Exchange& exchange, Run& run, const Node& node,
                           std::vector<Tensor> inputs, bool& done);
  absl::Status Store(Run& run, const Node& node, std::vector<Tensor> outputs);

  const Partition& partition_;
  const StepValues& values_;
  const KernelRegistry* const kernels_;
  Run begin_;
  std::vector<std::unique_ptr<Run>> micro_;  // by local micro-batch
  Run end_;
  bool end_ready_ = false;
  std::map<std::string, Tensor> shards_;
  std::map<std::string, Tensor> sums_;
  std::vector<Instruction> instructions_;
  size_t next_ = 0;
  size_t end_begins_ = 0;
  std::map<std::vector<int64_t>, int64_t> met_;  // collectives per group so far
};

absl::Status Rank::Begin() {
  for (const VariableShard& shard : partition_.variables) {
    const auto whole = values_.variables.find(shard.name);
    if (whole == values_.variables.end()) {
      return absl::InternalError(absl::StrCat("no value for variable '", shard.name, "'"));
    }
    WEFT_ASSIGN_OR_RETURN(shards_[shard.name],
                          ShardOfTensor(whole->second, shard.tensor_sharding, shard.tensor_shards,
                                        shard.tensor_index));
    if (shard.data_shards == 1) continue;
    WEFT_ASSIGN_OR_RETURN(shards_[shard.name],
                          ShardOfTensor(shards_[shard.name], AxisSharding::Split(0),
                                        shard.data_shards, shard.data_index));
  }
  begin_.graph = &partition_.begin;
  end_.graph = &partition_.end;
  WEFT_RETURN_IF_ERROR(BindSources(begin_));
  for (const MicroBatch& micro_batch : partition_.micro_batches) {
    auto run = std::make_unique<Run>();
    run->graph = &partition_.micro[micro_batch.graph];
    run->micro_batch = &micro_batch;
    micro_.push_back(std::move(run));
  }
  WEFT_ASSIGN_OR_RETURN(const ActionNodes nodes, ActionNodes::Create(partition_));
  for (const Action& action : partition_.actions) {
    Run* run = &begin_;
    if (action.kind == Action::Kind::kUpdate) {
      end_begins_ = instructions_.size();
      run = &end_;
    } else if (action.kind != Action::Kind::kBegin) {
      run = micro_[action.micro_batch].get();
    }
    for (const NodeId id : nodes.Of(action)) instructions_.push_back({run, id});
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> Rank::Source(const Run& run, const ValueDef& value) const {
  if (value.source == ValueSource::kConstant) return value.constant;
  const auto find = [&](const std::map<std::string, Tensor>& tensors) {
    const auto it = tensors.find(value.name);
    return it == tensors.end() ? Tensor() : it->second;
  };
  Tensor found;
  if (value.source == ValueSource::kVariable) {
    found = find(shards_);
  } else if (run.graph->input_role(value.id) == InputRole::kData) {
    found = find(values_.data);
    if (found.valid()) {
      const int64_t first = run.micro_batch->first;
      found = found.Rows(first, first + run.micro_batch->samples);
    }
  } else {
    found = find(values_.scalars);
    if (!found.valid() && run.graph == &partition_.end) found = find(sums_);
    if (!found.valid()) {
      if (const auto fetched = begin_.graph->FindValue(value.name)) {
        found = begin_.values[fetched->value];
      }
    }
  }
  if (!found.valid()) return absl::InternalError(absl::StrCat("nothing feeds '", value.name, "'"));
  const std::optional<Shape> shape = value.type.shape.ToConcrete();
  if (!shape.has_value() || !(*shape == found.shape()) || found.dtype() != value.type.dtype) {
    return absl::InternalError(absl::StrCat("'", value.name, "' is ", value.type.ToString(),
                                            " but is fed ", found.ToString(0)));
  }
  return found;
}

absl::Status Rank::BindSources(Run& run) {
  run.values.resize(run.graph->value_capacity());
  for (const ValueId id : run.graph->value_ids()) {
    const ValueDef& value = run.graph->value(id);
    if (value.source == ValueSource::kNode) continue;
    WEFT_ASSIGN_OR_RETURN(run.values[id.value], Source(run, value));
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> Rank::Sum(const Accumulation& accumulation,
                                 const Accumulation::Block& block) const {
  std::vector<Tensor> terms;
  for (const std::unique_ptr<Run>& run : micro_) {
    const int index = run->micro_batch->index;
    if (index < block.first || index >= block.last) continue;
    const auto term = run->graph->FindValue(accumulation.micro_output);
    if (!term.has_value()) return absl::InternalError("no " + accumulation.micro_output);
    terms.push_back(run->values[term->value]);
  }
  if (static_cast<int>(terms.size()) != block.last - block.first) {
    return absl::InternalError(absl::StrCat("block [", block.first, ",", block.last, ") of '",
                                            accumulation.micro_output, "' has ", terms.size(),
                                            " terms here"));
  }
  return accumulation.ordered_tree ? SumInTree(terms) : SumInOrder(terms);
}

absl::Status Rank::SumUp() {
  for (const Accumulation& accumulation : partition_.accumulations) {
    for (const Accumulation::Block& block : accumulation.blocks) {
      WEFT_ASSIGN_OR_RETURN(sums_[block.end_input], Sum(accumulation, block));
    }
  }
  return BindSources(end_);
}

absl::Status Rank::Advance(Exchange& exchange, bool& moved) {
  while (true) {
    if (next_ == end_begins_ && !end_ready_) {
      WEFT_RETURN_IF_ERROR(SumUp());
      end_ready_ = true;
      moved = true;
    }
    if (next_ == instructions_.size()) return absl::OkStatus();
    const Instruction& instruction = instructions_[next_];
    Run& run = *instruction.run;
    if (run.values.empty()) WEFT_RETURN_IF_ERROR(BindSources(run));
    bool done = true;
    const absl::Status status = Execute(exchange, instruction, done);
    if (!status.ok()) {
      return Annotate(status, absl::StrCat("rank ", partition_.rank.value, ", node '",
                                           run.graph->node(instruction.node).name, "'"));
    }
    if (!done) return absl::OkStatus();
    moved = true;
    ++next_;
  }
}

absl::Status Rank::Execute(Exchange& exchange, const Instruction& instruction, bool& done) {
  Run& run = *instruction.run;
  const Node& node = run.graph->node(instruction.node);
  std::vector<Tensor> inputs;
  for (const ValueId input : node.inputs) {
    inputs.push_back(input.valid() ? run.values[input.value] : Tensor());
    if (input.valid() && !inputs.back().valid()) {
      return absl::InternalError(
          absl::StrCat("'", run.graph->value(input).name, "' is read before it is made"));
    }
  }
  if (IsCommunication(node)) {
    return Communicate(exchange, run, node, std::move(inputs), done);
  }
  WEFT_ASSIGN_OR_RETURN(std::vector<Tensor> outputs,
                        RunNode(*run.graph, node, std::move(inputs), kernels_));
  return Store(run, node, std::move(outputs));
}

absl::Status Rank::Communicate(Exchange& exchange, Run& run, const Node& node,
                               std::vector<Tensor> inputs, bool& done) {
  const int micro_batch = run.micro_batch == nullptr ? -1 : run.micro_batch->index;
  if (const CommunicationKind kind = KindOf(node); IsPointToPoint(kind)) {
    auto& queue = exchange.messages[{node.attributes.Int("channel", -1), micro_batch}];
    if (kind == CommunicationKind::kSend) {
      queue.push_back(inputs[0]);
      return absl::OkStatus();
    }
    done = !queue.empty();
    if (!done) return absl::OkStatus();
    const Tensor message = queue.front();
    queue.pop_front();
    return Store(run, node, {message});
  }
  const std::vector<int64_t> group = node.attributes.Ints("group");
  Exchange::Meeting& meeting = exchange.meetings[{group, met_[group]}];
  meeting.members.try_emplace(partition_.rank.value, &node, std::move(inputs));
  done = meeting.members.size() == group.size();
  if (!done) return absl::OkStatus();
  for (const auto& [rank, member] : meeting.members) {
    if (member.first->name == node.name) continue;
    return absl::InternalError(
        absl::StrCat("rank ", rank, " meets it with '", member.first->name, "'"));
  }
  ++met_[group];
  WEFT_ASSIGN_OR_RETURN(std::vector<Tensor> outputs,
                        RunCollective(meeting, node, partition_.rank.value));
  return Store(run, node, std::move(outputs));
}

absl::Status Rank::Store(Run& run, const Node& node, std::vector<Tensor> outputs) {
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (!node.outputs[i].valid()) continue;
    const ValueDef& value = run.graph->value(node.outputs[i]);
    if (!(SymbolicShape(outputs[i].shape()) == value.type.shape) ||
        outputs[i].dtype() != value.type.dtype) {
      return absl::InternalError(absl::StrCat("made ", outputs[i].ToString(0), " for '", value.name,
                                              "', ", value.type.ToString()));
    }
    run.values[node.outputs[i].value] = std::move(outputs[i]);
  }
  return absl::OkStatus();
}

std::string Rank::WaitsFor() const {
  if (next_ == instructions_.size()) return "nothing";
  const Instruction& instruction = instructions_[next_];
  const Run& run = *instruction.run;
  return absl::StrCat(
      run.graph->node(instruction.node).name,
      run.micro_batch == nullptr ? "" : absl::StrCat(" of micro-batch ", run.micro_batch->index));
}

absl::StatusOr<Tensor> Rank::Report(const std::string& name) const {
  const auto value = partition_.end.FindValue(name);
  if (!value.has_value() || !end_.values[value->value].valid()) {
    return absl::InternalError(
        absl::StrCat("rank ", partition_.rank.value, " does not report '", name, "'"));
  }
  return end_.values[value->value];
}

absl::StatusOr<Tensor> Rank::Variable(const std::string& name) const {
  const weft::Variable* variable = partition_.end.FindVariable(name);
  if (variable == nullptr || !variable->update.valid()) return shards_.at(name);
  const Tensor& updated = end_.values[variable->update.value];
  if (!updated.valid() || !(updated.shape() == shards_.at(name).shape())) {
    return absl::InternalError(absl::StrCat("the update of '", name, "' does not fit it"));
  }
  return updated;
}

absl::Status RunAll(std::vector<Rank>& ranks, Exchange& exchange) {
  for (bool moved = true; moved;) {
    moved = false;
    for (Rank& rank : ranks) WEFT_RETURN_IF_ERROR(rank.Advance(exchange, moved));
  }
  std::string waiting;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (!ranks[i].is_done()) {
      absl::StrAppend(&waiting, waiting.empty() ? "" : "; ", "rank ", i, " for ",
                      ranks[i].WaitsFor());
    }
  }
  if (!waiting.empty()) {
    return absl::InternalError(absl::StrCat("the ranks wait for ever: ", waiting));
  }
  for (const auto& [key, queue] : exchange.messages) {
    if (!queue.empty()) {
      return absl::InternalError(absl::StrCat("channel ", key.first, " keeps ", queue.size(),
                                              " messages that nobody received"));
    }
  }
  return absl::OkStatus();
}

absl::Status CollectReports(const std::vector<Partition>& partitions,
                            const std::vector<Rank>& ranks, StepOutcome& outcome) {
  for (size_t i = 0; i < ranks.size(); ++i) {
    for (const std::string& name : partitions[i].reports) {
      WEFT_ASSIGN_OR_RETURN(const Tensor report, ranks[i].Report(name));
      const auto [it, is_new] = outcome.reports.try_emplace(name, report);
      if (is_new || BitwiseEqual(it->second, report)) continue;
      return absl::InternalError(absl::StrCat("rank ", i, " reports another '", name, "'"));
    }
  }
  return absl::OkStatus();
}

// The parts of a variable: first along the tensor axis, then the rows along the data axis.
using PartKey = std::pair<int, int>;
using Parts = std::map<PartKey, Tensor>;

absl::StatusOr<Tensor> JoinParts(const Parts& parts, const AxisSharding& sharding) {
  std::map<int, std::vector<Tensor>> rows;  // by tensor shard
  for (const auto& [key, part] : parts) rows[key.first].push_back(part);
  std::vector<Tensor> shards;
  for (const auto& [index, own] : rows) {
    shards.push_back(own.front());
    if (own.size() == 1) continue;
    WEFT_ASSIGN_OR_RETURN(shards.back(), JoinShards(own, AxisSharding::Split(0)));
  }
  return sharding.is_split() ? JoinShards(shards, sharding) : shards.front();
}

// Replicas are equal to the bit, and the shards of each variable make a whole.
absl::Status CollectVariables(const std::vector<Partition>& partitions,
                              const std::vector<Rank>& ranks, StepOutcome& outcome) {
  std::map<std::string, Parts> shards;
  std::map<std::string, const VariableShard*> first;
  std::map<std::pair<std::string, PartKey>, int> primaries;
  for (size_t i = 0; i < ranks.size(); ++i) {
    for (const VariableShard& shard : partitions[i].variables) {
      WEFT_ASSIGN_OR_RETURN(const Tensor local, ranks[i].Variable(shard.name));
      const PartKey key = {shard.tensor_sharding.is_split() ? shard.tensor_index : 0,
                           shard.data_index};
      primaries[{shard.name, key}] += shard.is_primary ? 1 : 0;
      first.try_emplace(shard.name, &shard);
      const auto [it, is_new] = shards[shard.name].try_emplace(key, local);
      if (is_new || BitwiseEqual(it->second, local)) continue;
      return absl::InternalError(
          absl::StrCat("rank ", i, " has another replica of '", shard.name, "'"));
    }
  }
  for (const auto& [key, count] : primaries) {
    if (count == 1) continue;
    return absl::InternalError(absl::StrCat("shard ", key.second.first, ", part ",
                                            key.second.second, " of '", key.first, "' has ", count,
                                            " primary copies"));
  }
  for (const auto& [name, parts] : shards) {
    WEFT_ASSIGN_OR_RETURN(outcome.variables[name], JoinParts(parts, first[name]->tensor_sharding));
  }
  return absl::OkStatus();
}

double TensorDifference(const Tensor& a, const Tensor& b) {
  const double infinity = std::numeric_limits<double>::infinity();
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return infinity;
  const std::vector<double> left = ToDoubles(a).value();
  const std::vector<double> right = ToDoubles(b).value();
  double largest = 0;
  for (size_t i = 0; i < left.size(); ++i) {
    const double scale = std::max({1.0, std::fabs(left[i]), std::fabs(right[i])});
    const double difference = std::fabs(left[i] - right[i]) / scale;
    if (std::isnan(difference)) return infinity;
    largest = std::max(largest, difference);
  }
  return largest;
}

double MapDifference(const std::map<std::string, Tensor>& a,
                     const std::map<std::string, Tensor>& b) {
  double largest = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (const auto& [name, tensor] : a) {
    const auto other = b.find(name);
    if (other == b.end()) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, TensorDifference(tensor, other->second));
  }
  return largest;
}

}  // namespace

absl::StatusOr<StepOutcome> InterpretStep(const std::vector<Partition>& partitions,
                                          const StepValues& values, const KernelRegistry* kernels) {
  std::vector<Rank> ranks;
  ranks.reserve(partitions.size());
  for (const Partition& partition : partitions) ranks.emplace_back(partition, values, kernels);
  for (Rank& rank : ranks) WEFT_RETURN_IF_ERROR(rank.Begin());
  Exchange exchange;
  WEFT_RETURN_IF_ERROR(RunAll(ranks, exchange));
  StepOutcome outcome;
  WEFT_RETURN_IF_ERROR(CollectReports(partitions, ranks, outcome));
  WEFT_RETURN_IF_ERROR(CollectVariables(partitions, ranks, outcome));
  return outcome;
}

absl::StatusOr<StepOutcome> EvaluateStep(const Graph& graph, const StepValues& values,
                                         int64_t global_batch) {
  Specialization shapes;
  for (const ValueId id : graph.inputs()) {
    if (graph.input_role(id) != InputRole::kData) continue;
    const auto data = values.data.find(graph.value(id).name);
    if (data == values.data.end()) return absl::InternalError("no " + graph.value(id).name);
    Shape shape = data->second.shape();
    shape.set_dim(0, global_batch);
    shapes.input_shapes[graph.value(id).name] = shape;
  }
  WEFT_ASSIGN_OR_RETURN(const Graph whole, Specialize(graph, shapes, CpuNodeEvaluator()));
  std::vector<Tensor> tensors(whole.value_capacity());
  for (const ValueId id : whole.value_ids()) {
    const ValueDef& value = whole.value(id);
    if (value.source == ValueSource::kConstant) tensors[id.value] = value.constant;
    if (value.source == ValueSource::kVariable) {
      tensors[id.value] = values.variables.at(whole.VariableOf(id)->name);
    }
    if (value.source != ValueSource::kInput) continue;
    const bool is_data = whole.input_role(id) == InputRole::kData;
    tensors[id.value] = (is_data ? values.data : values.scalars).at(value.name);
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, whole.TopologicalOrder());
  for (const NodeId id : order) {
    const Node& node = whole.node(id);
    std::vector<Tensor> inputs;
    for (const ValueId input : node.inputs) {
      inputs.push_back(input.valid() ? tensors[input.value] : Tensor());
    }
    if (node.schema->op_class() == OpClass::kBoundary) {
      tensors[node.outputs[0].value] = inputs[0];
      continue;
    }
    WEFT_ASSIGN_OR_RETURN(std::vector<Tensor> outputs, RunNode(whole, node, std::move(inputs)));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i].valid()) tensors[node.outputs[i].value] = outputs[i];
    }
  }
  StepOutcome outcome;
  for (const ValueId id : whole.outputs()) {
    outcome.reports[whole.value(id).name] = tensors[id.value];
  }
  for (const Variable& variable : whole.variables()) {
    const ValueId now = variable.update.valid() ? variable.update : variable.value;
    outcome.variables[variable.name] = tensors[now.value];
  }
  return outcome;
}

double Difference(const StepOutcome& a, const StepOutcome& b) {
  return std::max(MapDifference(a.reports, b.reports), MapDifference(a.variables, b.variables));
}

}  // namespace weft::testing
