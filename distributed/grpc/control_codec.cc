#include "distributed/grpc/control_codec.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// As many as a mesh may have (partition_codec.cc).
constexpr int kMaxRanks = 1 << 20;

absl::StatusOr<Shape> DecodeShape(const rpc::TensorType& type) {
  if (!IsValidDType(type.dtype())) {
    return absl::InvalidArgumentError(absl::StrCat("no element type has number ", type.dtype()));
  }
  return Shape::Create({type.dims().data(), static_cast<size_t>(type.dims().size())});
}

// InvalidArgument for keepers that are no ranks of the job, or for snapshots of impossible sizes.
absl::Status CheckReplication(const rpc::JoinRequest& request) {
  constexpr int64_t kMaxSnapshotBytes = int64_t{1} << 50;
  const int ranks = request.keepers_size();
  const bool has_ranks = request.addresses_size() == 0 || ranks == request.addresses_size();
  bool good = request.replicate_every() >= 0 && ranks == request.snapshot_bytes_size() &&
              (ranks == 0 || (has_ranks && ranks <= kMaxRanks && request.rank() < ranks)) &&
              (ranks > 0 || request.replicate_every() == 0);
  for (int rank = 0; good && rank < ranks; ++rank) {
    const int32_t keeper = request.keepers(rank);
    const int64_t bytes = request.snapshot_bytes(rank);
    good =
        keeper >= 0 && keeper < ranks && keeper != rank && bytes >= 0 && bytes <= kMaxSnapshotBytes;
  }
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "copies of ", request.snapshot_bytes_size(), " ranks' states after every ",
      request.replicate_every(), " steps, with ", ranks, " keepers, cannot be kept in this job"));
}

}  // namespace

rpc::JoinRequest Encode(const JobMembership& membership) {
  rpc::JoinRequest request;
  request.set_job_id(membership.job_id);
  request.set_rank(membership.rank.value);
  for (const std::string& address : membership.addresses) request.add_addresses(address);
  request.set_version(membership.version);
  request.set_model_digest(membership.model_digest);
  request.set_plan_digest(membership.plan_digest);
  request.set_strict(membership.strict);
  request.set_instruction_set(membership.instruction_set);
  for (const std::string& library : membership.op_libraries) request.add_op_libraries(library);
  request.set_memory_limit_bytes(membership.memory_limit_bytes);
  request.set_stall_timeout_seconds(membership.stall_timeout_seconds);
  request.set_checkpoints(membership.checkpoints);
  request.set_device(membership.device);
  request.set_commits(membership.commits);
  request.set_continues_job_id(membership.continues_job_id);
  const Replication& replication = membership.replication;
  request.set_replicate_every(replication.every);
  request.mutable_keepers()->Add(replication.keepers.begin(), replication.keepers.end());
  request.mutable_snapshot_bytes()->Add(replication.bytes.begin(), replication.bytes.end());
  request.set_recovers_job_id(membership.recovers_job_id);
  request.set_epoch(membership.epoch);
  request.set_job_digest(membership.job_digest);
  return request;
}

absl::StatusOr<JobMembership> Decode(const rpc::JoinRequest& request) {
  const int ranks = request.addresses_size();  // 0 in a job of one process
  if (ranks > kMaxRanks || request.rank() < 0 || (ranks > 0 && request.rank() >= ranks)) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", request.rank(), " of a job of ", ranks,
                                                   " processes; there may be ", kMaxRanks));
  }
  if (!(request.stall_timeout_seconds() >= 0) || request.memory_limit_bytes() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a job with a stall timeout of ", request.stall_timeout_seconds(), " s and ",
                     request.memory_limit_bytes(), " bytes of memory; neither can be less than 0"));
  }
  WEFT_RETURN_IF_ERROR(CheckReplication(request));
  JobMembership membership;
  membership.job_id = request.job_id();
  membership.rank = RankId(request.rank());
  membership.addresses.assign(request.addresses().begin(), request.addresses().end());
  membership.version = request.version();
  membership.model_digest = request.model_digest();
  membership.plan_digest = request.plan_digest();
  membership.strict = request.strict();
  membership.instruction_set = request.instruction_set();
  membership.op_libraries.assign(request.op_libraries().begin(), request.op_libraries().end());
  membership.memory_limit_bytes = request.memory_limit_bytes();
  membership.stall_timeout_seconds = request.stall_timeout_seconds();
  membership.checkpoints = request.checkpoints();
  membership.device = request.device();
  membership.commits = request.commits();
  membership.continues_job_id = request.continues_job_id();
  membership.replication.every = request.replicate_every();
  membership.replication.keepers.assign(request.keepers().begin(), request.keepers().end());
  membership.replication.bytes.assign(request.snapshot_bytes().begin(),
                                      request.snapshot_bytes().end());
  membership.recovers_job_id = request.recovers_job_id();
  membership.epoch = request.epoch();
  membership.job_digest = request.job_digest();
  return membership;
}

