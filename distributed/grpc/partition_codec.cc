#include "distributed/grpc/partition_codec.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "onnx_import/graph_wire.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status Bad(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("partition cannot be decoded: ", what));
}

absl::StatusOr<DType> DecodeDType(int number, const std::string& name) {
  if (!IsValidDType(number)) {
    return Bad(absl::StrCat("'", name, "' has element type number ", number));
  }
  return static_cast<DType>(number);
}

template <typename Dims>
absl::StatusOr<Shape> DecodeShape(const Dims& dims) {
  absl::StatusOr<Shape> shape = Shape::Create({dims.data(), static_cast<size_t>(dims.size())});
  if (!shape.ok()) return Annotate(shape.status(), "partition cannot be decoded");
  return shape;
}

template <typename Dims>
void EncodeShape(const Shape& shape, Dims& dims) {
  for (const int64_t dim : shape.dims()) dims.Add(dim);
}

void EncodeVariable(const VariableShard& shard, rpc::VariableShardProto& proto) {
  proto.set_name(shard.name);
  proto.set_dtype(static_cast<rpc::ElementType::Name>(shard.dtype));
  EncodeShape(shard.global_shape, *proto.mutable_global_shape());
  EncodeShape(shard.local_shape, *proto.mutable_local_shape());
  proto.mutable_tensor_sharding()->set_kind(
      static_cast<rpc::AxisShardingProto::Kind>(shard.tensor_sharding.kind));
  proto.mutable_tensor_sharding()->set_axis(shard.tensor_sharding.axis);
  proto.mutable_tensor_sharding()->set_blocks(shard.tensor_sharding.blocks);
  proto.set_tensor_shards(shard.tensor_shards);
  proto.set_tensor_index(shard.tensor_index);
  proto.set_trainable(shard.trainable);
  proto.set_slot_of(shard.slot_of);
  proto.set_is_primary(shard.is_primary);
  proto.set_data_shards(shard.data_shards);
  proto.set_data_index(shard.data_index);
}

absl::StatusOr<VariableShard> DecodeVariable(const rpc::VariableShardProto& proto) {
  VariableShard shard;
  shard.name = proto.name();
  WEFT_ASSIGN_OR_RETURN(shard.dtype, DecodeDType(proto.dtype(), proto.name()));
  WEFT_ASSIGN_OR_RETURN(shard.global_shape, DecodeShape(proto.global_shape()));
  WEFT_ASSIGN_OR_RETURN(shard.local_shape, DecodeShape(proto.local_shape()));
  const rpc::AxisShardingProto& sharding = proto.tensor_sharding();
  if (sharding.kind() < 0 || sharding.kind() > static_cast<int>(AxisSharding::Kind::kSplit) ||
      proto.tensor_shards() < 1 || proto.tensor_index() < 0 ||
      proto.tensor_index() >= proto.tensor_shards() || proto.data_shards() < 1 ||
      proto.data_index() < 0 || proto.data_index() >= proto.data_shards()) {
    return Bad(absl::StrCat("variable '", proto.name(), "' has an impossible sharding"));
  }
  shard.tensor_sharding = {static_cast<AxisSharding::Kind>(sharding.kind()), sharding.axis(),
                           sharding.blocks()};
  WEFT_RETURN_IF_ERROR(shard.tensor_sharding.Validate(shard.global_shape));
  shard.tensor_shards = proto.tensor_shards();
  shard.tensor_index = proto.tensor_index();
  shard.trainable = proto.trainable();
  shard.slot_of = proto.slot_of();
  shard.is_primary = proto.is_primary();
  shard.data_shards = proto.data_shards();
  shard.data_index = proto.data_index();
  return shard;
}

