#include "distributed/grpc/control_codec.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/checksum.h"
#include "platform/status_macros.h"

namespace weft {

rpc::JoinRequest Encode(const JobMembership& membership) {
  rpc::JoinRequest request;
  request.set_epoch(membership.epoch);
  request.set_rank(membership.rank.value);
  for (const std::string& address : membership.addresses) request.add_addresses(address);
  request.set_version(membership.version);
  request.set_model_digest(membership.model_digest);
  request.set_plan_digest(membership.plan_digest);
  request.set_strict(membership.strict);
  request.set_instruction_set(membership.instruction_set);
  request.set_threads(membership.threads);
  request.set_memory_limit_bytes(membership.memory_limit_bytes);
  request.set_stall_timeout_seconds(membership.stall_timeout_seconds);
  return request;
}

JobMembership Decode(const rpc::JoinRequest& request) {
  JobMembership membership;
  membership.epoch = request.epoch();
  membership.rank = RankId(request.rank());
  membership.addresses.assign(request.addresses().begin(), request.addresses().end());
  membership.version = request.version();
  membership.model_digest = request.model_digest();
  membership.plan_digest = request.plan_digest();
  membership.strict = request.strict();
  membership.instruction_set = request.instruction_set();
  membership.threads = request.threads();
  membership.memory_limit_bytes = request.memory_limit_bytes();
  membership.stall_timeout_seconds = request.stall_timeout_seconds();
  return membership;
}

rpc::RunStepsRequest Encode(const std::vector<StepRange>& ranges) {
  rpc::RunStepsRequest request;
  for (const StepRange& range : ranges) {
    rpc::StepRange& out = *request.add_ranges();
    out.set_program(range.program);
    out.set_first_step(range.first_step);
    out.set_count(range.count);
    for (const auto& [name, value] : range.scalars) (*out.mutable_scalars())[name] = value;
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
    ranges.push_back(std::move(range));
  }
  return ranges;
}

void Encode(const StepReport& report, rpc::StepReport& message) {
  message.set_step(report.step);
  message.set_seconds(report.seconds);
  message.set_input_seconds(report.input_seconds);
  for (const auto& [name, tensor] : report.values) {
    rpc::ReportedValue& value = *message.add_values();
    value.set_name(name);
    EncodeType(tensor, *value.mutable_type());
    value.set_content(tensor.raw_data(), tensor.bytes());
  }
}

absl::StatusOr<StepReport> Decode(const rpc::StepReport& message) {
  StepReport report;
  report.step = message.step();
  report.seconds = message.seconds();
  report.input_seconds = message.input_seconds();
  for (const rpc::ReportedValue& value : message.values()) {
    WEFT_ASSIGN_OR_RETURN(Tensor tensor, AllocateTensor(value.type()));
    if (tensor.bytes() != value.content().size()) {
      return absl::DataLossError(absl::StrCat("report '", value.name(), "' has ",
                                              value.content().size(), " bytes, its type ",
                                              tensor.bytes()));
    }
    std::memcpy(tensor.raw_data(), value.content().data(), tensor.bytes());
    report.values[value.name()] = std::move(tensor);
  }
  return report;
}

rpc::WorkerTraffic Encode(const WorkerTraffic& traffic) {
  rpc::WorkerTraffic message;
  message.set_header_bytes(traffic.header_bytes);
  for (const ProgramTraffic& program : traffic.programs) {
    rpc::ProgramTraffic& out = *message.add_programs();
    out.set_program(program.program);
    out.set_steps(program.steps);
    for (const StreamTraffic& stream : program.streams) {
      rpc::StreamTraffic& sent = *out.add_streams();
      sent.set_name(stream.name);
      sent.set_to(stream.to.value);
      sent.set_messages(stream.messages);
      sent.set_payload_bytes(stream.payload_bytes);
    }
  }
  return message;
}

WorkerTraffic Decode(const rpc::WorkerTraffic& message) {
  WorkerTraffic traffic;
  traffic.header_bytes = message.header_bytes();
  for (const rpc::ProgramTraffic& in : message.programs()) {
    ProgramTraffic& program = traffic.programs.emplace_back();
    program.program = in.program();
    program.steps = in.steps();
    for (const rpc::StreamTraffic& stream : in.streams()) {
      program.streams.push_back(
          {stream.name(), RankId(stream.to()), stream.messages(), stream.payload_bytes()});
    }
  }
  return traffic;
}

void EncodeType(const Tensor& tensor, rpc::TensorType& type) {
  type.set_dtype(static_cast<int>(tensor.dtype()));
  for (const int64_t dim : tensor.shape().dims()) type.add_dims(dim);
}

absl::StatusOr<Tensor> AllocateTensor(const rpc::TensorType& type) {
  if (!IsValidDType(type.dtype())) {
    return absl::InvalidArgumentError(absl::StrCat("no element type has number ", type.dtype()));
  }
  WEFT_ASSIGN_OR_RETURN(
      Shape shape, Shape::Create({type.dims().data(), static_cast<size_t>(type.dims().size())}));
  return Tensor::Allocate(static_cast<DType>(type.dtype()), std::move(shape));
}

rpc::VariableChunk MakeVariableChunk(const std::string& name, const Tensor& tensor, size_t index) {
  rpc::VariableChunk chunk;
  if (index == 0) {
    chunk.set_name(name);
    EncodeType(tensor, *chunk.mutable_type());
  }
  const size_t offset = index * kChunkBytes;
  const std::span<const std::byte> part(static_cast<const std::byte*>(tensor.raw_data()) + offset,
                                        std::min(kChunkBytes, tensor.bytes() - offset));
  chunk.set_part(part.data(), part.size());
  chunk.set_checksum(Checksum(part));
  return chunk;
}

absl::Status VariableReader::Add(const rpc::VariableChunk& chunk) {
  if (!tensor_.valid()) {
    name_ = chunk.name();
    WEFT_ASSIGN_OR_RETURN(tensor_, AllocateTensor(chunk.type()));
  }
  const std::string& part = chunk.part();
  if (part.size() > tensor_.bytes() - received_) {
    return absl::DataLossError(absl::StrCat(
        "variable '", name_, "' has more bytes than its type says (", tensor_.bytes(), ")"));
  }
  if (Checksum(std::as_bytes(std::span(part))) != chunk.checksum()) {
    return absl::DataLossError(
        absl::StrCat("variable '", name_, "' was damaged on its way: the checksum of bytes ",
                     received_, " to ", received_ + part.size(), " differs"));
  }
  std::memcpy(static_cast<std::byte*>(tensor_.raw_data()) + received_, part.data(), part.size());
  received_ += part.size();
  return absl::OkStatus();
}

absl::StatusOr<Tensor> VariableReader::Finish() const {
  if (!tensor_.valid()) return absl::DataLossError("no variable came");
  if (received_ != tensor_.bytes()) {
    return absl::DataLossError(absl::StrCat("variable '", name_, "' ends after ", received_, " of ",
                                            tensor_.bytes(), " bytes"));
  }
  return tensor_;
}

}  // namespace weft
