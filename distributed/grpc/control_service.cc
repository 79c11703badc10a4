#include "distributed/grpc/control_service.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/grpc/channel_options.h"
#include "distributed/grpc/control_codec.h"
#include "distributed/grpc/part_size.h"
#include "distributed/grpc/partition_wire.h"
#include "distributed/grpc/seal.h"
#include "distributed/grpc/status_codec.h"
#include "platform/file_system.h"
#include "platform/log.h"
#include "platform/process_memory.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Reports are sent together when they come faster than this.
constexpr absl::Duration kReportInterval = absl::Milliseconds(50);
constexpr size_t kMaxReportsAtOnce = 256;
constexpr int64_t kLongestProgramBytes = int64_t{1} << 31;
constexpr int kLastErrorCode = static_cast<int>(absl::StatusCode::kUnauthenticated);
// How long after it has begun to listen a process may take to serve.
constexpr absl::Duration kStartPatience = absl::Seconds(10);

absl::Status CheckRanges(const rpc::RunStepsRequest& request) {
  constexpr int64_t kMaxSteps = int64_t{1} << 40;
  for (const rpc::StepRange& range : request.ranges()) {
    if (range.first_step() >= 0 && range.first_step() <= kMaxSteps && range.count() >= 0 &&
        range.count() <= kMaxSteps) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat("a range of ", range.count(),
                                                   " steps from step ", range.first_step(),
                                                   " on; expected 0 to ", kMaxSteps, " of both"));
  }
  return absl::OkStatus();
}

// Two coordinators never have the same.
uint64_t NewLeaseNumber() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// A program of so many bytes is no larger than what it is to run in.
absl::Status CheckProgramBytes(int64_t bytes) {
  MemoryLimit limit = {kLongestProgramBytes, "the longest message"};
  const MemoryLimit memory = ProcessMemoryLimit(RealFileSystem());
  if (memory.bytes > 0 && memory.bytes < limit.bytes) limit = memory;
  if (bytes > 0 && bytes <= limit.bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("a program of ", bytes,
                                                   " bytes; this worker takes 1 to ", limit.bytes,
                                                   " (", limit.source, ")"));
}

// Gathers the reports of several steps into one message.
class ReportSender {
 public:
  explicit ReportSender(ControlService::Exchange& stream) : stream_(stream) {}
  void Add(const StepReport& report) {
    Encode(report, *pending_.add_reports());
    const absl::Time now = absl::Now();
    if (now - sent_ < kReportInterval &&
        static_cast<size_t>(pending_.reports_size()) < kMaxReportsAtOnce) {
      return;
    }
    sent_ = now;
    Flush();
  }
  void Flush() {
    if (pending_.reports_size() == 0) return;
    // When the coordinator is gone, its lease says so.
    stream_.Write(Seal(pending_));
    pending_.Clear();
  }

 private:
  ControlService::Exchange& stream_;
  rpc::StepReports pending_;
  absl::Time sent_ = absl::InfinitePast();
};

}  // namespace

class ControlService::Call {
 public:
  Call(ControlService& service, grpc::ServerContext& context, WorkerCall kind) : service_(service) {
    MutexLock lock(service_.mutex_);
    status_ = service_.CheckCaller(context, kind);
    if (!status_.ok()) return;
    if (service_.worker_ == nullptr) {
      status_ = absl::UnavailableError("the worker does not serve");
    } else if (service_.busy_) {
      status_ = absl::FailedPreconditionError("the worker is busy with another call");
    } else {
      service_.busy_ = true;
      service_.call_ = &context;
      worker_ = service_.worker_;
    }
  }
  ~Call() {
    if (worker_ == nullptr) return;
    MutexLock lock(service_.mutex_);
    service_.busy_ = false;
    service_.call_ = nullptr;
    service_.changed_.NotifyAll();
  }
  const absl::Status& status() const { return status_; }
  Worker& worker() { return *worker_; }

 private:
  ControlService& service_;
  Worker* worker_ = nullptr;
  absl::Status status_;
};

absl::Status ControlService::CheckKnown(const grpc::ServerContext& context, WorkerCall call) const {
  WEFT_RETURN_IF_ERROR(CheckToken(context, token_));
  if (is_secured_) WEFT_RETURN_IF_ERROR(CheckRole(*context.auth_context(), call));
  if (on_known_ != nullptr) on_known_(context.peer());
  return absl::OkStatus();
}

