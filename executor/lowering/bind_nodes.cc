#include "executor/lowering/bind_nodes.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "executor/lowering/node_context.h"
#include "executor/lowering/value_binding.h"
#include "graph/node_class.h"
#include "graph/node_description.h"
#include "graph/op_schema.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

std::string ShapesText(const Graph& graph, const Node& node) {
  const auto append = [&graph](std::string* out, ValueId id) {
    absl::StrAppend(out, id.valid() ? graph.value(id).type.ToString() : "-");
  };
  return absl::StrCat(absl::StrJoin(node.inputs, ", ", append), " -> ",
                      absl::StrJoin(node.outputs, ", ", append));
}

InstructionInfo InfoOfNode(const Graph& graph, const Node& node) {
  InstructionInfo info;
  info.node = node.name;
  info.op = node.schema != nullptr ? node.schema->FullName() : node.op;
  info.shapes = ShapesText(graph, node);
  info.phase = node.phase;
  for (const ValueId output : node.outputs) {
    const std::optional<Shape> shape =
        output.valid() ? graph.value(output).type.shape.ToConcrete() : std::nullopt;
    info.output_dtypes.push_back(output.valid() ? graph.value(output).type.dtype : DType::kInvalid);
    info.output_elements.push_back(shape ? shape->num_elements() : 0);
  }
  return info;
}

bool HasBodies(const Node& node) {
  const auto& items = node.attributes.items();
  return std::any_of(items.begin(), items.end(), [](const auto& item) {
    return std::holds_alternative<std::shared_ptr<Graph>>(item.second);
  });
}

// Whether all that it reads and makes has a type and a place in the arena.
bool IsPlanned(const Graph& graph, const Node& node) {
  const auto is_planned = [&graph](ValueId id) {
    return !id.valid() || !IsUnplanned(graph.value(id).type);
  };
  return !HasBodies(node) && std::all_of(node.inputs.begin(), node.inputs.end(), is_planned) &&
         std::all_of(node.outputs.begin(), node.outputs.end(), is_planned);
}

// The end of the channel that this rank has, for a device that could run it.
DeviceCollectiveSpec DeviceTransferOf(const Channel& channel, RankId rank) {
  DeviceCollectiveSpec spec;
  const bool sends = channel.from == rank;
  spec.kind = sends ? DeviceCollectiveSpec::Kind::kSend : DeviceCollectiveSpec::Kind::kReceive;
  spec.name = channel.value;
  spec.tensors = absl::StrCat("tensor '", channel.value, "'");
  spec.group = {channel.from, channel.to};
  spec.member = sends ? 0 : 1;
  spec.channel = channel.id.value;
  spec.dtype = channel.dtype;
  spec.counts = {channel.shape.num_elements()};
  if (sends) spec.sent_bytes = DTypeBytes(channel.dtype, spec.counts[0]);
  return spec;
}

// Binds the entries of a schedule one after the other.
class NodeBinder {
 public:
  NodeBinder(const StepSchedule& schedule, const Partition& partition,
             const ExecutorEnvironment& environment)
      : schedule_(schedule),
        partition_(partition),
        environment_(environment),
        kernels_(environment.kernels != nullptr ? *environment.kernels : KernelRegistry::Global()),
        values_(schedule, partition, environment, program_) {}
  NodeBinder(const NodeBinder&) = delete;
  NodeBinder& operator=(const NodeBinder&) = delete;

  absl::StatusOr<LoweringProgram> Bind();

