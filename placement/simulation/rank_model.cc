#include "placement/simulation/rank_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/graph.h"
#include "graph/node_class.h"
#include "graph/schedule/action_list.h"
#include "graph/schedule/action_nodes.h"
#include "placement/graph_views/graph_node_view.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// A sum adds with one thread (AddInto).
constexpr int kThreadsOfSums = 1;

std::vector<ValueId> Valid(const std::vector<ValueId>& values) {
  std::vector<ValueId> valid;
  std::copy_if(values.begin(), values.end(), std::back_inserter(valid),
               [](ValueId value) { return value.valid(); });
  return valid;
}

bool IsAlias(const Node& node) { return node.schema != nullptr && !node.schema->aliases().empty(); }

bool IsDataInput(const Graph& graph, ValueId value) {
  return graph.value(value).source == ValueSource::kInput &&
         graph.input_role(value) == InputRole::kData;
}

double BytesOfAll(const Graph& graph, const std::vector<ValueId>& values) {
  double bytes = 0;
  for (const ValueId value : Valid(values)) bytes += static_cast<double>(BytesOf(graph, value));
  return bytes;
}

// What is copied before a collective to lay its operands side by side, and after it.
struct CollectiveCopies {
  double before = 0;  // bytes
  double after = 0;
};

CollectiveCopies CopiesOf(const Graph& graph, const Node& node) {
  const double in = BytesOfAll(graph, node.inputs);
  const double out = BytesOfAll(graph, node.outputs);
  // Shards of axis 0 lie gathered as in the whole.
  const bool whole_rows =
      node.attributes.Int("dim", 0) == 0 && node.attributes.Int("blocks", 1) == 1;
  switch (KindOf(node)) {
    case CommunicationKind::kAllReduce:
    case CommunicationKind::kBroadcast:
      return {in, 0};
    case CommunicationKind::kAllGather:
      return {in, whole_rows ? 0 : out};
    default:
      return {in, out};
  }
}

}  // namespace

RankModel::RankModel(const Partition& partition, ModelTables& tables, bool per_node)
    : partition_(partition),
      tables_(tables),
      per_node_(per_node),
      worker_(tables.WorkerOf(partition.rank)),
      in_flight_(MicroBatchesHeld(partition.actions)) {
  rank_.worker = worker_;
  rank_.stage = partition.mesh.CoordinateOf(partition.rank).pipeline;
  rank_.overhead_seconds = tables.costs().step_seconds(worker_);
  for (const Channel& channel : partition.channels) channels_[channel.id.value] = &channel;
}

absl::Status RankModel::Build() {
  WEFT_RETURN_IF_ERROR(OpenJobs());
  WEFT_RETURN_IF_ERROR(OpenBlocks());
  WEFT_ASSIGN_OR_RETURN(const ActionNodes nodes, ActionNodes::Create(partition_));
  for (const Action& action : partition_.actions) {
    segment_.clear();
    switch (action.kind) {
      case Action::Kind::kBegin:
        for (const NodeId id : nodes.Of(action)) {
          WEFT_RETURN_IF_ERROR(
              RunNode(partition_.begin, partition_.begin.node(id), /*rows=*/nullptr));
        }
        break;
      case Action::Kind::kForward:
      case Action::Kind::kBackward:
      case Action::Kind::kWeightGradient:
        WEFT_RETURN_IF_ERROR(RunMicroBatch(action, nodes.Of(action)));
        break;
      case Action::Kind::kUpdate:
        WEFT_RETURN_IF_ERROR(RunEnd());
        break;
    }
    Flush();
    routine_.actions.push_back({action, tables_.model().AddSegment(std::move(segment_))});
    segment_ = {};
  }
  return absl::OkStatus();
}

// -- What the walk needs.

