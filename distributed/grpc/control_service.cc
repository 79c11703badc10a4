#include "distributed/grpc/control_service.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/coordinator_epoch.h"
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
// How long the next coordinator waits for steps that cannot be left out without a tear.
constexpr absl::Duration kAwaitedPatience = absl::Seconds(3);

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

// That the call carries under this key; 0: none.
uint64_t NumberOf(const grpc::ServerContext& context, const char* key) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(key);
  uint64_t number = 0;
  const bool has =
      found != metadata.end() &&
      absl::SimpleAtoi(absl::string_view(found->second.data(), found->second.size()), &number);
  return has ? number : 0;
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
  const uint64_t epoch = NumberOf(context, kEpochKey);
  if (epoch > 0 && epoch < epoch_) return DeposedError(epoch, epoch_, "the worker");
  if (lease_ != nullptr && NumberOf(context, kLeaseKey) == lease_number_) return absl::OkStatus();
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
    Worker* gives_up = nullptr;
    bool is_silent = false, keeps = false;
    {
      MutexLock lock(mutex_);
      while (clock.Now() < std::min(LeaseEnd(), KeptEnd())) {
        if (stop_requested_ || (ends_with_coordinator && leases_ended_ > 0)) return true;
        if (clock.Now() >= deadline) return false;
        clock.WaitUntil(changed_, mutex_, std::min({deadline, LeaseEnd(), KeptEnd()}));
      }
      is_silent = clock.Now() >= LeaseEnd();
      if (is_silent) {
        heard_ = absl::InfiniteFuture();  // said once; the end of Attend does the rest
        keeps = keep_state_ > absl::ZeroDuration() && job_digest_ != 0;
        CancelCalls();
      } else if (clock.Now() >= KeptEnd()) {
        kept_until_ = absl::InfiniteFuture();
        has_run_ = false;
        busy_ = true;
        gives_up = worker_;
      }
    }
    if (gives_up != nullptr) GiveUpWorker(*gives_up);
    if (!is_silent) continue;
    const absl::Status lost = absl::UnavailableError(absl::StrCat(
        "the coordinator has not answered for ", absl::FormatDuration(kLeasePatience)));
    Log(LogLevel::kWarning, std::string(lost.message()));
    if (!keeps) AbortWorker(lost);
  }
}

void ControlService::GiveUpWorker(Worker& worker) {
  Log(LogLevel::kWarning,
      "no coordinator has taken over the job of the one that was lost: its state is given up");
  worker.GiveUp();
  MutexLock lock(mutex_);
  busy_ = false;
  changed_.NotifyAll();
}

absl::Time ControlService::LeaseEnd() const {
  return lease_ == nullptr ? absl::InfiniteFuture() : heard_ + kLeasePatience;
}

absl::Time ControlService::KeptEnd() const {
  const bool is_free = lease_ == nullptr && !busy_ && !settling_ && worker_ != nullptr;
  return is_free ? kept_until_ : absl::InfiniteFuture();
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
    if (const absl::Status turn = AwaitTurn(NumberOf(*context, kEpochKey)); !turn.ok()) {
      return AnswerWith(*context, turn);
    }
    attended_by_ = context->peer();
    attended_epoch_ = 0;
    lease_ = context;
    lease_number_ = NewLeaseNumber();
    hello.set_lease(lease_number_);
    heard_ = absl::Now();
    changed_.NotifyAll();
    hello.set_version(HandshakeVersion(version_));
    hello.set_process_id(getpid());
    hello.set_epoch(epoch_);
  }
  Log(LogLevel::kInfo, "a coordinator attends from ", context->peer());
  rpc::AttendRequest request;
  if (stream->Write(hello)) {
    rpc::AttendReply here;
    while (!request.goodbye() && stream->Read(&request)) {
      {
        MutexLock lock(mutex_);
        heard_ = std::max(heard_, absl::Now());
        here.set_leaving(leaving_);
      }
      if (!stream->Write(here)) break;
    }
  }
  EndAttendance(request.goodbye());
  return grpc::Status::OK;
}