 private:
  absl::Status Open(const Channel& channel);
  absl::Status BindEntry(const ScheduleEntry& entry);
  absl::Status BindNode(int scope, const Node& node);
  absl::Status BindOp(int scope, const Node& node);
  absl::Status BindAlias(int scope, const Node& node);
  absl::Status BindSend(int scope, const Node& node);
  absl::Status BindReceive(int scope, const Node& node);
  absl::Status BindCollective(int scope, const Node& node);
  // `reason`: why it has no kernel; OK where its values have no fixed size.
  absl::Status BindOnValues(int scope, const Node& node, const absl::Status& reason);
  absl::Status CheckRunsOnHost(const absl::Status& reason) const;
  absl::Status BindKernel(int scope, const Node& node);
  // On the host, with copies on both sides.
  absl::Status BindHostKernel(int scope, const Node& node);
  // The kernel of the device, or of the CPU.
  absl::StatusOr<Kernel*> KernelFor(const Graph& graph, const Node& node, Device& device);
  // Whether the partition has the node run on the host, where the device has no kernel for it.
  bool MayRunOnHost(const Graph& graph, const Node& node) const;
  bool LacksKernel(const Node& node) const;
  bool NeedsValues(const Graph& graph, const Node& node) const;

  // Leaves of sums over micro-batches.
  std::vector<int> SumsOf(int scope, const std::string& micro_output) const;
  absl::Status BindLeaves(int scope, const Node& node);
  absl::Status BindConstantLeaves(int scope);
  bool IsRead(const Graph& graph, ValueId value);

  absl::Status BindGuard();
  absl::Status BindUpdates();
  absl::Status BindReports();
  absl::StatusOr<bool> BindReportFromSlot(const std::string& name, ValueId id);
  void WaitForSends();

  int InfoOf(const Graph& graph, const Node& node);
  void Emit(int scope, const Node* node, decltype(LoweredInstruction::work) work);
  const Graph& GraphOf(int scope) const { return *schedule_.scopes[scope].graph; }
  absl::StatusOr<std::vector<BufferIndex>> Inputs(int scope, const Node& node);
  absl::StatusOr<std::vector<BufferIndex>> Outputs(int scope, const Node& node);

  const StepSchedule& schedule_;
  const Partition& partition_;
  const ExecutorEnvironment& environment_;
  const KernelRegistry& kernels_;
  LoweringProgram program_;
  ValueBinding values_;
  std::map<std::pair<const Graph*, NodeId>, int> info_of_;
  std::map<std::pair<const Graph*, NodeId>, Kernel*> kernel_of_;
  struct OpenedChannel {
    int place = 0;  // in the order of opening
    int handle = -1;
    int lane = -1;  // of lowered::Send
  };
  std::map<int64_t, OpenedChannel> channels_;          // by channel id
  std::map<std::pair<RankId, RankId>, size_t> lanes_;  // by sender and receiver
  // What was sent last on a channel and has not been waited for, by place of the channel.
  std::map<int, LoweredInstruction> unsent_;
  std::map<std::string, std::vector<int>> sums_of_output_;  // by output of the micro graphs
  std::map<const Graph*, std::vector<bool>> read_;          // by ValueId
};

absl::StatusOr<LoweringProgram> NodeBinder::Bind() {
  WEFT_RETURN_IF_ERROR(values_.Begin());
  for (const Channel& channel : partition_.channels) WEFT_RETURN_IF_ERROR(Open(channel));
  int sum = 0;
  for (const Accumulation& accumulation : partition_.accumulations) {
    std::vector<int>& sums = sums_of_output_[accumulation.micro_output];
    for (size_t i = 0; i < accumulation.blocks.size(); ++i) sums.push_back(sum++);
  }
  for (const ScheduleEntry& entry : schedule_.entries) WEFT_RETURN_IF_ERROR(BindEntry(entry));
  std::sort(program_.step.variables.begin(), program_.step.variables.end());
  return std::move(program_);
}

absl::Status NodeBinder::Open(const Channel& channel) {
  OpenedChannel& opened = channels_[channel.id.value];
  opened.place = static_cast<int>(channels_.size());
  DeviceCollectives* const on_device = environment_.device_collectives;
  if (on_device != nullptr) {
    const DeviceCollectiveSpec spec = DeviceTransferOf(channel, partition_.rank);
    if (on_device->Takes(spec)) {
      WEFT_ASSIGN_OR_RETURN(opened.handle, on_device->Open(spec));
      const auto lane = lanes_.try_emplace({channel.from, channel.to}, lanes_.size()).first;
      opened.lane = static_cast<int>(lane->second);
      return absl::OkStatus();
    }
  }
  WEFT_ASSIGN_OR_RETURN(opened.handle, environment_.communicator->OpenChannel(channel));
  return absl::OkStatus();
}

