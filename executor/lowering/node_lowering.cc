#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "executor/lowering/collective_lowering.h"
#include "executor/lowering/lowering_state.h"
#include "executor/lowering/node_context.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

std::string ValueText(const Graph& graph, ValueId id) {
  return id.valid() ? graph.value(id).type.ToString() : "-";
}

std::string ShapesText(const Graph& graph, const Node& node) {
  const auto append = [&graph](std::string* out, ValueId id) {
    absl::StrAppend(out, ValueText(graph, id));
  };
  return absl::StrCat(absl::StrJoin(node.inputs, ", ", append), " -> ",
                      absl::StrJoin(node.outputs, ", ", append));
}

}  // namespace

int LoweringState::InfoOf(const Graph& graph, const Node& node) {
  const auto [it, added] =
      info_of_.try_emplace({&graph, node.id}, static_cast<int>(step_.infos.size()));
  if (!added) return it->second;
  InstructionInfo info;
  info.node = node.name;
  info.op = node.schema != nullptr ? node.schema->FullName() : node.op;
  info.shapes = ShapesText(graph, node);
  info.phase = node.phase;
  for (ValueId output : node.outputs) {
    const std::optional<Shape> shape =
        output.valid() ? graph.value(output).type.shape.ToConcrete() : std::nullopt;
    info.output_dtypes.push_back(output.valid() ? graph.value(output).type.dtype : DType::kInvalid);
    info.output_elements.push_back(shape ? shape->num_elements() : 0);
  }
  step_.infos.push_back(std::move(info));
  return it->second;
}

LoweredInstruction& LoweringState::Emit(OpCode code, const Node* node, const Scope& scope) {
  LoweredInstruction instruction;
  instruction.code = code;
  instruction.micro_batch = scope.micro_batch;
  if (node != nullptr) instruction.info = InfoOf(*scope.graph, *node);
  step_.compute.push_back(std::move(instruction));
  return step_.compute.back();
}

absl::Status LoweringState::Begin() {
  for (const FeedInput& feed : partition_.inputs) {
    feeds_[feed.name] = static_cast<int>(step_.feeds.size());
    step_.feeds.push_back(feed);
    if (feed.role != InputRole::kStep) continue;
    StepScalar scalar{feed.name, feed.dtype, Tensor()};
    const int64_t bytes = DTypeBytes(feed.dtype, feed.sample_shape.num_elements());
    WEFT_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> memory,
                          environment_.device->Allocate(std::max<int64_t>(bytes, 1)));
    scalar_buffers_[feed.name] = step_.buffers.AddFixed(memory->data(), bytes, false);
    scalar.device_value = Tensor(feed.dtype, feed.sample_shape, std::move(memory));
    step_.scalars.push_back(std::move(scalar));
  }
  for (const Channel& channel : partition_.channels) {
    WEFT_ASSIGN_OR_RETURN(channels_[channel.id.value],
                          environment_.communicator->OpenChannel(channel));
  }
  begin_ = {&partition_.begin, -1, nullptr, {}, {}};
  begin_.buffers.assign(partition_.begin.value_capacity(), kNoBuffer);
  end_ = {&partition_.end, -1, nullptr, {}, {}};
  end_.buffers.assign(partition_.end.value_capacity(), kNoBuffer);
  for (const MicroBatch& rows : partition_.micro_batches) {
    const Graph& graph = partition_.micro[rows.graph];
    auto scope = std::make_unique<Scope>(Scope{&graph, rows.index, &rows, {}, {}});
    scope->buffers.assign(graph.value_capacity(), kNoBuffer);
    micro_.push_back(std::move(scope));
  }
  WEFT_RETURN_IF_ERROR(CollectiveLowering(*this).ReserveAsync());
  return OpenBlocks();
}