void EncodeLists(const Partition& partition, rpc::PartitionProto& proto) {
  for (const FeedInput& input : partition.inputs) {
    rpc::FeedInputProto& out = *proto.add_inputs();
    out.set_name(input.name);
    out.set_role(static_cast<rpc::FeedInputProto::Role>(input.role));
    out.set_dtype(static_cast<rpc::ElementType::Name>(input.dtype));
    EncodeShape(input.sample_shape, *out.mutable_sample_shape());
  }
  for (const MicroBatch& batch : partition.micro_batches) {
    rpc::MicroBatchProto& out = *proto.add_micro_batches();
    out.set_index(batch.index);
    out.set_first(batch.first);
    out.set_samples(batch.samples);
    out.set_graph(batch.graph);
  }
  for (const Accumulation& accumulation : partition.accumulations) {
    rpc::AccumulationProto& out = *proto.add_accumulations();
    out.set_micro_output(accumulation.micro_output);
    out.set_ordered_tree(accumulation.ordered_tree);
    for (const Accumulation::Block& block : accumulation.blocks) {
      rpc::AccumulationBlockProto& out_block = *out.add_blocks();
      out_block.set_end_input(block.end_input);
      out_block.set_first(block.first);
      out_block.set_last(block.last);
    }
  }
  for (const Action& action : partition.actions) {
    rpc::ActionProto& out = *proto.add_actions();
    out.set_kind(static_cast<rpc::ActionProto::Kind>(action.kind));
    out.set_micro_batch(action.micro_batch);
    out.set_chunk(action.chunk);
  }
  for (const Channel& channel : partition.channels) {
    rpc::ChannelProto& out = *proto.add_channels();
    out.set_id(channel.id.value);
    out.set_from(channel.from.value);
    out.set_to(channel.to.value);
    out.set_value(channel.value);
    out.set_dtype(static_cast<rpc::ElementType::Name>(channel.dtype));
    EncodeShape(channel.shape, *out.mutable_shape());
    out.set_per_micro_batch(channel.per_micro_batch);
  }
}

absl::Status DecodeInputs(const rpc::PartitionProto& proto, Partition& partition) {
  for (const rpc::FeedInputProto& in : proto.inputs()) {
    FeedInput input;
    input.name = in.name();
    if (in.role() < 0 || in.role() > static_cast<int>(InputRole::kStep)) {
      return Bad(absl::StrCat("input '", in.name(), "' has role number ", in.role()));
    }
    input.role = static_cast<InputRole>(in.role());
    WEFT_ASSIGN_OR_RETURN(input.dtype, DecodeDType(in.dtype(), in.name()));
    WEFT_ASSIGN_OR_RETURN(input.sample_shape, DecodeShape(in.sample_shape()));
    partition.inputs.push_back(std::move(input));
  }
  for (const rpc::ChannelProto& in : proto.channels()) {
    Channel channel;
    channel.id = ChannelId(in.id());
    channel.from = RankId(in.from());
    channel.to = RankId(in.to());
    channel.value = in.value();
    WEFT_ASSIGN_OR_RETURN(channel.dtype, DecodeDType(in.dtype(), in.value()));
    WEFT_ASSIGN_OR_RETURN(channel.shape, DecodeShape(in.shape()));
    channel.per_micro_batch = in.per_micro_batch();
    const int ranks = partition.mesh.size();
    if (in.id() < 0 || in.from() < 0 || in.from() >= ranks || in.to() < 0 || in.to() >= ranks) {
      return Bad(absl::StrCat("channel ", in.id(), " ('", in.value(), "') goes from rank ",
                              in.from(), " to ", in.to(), " of ", ranks));
    }
    partition.channels.push_back(std::move(channel));
  }
  return absl::OkStatus();
}

absl::Status DecodeSchedule(const rpc::PartitionProto& proto, Partition& partition) {
  for (const rpc::MicroBatchProto& in : proto.micro_batches()) {
    if (in.graph() < 0 || in.graph() >= proto.micro_size() || in.samples() < 0 || in.first() < 0) {
      return Bad(absl::StrCat("micro-batch ", in.index(), " uses graph ", in.graph(), " of ",
                              proto.micro_size()));
    }
    partition.micro_batches.push_back({in.index(), in.first(), in.samples(), in.graph()});
  }
  for (const rpc::AccumulationProto& in : proto.accumulations()) {
    Accumulation accumulation;
    accumulation.micro_output = in.micro_output();
    accumulation.ordered_tree = in.ordered_tree();
    for (const rpc::AccumulationBlockProto& block : in.blocks()) {
      accumulation.blocks.push_back({block.end_input(), block.first(), block.last()});
    }
    partition.accumulations.push_back(std::move(accumulation));
  }
  for (const rpc::ActionProto& in : proto.actions()) {
    if (in.kind() < 0 || in.kind() > static_cast<int>(Action::Kind::kUpdate)) {
      return Bad(absl::StrCat("action of kind number ", in.kind()));
    }
    if (in.micro_batch() < 0 || in.chunk() < 0) {
      return Bad(absl::StrCat("action of micro-batch ", in.micro_batch(), ", chunk ", in.chunk()));
    }
    partition.actions.push_back(
        {static_cast<Action::Kind>(in.kind()), in.micro_batch(), in.chunk()});
  }
  return absl::OkStatus();
}