absl::Status ControlService::AwaitTurn(uint64_t epoch) {
  const absl::Time deadline = absl::Now() + kStartPatience;
  if (settling_) {
    awaited_since_ = std::min(awaited_since_, absl::Now());
    changed_.NotifyAll();
  }
  while ((worker_ == nullptr || settling_) && !stopped_) {
    if (!changed_.WaitUntil(mutex_, deadline)) break;
  }
  if (worker_ == nullptr) return absl::UnavailableError("the worker does not serve");
  if (leaving_) return absl::FailedPreconditionError("the worker is about to end");
  if (epoch > 0 && epoch < epoch_) return DeposedError(epoch, epoch_, "the worker");
  if (!attended_by_.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the worker is attended by another coordinator (", attended_by_,
        attended_epoch_ > 0 ? absl::StrCat(", epoch ", attended_epoch_) : std::string(),
        "), so one of epoch ", epoch > 0 ? epoch : epoch_ + 1,
        " is refused; wait until that job has ended, or use another worker"));
  }
  if (!settling_) return absl::OkStatus();
  return absl::UnavailableError(
      "the worker still does the steps that its lost coordinator has begun; try again");
}

void ControlService::EndAttendance(bool goodbye) {
  Log(LogLevel::kInfo, goodbye ? "the coordinator has gone" : "the coordinator is lost");
  const absl::Status reason = absl::UnavailableError("the coordinator is gone");
  bool keeps = false;
  {
    MutexLock lock(mutex_);
    // One that has come for what is kept, and has not joined, leaves it as it was.
    const bool has_state = attended_epoch_ > 0 && job_digest_ != 0 && has_run_;
    keeps = !goodbye && has_state && keep_state_ > absl::ZeroDuration() && !stopped_;
    // So does one that has taken it and run nothing.
    if (!keeps && Keeps(taken_until_)) kept_until_ = taken_until_;
    taken_until_ = absl::InfiniteFuture();
  }
  if (!keeps) AbortWorker(reason);
  bool is_idle = true;
  {
    MutexLock lock(mutex_);
    CancelCalls();
    attended_by_.clear();
    lease_ = nullptr;
    ++leases_ended_;
    if (!goodbye && !keeps && !Keeps(kept_until_)) lease_lost_ = absl::Now();
    changed_.NotifyAll();
    if (!keeps) return;
    kept_until_ = absl::Now() + keep_state_;
    settling_ = true;
    const absl::Time deadline = absl::Now() + (commits_ ? kSettlePatience : keep_state_);
    while (busy_ && !stopped_) {
      const absl::Time until = std::min(deadline, awaited_since_ + kAwaitedPatience);
      if (absl::Now() >= until) break;
      changed_.WaitUntil(mutex_, until);
    }
    is_idle = !busy_;
  }
  // Where its steps have ended, those of peers may still need what it sends.
  if (!is_idle) AbortWorker(reason);
  MutexLock lock(mutex_);
  const absl::Time deadline = absl::Now() + kSettlePatience;
  while (busy_ && !stopped_ && changed_.WaitUntil(mutex_, deadline)) {
  }
  settling_ = false;
  awaited_since_ = absl::InfiniteFuture();
  changed_.NotifyAll();
}

absl::Status ControlService::CheckMayJoin(const JobMembership& membership) {
  MutexLock lock(mutex_);
  const absl::Duration left = kept_until_ - absl::Now();
  const bool keeps = Keeps(kept_until_) && left > absl::ZeroDuration();
  if (!keeps || membership.job_digest == job_digest_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the worker keeps the state of another job, whose coordinator (epoch ", epoch_,
      ") was lost, for ", absl::FormatDuration(absl::Ceil(left, absl::Seconds(1))),
      " more: `train --resume` of that job takes it over; come back later, or start the worker "
      "again (--keep-state 0 keeps nothing)"));
}

void ControlService::NoteJoined(const JobMembership& membership) {
  MutexLock lock(mutex_);
  epoch_ = std::max(epoch_, membership.epoch);
  has_run_ = has_run_ && membership.job_digest == job_digest_;
  job_digest_ = membership.job_digest;
  commits_ = membership.commits;
  if (lease_ == nullptr) return;  // lost meanwhile
  attended_epoch_ = std::max<uint64_t>(membership.epoch, 1);
  taken_until_ = membership.continues_job_id != 0 ? kept_until_ : absl::InfiniteFuture();
  kept_until_ = absl::InfiniteFuture();
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
    WEFT_RETURN_IF_ERROR(CheckMayJoin(membership));
    WEFT_ASSIGN_OR_RETURN(const WorkerInfo info, worker.Join(membership));
    NoteJoined(membership);
    *reply = Seal(Encode(info));
    return absl::OkStatus();
  });
}