absl::Status ControlService::CheckCaller(const grpc::ServerContext& context,
                                         WorkerCall call) const {
  WEFT_RETURN_IF_ERROR(CheckKnown(context, call));
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kLeaseKey);
  uint64_t number = 0;
  const bool attends =
      lease_ != nullptr && found != metadata.end() &&
      absl::SimpleAtoi(absl::string_view(found->second.data(), found->second.size()), &number) &&
      number == lease_number_;
  if (attends) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the caller does not attend this worker: its lease has ended, or is another's");
}

void ControlService::SetWorker(Worker* worker, const std::string& version) {
  MutexLock lock(mutex_);
  worker_ = worker;
  version_ = version;
  changed_.NotifyAll();
}

bool ControlService::AwaitEnd(Clock& clock, absl::Time deadline, bool ends_with_coordinator) {
  while (true) {
    {
      MutexLock lock(mutex_);
      while (clock.Now() < LeaseEnd()) {
        if (stop_requested_ || (ends_with_coordinator && leases_ended_ > 0)) return true;
        if (clock.Now() >= deadline) return false;
        clock.WaitUntil(changed_, mutex_, std::min(deadline, LeaseEnd()));
      }
      heard_ = absl::InfiniteFuture();  // said once; the end of Attend does the rest
      CancelCalls();
    }
    const absl::Status lost = absl::UnavailableError(absl::StrCat(
        "the coordinator has not answered for ", absl::FormatDuration(kLeasePatience)));
    Log(LogLevel::kWarning, std::string(lost.message()));
    AbortWorker(lost);
  }
}

absl::Time ControlService::LeaseEnd() const {
  return lease_ == nullptr ? absl::InfiniteFuture() : heard_ + kLeasePatience;
}

void ControlService::CancelCalls() {
  if (lease_ != nullptr) lease_->TryCancel();
  if (call_ != nullptr) call_->TryCancel();
}

void ControlService::RequestStop() {
  MutexLock lock(mutex_);
  stop_requested_ = true;
  changed_.NotifyAll();
}

bool ControlService::Stop(absl::Time deadline) {
  AbortWorker(absl::CancelledError("the worker process ends"));
  MutexLock lock(mutex_);
  worker_ = nullptr;
  stopped_ = true;
  changed_.NotifyAll();
  CancelCalls();
  while (busy_ || aborting_ > 0) {
    if (!changed_.WaitUntil(mutex_, deadline)) break;
  }
  return !busy_ && aborting_ == 0;
}

void ControlService::AbortWorker(const absl::Status& reason) {
  Worker* worker = nullptr;
  {
    MutexLock lock(mutex_);
    worker = worker_;
    if (worker == nullptr) return;
    ++aborting_;
  }
  worker->Abort(reason);
  MutexLock lock(mutex_);
  --aborting_;
  changed_.NotifyAll();
}

grpc::Status ControlService::Attend(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<rpc::AttendReply, rpc::AttendRequest>* stream) {
  if (const absl::Status known = CheckKnown(*context, WorkerCall::kAttend); !known.ok()) {
    return AnswerWith(*context, known);
  }
  rpc::AttendReply hello;
  {
    MutexLock lock(mutex_);
    const absl::Time deadline = absl::Now() + kStartPatience;
    while (worker_ == nullptr && !stopped_) {
      if (!changed_.WaitUntil(mutex_, deadline)) break;
    }
    if (worker_ == nullptr) {
      return AnswerWith(*context, absl::UnavailableError("the worker does not serve"));
    }
    if (leaving_) {
      return AnswerWith(*context, absl::FailedPreconditionError("the worker is about to end"));
    }
    if (!attended_by_.empty()) {
      return AnswerWith(*context,
                        absl::FailedPreconditionError(absl::StrCat(
                            "the worker is attended by another coordinator (", attended_by_,
                            "); wait until that job has ended, or use another worker")));
    }
    attended_by_ = context->peer();
    lease_ = context;
    lease_number_ = NewLeaseNumber();
    hello.set_lease(lease_number_);
    heard_ = absl::Now();
    changed_.NotifyAll();
    hello.set_version(HandshakeVersion(version_));
    hello.set_process_id(getpid());
  }
  Log(LogLevel::kInfo, "a coordinator attends from ", context->peer());
  rpc::AttendRequest request;
  if (stream->Write(hello)) {
    rpc::AttendReply here;
    while (stream->Read(&request)) {
      {
        MutexLock lock(mutex_);
        heard_ = std::max(heard_, absl::Now());
        here.set_leaving(leaving_);
      }
      if (!stream->Write(here)) break;
    }
  }
  Log(LogLevel::kInfo, "the coordinator has gone");
  AbortWorker(absl::UnavailableError("the coordinator is gone"));
  MutexLock lock(mutex_);
  CancelCalls();
  attended_by_.clear();
  lease_ = nullptr;
  ++leases_ended_;
  changed_.NotifyAll();
  return grpc::Status::OK;
}

