// The questions and answers of distributed/control_calls.h as messages of weft.proto: for each, how
// its request goes into the message and comes out of it, and the same for its reply.
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/grpc/control_codec.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

void Encode(const ProcessMemory& memory, rpc::ProcessMemory& message) {
  message.set_bytes(memory.bytes);
  message.set_peak_bytes(memory.peak_bytes);
  message.set_of_control_group(memory.of_control_group);
  message.set_device_peak_bytes(memory.device_peak_bytes);
}

ProcessMemory Decode(const rpc::ProcessMemory& message) {
  return {message.bytes(), message.peak_bytes(), message.of_control_group(),
          message.device_peak_bytes()};
}

void Encode(const CheckpointWrite& write, rpc::CheckpointWrite& message) {
  message.set_state(static_cast<int>(write.state));
  message.set_folder(write.folder);
  message.set_code(static_cast<int>(write.status.code()));
  message.set_error(std::string(write.status.message()));
  message.set_file(write.file);
  message.set_bytes(write.bytes);
  message.set_checksum(write.checksum);
  for (const auto& [name, checksum] : write.tensors) (*message.mutable_tensors())[name] = checksum;
  message.set_pause_seconds(write.pause_seconds);
  message.set_write_seconds(write.write_seconds);
}

// DataLoss for a state that there is not.
absl::StatusOr<CheckpointWrite> Decode(const rpc::CheckpointWrite& message) {
  if (message.state() < 0 || message.state() > static_cast<int>(CheckpointWrite::State::kDone)) {
    return absl::DataLossError(absl::StrCat("a checkpoint in state ", message.state()));
  }
  CheckpointWrite write;
  write.state = static_cast<CheckpointWrite::State>(message.state());
  write.folder = message.folder();
  write.status = absl::Status(static_cast<absl::StatusCode>(message.code()), message.error());
  write.file = message.file();
  write.bytes = message.bytes();
  write.checksum = message.checksum();
  write.tensors = {message.tensors().begin(), message.tensors().end()};
  write.pause_seconds = message.pause_seconds();
  write.write_seconds = message.write_seconds();
  return write;
}