absl::Status NodeBinder::BindEntry(const ScheduleEntry& entry) {
  switch (entry.kind) {
    case ScheduleEntry::Kind::kNode:
      return BindNode(entry.scope, GraphOf(entry.scope).node(entry.node));
    case ScheduleEntry::Kind::kBeginOutputs:
      return values_.BindBeginOutputs();
    case ScheduleEntry::Kind::kConstantSums:
      return BindConstantLeaves(entry.scope);
    case ScheduleEntry::Kind::kGuard:
      return BindGuard();
    case ScheduleEntry::Kind::kUpdates:
      return BindUpdates();
    case ScheduleEntry::Kind::kReports:
      return BindReports();
    case ScheduleEntry::Kind::kEnd:
    case ScheduleEntry::Kind::kDone:
      WaitForSends();
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

int NodeBinder::InfoOf(const Graph& graph, const Node& node) {
  std::vector<InstructionInfo>& infos = program_.step.infos;
  const auto [info, is_new] =
      info_of_.try_emplace({&graph, node.id}, static_cast<int>(infos.size()));
  if (is_new) infos.push_back(InfoOfNode(graph, node));
  return info->second;
}

void NodeBinder::Emit(int scope, const Node* node, decltype(LoweredInstruction::work) work) {
  const int info = node != nullptr ? InfoOf(GraphOf(scope), *node) : -1;
  program_.step.compute.push_back({std::move(work), info, schedule_.scopes[scope].micro_batch});
}

absl::StatusOr<std::vector<BufferIndex>> NodeBinder::Inputs(int scope, const Node& node) {
  std::vector<BufferIndex> buffers;
  for (const ValueId input : node.inputs) {
    buffers.push_back(kNoBuffer);
    if (!input.valid()) continue;
    WEFT_ASSIGN_OR_RETURN(buffers.back(), values_.BufferOf(scope, input));
  }
  return buffers;
}

absl::StatusOr<std::vector<BufferIndex>> NodeBinder::Outputs(int scope, const Node& node) {
  std::vector<BufferIndex> buffers;
  for (const ValueId output : node.outputs) {
    buffers.push_back(kNoBuffer);
    if (!output.valid()) continue;
    WEFT_ASSIGN_OR_RETURN(buffers.back(), values_.NewOutput(scope, output));
  }
  return buffers;
}

absl::Status NodeBinder::BindNode(int scope, const Node& node) {
  if (node.schema == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("node '", node.name, "' (", node.op, "): no such operator"));
  }
  WEFT_RETURN_IF_ERROR(
      Annotate(BindOp(scope, node), absl::StrCat("node '", node.name, "' (", node.op, ")")));
  return schedule_.scopes[scope].rows != nullptr ? BindLeaves(scope, node) : absl::OkStatus();
}

absl::Status NodeBinder::BindOp(int scope, const Node& node) {
  switch (KindOf(node)) {
    case CommunicationKind::kNone:
      break;
    case CommunicationKind::kSend:
      return BindSend(scope, node);
    case CommunicationKind::kReceive:
      return BindReceive(scope, node);
    default:
      return BindCollective(scope, node);
  }
  if (MayRunOnHost(GraphOf(scope), node) && LacksKernel(node) && IsPlanned(GraphOf(scope), node)) {
    return BindHostKernel(scope, node);
  }
  if (NeedsValues(GraphOf(scope), node)) return BindOnValues(scope, node, absl::OkStatus());
  if (!node.schema->aliases().empty()) return BindAlias(scope, node);
  return BindKernel(scope, node);
}

// ---- Kernels

absl::StatusOr<Kernel*> NodeBinder::KernelFor(const Graph& graph, const Node& node,
                                              Device& device) {
  const auto known = kernel_of_.find({&graph, node.id});
  if (known != kernel_of_.end()) return known->second;
  const NodeContext::Settings settings{&device, partition_.threads, partition_.strict,
                                       partition_.tf32, partition_.uses_cudnn};
  WEFT_ASSIGN_OR_RETURN(const NodeContext context, NodeContext::Create(graph, node, settings));
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> prepared, kernels_.Prepare(context));
  Kernel* const kernel = prepared.get();
  kernel_of_[{&graph, node.id}] = kernel;
  program_.step.kernels.push_back(std::move(prepared));
  return kernel;
}