absl::Status RankModel::OpenJobs() {
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> beside,
                        CollectivesBesideMicroBatches(partition_));
  for (const NodeId id : beside) {
    const Node& node = partition_.end.node(id);
    WEFT_ASSIGN_OR_RETURN(const int32_t collective,
                          tables_.CollectiveOf(partition_.end, node, /*beside=*/true));
    const int job = static_cast<int>(routine_.jobs.size());
    routine_.jobs.push_back({TableEntry(rank_.collectives, collective_entries_, collective), 0});
    open_blocks_.push_back(static_cast<int>(node.inputs.size()));
    job_of_node_[id] = job;
    for (const ValueId output : Valid(node.outputs)) awaited_jobs_[output] = job + 1;
  }
  return absl::OkStatus();
}

absl::Status RankModel::OpenBlocks() {
  std::map<std::string, int> job_of_input;
  for (const auto& [id, job] : job_of_node_) {
    for (const ValueId input : partition_.end.node(id).inputs) {
      job_of_input[partition_.end.value(input).name] = job;
    }
  }
  for (const Accumulation& accumulation : partition_.accumulations) {
    for (const Accumulation::Block& block : accumulation.blocks) {
      const std::optional<ValueId> input = partition_.end.FindValue(block.end_input);
      if (!input.has_value()) {
        return absl::InternalError(absl::StrCat("accumulation block '", block.end_input,
                                                "' is not an input of the end graph"));
      }
      const double bytes = static_cast<double>(BytesOf(partition_.end, *input));
      const ValueType& type = partition_.end.value(*input).type;
      const Cost sum{bytes / static_cast<double>(std::max<int64_t>(DTypeBytes(type.dtype, 1), 1)),
                     3 * bytes};
      Block made{block.first, block.last,
                 tables_.costs().node_seconds(worker_) +
                     tables_.costs().WorkSeconds(sum, type.dtype, worker_, kThreadsOfSums),
                 0, -1};
      const auto job = job_of_input.find(block.end_input);
      if (job != job_of_input.end()) made.job = job->second;
      blocks_of_output_[accumulation.micro_output].push_back(static_cast<int>(blocks_.size()));
      blocks_.push_back(made);
    }
  }
  return absl::OkStatus();
}

RankModel::OfGraph& RankModel::Known(const Graph& graph) {
  const auto [entry, is_new] = graphs_.try_emplace(&graph);
  OfGraph& known = entry->second;
  if (!is_new) return known;
  known.plain.assign(static_cast<size_t>(graph.node_capacity()), Plain::kUnknown);
  known.seconds.assign(static_cast<size_t>(graph.node_capacity()), -1);
  known.collectives.resize(static_cast<size_t>(graph.node_capacity()));
  known.blocks.resize(static_cast<size_t>(graph.value_capacity()));
  if (&graph == &partition_.begin || &graph == &partition_.end) return known;
  for (const auto& [name, blocks] : blocks_of_output_) {
    const std::optional<ValueId> value = graph.FindValue(name);
    if (value.has_value()) known.blocks[static_cast<size_t>(value->value)] = blocks;
  }
  return known;
}

absl::StatusOr<double> RankModel::SecondsOf(const Graph& graph, const Node& node) {
  double& seconds = Known(graph).seconds[static_cast<size_t>(node.id.value)];
  if (seconds < 0) {
    WEFT_ASSIGN_OR_RETURN(const GraphNodeView view, GraphNodeView::Create(graph, node));
    seconds = tables_.costs().NodeSeconds(view, worker_, partition_.threads, in_flight_);
  }
  return seconds;
}

double RankModel::CopySeconds(double bytes) const {
  if (bytes <= 0) return 0;
  return tables_.costs().WorkSeconds({0, 2 * bytes}, DType::kFloat32, worker_, 1);
}

// -- Nodes.

absl::Status RankModel::RunNode(const Graph& graph, const Node& node, const MicroBatch* rows) {
  if (IsCommunication(node)) {
    WEFT_RETURN_IF_ERROR(IsPointToPoint(KindOf(node)) ? RunTransfer(graph, node)
                                                      : RunCollective(graph, node));
  } else if (IsAlias(node)) {
    const auto awaited = awaited_jobs_.find(node.inputs[node.schema->aliases().front().first]);
    if (&graph == &partition_.end && awaited != awaited_jobs_.end() && node.outputs[0].valid()) {
      awaited_jobs_[node.outputs[0]] = awaited->second;
    }
  } else {
    FillInputs(graph, node, rows);
    AwaitFor(graph, node.inputs);
    WEFT_ASSIGN_OR_RETURN(const double seconds, SecondsOf(graph, node));
    Compute(node.name, seconds);
  }
  if (rows == nullptr) return absl::OkStatus();
  for (const ValueId output : Valid(node.outputs)) AddTerms(graph, output, *rows);
  return absl::OkStatus();
}

