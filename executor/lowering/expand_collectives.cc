#include "executor/lowering/expand_collectives.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "executor/lowering/node_context.h"
#include "executor/lowering/shard_regions.h"
#include "graph/node_class.h"
#include "graph/schedule/end_order.h"
#include "graph/schedule/node_collective.h"
#include "graph/sharding.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

using lowered::CollectiveNode;

int64_t RoundUpToAlignment(int64_t bytes) {
  const auto alignment = static_cast<int64_t>(kAlignment);
  return (bytes + alignment - 1) / alignment * alignment;
}

// "tensor 'w@grad' and 3 more": what the collective makes.
std::string TensorsOf(const Graph& graph, const Node& node) {
  if (node.outputs.empty()) return "";
  const std::string first = absl::StrCat("tensor '", graph.value(node.outputs[0]).name, "'");
  const size_t more = node.outputs.size() - 1;
  return more == 0 ? first : absl::StrCat(first, " and ", more, " more");
}

Shape ShapeOf(const Graph& graph, ValueId value) {
  return *graph.value(value).type.shape.ToConcrete();
}

std::string PlaceOf(const Node& node) {
  return absl::StrCat("node '", node.name, "' (", node.op, ")");
}

std::vector<RankId> GroupOf(const Node& node) {
  std::vector<RankId> group;
  for (const int64_t rank : node.attributes.Ints("group")) {
    group.push_back(RankId(static_cast<int32_t>(rank)));
  }
  return group;
}

// What a device could run of it; nothing where the order of the sum is the node's own.
absl::StatusOr<std::optional<DeviceCollectiveSpec>> DeviceSpecOf(const Graph& graph,
                                                                 const Node& node,
                                                                 const NodeCollective& collective) {
  using Kind = DeviceCollectiveSpec::Kind;
  DeviceCollectiveSpec spec;
  spec.name = node.name;
  spec.tensors = TensorsOf(graph, node);
  spec.group = GroupOf(node);
  spec.member = collective.member;
  spec.dtype = collective.dtype;
  spec.sent_bytes = collective.sent_bytes();
  switch (KindOf(node)) {
    case CommunicationKind::kAllReduce: {
      if (node.attributes.String("algorithm", "") == "ordered_tree") return std::nullopt;
      spec.kind = Kind::kAllReduce;
      WEFT_ASSIGN_OR_RETURN(const int64_t elements, AllReduceBlockElements(graph, node));
      spec.counts = {elements};
      break;
    }
    case CommunicationKind::kAllGather:
      spec.kind = Kind::kAllGather;
      spec.counts = GatheredDim(node).Counts(ShapeOf(graph, node.outputs[0]));
      break;
    case CommunicationKind::kReduceScatter:
      spec.kind = Kind::kReduceScatter;
      spec.counts = GatheredDim(node).Counts(ShapeOf(graph, node.inputs[0]));
      break;
    case CommunicationKind::kBroadcast: {
      spec.kind = Kind::kBroadcast;
      const RankId root(static_cast<int32_t>(node.attributes.Int("root", spec.group[0].value)));
      spec.root = static_cast<int>(std::find(spec.group.begin(), spec.group.end(), root) -
                                   spec.group.begin());
      spec.counts = {ShapeOf(graph, node.outputs[0]).num_elements()};
      break;
    }
    case CommunicationKind::kAllToAll: {
      spec.kind = Kind::kAllToAll;
      const auto pieces = PieceCounts(node, WholeOfAllToAll(graph, node));
      spec.counts = pieces[collective.member];
      for (const auto& from : pieces) spec.received.push_back(from[collective.member]);
      break;
    }
    default:
      return std::nullopt;
  }
  return spec;
}

class CollectiveExpansion {
 public:
  CollectiveExpansion(LoweringProgram& program, const Partition& partition,
                      const ExecutorEnvironment& environment)
      : program_(program), partition_(partition), environment_(environment) {}

  absl::Status Expand();

