#include "executor/lowering/collective_lowering.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "executor/lowering/node_context.h"
#include "graph/schedule/end_order.h"
#include "graph/schedule/node_collective.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

int64_t RoundUpToAlignment(int64_t bytes) {
  return (bytes + static_cast<int64_t>(kAlignment) - 1) / static_cast<int64_t>(kAlignment) *
         static_cast<int64_t>(kAlignment);
}

// The shards of a tensor of shape `whole` along a dimension: for each the strided regions between
// the whole tensor and the shard stored by itself.
std::vector<CopyRegion> ShardRegions(const Shape& whole, const ShardedDim& dim,
                                     int64_t element_bytes) {
  const int64_t outer = whole.ProductOf(0, dim.axis) * dim.blocks;
  const int64_t row_bytes = whole.ProductOf(dim.axis + 1, whole.rank()) * element_bytes;
  const int64_t rest = whole.dim(dim.axis) / dim.blocks;
  std::vector<CopyRegion> regions;
  int64_t first = 0;
  for (const int64_t size : dim.sizes) {
    regions.push_back(
        {outer, size * row_bytes, rest * row_bytes, size * row_bytes, first * row_bytes, 0});
    first += size;
  }
  return regions;
}

CopyRegion Reversed(const CopyRegion& region) {
  return {region.rows,          region.bytes,         region.target_stride,
          region.source_stride, region.target_offset, region.source_offset};
}

// "tensor 'w@grad' and 3 more": what the collective makes.
std::string TensorsOf(const Graph& graph, const Node& node) {
  if (node.outputs.empty()) return "";
  const std::string first = absl::StrCat("tensor '", graph.value(node.outputs[0]).name, "'");
  const size_t more = node.outputs.size() - 1;
  return more == 0 ? first : absl::StrCat(first, " and ", more, " more");
}

}  // namespace

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

absl::StatusOr<CollectiveLowering::Opened> CollectiveLowering::Open(
    const Graph& graph, const Node& node, std::vector<BufferIndex>& buffers) {
  WEFT_ASSIGN_OR_RETURN(NodeCollective collective,
                        CollectiveOfNode(graph, node, state_.partition_.rank));
  CollectiveSpec spec;
  spec.name = node.name;
  spec.tensors = TensorsOf(graph, node);
  for (int64_t rank : node.attributes.Ints("group")) {
    spec.group.push_back(RankId(static_cast<int32_t>(rank)));
  }
  spec.dtype = collective.dtype;
  spec.beside_compute = beside_compute_;
  for (size_t i = buffers.size(); i < collective.schedule.buffer_elements.size(); ++i) {
    buffers.push_back(state_.step_.buffers.AddArena(
        DTypeBytes(spec.dtype, collective.schedule.buffer_elements[i])));
  }
  spec.schedule = std::move(collective.schedule);
  Opened opened;
  opened.member = collective.member;
  opened.element_bytes = DTypeBytes(spec.dtype, 1);
  WEFT_ASSIGN_OR_RETURN(opened.handle, state_.environment_.communicator->OpenCollective(spec));
  return opened;
}

absl::StatusOr<CollectiveLowering::Region> CollectiveLowering::ReserveAllReduce(const Graph& graph,
                                                                                const Node& node) {
  Region region;
  region.tensors = static_cast<int>(node.outputs.size());
  region.blocks = static_cast<int>(node.inputs.size()) / std::max(region.tensors, 1);
  const int group = state_.step_.buffers.size();  // unique: no other group has this number
  region.dtype = graph.value(node.outputs[0]).type.dtype;
  for (int block = 0; block < region.blocks; ++block) {
    for (ValueId output : node.outputs) {
      WEFT_ASSIGN_OR_RETURN(int64_t bytes, ValueBytes(graph, output));
      region.slots.push_back(state_.step_.buffers.AddArena(RoundUpToAlignment(bytes), group));
    }
  }
  WEFT_ASSIGN_OR_RETURN(region.block_elements, AllReduceBlockElements(graph, node));
  std::vector<BufferIndex> buffers = {region.slots.front()};
  WEFT_ASSIGN_OR_RETURN(const Opened opened, Open(graph, node, buffers));
  region.handle = opened.handle;
  region.scratch.assign(buffers.begin() + 1, buffers.end());
  return region;
}