RankModel::Plain RankModel::PlainnessOf(const Graph& graph, const Node& node) {
  if (IsCommunication(node)) return Plain::kNo;
  const bool is_term = std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId output) {
    return output.valid() && !Known(graph).blocks[static_cast<size_t>(output.value)].empty();
  });
  const bool reads_data = std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
    return input.valid() && IsDataInput(graph, input);
  });
  if (is_term || reads_data) return Plain::kNo;
  return IsAlias(node) ? Plain::kDoesNothing : Plain::kComputes;
}

absl::Status RankModel::RunMicroBatch(const Action& action, const std::vector<NodeId>& nodes) {
  const MicroBatch& rows = partition_.micro_batches[static_cast<size_t>(action.micro_batch)];
  const Graph& graph = partition_.micro[static_cast<size_t>(rows.graph)];
  OfGraph& known = Known(graph);
  for (const NodeId id : nodes) {
    Plain& plain = known.plain[static_cast<size_t>(id.value)];
    const Node& node = graph.node(id);
    if (plain == Plain::kUnknown) plain = PlainnessOf(graph, node);
    if (plain == Plain::kDoesNothing) continue;
    if (plain == Plain::kNo) {
      WEFT_RETURN_IF_ERROR(RunNode(graph, node, &rows));
      continue;
    }
    double seconds = known.seconds[static_cast<size_t>(id.value)];
    if (seconds < 0) {
      WEFT_ASSIGN_OR_RETURN(seconds, SecondsOf(graph, node));
    }
    Compute(node.name, seconds);
  }
  if (action.kind == Action::Kind::kForward && action.chunk == 0) AddConstantTerms(graph, rows);
  return absl::OkStatus();
}

absl::Status RankModel::RunEnd() {
  const Graph& graph = partition_.end;
  WEFT_ASSIGN_OR_RETURN(const EndOrder order, OrderOfEnd(partition_));
  const auto guard = [&] {
    if (!partition_.guard.empty()) AwaitFor(graph, {*graph.FindValue(partition_.guard)});
  };
  for (size_t i = 0; i < order.nodes.size(); ++i) {
    if (i == order.before_guard) guard();
    WEFT_RETURN_IF_ERROR(RunNode(graph, graph.node(order.nodes[i]), /*rows=*/nullptr));
  }
  if (order.before_guard == order.nodes.size()) guard();
  for (const std::string& report : partition_.reports) {
    const std::optional<ValueId> value = graph.FindValue(report);
    if (value.has_value()) AwaitFor(graph, {*value});
  }
  const auto jobs = static_cast<int32_t>(routine_.jobs.size());
  if (awaited_ < jobs) Push(StepInstruction::Await(jobs));
  awaited_ = jobs;
  return absl::OkStatus();
}

absl::Status RankModel::RunCollective(const Graph& graph, const Node& node) {
  if (&graph == &partition_.end && job_of_node_.contains(node.id)) return absl::OkStatus();
  KnownCollective& known = Known(graph).collectives[static_cast<size_t>(node.id.value)];
  if (known.entry < 0) {
    WEFT_ASSIGN_OR_RETURN(const int32_t collective,
                          tables_.CollectiveOf(graph, node, /*beside=*/false));
    known.entry = TableEntry(rank_.collectives, collective_entries_, collective);
    const CollectiveCopies copies = CopiesOf(graph, node);
    known.before = CopySeconds(copies.before);
    known.after = CopySeconds(copies.after);
  }
  AwaitFor(graph, node.inputs);
  if (known.before > 0) Compute("", known.before);
  Push(StepInstruction::Collective(known.entry));
  if (known.after > 0) Compute("", known.after);
  return absl::OkStatus();
}