absl::Status LoweringState::OpenBlocks() {
  for (const Accumulation& accumulation : partition_.accumulations) {
    for (const Accumulation::Block& block : accumulation.blocks) {
      const std::optional<ValueId> input = partition_.end.FindValue(block.end_input);
      if (!input) {
        return absl::InternalError(absl::StrCat("accumulation block '", block.end_input,
                                                "' is not an input of the end graph"));
      }
      OpenBlock open{&accumulation, &block, kNoBuffer, {}, 0, DType::kInvalid, -1};
      WEFT_ASSIGN_OR_RETURN(int64_t bytes, ValueBytes(partition_.end, *input));
      const auto reserved = reserved_.find(block.end_input);
      open.result = reserved != reserved_.end() ? reserved->second : step_.buffers.AddArena(bytes);
      const ValueType& type = partition_.end.value(*input).type;
      open.dtype = type.dtype;
      open.elements = type.shape.ToConcrete()->num_elements();
      const int index = static_cast<int>(blocks_.size());
      blocks_of_output_[accumulation.micro_output].push_back(index);
      block_of_input_[block.end_input] = index;
      blocks_.push_back(std::move(open));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<BufferIndex> LoweringState::BufferOf(Scope& scope, ValueId id) {
  BufferIndex& slot = scope.buffers[id.value];
  if (slot != kNoBuffer) return slot;
  const ValueDef& value = scope.graph->value(id);
  switch (value.source) {
    case ValueSource::kConstant: {
      WEFT_ASSIGN_OR_RETURN(slot, BindConstant(value));
      return slot;
    }
    case ValueSource::kVariable: {
      auto [it, added] = variable_buffers_.try_emplace(value.name, kNoBuffer);
      if (added) {
        if (environment_.variables->Find(value.name) == nullptr) {
          return absl::NotFoundError(absl::StrCat("no variable '", value.name, "' on this rank"));
        }
        WEFT_ASSIGN_OR_RETURN(int64_t bytes, ValueBytes(*scope.graph, id));
        it->second = step_.buffers.AddFixed(nullptr, bytes, true);
      }
      return slot = it->second;
    }
    case ValueSource::kInput: {
      WEFT_ASSIGN_OR_RETURN(BufferIndex buffer, BindInput(scope, value));
      return scope.buffers[id.value] = buffer;
    }
    case ValueSource::kNode:
      if (SlotOf(scope, id) != kNoSlot) return LoadFromSlot(scope, id);
      break;
  }
  return absl::InternalError(absl::StrCat("value '", value.name,
                                          "' is used before the node that makes it has run; the "
                                          "action list does not fit the graphs"));
}

absl::StatusOr<BufferIndex> LoweringState::BindInput(Scope& scope, const ValueDef& value) {
  if (const auto it = begin_outputs_.find(value.name); it != begin_outputs_.end()) {
    return it->second;
  }
  const auto it = block_of_input_.find(value.name);
  if (it != block_of_input_.end() && scope.graph == &partition_.end) {
    return blocks_[it->second].result;
  }
  const auto feed = feeds_.find(value.name);
  if (feed == feeds_.end()) {
    return absl::InternalError(absl::StrCat(
        "graph input '", value.name,
        "' is neither fed, nor an output of the begin graph, nor an accumulation block"));
  }
  if (step_.feeds[feed->second].role == InputRole::kStep) return scalar_buffers_[value.name];
  return BindData(scope, value, feed->second);
}

absl::StatusOr<BufferIndex> LoweringState::BindData(Scope& scope, const ValueDef& value, int feed) {
  if (environment_.input == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("data input '", value.name, "' has no input source"));
  }
  WEFT_ASSIGN_OR_RETURN(int64_t bytes, ValueBytes(*scope.graph, value.id));
  const BufferIndex buffer = step_.buffers.AddArena(bytes);
  LoweredInstruction& fill = Emit(OpCode::kFill, nullptr, scope);
  fill.feed = feed;
  fill.bytes = bytes;
  fill.first = scope.rows != nullptr ? scope.rows->first : 0;
  fill.count = scope.rows != nullptr ? scope.rows->samples : 1;
  fill.outputs = {buffer};
  return buffer;
}

absl::StatusOr<BufferIndex> LoweringState::BindConstant(const ValueDef& value) {
  const Tensor& tensor = value.constant;
  const auto known = constant_buffers_.find(tensor.raw_data());
  const int64_t bytes = static_cast<int64_t>(tensor.bytes());
  if (known != constant_buffers_.end() && step_.buffers.bytes(known->second) == bytes) {
    return known->second;
  }
  Device& device = *environment_.device;
  Tensor resident = tensor;
  const bool aligned = reinterpret_cast<uintptr_t>(tensor.raw_data()) % kAlignment == 0;
  if (!device.info().host_accessible || !aligned) {
    WEFT_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> memory,
                          device.Allocate(std::max<int64_t>(bytes, 1)));
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device.NewStream("constants"));
    WEFT_RETURN_IF_ERROR(device.CopyFromHost(*stream, tensor.raw_data(), memory->data(), bytes));
    WEFT_RETURN_IF_ERROR(stream->Synchronize(absl::Minutes(1)));
    resident = Tensor(tensor.dtype(), tensor.shape(), std::move(memory));
  }
  const BufferIndex buffer = step_.buffers.AddFixed(resident.raw_data(), bytes, false);
  if (tensor.raw_data() != nullptr) constant_buffers_[tensor.raw_data()] = buffer;
  step_.constants.push_back(tensor);
  step_.constants.push_back(std::move(resident));
  return buffer;
}