 private:
  // An opened collective of this rank.
  struct Opened {
    Communicator::CollectiveHandle handle = -1;
    int member = 0;  // this rank's position in the group
    int64_t element_bytes = 0;
    bool on_device = false;  // of DeviceCollectives
  };
  // Regions of an all-reduce: slots[block * tensors + tensor], as they lie in memory.
  struct Region {
    std::vector<BufferIndex> slots;
    std::vector<BufferIndex> scratch;
    int tensors = 0;
    int blocks = 1;
    int64_t bytes = 0;
    Opened opened;
    // Inputs come tensor by tensor.
    BufferIndex SlotOfInput(size_t input) const {
      const auto i = static_cast<int>(input);
      return slots[i % blocks * tensors + i / blocks];
    }
    lowered::Collective ToInstruction() const;
  };
  BufferTable& buffers() { return program_.step.buffers; }
  absl::Status MoveBesideMicroBatches();
  absl::Status MoveBeside(const Node& node, std::vector<BufferIndex>& scratch);
  absl::StatusOr<Region> ReserveRegion(const Graph& graph, const Node& node, bool beside_compute);
  // `buffers` are the first ones of the schedule; the scratch is added to them.
  absl::StatusOr<Opened> Open(const Graph& graph, const Node& node, bool beside_compute,
                              std::vector<BufferIndex>& buffers);
  absl::Status ExpandNode(const CollectiveNode& node);
  absl::Status ExpandAllReduce(const CollectiveNode& node);
  absl::Status ExpandAllGather(const CollectiveNode& node);
  absl::Status ExpandReduceScatter(const CollectiveNode& node);
  absl::Status ExpandAllToAll(const CollectiveNode& node);
  absl::Status ExpandBroadcast(const CollectiveNode& node);
  void Emit(decltype(LoweredInstruction::work) work);
  void EmitPacks(BufferIndex from, BufferIndex into, const std::vector<CopyRegion>& regions);
  void EmitCollective(const Opened& opened, const std::vector<BufferIndex>& buffers);
  // From now on `buffer` is `other`; applied to all of the program at the end.
  void Replace(BufferIndex buffer, BufferIndex other) { replaced_[buffer] = other; }
  void ApplyReplacements();

  LoweringProgram& program_;
  const Partition& partition_;
  const ExecutorEnvironment& environment_;
  std::vector<LoweredInstruction> expanded_;
  const LoweredInstruction* source_ = nullptr;         // the instruction that is being expanded
  std::map<NodeId, std::vector<BufferIndex>> beside_;  // node of the end graph -> its outputs
  std::map<BufferIndex, BufferIndex> replaced_;
};

lowered::Collective CollectiveExpansion::Region::ToInstruction() const {
  lowered::Collective collective;
  collective.handle = opened.handle;
  collective.on_device = opened.on_device;
  collective.buffers = {slots.front()};
  collective.buffers.insert(collective.buffers.end(), scratch.begin(), scratch.end());
  collective.outputs = slots;  // all slots are operands, so that they live
  collective.region_bytes = bytes;
  return collective;
}

void CollectiveExpansion::Emit(decltype(LoweredInstruction::work) work) {
  expanded_.push_back({std::move(work), source_->info, source_->micro_batch});
}

void CollectiveExpansion::EmitPacks(BufferIndex from, BufferIndex into,
                                    const std::vector<CopyRegion>& regions) {
  for (const CopyRegion& region : regions) Emit(lowered::Pack{from, into, region});
}

void CollectiveExpansion::EmitCollective(const Opened& opened,
                                         const std::vector<BufferIndex>& buffers) {
  Emit(lowered::Collective{opened.handle, opened.on_device, buffers, buffers, 0, 0});
}

absl::Status CollectiveExpansion::Expand() {
  WEFT_RETURN_IF_ERROR(MoveBesideMicroBatches());
  for (LoweredInstruction& instruction : program_.step.compute) {
    const auto* const collective = instruction.As<CollectiveNode>();
    if (collective == nullptr) {
      expanded_.push_back(std::move(instruction));
      continue;
    }
    source_ = &instruction;
    WEFT_RETURN_IF_ERROR(Annotate(ExpandNode(*collective), PlaceOf(*collective->node)));
  }
  program_.step.compute = std::move(expanded_);
  ApplyReplacements();
  return absl::OkStatus();
}