bool NodeBinder::MayRunOnHost(const Graph& graph, const Node& node) const {
  const std::vector<std::string>& host_ops = partition_.host_ops;
  if (environment_.device->info().host_accessible || host_ops.empty()) return false;
  if (IsHostOp(host_ops, node.schema->FullName())) return true;
  // Without sizes or types of tensors there is no kernel that could lack one.
  const absl::StatusOr<NodeContext> view = NodeContext::Create(graph, node, {&CpuDevice()});
  return view.ok() && std::any_of(host_ops.begin(), host_ops.end(), [&](const std::string& known) {
           return NamesTypesOf(known, *view);
         });
}

bool NodeBinder::LacksKernel(const Node& node) const {
  return node.schema->op_class() == OpClass::kCompute && node.schema->aliases().empty() &&
         kernels_.Find(node.domain, node.op, environment_.device->info().kind) == nullptr;
}

absl::Status NodeBinder::BindHostKernel(int scope, const Node& node) {
  const absl::StatusOr<Kernel*> kernel = KernelFor(GraphOf(scope), node, CpuDevice());
  // What a CPU worker runs on values is run on values here, too.
  if (absl::IsUnimplemented(kernel.status()) && RunsOnValues(node)) {
    return BindOnValues(scope, node, kernel.status());
  }
  WEFT_RETURN_IF_ERROR(kernel.status());
  lowered::HostRun run;
  run.kernel = *kernel;
  WEFT_ASSIGN_OR_RETURN(run.inputs, Inputs(scope, node));
  WEFT_ASSIGN_OR_RETURN(run.outputs, Outputs(scope, node));
  run.workspace_bytes = static_cast<int64_t>((*kernel)->workspace_bytes());
  if (const MicroBatch* const rows = schedule_.scopes[scope].rows; rows != nullptr) {
    run.first_sample = rows->first;
    run.samples = rows->samples;
  }
  Emit(scope, &node, std::move(run));
  return absl::OkStatus();
}

absl::Status NodeBinder::BindKernel(int scope, const Node& node) {
  const absl::StatusOr<Kernel*> kernel = KernelFor(GraphOf(scope), node, *environment_.device);
  if (absl::IsUnimplemented(kernel.status()) && MayRunOnHost(GraphOf(scope), node)) {
    return BindHostKernel(scope, node);
  }
  // A dtype that no kernel does may be moved all the same.
  if (absl::IsUnimplemented(kernel.status()) && RunsOnValues(node)) {
    return BindOnValues(scope, node, kernel.status());
  }
  WEFT_RETURN_IF_ERROR(kernel.status());
  lowered::KernelRun run;
  run.kernel = *kernel;
  WEFT_ASSIGN_OR_RETURN(run.inputs, Inputs(scope, node));
  WEFT_ASSIGN_OR_RETURN(run.outputs, Outputs(scope, node));
  if (const auto bytes = static_cast<int64_t>((*kernel)->workspace_bytes()); bytes > 0) {
    run.workspace = program_.step.buffers.AddArena(bytes);
    program_.step.workspace_bytes = std::max(program_.step.workspace_bytes, bytes);
  }
  if (const MicroBatch* const rows = schedule_.scopes[scope].rows; rows != nullptr) {
    run.first_sample = rows->first;
    run.samples = rows->samples;
  }
  run.in_place = &node.schema->in_place();
  Emit(scope, &node, std::move(run));
  return absl::OkStatus();
}