absl::StatusOr<BufferIndex> LoweringState::NewOutput(Scope& scope, ValueId id) {
  WEFT_ASSIGN_OR_RETURN(int64_t bytes, ValueBytes(*scope.graph, id));
  const ValueDef& value = scope.graph->value(id);
  BufferIndex buffer = kNoBuffer;
  // The first leaf of a sum is written where the sum will be.
  const auto blocks = blocks_of_output_.find(value.name);
  if (scope.rows != nullptr && blocks != blocks_of_output_.end() && blocks->second.size() > 0) {
    for (int index : blocks->second) {
      OpenBlock& block = blocks_[index];
      if (block.block->first == scope.micro_batch && block.stack.empty() &&
          step_.buffers.bytes(block.result) >= bytes && buffer == kNoBuffer) {
        buffer = block.result;
      }
    }
  }
  if (buffer == kNoBuffer) buffer = step_.buffers.AddArena(bytes);
  scope.buffers[id.value] = buffer;
  return buffer;
}

absl::Status LoweringState::LowerBegin() {
  WEFT_ASSIGN_OR_RETURN(std::vector<NodeId> order, partition_.begin.TopologicalOrder());
  for (NodeId id : order) WEFT_RETURN_IF_ERROR(LowerNode(begin_, partition_.begin.node(id)));
  for (ValueId output : partition_.begin.outputs()) {
    WEFT_ASSIGN_OR_RETURN(BufferIndex buffer, BufferOf(begin_, output));
    begin_outputs_[partition_.begin.value(output).name] = buffer;
  }
  return absl::OkStatus();
}

absl::Status LoweringState::LowerMicroBatch(const Action& action,
                                            const std::vector<NodeId>& nodes) {
  Scope& scope = *micro_[action.micro_batch];
  for (const NodeId id : nodes) WEFT_RETURN_IF_ERROR(LowerNode(scope, scope.graph->node(id)));
  const bool is_first = action.kind == Action::Kind::kForward && action.chunk == 0;
  return is_first ? SumConstants(scope) : absl::OkStatus();
}