void CollectiveExpansion::ApplyReplacements() {
  if (replaced_.empty()) return;
  const auto replace = [this](BufferIndex& buffer) {
    const auto other = replaced_.find(buffer);
    if (other != replaced_.end()) buffer = other->second;
  };
  for (LoweredInstruction& instruction : program_.step.compute) {
    VisitReads(instruction, replace);
    VisitWrites(instruction, replace);
  }
  for (VariableUpdate& update : program_.updates) replace(update.value);
  for (LoweredReport& report : program_.step.reports) replace(report.buffer);
}

absl::StatusOr<CollectiveExpansion::Opened> CollectiveExpansion::Open(
    const Graph& graph, const Node& node, bool beside_compute, std::vector<BufferIndex>& operands) {
  WEFT_ASSIGN_OR_RETURN(NodeCollective collective, CollectiveOfNode(graph, node, partition_.rank));
  Opened opened;
  opened.member = collective.member;
  opened.element_bytes = DTypeBytes(collective.dtype, 1);
  DeviceCollectives* const on_device = environment_.device_collectives;
  if (on_device != nullptr) {
    WEFT_ASSIGN_OR_RETURN(const std::optional<DeviceCollectiveSpec> spec,
                          DeviceSpecOf(graph, node, collective));
    if (spec.has_value() && on_device->Takes(*spec)) {
      opened.on_device = true;
      WEFT_ASSIGN_OR_RETURN(opened.handle, on_device->Open(*spec));
      return opened;
    }
  }
  CollectiveSpec spec;
  spec.name = node.name;
  spec.tensors = TensorsOf(graph, node);
  spec.group = GroupOf(node);
  spec.dtype = collective.dtype;
  spec.beside_compute = beside_compute;
  for (size_t i = operands.size(); i < collective.schedule.buffer_elements.size(); ++i) {
    const int64_t bytes = DTypeBytes(spec.dtype, collective.schedule.buffer_elements[i]);
    operands.push_back(beside_compute ? buffers().AddReserved(bytes) : buffers().AddArena(bytes));
  }
  spec.schedule = std::move(collective.schedule);
  WEFT_ASSIGN_OR_RETURN(opened.handle, environment_.communicator->OpenCollective(spec));
  return opened;
}

absl::StatusOr<CollectiveExpansion::Region> CollectiveExpansion::ReserveRegion(
    const Graph& graph, const Node& node, bool beside_compute) {
  Region region;
  region.tensors = static_cast<int>(node.outputs.size());
  region.blocks = static_cast<int>(node.inputs.size()) / std::max(region.tensors, 1);
  const int group = buffers().size();  // unique: no other group has this number
  for (int block = 0; block < region.blocks; ++block) {
    for (const ValueId output : node.outputs) {
      WEFT_ASSIGN_OR_RETURN(const int64_t bytes, ValueBytes(graph, output));
      const int64_t room = RoundUpToAlignment(bytes);
      region.slots.push_back(beside_compute ? buffers().AddReserved(room, group)
                                            : buffers().AddArena(room, group));
    }
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t block_elements, AllReduceBlockElements(graph, node));
  region.bytes =
      region.blocks * DTypeBytes(graph.value(node.outputs[0]).type.dtype, block_elements);
  std::vector<BufferIndex> operands = {region.slots.front()};
  WEFT_ASSIGN_OR_RETURN(region.opened, Open(graph, node, beside_compute, operands));
  region.scratch.assign(operands.begin() + 1, operands.end());
  return region;
}

// ---- Beside the micro-batches

absl::Status CollectiveExpansion::MoveBesideMicroBatches() {
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> beside,
                        CollectivesBesideMicroBatches(partition_));
  std::vector<BufferIndex> scratch;  // one for all
  for (const NodeId id : beside) {
    const Node& node = partition_.end.node(id);
    WEFT_RETURN_IF_ERROR(Annotate(MoveBeside(node, scratch), PlaceOf(node)));
  }
  return absl::OkStatus();
}