absl::Status NodeBinder::BindAlias(int scope, const Node& node) {
  const int input = node.schema->aliases().front().first;
  WEFT_ASSIGN_OR_RETURN(const BufferIndex buffer, values_.BufferOf(scope, node.inputs[input]));
  if (node.outputs[0].valid()) values_.Alias(scope, node.outputs[0], buffer);
  return absl::OkStatus();
}

// ---- What is known only at run time

bool NodeBinder::NeedsValues(const Graph& graph, const Node& node) const {
  if (node.schema->op_class() != OpClass::kCompute) return false;
  const auto is_unplanned = [&graph](ValueId id) {
    return id.valid() && IsUnplanned(graph.value(id).type);
  };
  if (std::any_of(node.inputs.begin(), node.inputs.end(), is_unplanned) ||
      std::any_of(node.outputs.begin(), node.outputs.end(), is_unplanned)) {
    return true;
  }
  for (const int i : node.schema->value_inputs()) {
    if (i >= static_cast<int>(node.inputs.size()) || !node.inputs[i].valid()) continue;
    if (graph.value(node.inputs[i]).source != ValueSource::kConstant) return true;
  }
  if (!node.schema->aliases().empty()) return false;
  // A kernel that has the node may run its body: that of a fused node does.
  const DeviceKind device = environment_.device->info().kind;
  if (kernels_.Find(node.domain, node.op, device) != nullptr) return false;
  return HasBodies(node) || RunsOnValues(node);
}

// Never in silence: copies to the host and back cost more than most nodes.
absl::Status NodeBinder::CheckRunsOnHost(const absl::Status& reason) const {
  const DeviceInfo& device = environment_.device->info();
  if (device.runs_host_work || environment_.runs_nodes_on_host) return absl::OkStatus();
  if (!reason.ok()) return reason;
  return absl::UnimplementedError(absl::StrCat(
      device.name, " has no kernel for it, or none for values whose kind or size only ",
      "a run shows; give it to a CPU worker, or let it run on the host of this one, with copies "
      "on ",
      "both sides: --cpu-fallback allow"));
}

absl::Status NodeBinder::BindOnValues(int scope, const Node& node, const absl::Status& reason) {
  if (!MayRunOnHost(GraphOf(scope), node)) WEFT_RETURN_IF_ERROR(CheckRunsOnHost(reason));
  lowered::ValueRun run;
  for (const ValueId input : node.inputs) {
    WEFT_ASSIGN_OR_RETURN(run.operands.emplace_back(), values_.OperandOf(scope, input, run.inputs));
  }
  LoweredStep& step = program_.step;
  step.nodes.push_back(std::make_unique<Node>(node));
  ValueNode::Settings settings;
  settings.threads = partition_.threads;
  settings.strict = partition_.strict;
  settings.bodies = environment_.bodies;
  step.value_nodes.push_back(std::make_unique<ValueNode>(*step.nodes.back(), settings));
  run.node = step.value_nodes.back().get();
  const int info = InfoOf(GraphOf(scope), node);
  for (const ValueId output : node.outputs) {
    run.results.push_back(output.valid() ? values_.NewSlot(scope, output, info) : kNoSlot);
  }
  Emit(scope, &node, std::move(run));
  return absl::OkStatus();
}

// ---- Communication

absl::Status NodeBinder::BindSend(int scope, const Node& node) {
  const auto channel = channels_.find(node.attributes.Int("channel", -1));
  if (channel == channels_.end()) return absl::InternalError("sends on a channel nobody opened");
  WEFT_ASSIGN_OR_RETURN(const BufferIndex buffer, values_.BufferOf(scope, node.inputs[0]));
  const OpenedChannel& opened = channel->second;
  const lowered::WaitSent sent{opened.handle, buffer, opened.lane};
  if (const auto before = unsent_.find(opened.place); before != unsent_.end()) {
    Emit(scope, &node, *before->second.As<lowered::WaitSent>());
  }
  Emit(scope, &node, lowered::Send{opened.handle, buffer, opened.lane});
  unsent_[opened.place] = {sent, InfoOf(GraphOf(scope), node), schedule_.scopes[scope].micro_batch};
  return absl::OkStatus();
}