absl::Status RankModel::RunTransfer(const Graph& graph, const Node& node) {
  const auto channel = channels_.find(node.attributes.Int("channel", -1));
  if (channel == channels_.end()) {
    return absl::InternalError(absl::StrCat("node '", node.name, "' of rank ",
                                            partition_.rank.value,
                                            " uses a channel that is not the rank's"));
  }
  const bool sends = KindOf(node) == CommunicationKind::kSend;
  const ValueId value = sends ? node.inputs[0] : node.outputs[0];
  WEFT_ASSIGN_OR_RETURN(const int32_t index,
                        tables_.ChannelOf(*channel->second, BytesOf(graph, value)));
  const int32_t entry = TableEntry(rank_.channels, channel_entries_, index);
  if (sends) AwaitFor(graph, {value});
  Push(sends ? StepInstruction::Send(entry) : StepInstruction::Receive(entry));
  return absl::OkStatus();
}

void RankModel::FillInputs(const Graph& graph, const Node& node, const MicroBatch* rows) {
  if (rows == nullptr) return;
  for (const ValueId input : Valid(node.inputs)) {
    if (!IsDataInput(graph, input)) continue;
    if (!filled_.insert({rows->index, input}).second) continue;
    const auto bytes = static_cast<double>(BytesOf(graph, input));
    const double measured = tables_.costs().InputSeconds(bytes, worker_);
    Compute("", measured > 0 ? measured : CopySeconds(bytes));
  }
}

void RankModel::AddTerms(const Graph& graph, ValueId value, const MicroBatch& rows) {
  for (const int index : Known(graph).blocks[static_cast<size_t>(value.value)]) {
    Block& block = blocks_[static_cast<size_t>(index)];
    if (rows.index < block.first || rows.index >= block.last) continue;
    if (block.terms > 0) Compute("", block.add_seconds);
    if (++block.terms < block.last - block.first || block.job < 0) continue;
    if (--open_blocks_[static_cast<size_t>(block.job)] > 0) continue;
    routine_.jobs[static_cast<size_t>(block.job)].signals = ++signals_;
    Push(StepInstruction::Signal(signals_));
  }
}

// Sums of values that no node makes.
void RankModel::AddConstantTerms(const Graph& graph, const MicroBatch& rows) {
  for (const auto& [name, blocks] : blocks_of_output_) {
    const std::optional<ValueId> value = graph.FindValue(name);
    if (!value.has_value() || graph.value(*value).source == ValueSource::kNode) continue;
    AddTerms(graph, *value, rows);
  }
}

// -- Instructions.

void RankModel::Compute(const std::string& name, double seconds) {
  if (!per_node_) {
    pending_ += seconds;
    return;
  }
  const int32_t index = name.empty() ? -1 : tables_.model().AddName(name);
  segment_.push_back(StepInstruction::Compute(seconds, index));
}

void RankModel::Flush() {
  if (pending_ > 0) segment_.push_back(StepInstruction::Compute(pending_));
  pending_ = 0;
}

void RankModel::Push(StepInstruction instruction) {
  Flush();
  segment_.push_back(instruction);
}

void RankModel::AwaitFor(const Graph& graph, const std::vector<ValueId>& values) {
  if (&graph != &partition_.end) return;
  int needed = awaited_;
  for (const ValueId value : Valid(values)) {
    const auto jobs = awaited_jobs_.find(value);
    if (jobs != awaited_jobs_.end()) needed = std::max(needed, jobs->second);
  }
  if (needed == awaited_) return;
  awaited_ = needed;
  Push(StepInstruction::Await(needed));
}

int32_t RankModel::TableEntry(std::vector<int32_t>& table, std::map<int32_t, int32_t>& entries,
                              int32_t index) const {
  const auto [entry, is_new] = entries.try_emplace(index, static_cast<int32_t>(table.size()));
  if (is_new) table.push_back(index);
  return entry->second;
}

}  // namespace weft