// Sums of values that no node makes (folded to constants).
absl::Status LoweringState::SumConstants(Scope& scope) {
  for (const auto& [name, blocks] : blocks_of_output_) {
    const std::vector<int> sums = SumsOf(scope, blocks);
    if (sums.empty()) continue;
    const std::optional<ValueId> id = scope.graph->FindValue(name);
    if (!id) return absl::InternalError(absl::StrCat("micro graph has no output '", name, "'"));
    if (scope.graph->value(*id).source == ValueSource::kNode) continue;
    WEFT_ASSIGN_OR_RETURN(BufferIndex buffer, BufferOf(scope, *id));
    for (int index : sums) {
      const BufferIndex copy = step_.buffers.AddArena(step_.buffers.bytes(buffer));
      LoweredInstruction& move = Emit(OpCode::kCopy, nullptr, scope);
      move.inputs = {buffer};
      move.outputs = {copy};
      move.bytes = step_.buffers.bytes(buffer);
      WEFT_RETURN_IF_ERROR(AddLeaf(blocks_[index], copy));
    }
  }
  return absl::OkStatus();
}

absl::Status LoweringState::LowerNode(Scope& scope, const Node& node) {
  if (node.schema == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("node '", node.name, "' (", node.op, "): no such operator"));
  }
  absl::Status status;
  if (node.schema->op_class() == OpClass::kCommunication) {
    if (node.op == "Send") {
      status = LowerSend(scope, node);
    } else if (node.op == "Recv") {
      status = LowerReceive(scope, node);
    } else {
      status = CollectiveLowering(*this).Lower(scope, node);
    }
  } else if (NeedsValues(*scope.graph, node)) {
    status = LowerValues(scope, node);
  } else if (!node.schema->aliases().empty()) {
    status = LowerAlias(scope, node, node.schema->aliases().front().first);
  } else {
    status = LowerKernel(scope, node);
  }
  WEFT_RETURN_IF_ERROR(Annotate(status, absl::StrCat("node '", node.name, "' (", node.op, ")")));
  return scope.rows != nullptr ? Accumulate(scope, node) : absl::OkStatus();
}

absl::StatusOr<Kernel*> LoweringState::KernelFor(const Graph& graph, const Node& node) {
  const auto known = kernel_of_.find({&graph, node.id});
  if (known != kernel_of_.end()) return known->second;
  const NodeContext::Settings settings{environment_.device, partition_.threads, partition_.strict};
  WEFT_ASSIGN_OR_RETURN(NodeContext context, NodeContext::Create(graph, node, settings));
  const KernelRegistry& registry =
      environment_.kernels != nullptr ? *environment_.kernels : KernelRegistry::Global();
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> prepared, registry.Prepare(context));
  Kernel* const kernel = prepared.get();
  kernel_of_[{&graph, node.id}] = kernel;
  step_.kernels.push_back(std::move(prepared));
  return kernel;
}

absl::Status LoweringState::LowerKernel(Scope& scope, const Node& node) {
  const absl::StatusOr<Kernel*> kernel = KernelFor(*scope.graph, node);
  // A dtype that no kernel does may be moved all the same.
  if (absl::IsUnimplemented(kernel.status()) && RunsOnValues(node)) return LowerValues(scope, node);
  WEFT_RETURN_IF_ERROR(kernel.status());
  return EmitKernel(scope, node, *kernel);
}

absl::Status LoweringState::EmitKernel(Scope& scope, const Node& node, Kernel* kernel) {
  std::vector<BufferIndex> inputs;
  for (ValueId input : node.inputs) {
    BufferIndex buffer = kNoBuffer;
    if (input.valid()) {
      WEFT_ASSIGN_OR_RETURN(buffer, BufferOf(scope, input));
    }
    inputs.push_back(buffer);
  }
  WEFT_RETURN_IF_ERROR(EmitWaits(inputs));
  std::vector<BufferIndex> outputs;
  for (ValueId output : node.outputs) {
    BufferIndex buffer = kNoBuffer;
    if (output.valid()) {
      WEFT_ASSIGN_OR_RETURN(buffer, NewOutput(scope, output));
    }
    outputs.push_back(buffer);
  }
  for (const auto& [from, to] : node.schema->in_place()) {
    if (from < static_cast<int>(inputs.size()) && to < static_cast<int>(outputs.size()) &&
        inputs[from] != kNoBuffer && outputs[to] != kNoBuffer) {
      in_place_.push_back({position(), outputs[to], inputs[from]});
    }
  }
  BufferIndex workspace = kNoBuffer;
  if (kernel->workspace_bytes() > 0) {
    workspace = step_.buffers.AddArena(static_cast<int64_t>(kernel->workspace_bytes()));
    step_.workspace_bytes =
        std::max(step_.workspace_bytes, static_cast<int64_t>(kernel->workspace_bytes()));
  }
  LoweredInstruction& instruction = Emit(OpCode::kKernel, &node, scope);
  if (scope.rows != nullptr) {
    instruction.first = scope.rows->first;
    instruction.count = scope.rows->samples;
  }
  instruction.kernel = kernel;
  instruction.inputs = std::move(inputs);
  instruction.outputs = std::move(outputs);
  instruction.workspace = workspace;
  return absl::OkStatus();
}

