#include "executor/collective_lowering.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "executor/node_context.h"
#include "graph/schedule/collective_schedule.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

int64_t RoundUpToAlignment(int64_t bytes) {
  return (bytes + static_cast<int64_t>(kAlignment) - 1) / static_cast<int64_t>(kAlignment) *
         static_cast<int64_t>(kAlignment);
}

// The sums of micro-batches that every member of a tree-ordered all-reduce holds: replica m of n
// runs micro-batches [V m / n, V (m + 1) / n) (graph/plan.h) and finishes their aligned subtrees.
std::vector<std::vector<LeafRange>> MemberBlocks(int members, int total) {
  std::vector<std::vector<LeafRange>> blocks;
  for (int m = 0; m < members; ++m) {
    blocks.push_back(AlignedBlocks(total * m / members, total * (m + 1) / members, total));
  }
  return blocks;
}

bool IsOrderedTree(const Node& node) {
  return node.attributes.String("algorithm", "ring") == "tree_ordered";
}

// Shards of `shape` along `dim` (seen as blocks x rest, rest split into `sizes`): for shard r the
// strided regions between the whole tensor and the shard stored by itself.
struct ShardRegion {
  CopyRegion whole_to_shard;
  int64_t elements = 0;
};

std::vector<ShardRegion> ShardRegions(const Shape& shape, int dim, int64_t blocks,
                                      const std::vector<int64_t>& sizes, int64_t element_bytes) {
  const int64_t outer = shape.ProductOf(0, dim) * blocks;
  const int64_t inner = shape.ProductOf(dim + 1, shape.rank());
  const int64_t rest = shape.dim(dim) / blocks;
  std::vector<ShardRegion> regions;
  int64_t first = 0;
  for (int64_t size : sizes) {
    ShardRegion region;
    region.elements = outer * size * inner;
    region.whole_to_shard = {outer,
                             size * inner * element_bytes,
                             rest * inner * element_bytes,
                             size * inner * element_bytes,
                             first * inner * element_bytes,
                             0};
    regions.push_back(region);
    first += size;
  }
  return regions;
}

CopyRegion Reversed(const CopyRegion& region) {
  return {region.rows,          region.bytes,         region.target_stride,
          region.source_stride, region.target_offset, region.source_offset};
}

}  // namespace

absl::StatusOr<int> CollectiveLowering::MemberIndex(const Node& node) const {
  const std::vector<int64_t> group = node.attributes.Ints("group");
  const auto it = std::find(group.begin(), group.end(), state_.partition_.rank.value);
  if (it == group.end()) {
    return absl::InternalError(absl::StrCat("rank ", state_.partition_.rank.value,
                                            " runs a collective of a group it is not in"));
  }
  return static_cast<int>(it - group.begin());
}

absl::StatusOr<BufferIndex> CollectiveLowering::Input(Scope& scope, const Node& node, int i) {
  WEFT_ASSIGN_OR_RETURN(BufferIndex buffer, state_.BufferOf(scope, node.inputs[i]));
  WEFT_RETURN_IF_ERROR(state_.EmitWaits({buffer}));
  return buffer;
}

void CollectiveLowering::EmitCopy(const Node& node, const Scope& scope, BufferIndex from,
                                  BufferIndex to, int64_t bytes) {
  LoweredInstruction& copy = state_.Emit(OpCode::kCopy, &node, scope);
  copy.inputs = {from};
  copy.outputs = {to};
  copy.bytes = bytes;
}

void CollectiveLowering::EmitRun(const Node& node, const Scope& scope,
                                 Communicator::CollectiveHandle handle,
                                 std::vector<BufferIndex> buffers) {
  LoweredInstruction& run = state_.Emit(OpCode::kCollective, &node, scope);
  run.handle = handle;
  run.inputs = buffers;
  run.outputs = std::move(buffers);
}

absl::StatusOr<Communicator::CollectiveHandle> CollectiveLowering::Open(
    const Node& node, DType dtype, CollectiveSchedule schedule, std::vector<BufferIndex>& scratch) {
  CollectiveSpec spec;
  spec.name = node.name;
  for (int64_t rank : node.attributes.Ints("group")) {
    spec.group.push_back(RankId(static_cast<int32_t>(rank)));
  }
  spec.dtype = dtype;
  for (size_t i = 1; i < schedule.buffer_elements.size(); ++i) {
    scratch.push_back(
        state_.step_.buffers.AddArena(DTypeBytes(dtype, schedule.buffer_elements[i])));
  }
  spec.schedule = std::move(schedule);
  return state_.environment_.communicator->OpenCollective(spec);
}