absl::Status CollectiveExpansion::MoveBeside(const Node& node, std::vector<BufferIndex>& scratch) {
  const Graph& graph = partition_.end;
  WEFT_ASSIGN_OR_RETURN(const Region region, ReserveRegion(graph, node, /*beside_compute=*/true));
  for (size_t i = 0; i < region.scratch.size(); ++i) {
    if (i == scratch.size()) scratch.push_back(region.scratch[i]);
    buffers().Merge(region.scratch[i], scratch[i]);
  }
  std::vector<int> sums;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const std::string& name = graph.value(node.inputs[i]).name;
    const auto sum = std::find_if(program_.sums.begin(), program_.sums.end(),
                                  [&](const StepSum& s) { return s.end_input == name; });
    sums.push_back(static_cast<int>(sum - program_.sums.begin()));
    sum->buffer = region.SlotOfInput(i);
  }
  const auto bound = std::find_if(program_.step.compute.begin(), program_.step.compute.end(),
                                  [&](const LoweredInstruction& instruction) {
                                    const auto* const collective = instruction.As<CollectiveNode>();
                                    return collective != nullptr && collective->node == &node;
                                  });
  const int info = bound != program_.step.compute.end() ? bound->info : -1;
  program_.step.communication.push_back({region.ToInstruction(), info, -1});
  program_.sums_of_communication.push_back(std::move(sums));
  beside_[node.id].assign(region.slots.begin(), region.slots.begin() + region.tensors);
  return absl::OkStatus();
}

// ---- At its place in the compute list

absl::Status CollectiveExpansion::ExpandNode(const CollectiveNode& node) {
  switch (KindOf(*node.node)) {
    case CommunicationKind::kAllReduce:
      return ExpandAllReduce(node);
    case CommunicationKind::kAllGather:
      return ExpandAllGather(node);
    case CommunicationKind::kReduceScatter:
      return ExpandReduceScatter(node);
    case CommunicationKind::kAllToAll:
      return ExpandAllToAll(node);
    case CommunicationKind::kBroadcast:
      return ExpandBroadcast(node);
    default:
      return absl::UnimplementedError("the executor does not know this collective");
  }
}

absl::Status CollectiveExpansion::ExpandAllReduce(const CollectiveNode& node) {
  const auto beside = beside_.find(node.node->id);
  if (beside != beside_.end() && node.graph == &partition_.end) {
    for (size_t i = 0; i < node.outputs.size(); ++i) Replace(node.outputs[i], beside->second[i]);
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const Region region,
                        ReserveRegion(*node.graph, *node.node, /*beside_compute=*/false));
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId output = node.node->outputs[i / region.blocks];
    WEFT_ASSIGN_OR_RETURN(const int64_t bytes, ValueBytes(*node.graph, output));
    Emit(lowered::Copy{node.inputs[i], region.SlotOfInput(i), bytes});
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) Replace(node.outputs[i], region.slots[i]);
  lowered::Collective collective = region.ToInstruction();
  collective.across_micro_batches =
      source_->micro_batch >= 0 &&
      node.node->attributes.String("axis", "") == MeshAxisName(MeshAxis::kData);
  Emit(std::move(collective));
  return absl::OkStatus();
}

// The bytes before a member's shard, where all are stored one after the other.
int64_t OffsetOf(const std::vector<int64_t>& counts, int member, int64_t element_bytes) {
  return std::accumulate(counts.begin(), counts.begin() + member, int64_t{0}) * element_bytes;
}