absl::Status CollectiveLowering::ReserveAsync() {
  const Graph& graph = state_.partition_.end;
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> beside,
                        CollectivesBesideMicroBatches(state_.partition_));
  beside_compute_ = true;
  std::vector<BufferIndex> scratch;  // one for all: the thread plays one collective at a time
  for (NodeId id : beside) {
    const Node& node = graph.node(id);
    WEFT_ASSIGN_OR_RETURN(Region region, ReserveAllReduce(graph, node));
    for (size_t i = 0; i < region.scratch.size(); ++i) {
      if (i == scratch.size()) scratch.push_back(region.scratch[i]);
      state_.step_.buffers.Merge(region.scratch[i], scratch[i]);
    }
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
  if (node.op == "AllToAll") return LowerAllToAll(scope, node);
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

void CollectiveLowering::EmitPack(const Node& node, const Scope& scope, BufferIndex from,
                                  BufferIndex to, const CopyRegion& region) {
  LoweredInstruction& pack = state_.Emit(OpCode::kPack, &node, scope);
  pack.inputs = {from};
  pack.outputs = {to};
  pack.region = region;
}

void CollectiveLowering::PackShards(const Node& node, const Scope& scope, BufferIndex whole,
                                    BufferIndex packed, const std::vector<CopyRegion>& shards) {
  int64_t offset = 0;
  for (CopyRegion region : shards) {
    region.target_offset = offset;
    offset += region.rows * region.bytes;
    EmitPack(node, scope, whole, packed, region);
  }
}

void CollectiveLowering::UnpackShards(const Node& node, const Scope& scope, BufferIndex packed,
                                      BufferIndex whole, const std::vector<CopyRegion>& shards) {
  int64_t offset = 0;
  for (const CopyRegion& shard : shards) {
    CopyRegion region = Reversed(shard);
    region.source_offset = offset;
    offset += region.rows * region.bytes;
    EmitPack(node, scope, packed, whole, region);
  }
}

absl::Status CollectiveLowering::LowerAllGather(Scope& scope, const Node& node) {
  const ValueId out = node.outputs[0];
  const Shape shape = *scope.graph->value(out).type.shape.ToConcrete();
  WEFT_ASSIGN_OR_RETURN(const int64_t bytes, ValueBytes(*scope.graph, out));
  WEFT_ASSIGN_OR_RETURN(BufferIndex input, Input(scope, node, 0));
  const BufferIndex gathered = state_.step_.buffers.AddArena(bytes);
  std::vector<BufferIndex> buffers = {gathered};
  WEFT_ASSIGN_OR_RETURN(const Opened opened, Open(*scope.graph, node, buffers));
  const ShardedDim dim = GatheredDim(node);
  const std::vector<CopyRegion> regions = ShardRegions(shape, dim, opened.element_bytes);
  const std::vector<int64_t> counts = dim.Counts(shape);
  const int64_t own = counts[opened.member] * opened.element_bytes;
  const int64_t offset =
      std::accumulate(counts.begin(), counts.begin() + opened.member, int64_t{0}) *
      opened.element_bytes;
  EmitPack(node, scope, input, gathered, {1, own, 0, 0, 0, offset});
  EmitRun(node, scope, opened.handle, buffers);
  // Shards of axis 0 lie in the gathered buffer as in the whole tensor.
  if (regions.front().rows == 1) {
    scope.buffers[out.value] = gathered;
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(BufferIndex output, state_.NewOutput(scope, out));
  UnpackShards(node, scope, gathered, output, regions);
  return absl::OkStatus();
}

absl::Status CollectiveLowering::LowerReduceScatter(Scope& scope, const Node& node) {
  const ValueId in = node.inputs[0];
  const Shape shape = *scope.graph->value(in).type.shape.ToConcrete();
  WEFT_ASSIGN_OR_RETURN(const int64_t bytes, ValueBytes(*scope.graph, in));
  WEFT_ASSIGN_OR_RETURN(BufferIndex input, Input(scope, node, 0));
  const BufferIndex scattered = state_.step_.buffers.AddArena(bytes);
  std::vector<BufferIndex> buffers = {scattered};
  WEFT_ASSIGN_OR_RETURN(const Opened opened, Open(*scope.graph, node, buffers));
  const ShardedDim dim = GatheredDim(node);
  const std::vector<int64_t> counts = dim.Counts(shape);
  PackShards(node, scope, input, scattered, ShardRegions(shape, dim, opened.element_bytes));
  EmitRun(node, scope, opened.handle, buffers);
  WEFT_ASSIGN_OR_RETURN(BufferIndex output, state_.NewOutput(scope, node.outputs[0]));
  const int64_t offset =
      std::accumulate(counts.begin(), counts.begin() + opened.member, int64_t{0}) *
      opened.element_bytes;
  EmitPack(node, scope, scattered, output,
           {1, counts[opened.member] * opened.element_bytes, 0, 0, offset, 0});
  return absl::OkStatus();
}

absl::Status CollectiveLowering::LowerAllToAll(Scope& scope, const Node& node) {
  const Graph& graph = *scope.graph;
  WEFT_ASSIGN_OR_RETURN(const int64_t sent_bytes, ValueBytes(graph, node.inputs[0]));
  WEFT_ASSIGN_OR_RETURN(const int64_t received_bytes, ValueBytes(graph, node.outputs[0]));
  WEFT_ASSIGN_OR_RETURN(BufferIndex input, Input(scope, node, 0));
  const BufferIndex received = state_.step_.buffers.AddArena(received_bytes);
  const BufferIndex sent = state_.step_.buffers.AddArena(sent_bytes);
  std::vector<BufferIndex> buffers = {received, sent};
  WEFT_ASSIGN_OR_RETURN(const Opened opened, Open(graph, node, buffers));
  const Shape in = *graph.value(node.inputs[0]).type.shape.ToConcrete();
  const Shape out = *graph.value(node.outputs[0]).type.shape.ToConcrete();
  PackShards(node, scope, input, sent, ShardRegions(in, ScatteredDim(node), opened.element_bytes));
  EmitRun(node, scope, opened.handle, buffers);
  WEFT_ASSIGN_OR_RETURN(BufferIndex output, state_.NewOutput(scope, node.outputs[0]));
  UnpackShards(node, scope, received, output,
               ShardRegions(out, GatheredDim(node), opened.element_bytes));
  return absl::OkStatus();
}

absl::Status CollectiveLowering::LowerBroadcast(Scope& scope, const Node& node) {
  const ValueId out = node.outputs[0];
  WEFT_ASSIGN_OR_RETURN(int64_t bytes, ValueBytes(*scope.graph, out));
  WEFT_ASSIGN_OR_RETURN(BufferIndex output, state_.NewOutput(scope, out));
  std::vector<BufferIndex> buffers = {output};
  WEFT_ASSIGN_OR_RETURN(const Opened opened, Open(*scope.graph, node, buffers));
  const std::vector<int64_t> group = node.attributes.Ints("group");
  if (group[opened.member] == node.attributes.Int("root", group[0])) {
    if (node.inputs.empty() || !node.inputs[0].valid()) {
      return absl::InternalError("the root of a broadcast has nothing to send");
    }
    WEFT_ASSIGN_OR_RETURN(BufferIndex input, Input(scope, node, 0));
    EmitCopy(node, scope, input, output, bytes);
  }
  EmitRun(node, scope, opened.handle, buffers);
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