grpc::Status ControlService::Ask(grpc::ServerContext* context, Requests* requests,
                                 rpc::Sealed* reply) {
  return Serve(*context, WorkerCall::kAsk, [&](Worker& worker) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const auto request, ReadSealed<rpc::ControlRequest>(*requests));
    WEFT_ASSIGN_OR_RETURN(const ControlRequest question, Decode(request));
    WEFT_ASSIGN_OR_RETURN(const ControlReply answer, Answer(worker, question));
    *reply = Seal(Encode(answer));
    return absl::OkStatus();
  });
}

absl::StatusOr<ControlReply> ControlService::Answer(Worker& worker,
                                                    const ControlRequest& question) {
  if (std::holds_alternative<KeptJobRequest>(question)) {
    // What a coordinator has left on purpose is not for another.
    MutexLock lock(mutex_);
    if (!Keeps(kept_until_)) return ControlReply(KeptJob());
  }
  return worker.Answer(question);
}

absl::StatusOr<MemoryRequirement> ControlService::TakeProgram(Worker& worker, Exchange& stream) {
  WEFT_ASSIGN_OR_RETURN(auto chunk, ReadSealed<rpc::ProgramChunk>(stream));
  const std::string program = chunk.program(), data = chunk.data();
  WEFT_RETURN_IF_ERROR(CheckProgramBytes(chunk.total_bytes()));
  const auto total = static_cast<size_t>(chunk.total_bytes());
  std::string bytes;  // grows with what comes: the number is only a claim
  while (true) {
    bytes += chunk.part();
    if (bytes.size() >= total) break;
    if (chunk.part().empty()) return absl::DataLossError("the partition has an empty part");
    stream.Write(rpc::Sealed());  // where that fails, the next part does not come
    WEFT_ASSIGN_OR_RETURN(chunk, ReadSealed<rpc::ProgramChunk>(stream));
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

grpc::Status ControlService::AddProgram(grpc::ServerContext* context, Exchange* stream) {
  return Serve(*context, WorkerCall::kAddProgram, [&](Worker& worker) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const MemoryRequirement requirement, TakeProgram(worker, *stream));
    stream->Write(Seal(Encode(requirement)));  // who does not read it has gone
    return absl::OkStatus();
  });
}

absl::Status ControlService::WriteVariable(Worker& worker, AnsweredParts& stream) {
  VariableParts parts;
  rpc::Sealed sealed;
  rpc::VariableChunk chunk;
  while (stream.Read(&sealed)) {
    WEFT_RETURN_IF_ERROR(Unseal(sealed, chunk));
    WEFT_RETURN_IF_ERROR(WritePart(worker, parts, chunk));
    if (!parts.is_complete()) stream.Write(rpc::Empty());
  }
  return parts.Finish();
}

grpc::Status ControlService::WriteVariable(grpc::ServerContext* context, AnsweredParts* stream) {
  return Serve(*context, WorkerCall::kWriteVariable,
               [&](Worker& worker) { return WriteVariable(worker, *stream); });
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
  rpc::Sealed answer;
  do {
    const size_t offset = parts.offset();
    std::string part(parts.part_bytes(), '\0');
    const bool is_last = offset + part.size() == bytes;
    WEFT_RETURN_IF_ERROR(worker.ReadVariablePart(name, static_cast<int64_t>(offset),
                                                 std::as_writable_bytes(std::span(part))));
    rpc::VariableChunk chunk = MakeVariableChunk(std::move(part));
    if (offset == 0) {
      chunk.set_name(name);
      EncodeType(shard.dtype, shard.local_shape, *chunk.mutable_type());
    }
    const auto write = [&] {
      return stream.Write(Seal(chunk)) && (is_last || stream.Read(&answer));
    };
    if (!parts.Write(write)) break;
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
    {
      MutexLock lock(mutex_);
      taken_until_ = absl::InfiniteFuture();  // the state is this run's from here on
      has_run_ = true;
    }
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