absl::Status CollectiveExpansion::ExpandAllGather(const CollectiveNode& node) {
  const Shape shape = ShapeOf(*node.graph, node.node->outputs[0]);
  const ShardedDim dim = GatheredDim(*node.node);
  // Shards of axis 0 lie in the gathered buffer as in the whole tensor.
  const bool is_whole = shape.ProductOf(0, dim.axis) * dim.blocks == 1;
  const BufferIndex output = node.outputs[0];
  const BufferIndex gathered = is_whole ? output : buffers().AddArena(buffers().bytes(output));
  std::vector<BufferIndex> operands = {gathered};
  WEFT_ASSIGN_OR_RETURN(const Opened opened, Open(*node.graph, *node.node, false, operands));
  const std::vector<int64_t> counts = dim.Counts(shape);
  const int64_t offset = OffsetOf(counts, opened.member, opened.element_bytes);
  const int64_t own = counts[opened.member] * opened.element_bytes;
  Emit(lowered::Pack{node.inputs[0], gathered, {1, own, 0, 0, 0, offset}});
  EmitCollective(opened, operands);
  if (!is_whole) EmitPacks(gathered, output, UnpackShards(shape, dim, opened.element_bytes));
  return absl::OkStatus();
}

absl::Status CollectiveExpansion::ExpandReduceScatter(const CollectiveNode& node) {
  const ValueId in = node.node->inputs[0];
  const Shape shape = ShapeOf(*node.graph, in);
  WEFT_ASSIGN_OR_RETURN(const int64_t bytes, ValueBytes(*node.graph, in));
  const BufferIndex scattered = buffers().AddArena(bytes);
  std::vector<BufferIndex> operands = {scattered};
  WEFT_ASSIGN_OR_RETURN(const Opened opened, Open(*node.graph, *node.node, false, operands));
  const ShardedDim dim = GatheredDim(*node.node);
  EmitPacks(node.inputs[0], scattered, PackShards(shape, dim, opened.element_bytes));
  EmitCollective(opened, operands);
  const std::vector<int64_t> counts = dim.Counts(shape);
  const int64_t offset = OffsetOf(counts, opened.member, opened.element_bytes);
  const int64_t own = counts[opened.member] * opened.element_bytes;
  Emit(lowered::Pack{scattered, node.outputs[0], {1, own, 0, 0, offset, 0}});
  return absl::OkStatus();
}

absl::Status CollectiveExpansion::ExpandAllToAll(const CollectiveNode& node) {
  const Graph& graph = *node.graph;
  WEFT_ASSIGN_OR_RETURN(const int64_t sent_bytes, ValueBytes(graph, node.node->inputs[0]));
  const BufferIndex received = buffers().AddArena(buffers().bytes(node.outputs[0]));
  const BufferIndex sent = buffers().AddArena(sent_bytes);
  std::vector<BufferIndex> operands = {received, sent};
  WEFT_ASSIGN_OR_RETURN(const Opened opened, Open(graph, *node.node, false, operands));
  EmitPacks(node.inputs[0], sent,
            PackShards(ShapeOf(graph, node.node->inputs[0]), ScatteredDim(*node.node),
                       opened.element_bytes));
  EmitCollective(opened, operands);
  EmitPacks(received, node.outputs[0],
            UnpackShards(ShapeOf(graph, node.node->outputs[0]), GatheredDim(*node.node),
                         opened.element_bytes));
  return absl::OkStatus();
}

absl::Status CollectiveExpansion::ExpandBroadcast(const CollectiveNode& node) {
  const BufferIndex output = node.outputs[0];
  std::vector<BufferIndex> operands = {output};
  WEFT_ASSIGN_OR_RETURN(const Opened opened, Open(*node.graph, *node.node, false, operands));
  const std::vector<int64_t> group = node.node->attributes.Ints("group");
  if (group[opened.member] == node.node->attributes.Int("root", group[0])) {
    if (node.inputs.empty() || node.inputs[0] == kNoBuffer) {
      return absl::InternalError("the root of a broadcast has nothing to send");
    }
    Emit(lowered::Copy{node.inputs[0], output, buffers().bytes(output)});
  }
  EmitCollective(opened, operands);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LoweringProgram> ExpandCollectives(LoweringProgram program,
                                                  const Partition& partition,
                                                  const ExecutorEnvironment& environment) {
  WEFT_RETURN_IF_ERROR(CollectiveExpansion(program, partition, environment).Expand());
  return program;
}

}  // namespace weft