void Encode(const WorkerTraffic& traffic, rpc::WorkerTraffic& message) {
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

void Encode(const std::vector<ProgramStatistics>& statistics, rpc::WorkerStatistics& message) {
  for (const ProgramStatistics& program : statistics) {
    rpc::ProgramStatistics& out = *message.add_programs();
    out.set_program(program.program);
    out.set_steps(program.steps);
    out.set_seconds(program.seconds);
    out.set_input_seconds(program.input_seconds);
    out.set_timed_steps(program.timed_steps);
    for (const NodeStatistics& node : program.nodes) {
      rpc::NodeStatistics& timed = *out.add_nodes();
      timed.set_node(node.node);
      timed.set_op(node.op);
      timed.set_phase(static_cast<int>(node.phase));
      timed.set_calls(node.calls);
      timed.set_nanoseconds(node.nanoseconds);
    }
  }
}

// DataLoss for a phase that there is not.
absl::StatusOr<std::vector<ProgramStatistics>> Decode(const rpc::WorkerStatistics& message) {
  std::vector<ProgramStatistics> statistics;
  for (const rpc::ProgramStatistics& in : message.programs()) {
    ProgramStatistics& program = statistics.emplace_back();
    program.program = in.program();
    program.steps = in.steps();
    program.seconds = in.seconds();
    program.input_seconds = in.input_seconds();
    program.timed_steps = in.timed_steps();
    for (const rpc::NodeStatistics& node : in.nodes()) {
      if (node.phase() < 0 || node.phase() > static_cast<int>(Phase::kBegin)) {
        return absl::DataLossError(absl::StrCat("a node in phase ", node.phase()));
      }
      program.nodes.push_back({node.node(), node.op(), static_cast<Phase>(node.phase()),
                               node.calls(), node.nanoseconds()});
    }
  }
  return statistics;
}

void Encode(const CopyLine& line, rpc::CopyLine& message) {
  message.set_seconds(line.seconds);
  message.set_bytes_per_second(line.bytes_per_second);
}

CopyLine Decode(const rpc::CopyLine& message) {
  return {message.seconds(), message.bytes_per_second()};
}

// Puts a question into its field.
void Set(const TrafficRequest&, rpc::ControlRequest& message) { message.mutable_traffic(); }
void Set(const StatisticsRequest&, rpc::ControlRequest& message) { message.mutable_statistics(); }
void Set(const MemoryRequest&, rpc::ControlRequest& message) { message.mutable_memory(); }
void Set(const CheckpointRequest& request, rpc::ControlRequest& message) {
  message.mutable_checkpoint()->set_wait(request.wait);
}
void Set(const ProgramTextRequest& request, rpc::ControlRequest& message) {
  message.mutable_program_text()->set_program(request.program);
  message.mutable_program_text()->set_offset(request.offset);
}

void Set(const NewCardGroupRequest&, rpc::ControlRequest& message) {
  message.mutable_new_card_group();
}
void Set(const UseCardGroupsRequest& request, rpc::ControlRequest& message) {
  rpc::UseCardGroupsRequest& out = *message.mutable_use_card_groups();
  out.set_nccl_version(request.nccl_version);
  for (const CardGroup& group : request.groups) {
    rpc::CardGroup& written = *out.add_groups();
    for (const RankId member : group.members) written.add_members(member.value);
    written.set_id(group.id);
    written.set_sends(group.sends);
    for (const int64_t channel : group.channels) written.add_channels(channel);
  }
}

void Set(const DeviceCopiesRequest&, rpc::ControlRequest& message) {
  message.mutable_device_copies();
}

void Set(const HostNodesRequest& request, rpc::ControlRequest& message) {
  message.set_host_nodes(request.program);
}
void Set(const StepProgressRequest&, rpc::ControlRequest& message) {
  message.mutable_step_progress();
}
void Set(const FinishStepRequest&, rpc::ControlRequest& message) { message.mutable_finish_step(); }
void Set(const StepReportsRequest& request, rpc::ControlRequest& message) {
  message.mutable_step_reports()->set_first(request.first);
  message.mutable_step_reports()->set_noted(request.noted);
}

void Set(const VariableDigestsRequest& request, rpc::ControlRequest& message) {
  rpc::VariableDigestsRequest& out = *message.mutable_variable_digests();
  for (const std::string& name : request.variables) out.add_variables(name);
}

void Encode(const SnapshotKey& key, rpc::SnapshotKey& message) {
  message.set_job_id(key.job_id);
  message.set_rank(key.rank);
  message.set_step(key.step);
}

SnapshotKey Decode(const rpc::SnapshotKey& message) {
  return {message.job_id(), message.rank(), message.step()};
}

void Encode(const HeldSnapshot& held, rpc::HeldSnapshot& message) {
  Encode(held.key, *message.mutable_key());
  message.set_is_whole(held.is_whole);
  message.set_bytes(held.bytes);
  message.set_checksum(held.checksum);
}

// DataLoss for fewer bytes than none.
absl::StatusOr<HeldSnapshot> Decode(const rpc::HeldSnapshot& message) {
  if (message.bytes() < 0) {
    return absl::DataLossError(absl::StrCat("a held state of ", message.bytes(), " bytes"));
  }
  return HeldSnapshot{Decode(message.key()), message.is_whole(), message.bytes(),
                      message.checksum()};
}

absl::StatusOr<HeldState> Decode(const rpc::HeldState& message) {
  HeldState state;
  for (const rpc::HeldSnapshot& in : message.snapshots()) {
    WEFT_ASSIGN_OR_RETURN(HeldSnapshot held, Decode(in));
    state.snapshots.push_back(held);
  }
  return state;
}

void Set(const HeldStateRequest& request, rpc::ControlRequest& message) {
  message.mutable_held_state()->set_verify(request.verify);
}
void Set(const ReadHeldRequest& request, rpc::ControlRequest& message) {
  rpc::ReadHeldRequest& out = *message.mutable_read_held();
  Encode(request.key, *out.mutable_key());
  out.set_offset(request.offset);
  out.set_bytes(request.bytes);
}
void Set(const HoldStateRequest& request, rpc::ControlRequest& message) {
  message.mutable_hold_state()->set_step(request.step);
}

void Set(const KeptJobRequest&, rpc::ControlRequest& message) { message.mutable_kept_job(); }

KeptJob Decode(const rpc::KeptJob& message) {
  KeptJob kept;
  kept.job_id = message.job_id();
  kept.job_digest = message.job_digest();
  kept.rank = RankId(message.rank());
  kept.runs = message.runs();
  kept.note = {message.note().begin(), message.note().end()};
  kept.steps = message.steps();
  kept.shards_digest = message.shards_digest();
  return kept;
}

// DataLoss for a state that there is not.
absl::StatusOr<StepProgress> Decode(const rpc::StepProgress& message) {
  if (message.state() < 0 || message.state() > static_cast<int>(StepState::kTorn)) {
    return absl::DataLossError(absl::StrCat("a step in state ", message.state()));
  }
  return StepProgress{message.runs(), message.steps(), static_cast<StepState>(message.state()),
                      message.finishes_alone()};
}

absl::StatusOr<std::vector<StepReport>> Decode(const rpc::StepReports& message) {
  std::vector<StepReport> reports;
  for (const rpc::StepReport& in : message.reports()) {
    WEFT_ASSIGN_OR_RETURN(StepReport report, weft::Decode(in));
    reports.push_back(std::move(report));
  }
  return reports;
}

UseCardGroupsRequest Decode(const rpc::UseCardGroupsRequest& message) {
  UseCardGroupsRequest request;
  request.nccl_version = message.nccl_version();
  for (const rpc::CardGroup& in : message.groups()) {
    CardGroup& group = request.groups.emplace_back();
    for (const int32_t member : in.members()) group.members.push_back(RankId(member));
    group.id = in.id();
    group.sends = in.sends();
    group.channels.assign(in.channels().begin(), in.channels().end());
  }
  return request;
}

// Puts an answer into its field.
void Set(const WorkerTraffic& traffic, rpc::ControlReply& message) {
  Encode(traffic, *message.mutable_traffic());
}
void Set(const std::vector<ProgramStatistics>& statistics, rpc::ControlReply& message) {
  Encode(statistics, *message.mutable_statistics());
}
void Set(const ProcessMemory& memory, rpc::ControlReply& message) {
  Encode(memory, *message.mutable_memory());
}
void Set(const CheckpointWrite& write, rpc::ControlReply& message) {
  Encode(write, *message.mutable_checkpoint());
}
void Set(const ProgramText& text, rpc::ControlReply& message) {
  message.mutable_program_text()->set_part(text.part);
  message.mutable_program_text()->set_total_bytes(text.total_bytes);
}
void Set(const CardGroupId& id, rpc::ControlReply& message) {
  message.mutable_new_card_group()->set_id(id.id);
}
void Set(const CardGroupsJoined& joined, rpc::ControlReply& message) {
  message.mutable_use_card_groups()->set_groups(joined.groups);
}

void Set(const DeviceCopies& copies, rpc::ControlReply& message) {
  Encode(copies.from_host, *message.mutable_device_copies()->mutable_from_host());
  Encode(copies.to_host, *message.mutable_device_copies()->mutable_to_host());
  Encode(copies.on_device, *message.mutable_device_copies()->mutable_on_device());
}
void Set(const HostNodes& nodes, rpc::ControlReply& message) {
  rpc::HostNodes& out = *message.mutable_host_nodes();
  for (const std::string& name : nodes.names) out.add_names(name);
}

void Set(const StepProgress& progress, rpc::ControlReply& message) {
  rpc::StepProgress& out = *message.mutable_step_progress();
  out.set_runs(progress.runs);
  out.set_steps(progress.steps);
  out.set_state(static_cast<int>(progress.state));
  out.set_finishes_alone(progress.finishes_alone);
}
void Set(const StepReport& report, rpc::ControlReply& message) {
  Encode(report, *message.mutable_finish_step());
}
void Set(const std::vector<StepReport>& reports, rpc::ControlReply& message) {
  rpc::StepReports& out = *message.mutable_step_reports();
  for (const StepReport& report : reports) Encode(report, *out.add_reports());
}
void Set(const VariableDigests& digests, rpc::ControlReply& message) {
  rpc::VariableDigests& out = *message.mutable_variable_digests();
  out.set_arithmetic(digests.arithmetic);
  out.mutable_digests()->Add(digests.digests.begin(), digests.digests.end());
}
void Set(const HeldState& state, rpc::ControlReply& message) {
  rpc::HeldState& out = *message.mutable_held_state();
  for (const HeldSnapshot& held : state.snapshots) Encode(held, *out.add_snapshots());
}
void Set(const HeldPart& part, rpc::ControlReply& message) {
  message.mutable_read_held()->set_bytes(part.bytes);
}
void Set(const HeldSnapshot& held, rpc::ControlReply& message) {
  Encode(held, *message.mutable_hold_state());
}

void Set(const KeptJob& kept, rpc::ControlReply& message) {
  rpc::KeptJob& out = *message.mutable_kept_job();
  out.set_job_id(kept.job_id);
  out.set_job_digest(kept.job_digest);
  out.set_rank(kept.rank.value);
  out.set_runs(kept.runs);
  for (const auto& [name, value] : kept.note) (*out.mutable_note())[name] = value;
  out.set_steps(kept.steps);
  out.set_shards_digest(kept.shards_digest);
}

}  // namespace