absl::Status NodeBinder::BindReceive(int scope, const Node& node) {
  const auto channel = channels_.find(node.attributes.Int("channel", -1));
  if (channel == channels_.end()) return absl::InternalError("receives on a channel nobody opened");
  WEFT_ASSIGN_OR_RETURN(const BufferIndex buffer, values_.NewOutput(scope, node.outputs[0]));
  Emit(scope, &node, lowered::Receive{channel->second.handle, buffer, channel->second.lane});
  return absl::OkStatus();
}

absl::Status NodeBinder::BindCollective(int scope, const Node& node) {
  if (node.outputs.empty() || !std::ranges::all_of(node.outputs, &ValueId::valid)) {
    return absl::InvalidArgumentError("a collective needs each of its outputs");
  }
  lowered::CollectiveNode collective{&GraphOf(scope), &node, {}, {}};
  WEFT_ASSIGN_OR_RETURN(collective.inputs, Inputs(scope, node));
  WEFT_ASSIGN_OR_RETURN(collective.outputs, Outputs(scope, node));
  Emit(scope, &node, std::move(collective));
  return absl::OkStatus();
}

void NodeBinder::WaitForSends() {
  for (auto& [channel, wait] : unsent_) program_.step.compute.push_back(std::move(wait));
  unsent_.clear();
}

// ---- Sums over micro-batches

bool NodeBinder::IsRead(const Graph& graph, ValueId value) {
  const auto [read, is_new] = read_.try_emplace(&graph);
  if (is_new) {
    for (const std::vector<Graph::Use>& uses : graph.BuildUses()) {
      read->second.push_back(!uses.empty());
    }
  }
  return read->second[value.value];
}

std::vector<int> NodeBinder::SumsOf(int scope, const std::string& micro_output) const {
  const auto all = sums_of_output_.find(micro_output);
  if (all == sums_of_output_.end()) return {};
  const int micro_batch = schedule_.scopes[scope].micro_batch;
  std::vector<int> sums;
  for (const int i : all->second) {
    const StepSum& sum = program_.sums[i];
    if (micro_batch >= sum.first && micro_batch < sum.last) sums.push_back(i);
  }
  return sums;
}

absl::Status NodeBinder::BindLeaves(int scope, const Node& node) {
  const Graph& graph = GraphOf(scope);
  const bool is_alias = !node.schema->aliases().empty();
  for (const ValueId output : node.outputs) {
    if (!output.valid()) continue;
    std::vector<int> sums = SumsOf(scope, graph.value(output).name);
    if (sums.empty()) continue;
    WEFT_ASSIGN_OR_RETURN(const BufferIndex buffer, values_.BufferOf(scope, output));
    Emit(scope, &node,
         lowered::Leaf{std::move(sums), buffer, /*is_own=*/!is_alias, IsRead(graph, output)});
  }
  return absl::OkStatus();
}

// Leaves that no node makes: they were folded to constants.
absl::Status NodeBinder::BindConstantLeaves(int scope) {
  const Graph& graph = GraphOf(scope);
  for (const auto& [name, unused] : sums_of_output_) {
    std::vector<int> sums = SumsOf(scope, name);
    if (sums.empty()) continue;
    const std::optional<ValueId> id = graph.FindValue(name);
    if (!id) return absl::InternalError(absl::StrCat("micro graph has no output '", name, "'"));
    if (graph.value(*id).source == ValueSource::kNode) continue;
    WEFT_ASSIGN_OR_RETURN(const BufferIndex buffer, values_.BufferOf(scope, *id));
    Emit(scope, nullptr,
         lowered::Leaf{std::move(sums), buffer, /*is_own=*/false, /*is_read=*/true});
  }
  return absl::OkStatus();
}