grpc::Status ControlService::Serve(grpc::ServerContext& context, WorkerCall kind,
                                   const std::function<absl::Status(Worker& worker)>& body) {
  Call call(*this, context, kind);
  return AnswerWith(context, call.status().ok() ? body(call.worker()) : call.status());
}

grpc::Status ControlService::Join(grpc::ServerContext* context, Requests* requests,
                                  rpc::Sealed* reply) {
  return Serve(*context, WorkerCall::kJoin, [&](Worker& worker) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const auto request, ReadSealed<rpc::JoinRequest>(*requests));
    WEFT_ASSIGN_OR_RETURN(const JobMembership membership, Decode(request));
    WEFT_ASSIGN_OR_RETURN(const WorkerInfo info, worker.Join(membership));
    *reply = Seal(Encode(info));
    return absl::OkStatus();
  });
}

grpc::Status ControlService::Ask(grpc::ServerContext* context, Requests* requests,
                                 rpc::Sealed* reply) {
  return Serve(*context, WorkerCall::kAsk, [&](Worker& worker) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const auto request, ReadSealed<rpc::ControlRequest>(*requests));
    WEFT_ASSIGN_OR_RETURN(const ControlRequest question, Decode(request));
    WEFT_ASSIGN_OR_RETURN(const ControlReply answer, worker.Answer(question));
    *reply = Seal(Encode(answer));
    return absl::OkStatus();
  });
}

absl::StatusOr<MemoryRequirement> ControlService::TakeProgram(Worker& worker, Requests& requests) {
  WEFT_ASSIGN_OR_RETURN(auto chunk, ReadSealed<rpc::ProgramChunk>(requests));
  const std::string program = chunk.program(), data = chunk.data();
  WEFT_RETURN_IF_ERROR(CheckProgramBytes(chunk.total_bytes()));
  const auto total = static_cast<size_t>(chunk.total_bytes());
  std::string bytes;  // grows with what comes: the number is only a claim
  while (true) {
    bytes += chunk.part();
    if (bytes.size() >= total) break;
    if (chunk.part().empty()) return absl::DataLossError("the partition has an empty part");
    WEFT_ASSIGN_OR_RETURN(chunk, ReadSealed<rpc::ProgramChunk>(requests));
  }
  if (bytes.size() > total) {
    return absl::DataLossError(
        absl::StrCat("the partition has ", bytes.size(), " bytes, ", total, " were announced"));
  }
  WEFT_ASSIGN_OR_RETURN(Partition partition, DecodePartition(bytes));
  // The bytes are not needed while the program is compiled, nor measured with it.
  std::string().swap(bytes);
  chunk.Clear();
  return worker.TakeProgram(program, std::move(partition), data);
}

grpc::Status ControlService::AddProgram(grpc::ServerContext* context, Requests* requests,
                                        rpc::Sealed* reply) {
  return Serve(*context, WorkerCall::kAddProgram, [&](Worker& worker) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const MemoryRequirement requirement, TakeProgram(worker, *requests));
    *reply = Seal(Encode(requirement));
    return absl::OkStatus();
  });
}

absl::Status ControlService::WriteVariable(Worker& worker, Requests& requests) {
  VariableParts parts;
  rpc::Sealed sealed;
  rpc::VariableChunk chunk;
  while (requests.Read(&sealed)) {
    WEFT_RETURN_IF_ERROR(Unseal(sealed, chunk));
    WEFT_RETURN_IF_ERROR(WritePart(worker, parts, chunk));
  }
  return parts.Finish();
}