absl::StatusOr<ControlRequest> Decode(const rpc::ControlRequest& message) {
  switch (message.request_case()) {
    case rpc::ControlRequest::kTraffic:
      return TrafficRequest();
    case rpc::ControlRequest::kStatistics:
      return StatisticsRequest();
    case rpc::ControlRequest::kMemory:
      return MemoryRequest();
    case rpc::ControlRequest::kCheckpoint:
      return CheckpointRequest{message.checkpoint().wait()};
    case rpc::ControlRequest::kProgramText:
      return ProgramTextRequest{message.program_text().program(), message.program_text().offset()};
    case rpc::ControlRequest::kNewCardGroup:
      return NewCardGroupRequest();
    case rpc::ControlRequest::kUseCardGroups:
      return Decode(message.use_card_groups());
    case rpc::ControlRequest::kDeviceCopies:
      return DeviceCopiesRequest();
    case rpc::ControlRequest::kHostNodes:
      return HostNodesRequest{message.host_nodes()};
    case rpc::ControlRequest::kStepProgress:
      return StepProgressRequest();
    case rpc::ControlRequest::kFinishStep:
      return FinishStepRequest();
    case rpc::ControlRequest::kStepReports:
      return StepReportsRequest{message.step_reports().first(), message.step_reports().noted()};
    case rpc::ControlRequest::kVariableDigests:
      return VariableDigestsRequest{{message.variable_digests().variables().begin(),
                                     message.variable_digests().variables().end()}};
    case rpc::ControlRequest::kHeldState:
      return HeldStateRequest{message.held_state().verify()};
    case rpc::ControlRequest::kReadHeld:
      return ReadHeldRequest{Decode(message.read_held().key()), message.read_held().offset(),
                             message.read_held().bytes()};
    case rpc::ControlRequest::kHoldState:
      return HoldStateRequest{message.hold_state().step()};
    case rpc::ControlRequest::kKeptJob:
      return KeptJobRequest();
    case rpc::ControlRequest::REQUEST_NOT_SET:
      break;
  }
  return absl::UnimplementedError(
      "the worker does not know what it is asked; all processes of a job must be of one version");
}