// The rank, its mesh, and how large the step is.
absl::Status DecodeSizes(const rpc::PartitionProto& proto, Partition& partition) {
  partition.rank = RankId(proto.rank());
  partition.mesh = {proto.mesh_data(), proto.mesh_tensor(), proto.mesh_pipeline()};
  constexpr int kMaxRanks = 1 << 20;
  const Mesh& mesh = partition.mesh;
  if (mesh.data < 1 || mesh.tensor < 1 || mesh.pipeline < 1 || mesh.data > kMaxRanks ||
      mesh.tensor > kMaxRanks / mesh.data ||
      mesh.pipeline > kMaxRanks / (mesh.data * mesh.tensor) || proto.rank() < 0 ||
      proto.rank() >= mesh.size()) {
    return Bad(absl::StrCat("rank ", proto.rank(), " of a mesh of ", mesh.data, " x ", mesh.tensor,
                            " x ", mesh.pipeline));
  }
  constexpr int kMaxThreads = 4096;
  constexpr int64_t kMaxBatch = int64_t{1} << 40;
  if (proto.threads() < 1 || proto.threads() > kMaxThreads) {
    return Bad(absl::StrCat(proto.threads(), " threads; expected 1 to ", kMaxThreads));
  }
  if (proto.global_batch() < 0 || proto.global_batch() > kMaxBatch ||
      proto.total_micro_batches() < 0) {
    return Bad(absl::StrCat("a batch of ", proto.global_batch(), " samples in ",
                            proto.total_micro_batches(), " micro-batches"));
  }
  partition.training = proto.training();
  partition.strict = proto.strict();
  partition.tf32 = proto.tf32();
  partition.host_ops.assign(proto.host_ops().begin(), proto.host_ops().end());
  partition.uses_cudnn = proto.uses_cudnn();
  partition.fuses_nodes = proto.fuses_nodes();
  partition.commits = proto.commits();
  partition.threads = proto.threads();
  partition.global_batch = proto.global_batch();
  partition.total_micro_batches = proto.total_micro_batches();
  return absl::OkStatus();
}

}  // namespace

void EncodePartitionFields(const Partition& partition, rpc::PartitionProto& proto) {
  proto.set_rank(partition.rank.value);
  proto.set_mesh_data(partition.mesh.data);
  proto.set_mesh_tensor(partition.mesh.tensor);
  proto.set_mesh_pipeline(partition.mesh.pipeline);
  proto.set_training(partition.training);
  proto.set_strict(partition.strict);
  proto.set_tf32(partition.tf32);
  for (const std::string& op : partition.host_ops) proto.add_host_ops(op);
  proto.set_uses_cudnn(partition.uses_cudnn);
  proto.set_fuses_nodes(partition.fuses_nodes);
  proto.set_commits(partition.commits);
  proto.set_threads(partition.threads);
  proto.set_global_batch(partition.global_batch);
  proto.set_total_micro_batches(partition.total_micro_batches);
  for (const VariableShard& shard : partition.variables) {
    EncodeVariable(shard, *proto.add_variables());
  }
  EncodeLists(partition, proto);
  proto.set_guard(partition.guard);
  for (const std::string& report : partition.reports) proto.add_reports(report);
}

absl::StatusOr<Partition> DecodePartitionFields(const rpc::PartitionProto& proto) {
  Partition partition;
  WEFT_RETURN_IF_ERROR(DecodeSizes(proto, partition));
  for (const rpc::VariableShardProto& in : proto.variables()) {
    WEFT_ASSIGN_OR_RETURN(VariableShard shard, DecodeVariable(in));
    partition.variables.push_back(std::move(shard));
  }
  WEFT_RETURN_IF_ERROR(DecodeInputs(proto, partition));
  WEFT_RETURN_IF_ERROR(DecodeSchedule(proto, partition));
  partition.guard = proto.guard();
  partition.reports.assign(proto.reports().begin(), proto.reports().end());
  return partition;
}

absl::StatusOr<std::string> EncodePartitionGraph(const Graph& graph) {
  return GraphToOnnx(graph, {.weights = false});
}

}  // namespace weft