absl::StatusOr<CollectiveLowering::Region> CollectiveLowering::ReserveAllReduce(const Graph& graph,
                                                                                const Node& node) {
  Region region;
  region.tensors = static_cast<int>(node.outputs.size());
  region.blocks = static_cast<int>(node.inputs.size()) / std::max(region.tensors, 1);
  const int group = state_.step_.buffers.size();  // unique: no other group has this number
  int64_t block_bytes = 0;
  for (ValueId output : node.outputs) {
    const DType dtype = graph.value(output).type.dtype;
    if (region.dtype != DType::kInvalid && dtype != region.dtype) {
      return absl::InternalError("an all-reduce mixes element types");
    }
    region.dtype = dtype;
    WEFT_ASSIGN_OR_RETURN(int64_t bytes, ValueBytes(graph, output));
    block_bytes += RoundUpToAlignment(bytes);
  }
  for (int block = 0; block < region.blocks; ++block) {
    for (ValueId output : node.outputs) {
      WEFT_ASSIGN_OR_RETURN(int64_t bytes, ValueBytes(graph, output));
      region.slots.push_back(state_.step_.buffers.AddArena(RoundUpToAlignment(bytes), group));
    }
  }
  region.block_elements = block_bytes / DTypeBytes(region.dtype, 1);
  WEFT_ASSIGN_OR_RETURN(int member, MemberIndex(node));
  const int members = static_cast<int>(node.attributes.Ints("group").size());
  const int total = static_cast<int>(node.attributes.Int("total_blocks", members));
  CollectiveSchedule schedule =
      IsOrderedTree(node)
          ? OrderedTreeAllReduce(MemberBlocks(members, total), member, total, region.block_elements)
          : AllReduceOfSize(members, member, region.block_elements, DTypeBytes(region.dtype, 1));
  WEFT_ASSIGN_OR_RETURN(region.handle,
                        Open(node, region.dtype, std::move(schedule), region.scratch));
  return region;
}

absl::Status CollectiveLowering::ReserveAsync() {
  const Graph& graph = state_.partition_.end;
  std::map<std::string, int> blocks;
  for (const Accumulation& accumulation : state_.partition_.accumulations) {
    for (const Accumulation::Block& block : accumulation.blocks) blocks[block.end_input] = 0;
  }
  const auto uses = graph.BuildUses();
  WEFT_ASSIGN_OR_RETURN(std::vector<NodeId> order, graph.TopologicalOrder());
  for (NodeId id : order) {
    const Node& node = graph.node(id);
    if (node.schema == nullptr || node.schema->op_class() != OpClass::kCommunication ||
        node.op != "AllReduce") {
      continue;
    }
    const bool sums_only = std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId in) {
      return blocks.contains(graph.value(in).name) && uses[in.value].size() == 1;
    });
    if (!sums_only) continue;
    WEFT_ASSIGN_OR_RETURN(Region region, ReserveAllReduce(graph, node));
    const int async_index = static_cast<int>(state_.async_.size());
    AsyncCollective async;
    async.node = id;
    async.open_blocks = static_cast<int>(node.inputs.size());
    // Inputs come tensor by tensor, memory block by block.
    for (int tensor = 0; tensor < region.tensors; ++tensor) {
      for (int block = 0; block < region.blocks; ++block) {
        const std::string& name = graph.value(node.inputs[tensor * region.blocks + block]).name;
        state_.reserved_[name] = region.slots[block * region.tensors + tensor];
        state_.async_of_block_[name] = async_index;
      }
    }
    for (int tensor = 0; tensor < region.tensors; ++tensor) {
      state_.awaited_by_[region.slots[tensor]] = async_index;
    }
    async.buffers = region.slots;
    async.buffers.insert(async.buffers.end(), region.scratch.begin(), region.scratch.end());

    LoweredInstruction run;
    run.code = OpCode::kCollective;
    run.info = state_.InfoOf(graph, node);
    run.handle = region.handle;
    run.bytes = region.blocks * DTypeBytes(region.dtype, region.block_elements);
    run.inputs = {region.slots.front()};
    run.inputs.insert(run.inputs.end(), region.scratch.begin(), region.scratch.end());
    run.outputs = region.slots;
    state_.step_.communication.push_back(std::move(run));
    async.index = static_cast<int>(state_.step_.communication.size());
    state_.async_of_node_[id] = async_index;
    state_.async_.push_back(std::move(async));
  }
  return absl::OkStatus();
}