absl::StatusOr<ControlReply> Decode(const rpc::ControlReply& message) {
  switch (message.reply_case()) {
    case rpc::ControlReply::kTraffic:
      return Decode(message.traffic());
    case rpc::ControlReply::kStatistics:
      return Decode(message.statistics());
    case rpc::ControlReply::kMemory:
      return Decode(message.memory());
    case rpc::ControlReply::kCheckpoint:
      return Decode(message.checkpoint());
    case rpc::ControlReply::kProgramText:
      return ProgramText{message.program_text().part(), message.program_text().total_bytes()};
    case rpc::ControlReply::kNewCardGroup:
      return CardGroupId{message.new_card_group().id()};
    case rpc::ControlReply::kUseCardGroups:
      return CardGroupsJoined{message.use_card_groups().groups()};
    case rpc::ControlReply::kDeviceCopies:
      return DeviceCopies{Decode(message.device_copies().from_host()),
                          Decode(message.device_copies().to_host()),
                          Decode(message.device_copies().on_device())};
    case rpc::ControlReply::kHostNodes:
      return HostNodes{{message.host_nodes().names().begin(), message.host_nodes().names().end()}};
    case rpc::ControlReply::kStepProgress:
      return Decode(message.step_progress());
    case rpc::ControlReply::kFinishStep:
      return Decode(message.finish_step());
    case rpc::ControlReply::kStepReports:
      return Decode(message.step_reports());
    case rpc::ControlReply::kVariableDigests:
      return VariableDigests{message.variable_digests().arithmetic(),
                             {message.variable_digests().digests().begin(),
                              message.variable_digests().digests().end()}};
    case rpc::ControlReply::kHeldState:
      return Decode(message.held_state());
    case rpc::ControlReply::kReadHeld:
      return HeldPart{message.read_held().bytes()};
    case rpc::ControlReply::kHoldState:
      return Decode(message.hold_state());
    case rpc::ControlReply::kKeptJob:
      return Decode(message.kept_job());
    case rpc::ControlReply::REPLY_NOT_SET:
      break;
  }
  return absl::DataLossError("the worker has answered nothing");
}

rpc::ControlRequest Encode(const ControlRequest& request) {
  rpc::ControlRequest message;
  std::visit([&message](const auto& one) { Set(one, message); }, request);
  return message;
}

rpc::ControlReply Encode(const ControlReply& reply) {
  rpc::ControlReply message;
  std::visit([&message](const auto& one) { Set(one, message); }, reply);
  return message;
}

}  // namespace weft