rpc::JoinReply Encode(const WorkerInfo& info) {
  rpc::JoinReply reply;
  reply.set_version(info.version);
  reply.set_instruction_set(info.instruction_set);
  reply.set_process_id(info.process_id);
  reply.set_incarnation(info.incarnation);
  reply.set_memory_limit_bytes(info.memory_limit.bytes);
  reply.set_memory_limit_source(info.memory_limit.source);
  reply.set_device(info.device.name);
  reply.set_device_text(info.device.text);
  reply.set_device_memory_bytes(info.device.memory_bytes);
  reply.set_device_kernels(info.device.kernels);
  reply.set_device_driver(info.device.driver);
  reply.set_card(info.card.name);
  reply.set_nccl_version(info.card.nccl_version);
  reply.set_nccl_problem(info.card.problem);
  return reply;
}

WorkerInfo Decode(const rpc::JoinReply& reply) {
  return {reply.version(),
          reply.instruction_set(),
          reply.process_id(),
          reply.incarnation(),
          {reply.memory_limit_bytes(), reply.memory_limit_source()},
          {reply.device(), reply.device_text(), reply.device_memory_bytes(), reply.device_kernels(),
           reply.device_driver()},
          {reply.card(), reply.nccl_version(), reply.nccl_problem()}};
}

rpc::MemoryRequirement Encode(const MemoryRequirement& requirement) {
  rpc::MemoryRequirement message;
  message.set_variable_bytes(requirement.variable_bytes);
  message.set_arena_bytes(requirement.arena_bytes);
  message.set_constant_bytes(requirement.constant_bytes);
  message.set_packed_bytes(requirement.packed_bytes);
  message.set_staging_bytes(requirement.staging_bytes);
  message.set_input_bytes(requirement.input_bytes);
  message.set_transport_bytes(requirement.transport_bytes);
  message.set_process_bytes(requirement.process_bytes);
  message.set_loading_bytes(requirement.loading_bytes);
  message.set_workspace_bytes(requirement.workspace_bytes);
  message.set_checkpoint_bytes(requirement.checkpoint_bytes);
  message.set_copies_bytes(requirement.copies_bytes);
  message.set_on_device(requirement.on_device);
  message.set_device_constant_bytes(requirement.device_constant_bytes);
  message.set_nccl_bytes(requirement.nccl_bytes);
  return message;
}

MemoryRequirement Decode(const rpc::MemoryRequirement& message) {
  MemoryRequirement requirement;
  requirement.variable_bytes = message.variable_bytes();
  requirement.arena_bytes = message.arena_bytes();
  requirement.constant_bytes = message.constant_bytes();
  requirement.packed_bytes = message.packed_bytes();
  requirement.staging_bytes = message.staging_bytes();
  requirement.input_bytes = message.input_bytes();
  requirement.transport_bytes = message.transport_bytes();
  requirement.process_bytes = message.process_bytes();
  requirement.loading_bytes = message.loading_bytes();
  requirement.workspace_bytes = message.workspace_bytes();
  requirement.checkpoint_bytes = message.checkpoint_bytes();
  requirement.copies_bytes = message.copies_bytes();
  requirement.on_device = message.on_device();
  requirement.device_constant_bytes = message.device_constant_bytes();
  requirement.nccl_bytes = message.nccl_bytes();
  return requirement;
}

rpc::RunStepsRequest Encode(const std::vector<StepRange>& ranges) {
  rpc::RunStepsRequest request;
  for (const StepRange& range : ranges) {
    rpc::StepRange& out = *request.add_ranges();
    out.set_program(range.program);
    out.set_first_step(range.first_step);
    out.set_count(range.count);
    for (const auto& [name, value] : range.scalars) (*out.mutable_scalars())[name] = value;
    out.set_checkpoint(range.checkpoint);
    out.set_times_only(range.times_only);
    out.set_check_numerics(range.check_numerics);
    out.set_statistics(range.statistics);
    for (const auto& [name, value] : range.note) (*out.mutable_note())[name] = value;
  }
  return request;
}

std::vector<StepRange> Decode(const rpc::RunStepsRequest& request) {
  std::vector<StepRange> ranges;
  for (const rpc::StepRange& in : request.ranges()) {
    StepRange range;
    range.program = in.program();
    range.first_step = in.first_step();
    range.count = in.count();
    range.scalars = {in.scalars().begin(), in.scalars().end()};
    range.checkpoint = in.checkpoint();
    range.times_only = in.times_only();
    range.check_numerics = in.check_numerics();
    range.statistics = in.statistics();
    range.note = {in.note().begin(), in.note().end()};
    ranges.push_back(std::move(range));
  }
  return ranges;
}