void CollectiveLowering::BlockIsReady(const std::string& end_input) {
  const auto it = state_.async_of_block_.find(end_input);
  if (it == state_.async_of_block_.end()) return;
  AsyncCollective& async = state_.async_[it->second];
  if (--async.open_blocks > 0) return;
  async.ready_position = state_.position();
  LoweredInstruction& signal = state_.Emit(OpCode::kSignal, nullptr, state_.end_);
  signal.handle = ++state_.signals_;
  state_.step_.communication[async.index - 1].wait_signals = state_.signals_;
}

absl::Status CollectiveLowering::Lower(Scope& scope, const Node& node) {
  if (node.op == "AllReduce") return LowerAllReduce(scope, node);
  if (node.op == "AllGather") return LowerAllGather(scope, node);
  if (node.op == "ReduceScatter") return LowerReduceScatter(scope, node);
  if (node.op == "Broadcast") return LowerBroadcast(scope, node);
  return absl::UnimplementedError("the executor does not know this collective");
}

absl::Status CollectiveLowering::LowerAllReduce(Scope& scope, const Node& node) {
  if (const auto it = state_.async_of_node_.find(node.id);
      it != state_.async_of_node_.end() && scope.graph == &state_.partition_.end) {
    const AsyncCollective& async = state_.async_[it->second];
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      scope.buffers[node.outputs[i].value] = async.buffers[i];
    }
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(Region region, ReserveAllReduce(*scope.graph, node));
  for (int tensor = 0; tensor < region.tensors; ++tensor) {
    WEFT_ASSIGN_OR_RETURN(int64_t bytes, ValueBytes(*scope.graph, node.outputs[tensor]));
    for (int block = 0; block < region.blocks; ++block) {
      WEFT_ASSIGN_OR_RETURN(BufferIndex from, Input(scope, node, tensor * region.blocks + block));
      EmitCopy(node, scope, from, region.slots[block * region.tensors + tensor], bytes);
    }
    scope.buffers[node.outputs[tensor].value] = region.slots[tensor];
  }
  // All slots are operands, so that they live; the first ones are buffer 0.
  std::vector<BufferIndex> buffers = {region.slots.front()};
  buffers.insert(buffers.end(), region.scratch.begin(), region.scratch.end());
  EmitRun(node, scope, region.handle, std::move(buffers));
  LoweredInstruction& run = state_.step_.compute.back();
  run.outputs = region.slots;
  run.bytes = region.blocks * DTypeBytes(region.dtype, region.block_elements);
  return absl::OkStatus();
}