absl::Status LoweringState::LowerAlias(Scope& scope, const Node& node, int input) {
  WEFT_ASSIGN_OR_RETURN(BufferIndex buffer, BufferOf(scope, node.inputs[input]));
  if (node.outputs[0].valid()) scope.buffers[node.outputs[0].value] = buffer;
  return absl::OkStatus();
}

absl::Status LoweringState::LowerSend(Scope& scope, const Node& node) {
  const auto channel = channels_.find(node.attributes.Int("channel", -1));
  if (channel == channels_.end()) return absl::InternalError("sends on a channel nobody opened");
  WEFT_ASSIGN_OR_RETURN(BufferIndex buffer, BufferOf(scope, node.inputs[0]));
  WEFT_RETURN_IF_ERROR(EmitWaits({buffer}));
  if (const auto before = unsent_.find(channel->second); before != unsent_.end()) {
    LoweredInstruction& wait = Emit(OpCode::kWaitSent, &node, scope);
    wait.handle = channel->second;
    wait.inputs = {before->second.buffer};
  }
  LoweredInstruction& send = Emit(OpCode::kSend, &node, scope);
  send.handle = channel->second;
  send.inputs = {buffer};
  send.bytes = step_.buffers.bytes(buffer);
  unsent_[channel->second] = {buffer, &node, &scope};
  return absl::OkStatus();
}

absl::Status LoweringState::LowerReceive(Scope& scope, const Node& node) {
  const auto channel = channels_.find(node.attributes.Int("channel", -1));
  if (channel == channels_.end()) return absl::InternalError("receives on a channel nobody opened");
  WEFT_ASSIGN_OR_RETURN(BufferIndex buffer, NewOutput(scope, node.outputs[0]));
  WEFT_ASSIGN_OR_RETURN(int64_t bytes, ValueBytes(*scope.graph, node.outputs[0]));
  LoweredInstruction& receive = Emit(OpCode::kReceive, &node, scope);
  receive.handle = channel->second;
  receive.outputs = {buffer};
  receive.bytes = bytes;
  return absl::OkStatus();
}

absl::Status LoweringState::WaitForSends() {
  for (const auto& [handle, unsent] : unsent_) {
    LoweredInstruction& wait = Emit(OpCode::kWaitSent, unsent.node, *unsent.scope);
    wait.handle = handle;
    wait.inputs = {unsent.buffer};
  }
  unsent_.clear();
  return absl::OkStatus();
}

absl::Status LoweringState::EmitWaits(const std::vector<BufferIndex>& inputs) {
  int needed = awaited_;
  for (BufferIndex buffer : inputs) {
    const auto it = awaited_by_.find(buffer);
    if (it != awaited_by_.end()) needed = std::max(needed, async_[it->second].index);
  }
  if (needed == awaited_) return absl::OkStatus();
  awaited_ = needed;
  LoweredInstruction& wait = Emit(OpCode::kAwait, nullptr, end_);
  wait.handle = needed;
  return absl::OkStatus();
}

}  // namespace weft