void Encode(const StepReport& report, rpc::StepReport& message) {
  message.set_step(report.step);
  message.set_seconds(report.seconds);
  message.set_waited_seconds(report.waited_seconds);
  message.set_update_seconds(report.update_seconds);
  message.set_input_seconds(report.input_seconds);
  for (const auto& [name, tensor] : report.values) {
    rpc::ReportedValue& value = *message.add_values();
    value.set_name(name);
    EncodeType(tensor.dtype(), tensor.shape(), *value.mutable_type());
    value.set_content(tensor.raw_data(), tensor.bytes());
  }
}

absl::StatusOr<StepReport> Decode(const rpc::StepReport& message) {
  StepReport report;
  report.step = message.step();
  report.seconds = message.seconds();
  report.waited_seconds = message.waited_seconds();
  report.update_seconds = message.update_seconds();
  report.input_seconds = message.input_seconds();
  for (const rpc::ReportedValue& value : message.values()) {
    WEFT_ASSIGN_OR_RETURN(const Shape shape, DecodeShape(value.type()));
    // The type is only a claim: it is compared before anybody allocates.
    const int64_t bytes =
        DTypeBytes(static_cast<DType>(value.type().dtype()), shape.num_elements());
    if (bytes != static_cast<int64_t>(value.content().size())) {
      return absl::DataLossError(absl::StrCat("report '", value.name(), "' has ",
                                              value.content().size(), " bytes, its type ", bytes));
    }
    WEFT_ASSIGN_OR_RETURN(Tensor tensor, AllocateTensor(value.type()));
    std::memcpy(tensor.raw_data(), value.content().data(), tensor.bytes());
    report.values[value.name()] = std::move(tensor);
  }
  return report;
}

void EncodeType(DType dtype, const Shape& shape, rpc::TensorType& type) {
  type.set_dtype(static_cast<int>(dtype));
  for (const int64_t dim : shape.dims()) type.add_dims(dim);
}

absl::StatusOr<Tensor> AllocateTensor(const rpc::TensorType& type) {
  WEFT_ASSIGN_OR_RETURN(Shape shape, DecodeShape(type));
  return Tensor::Allocate(static_cast<DType>(type.dtype()), std::move(shape));
}

absl::Status CheckVariableType(const rpc::TensorType& type, const VariableShard& shard) {
  WEFT_ASSIGN_OR_RETURN(const Shape shape, DecodeShape(type));
  const auto dtype = static_cast<DType>(type.dtype());
  if (dtype == shard.dtype && shape == shard.local_shape) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("variable '", shard.name, "' is ", std::string(DTypeName(shard.dtype)),
                   shard.local_shape.ToString(), " on this rank, got ",
                   std::string(DTypeName(dtype)), shape.ToString()));
}

rpc::VariableChunk MakeVariableChunk(std::string part) {
  rpc::VariableChunk chunk;
  chunk.set_part(std::move(part));
  return chunk;
}

rpc::VariableChunk MakeVariableChunk(const std::string& name, const Tensor& tensor, size_t offset,
                                     size_t bytes) {
  const auto* const begin = static_cast<const char*>(tensor.raw_data());
  rpc::VariableChunk chunk = MakeVariableChunk(std::string(begin + offset, bytes));
  if (offset == 0) {
    chunk.set_name(name);
    EncodeType(tensor.dtype(), tensor.shape(), *chunk.mutable_type());
  }
  return chunk;
}

absl::StatusOr<size_t> VariableParts::Add(const rpc::VariableChunk& chunk) {
  if (!begun_) {
    begun_ = true;
    name_ = chunk.name();
    WEFT_ASSIGN_OR_RETURN(const Shape shape, DecodeShape(chunk.type()));
    bytes_ = static_cast<size_t>(
        DTypeBytes(static_cast<DType>(chunk.type().dtype()), shape.num_elements()));
  }
  const std::string& part = chunk.part();
  if (part.size() > bytes_ - received_) {
    return absl::DataLossError(
        absl::StrCat("variable '", name_, "' has more bytes than its type says (", bytes_, ")"));
  }
  return std::exchange(received_, received_ + part.size());
}

absl::Status VariableParts::Finish() const {
  if (!begun_) return absl::DataLossError("no variable came");
  if (received_ == bytes_) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("variable '", name_, "' ends after ", received_, " of ", bytes_, " bytes"));
}

absl::Status VariableReader::Add(const rpc::VariableChunk& chunk) {
  WEFT_ASSIGN_OR_RETURN(const size_t offset, parts_.Add(chunk));
  if (!tensor_.valid()) {
    WEFT_ASSIGN_OR_RETURN(tensor_, AllocateTensor(chunk.type()));
  }
  std::memcpy(static_cast<std::byte*>(tensor_.raw_data()) + offset, chunk.part().data(),
              chunk.part().size());
  return absl::OkStatus();
}

absl::StatusOr<Tensor> VariableReader::Finish() const {
  WEFT_RETURN_IF_ERROR(parts_.Finish());
  return tensor_;
}

}  // namespace weft