absl::Status CollectiveLowering::LowerAllGather(Scope& scope, const Node& node) {
  const ValueId out = node.outputs[0];
  const Shape shape = *scope.graph->value(out).type.shape.ToConcrete();
  const DType dtype = scope.graph->value(out).type.dtype;
  const int64_t element = DTypeBytes(dtype, 1);
  const auto regions =
      ShardRegions(shape, static_cast<int>(node.attributes.Int("dim", 0)),
                   node.attributes.Int("blocks", 1), node.attributes.Ints("sizes"), element);
  std::vector<int64_t> counts;
  for (const ShardRegion& region : regions) counts.push_back(region.elements);
  WEFT_ASSIGN_OR_RETURN(int member, MemberIndex(node));
  WEFT_ASSIGN_OR_RETURN(BufferIndex input, Input(scope, node, 0));
  const BufferIndex gathered = state_.step_.buffers.AddArena(shape.num_elements() * element);
  std::vector<BufferIndex> buffers = {gathered};
  WEFT_ASSIGN_OR_RETURN(Communicator::CollectiveHandle handle,
                        Open(node, dtype, RingAllGather(counts, member), buffers));
  int64_t offset = 0;
  for (int m = 0; m < member; ++m) offset += counts[m] * element;
  LoweredInstruction& place = state_.Emit(OpCode::kPack, &node, scope);
  place.inputs = {input};
  place.outputs = {gathered};
  place.region = {1, counts[member] * element, 0, 0, 0, offset};
  EmitRun(node, scope, handle, buffers);
  // Shards of axis 0 lie in the gathered buffer as in the whole tensor.
  if (regions.front().whole_to_shard.rows == 1) {
    scope.buffers[out.value] = gathered;
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(BufferIndex output, state_.NewOutput(scope, out));
  offset = 0;
  for (size_t m = 0; m < regions.size(); ++m) {
    LoweredInstruction& unpack = state_.Emit(OpCode::kPack, &node, scope);
    unpack.inputs = {gathered};
    unpack.outputs = {output};
    unpack.region = Reversed(regions[m].whole_to_shard);
    unpack.region.source_offset += offset;
    offset += counts[m] * element;
  }
  return absl::OkStatus();
}

absl::Status CollectiveLowering::LowerReduceScatter(Scope& scope, const Node& node) {
  const ValueId in = node.inputs[0];
  const Shape shape = *scope.graph->value(in).type.shape.ToConcrete();
  const DType dtype = scope.graph->value(in).type.dtype;
  const int64_t element = DTypeBytes(dtype, 1);
  const auto regions =
      ShardRegions(shape, static_cast<int>(node.attributes.Int("dim", 0)),
                   node.attributes.Int("blocks", 1), node.attributes.Ints("sizes"), element);
  std::vector<int64_t> counts;
  for (const ShardRegion& region : regions) counts.push_back(region.elements);
  WEFT_ASSIGN_OR_RETURN(int member, MemberIndex(node));
  WEFT_ASSIGN_OR_RETURN(BufferIndex input, Input(scope, node, 0));
  const BufferIndex scattered = state_.step_.buffers.AddArena(shape.num_elements() * element);
  std::vector<BufferIndex> buffers = {scattered};
  WEFT_ASSIGN_OR_RETURN(Communicator::CollectiveHandle handle,
                        Open(node, dtype, RingReduceScatter(counts, member), buffers));
  int64_t offset = 0;
  int64_t own_offset = 0;
  for (size_t m = 0; m < regions.size(); ++m) {
    if (static_cast<int>(m) == member) own_offset = offset;
    LoweredInstruction& pack = state_.Emit(OpCode::kPack, &node, scope);
    pack.inputs = {input};
    pack.outputs = {scattered};
    pack.region = regions[m].whole_to_shard;
    pack.region.target_offset += offset;
    offset += counts[m] * element;
  }
  EmitRun(node, scope, handle, buffers);
  WEFT_ASSIGN_OR_RETURN(BufferIndex output, state_.NewOutput(scope, node.outputs[0]));
  LoweredInstruction& take = state_.Emit(OpCode::kPack, &node, scope);
  take.inputs = {scattered};
  take.outputs = {output};
  take.region = {1, counts[member] * element, 0, 0, own_offset, 0};
  return absl::OkStatus();
}

absl::Status CollectiveLowering::LowerBroadcast(Scope& scope, const Node& node) {
  const ValueId out = node.outputs[0];
  const DType dtype = scope.graph->value(out).type.dtype;
  WEFT_ASSIGN_OR_RETURN(int64_t bytes, ValueBytes(*scope.graph, out));
  WEFT_ASSIGN_OR_RETURN(int member, MemberIndex(node));
  const std::vector<int64_t> group = node.attributes.Ints("group");
  const auto root = std::find(group.begin(), group.end(), node.attributes.Int("root", group[0]));
  if (root == group.end()) return absl::InternalError("the root is not in the group");
  WEFT_ASSIGN_OR_RETURN(BufferIndex input, Input(scope, node, 0));
  WEFT_ASSIGN_OR_RETURN(BufferIndex output, state_.NewOutput(scope, out));
  EmitCopy(node, scope, input, output, bytes);
  std::vector<BufferIndex> buffers = {output};
  WEFT_ASSIGN_OR_RETURN(
      Communicator::CollectiveHandle handle,
      Open(node, dtype,
           TreeBroadcast(static_cast<int>(group.size()), member,
                         static_cast<int>(root - group.begin()), bytes / DTypeBytes(dtype, 1)),
           buffers));
  EmitRun(node, scope, handle, buffers);
  return absl::OkStatus();
}

void CollectiveLowering::TouchAsync() {
  BufferTable& buffers = state_.step_.buffers;
  for (const AsyncCollective& async : state_.async_) {
    int awaited = state_.position();
    for (int i = async.ready_position; i < state_.position(); ++i) {
      const LoweredInstruction& instruction = state_.step_.compute[i];
      if (instruction.code == OpCode::kAwait && instruction.handle >= async.index) {
        awaited = i;
        break;
      }
    }
    for (BufferIndex buffer : async.buffers) {
      buffers.Touch(buffer, std::max(async.ready_position, 0));
      buffers.Touch(buffer, awaited);
    }
  }
}

}  // namespace weft