// ---- The end of the step

// The first instruction that may fail without ending the job; the program relies on it being in the
// same place on all ranks.
absl::Status NodeBinder::BindGuard() {
  const std::optional<ValueId> guard = partition_.end.FindValue(partition_.guard);
  WEFT_ASSIGN_OR_RETURN(const BufferIndex buffer, values_.BufferOf(StepSchedule::kEnd, *guard));
  Emit(StepSchedule::kEnd, nullptr,
       lowered::Guard{buffer, partition_.end.value(*guard).type.dtype});
  if (environment_.commit == nullptr || !partition_.training) return absl::OkStatus();
  WaitForSends();
  Emit(StepSchedule::kEnd, nullptr, lowered::Commit{});
  return absl::OkStatus();
}

absl::Status NodeBinder::BindUpdates() {
  for (const Variable& variable : partition_.end.variables()) {
    if (!variable.update.valid() || variable.update == variable.value) continue;
    VariableUpdate update;
    WEFT_ASSIGN_OR_RETURN(update.value, values_.BufferOf(StepSchedule::kEnd, variable.update));
    WEFT_ASSIGN_OR_RETURN(update.variable, values_.BufferOf(StepSchedule::kEnd, variable.value));
    program_.updates.push_back(update);
  }
  return absl::OkStatus();
}

// True if the report is made of a slot, and made.
absl::StatusOr<bool> NodeBinder::BindReportFromSlot(const std::string& name, ValueId id) {
  const ValueDef& value = partition_.end.value(id);
  const bool is_unplanned = IsUnplanned(value.type);
  // A training step's reports are tensors, whatever made them.
  const bool is_in_slot =
      values_.SlotOf(StepSchedule::kEnd, id) != kNoSlot && value.source == ValueSource::kNode;
  if (!is_unplanned && (partition_.training || !is_in_slot)) return false;
  std::vector<BufferIndex> inputs;
  WEFT_ASSIGN_OR_RETURN(const ValueOperand operand,
                        values_.OperandOf(StepSchedule::kEnd, id, inputs));
  program_.step.reports.push_back({name, kNoBuffer, DType::kInvalid, Shape{}, operand.slot});
  return true;
}

absl::Status NodeBinder::BindReports() {
  const Graph& end = partition_.end;
  for (const std::string& name : partition_.reports) {
    const std::optional<ValueId> id = end.FindValue(name);
    if (!id) return absl::InternalError(absl::StrCat("the end graph has no output '", name, "'"));
    WEFT_ASSIGN_OR_RETURN(const bool is_bound, BindReportFromSlot(name, *id));
    if (is_bound) continue;
    WEFT_ASSIGN_OR_RETURN(const BufferIndex buffer, values_.BufferOf(StepSchedule::kEnd, *id));
    const ValueType& type = end.value(*id).type;
    program_.step.reports.push_back({name, buffer, type.dtype, *type.shape.ToConcrete(), kNoSlot});
  }
  return absl::OkStatus();
}

// Puts the fills of neighbours of one micro-batch before the others of them.
void FillFirst(std::vector<LoweredInstruction>& compute) {
  for (auto first = compute.begin(); first != compute.end();) {
    const auto last = std::find_if(first, compute.end(), [&](const LoweredInstruction& other) {
      return other.micro_batch != first->micro_batch;
    });
    std::stable_partition(first, last, [](const LoweredInstruction& instruction) {
      return instruction.As<lowered::Fill>() != nullptr;
    });
    first = last;
  }
}

}  // namespace

absl::StatusOr<LoweringProgram> BindNodes(const StepSchedule& schedule, const Partition& partition,
                                          const ExecutorEnvironment& environment) {
  auto program = NodeBinder(schedule, partition, environment).Bind();
  if (program.ok() && !environment.device->info().host_accessible) {
    FillFirst(program->step.compute);
  }
  return program;
}

}  // namespace weft