grpc::Status ControlService::WriteVariable(grpc::ServerContext* context, Requests* requests,
                                           rpc::Empty*) {
  return Serve(*context, WorkerCall::kWriteVariable,
               [&](Worker& worker) { return WriteVariable(worker, *requests); });
}

// Straight to its place: what is damaged on its way ends the job, whatever was written before.
absl::Status ControlService::WritePart(Worker& worker, VariableParts& parts,
                                       const rpc::VariableChunk& chunk) {
  const bool is_first = parts.received() == 0;
  WEFT_ASSIGN_OR_RETURN(const size_t offset, parts.Add(chunk));
  if (is_first) {
    WEFT_ASSIGN_OR_RETURN(const VariableShard shard, worker.FindVariable(parts.name()));
    WEFT_RETURN_IF_ERROR(CheckVariableType(chunk.type(), shard));
  }
  return worker.WriteVariablePart(parts.name(), static_cast<int64_t>(offset),
                                  std::as_bytes(std::span(chunk.part())));
}

absl::Status ControlService::ReadVariable(Worker& worker, const std::string& name,
                                          Exchange& stream) {
  WEFT_ASSIGN_OR_RETURN(const VariableShard shard, worker.FindVariable(name));
  const auto bytes = static_cast<size_t>(DTypeBytes(shard.dtype, shard.local_shape.num_elements()));
  PartWriter parts(bytes);
  do {
    const size_t offset = parts.offset();
    std::string part(parts.part_bytes(), '\0');
    WEFT_RETURN_IF_ERROR(worker.ReadVariablePart(name, static_cast<int64_t>(offset),
                                                 std::as_writable_bytes(std::span(part))));
    rpc::VariableChunk chunk = MakeVariableChunk(std::move(part));
    if (offset == 0) {
      chunk.set_name(name);
      EncodeType(shard.dtype, shard.local_shape, *chunk.mutable_type());
    }
    if (!parts.Write([&] { return stream.Write(Seal(chunk)); })) break;
  } while (!parts.done());
  return absl::OkStatus();
}

grpc::Status ControlService::ReadVariable(grpc::ServerContext* context, Exchange* stream) {
  return Serve(*context, WorkerCall::kReadVariable, [&](Worker& worker) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const auto request, ReadSealed<rpc::ReadVariableRequest>(*stream));
    return ReadVariable(worker, request.name(), *stream);
  });
}

absl::Status ControlService::RunSteps(Worker& worker, const rpc::RunStepsRequest& request,
                                      Exchange& stream) {
  WEFT_RETURN_IF_ERROR(CheckRanges(request));
  if (!request.report()) return worker.RunSteps(Decode(request), nullptr);
  ReportSender sender(stream);
  const absl::Status status =
      worker.RunSteps(Decode(request), [&](const StepReport& report) { sender.Add(report); });
  sender.Flush();
  return status;
}

grpc::Status ControlService::RunSteps(grpc::ServerContext* context, Exchange* stream) {
  return Serve(*context, WorkerCall::kRunSteps, [&](Worker& worker) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const auto request, ReadSealed<rpc::RunStepsRequest>(*stream));
    absl::Status status;
    steps_.Run([&] { status = RunSteps(worker, request, *stream); });
    return status;
  });
}

grpc::Status ControlService::Abort(grpc::ServerContext* context, Requests* requests, rpc::Empty*) {
  absl::Status known;
  {
    MutexLock lock(mutex_);
    known = CheckCaller(*context, WorkerCall::kAbort);
  }
  if (!known.ok()) return AnswerWith(*context, known);
  const auto request = ReadSealed<rpc::AbortRequest>(*requests);
  if (!request.ok()) return AnswerWith(*context, request.status());
  const bool is_error = request->code() > 0 && request->code() <= kLastErrorCode;
  const auto code =
      is_error ? static_cast<absl::StatusCode>(request->code()) : absl::StatusCode::kAborted;
  AbortWorker(absl::Status(code, request->reason()));
  return grpc::Status::OK;
}

grpc::Status ControlService::Shutdown(grpc::ServerContext* context, grpc::ServerReader<rpc::Empty>*,
                                      rpc::Empty*) {
  absl::Status known;
  {
    MutexLock lock(mutex_);
    known = CheckCaller(*context, WorkerCall::kShutdown);
  }
  if (!known.ok()) return AnswerWith(*context, known);
  RequestStop();
  return grpc::Status::OK;
}

}  // namespace weft
