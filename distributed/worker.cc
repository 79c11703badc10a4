#include "distributed/worker.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "distributed/arithmetic.h"
#include "distributed/coordinator_epoch.h"
#include "distributed/nccl/nccl_memory.h"
#include "distributed/recovery/held_snapshots.h"
#include "distributed/recovery/step_barrier.h"
#include "distributed/run_record.h"
#include "distributed/shards_digest.h"
#include "distributed/snapshot_copies.h"
#include "distributed/transport_communicator.h"
#include "executor/lowering/executor_environment.h"
#include "executor/memory/arena.h"
#include "executor/memory/unexpected_messages.h"
#include "executor/program/compile_step.h"
#include "executor/program/step_program.h"
#include "executor/variables/finite_watch.h"
#include "executor/variables/owned_rows_watch.h"
#include "executor/variables/variable_digest.h"
#include "executor/variables/variable_store.h"
#include "graph/step_inputs.h"
#include "ops/custom/loaded_libraries.h"
#include "ops/kernel.h"
#include "platform/checksum.h"
#include "platform/cpu_info.h"
#include "platform/log.h"
#include "platform/mapped_pages.h"
#include "platform/mutex.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "tensor/device_id.h"
#include "tensor/lookup/device_lookup.h"
#include "tensor/timing/device_copies.h"

namespace weft {
namespace {

// Measures what a step waits for its data.
class TimedInputSource final : public InputSource {
 public:
  TimedInputSource(std::unique_ptr<InputSource> source, Clock& clock)
      : source_(std::move(source)), clock_(clock) {}
  absl::Status Fill(int64_t step, const FeedInput& input, int64_t first, int64_t count,
                    void* target) override {
    const int64_t begin = clock_.MonotonicNanos();
    absl::Status status = source_->Fill(step, input, first, count, target);
    nanoseconds_ += clock_.MonotonicNanos() - begin;
    return status;
  }
  int64_t held_bytes() const override { return source_->held_bytes(); }
  int64_t max_bytes() const override { return source_->max_bytes(); }
  double TakeSeconds() { return static_cast<double>(std::exchange(nanoseconds_, 0)) * 1e-9; }

 private:
  const std::unique_ptr<InputSource> source_;
  Clock& clock_;
  int64_t nanoseconds_ = 0;
};

absl::Status Mismatch(absl::StatusCode code, const char* what, const std::string& mine,
                      const std::string& theirs) {
  return absl::Status(
      code, absl::StrCat("handshake refused: the worker's ", what, " is ", mine,
                         ", the coordinator's is ", theirs, "; all processes of a job must agree"));
}

// The step that the program of this range runs after it, with nothing else between; -1: none.
int64_t StepAfter(const std::vector<StepRange>& ranges, size_t range) {
  for (size_t next = range + 1; next < ranges.size(); ++next) {
    if (ranges[next].count == 0) continue;
    return ranges[next].program == ranges[range].program ? ranges[next].first_step : -1;
  }
  return -1;
}

uint64_t RandomNumber() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

// Threads that a program may have.
constexpr int kMinThreadLimit = 256;
constexpr int kThreadsPerCore = 8;

class RankWorker final : public Worker {
 public:
  explicit RankWorker(WorkerEnvironment environment)
      : environment_(std::move(environment)), incarnation_(RandomNumber()) {}
  ~RankWorker() override {
    copies_.reset();
    EndTransfers();
  }

  std::string name() const override { return environment_.name; }
  absl::StatusOr<WorkerInfo> Join(const JobMembership& membership) override;
  absl::StatusOr<MemoryRequirement> AddProgram(const std::string& program,
                                               const Partition& partition,
                                               const std::string& data) override {
    return TakeProgram(program, partition.Clone(), data);
  }
  absl::StatusOr<MemoryRequirement> TakeProgram(const std::string& name, Partition partition,
                                                const std::string& data) override;
  absl::StatusOr<VariableShard> FindVariable(const std::string& name) const override;
  absl::Status WriteVariablePart(const std::string& name, int64_t offset,
                                 std::span<const std::byte> part) override;
  absl::Status ReadVariablePart(const std::string& name, int64_t offset,
                                std::span<std::byte> part) override;
  absl::Status WriteVariable(const std::string& name, const Tensor& local) override;
  absl::StatusOr<Tensor> ReadVariable(const std::string& name) override;
  absl::Status RunSteps(const std::vector<StepRange>& ranges,
                        const std::function<void(const StepReport&)>& report) override;
  absl::StatusOr<ControlReply> Answer(const ControlRequest& request) override;
  void Abort(const absl::Status& reason) override;
  void GiveUp() override;
  uint64_t epoch() const override { return epoch_; }

 private:
  struct Program {
    std::unique_ptr<Partition> partition;
    std::unique_ptr<StepProgram> step;
    TimedInputSource* input = nullptr;
    bool changes_variables = false;
    // Its channels and collectives among those that the communicator has opened.
    size_t first_stream = 0;
    size_t last_stream = 0;
    // The same of collectives on the device.
    size_t first_collective = 0;
    size_t last_collective = 0;
    int64_t steps = 0;  // done
    int64_t timed_steps = 0;
    double seconds = 0;
    double input_seconds = 0;
  };

  // The answer to each question.
  absl::StatusOr<WorkerTraffic> Reply(const TrafficRequest& request);
  absl::StatusOr<std::vector<ProgramStatistics>> Reply(const StatisticsRequest& request);
  absl::StatusOr<ProcessMemory> Reply(const MemoryRequest&) { return Measured(); }
  absl::StatusOr<CheckpointWrite> Reply(const CheckpointRequest& request);
  absl::StatusOr<ProgramText> Reply(const ProgramTextRequest& request);
  absl::StatusOr<CardGroupId> Reply(const NewCardGroupRequest& request);
  absl::StatusOr<CardGroupsJoined> Reply(const UseCardGroupsRequest& request);
  absl::StatusOr<DeviceCopies> Reply(const DeviceCopiesRequest& request);
  absl::StatusOr<HostNodes> Reply(const HostNodesRequest& request);
  absl::StatusOr<StepProgress> Reply(const StepProgressRequest& request);
  absl::StatusOr<StepReport> Reply(const FinishStepRequest& request);
  absl::StatusOr<std::vector<StepReport>> Reply(const StepReportsRequest& request);
  absl::StatusOr<VariableDigests> Reply(const VariableDigestsRequest& request);
  absl::StatusOr<HeldState> Reply(const HeldStateRequest& request);
  absl::StatusOr<HeldPart> Reply(const ReadHeldRequest& request);
  absl::StatusOr<HeldSnapshot> Reply(const HoldStateRequest& request);
  absl::StatusOr<KeptJob> Reply(const KeptJobRequest& request);

  absl::Status CheckJoined() const;
  absl::StatusOr<const StepProgram*> FindProgram(const std::string& name) const;
  // Whether it may keep what it has for the job that goes on with its own.
  absl::Status CheckContinues(const JobMembership& membership) const;
  // Programs and what they run with are gone; variables, data and arena stay.
  void EndPrograms();
  // All ranks' agreement on each step; null: they need none. Opened with the first program.
  absl::StatusOr<StepCommit*> FindBarrier(const Partition& partition);
  // What copies its state to its keeper, over the communicator and this transport.
  absl::StatusOr<std::unique_ptr<SnapshotCopies>> OpenCopies(
      const std::shared_ptr<Transport>& transport);
  // Makes what joins this rank's card with others, where it has one and NCCL.
  void OpenCollectives();
  // FailedPrecondition where there is none.
  absl::StatusOr<NcclCollectives*> FindCollectives();
  // Whether it is for this rank of this job, on such a machine.
  absl::Status CheckPartition(const Partition& partition) const;
  absl::Status AbortStatus();
  // After a step that failed, the transport may still use memory of the programs.
  void EndTransfers() {
    if (communicator_ != nullptr) communicator_->EndTransfers();
  }
  ProcessMemory Measured() const {
    ProcessMemory memory = MeasureProcessMemory(files());
    if (HasDeviceMemory()) {
      memory.device_peak_bytes = static_cast<int64_t>(environment_.device->peak_bytes());
    }
    return memory;
  }
  // Whether the device has memory of its own.
  bool HasDeviceMemory() const { return !environment_.device->info().host_accessible; }
  // Of the device: what it may allocate, and what the job says if that is less.
  MemoryLimit DeviceLimit() const;
  // Whether it takes one more program, or these data for one (max_programs).
  absl::Status CheckRoomFor(const std::string& program, const std::string& data) const;
  absl::StatusOr<TimedInputSource*> OpenInput(const std::string& data);
  // Of the programs and of `added`, which is not one of them yet.
  MemoryRequirement RequirementWith(const Program& added) const;
  int64_t TransportBytes(const Program& added) const;
  FileSystem& CheckpointFiles() const {
    return environment_.checkpoint_files != nullptr ? *environment_.checkpoint_files : files();
  }
  FileSystem& files() const {
    return environment_.files != nullptr ? *environment_.files : RealFileSystem();
  }
  // `step_after`: that the same program runs next; -1: another's, or none.
  absl::Status RunRange(const StepRange& range, int64_t step_after,
                        const std::function<void(const StepReport&)>& report);
  absl::Status RunStep(Program& program, const StepOptions& options, StepResult& result);
  // What has become of the copy of the state after this step: an error ends the job.
  absl::Status AfterCopy(int64_t step, const absl::Status& status);
  // A step has taken so long. OutOfRange where a variable that steps change is no number any more.
  absl::Status WatchVariables(const Program& program, int64_t step, int64_t nanoseconds);
  std::string Name() const { return absl::StrCat("worker:", membership_.rank.value); }

  const WorkerEnvironment environment_;
  const uint64_t incarnation_;
  uint64_t epoch_ = 0;  // the highest that has joined it
  JobMembership membership_;
  MemoryLimit memory_limit_;
  int64_t unexpected_bytes_limit_ = 0;  // of the transport
  int64_t ring_bytes_ = 0;              // likewise
  bool joined_ = false;
  bool failed_ = false;
  HeldSnapshots held_;
  // Destroyed bottom up: programs before what they run on.
  std::shared_ptr<Transport> transport_ ABSL_GUARDED_BY(transport_mutex_);
  absl::Status aborted_ ABSL_GUARDED_BY(transport_mutex_);
  std::atomic<bool> is_aborted_{false};  // looked at between steps, which may need no peer
  mutable Mutex transport_mutex_;        // Abort comes from other threads
  WorkerCard card_;
  // Of this rank's card; null: it has none. Abort looks at it.
  std::shared_ptr<NcclCollectives> collectives_ ABSL_GUARDED_BY(transport_mutex_);
  std::unique_ptr<TransportCommunicator> communicator_;
  std::unique_ptr<StepBarrier> barrier_;
  std::unique_ptr<VariableStore> variables_;
  std::unique_ptr<FiniteWatch> watch_;
  std::unique_ptr<OwnedRowsWatch> owned_rows_;
  std::unique_ptr<CheckpointWriter> checkpoints_;                    // null: the job has none
  std::unique_ptr<SnapshotCopies> copies_;                           // likewise
  std::unique_ptr<Arena> arena_;                                     // of all programs
  std::map<std::string, std::unique_ptr<TimedInputSource>> inputs_;  // by description
  std::map<std::string, Program> programs_;
  RunRecord record_;
  std::string arithmetic_;  // VariableDigests::arithmetic; empty: of other programs than these
};

// "swiglu.so 0123456789abcdef" without the name.
std::string_view ChecksumOf(std::string_view library) {
  return library.substr(library.rfind(' ') + 1);
}

// FailedPrecondition where the coordinator has a library of custom ops that this process has not.
absl::Status CheckOpLibraries(const std::vector<std::string>& wanted) {
  const std::vector<std::string> loaded = OpLibraryIdentities();
  for (const std::string& library : wanted) {
    const bool is_here = std::any_of(loaded.begin(), loaded.end(), [&](const std::string& own) {
      return ChecksumOf(own) == ChecksumOf(library);
    });
    if (is_here) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "the coordinator has loaded the op library '", library,
        "' (name and checksum), the worker ",
        loaded.empty() ? "none" : absl::StrCat("'", absl::StrJoin(loaded, "', '"), "'"),
        "; start the worker with --op_library and the same file"));
  }
  return absl::OkStatus();
}

// FailedPrecondition where the job takes the worker for another device than it has, with what this
// machine says of the one that is wanted.
absl::Status CheckDeviceIs(const std::string& wanted, const Device& device) {
  const std::string& own = device.info().name;
  if (wanted.empty() || wanted == own) return absl::OkStatus();
  const absl::StatusOr<DeviceId> id = ParseDevice(wanted);
  const absl::Status usable = id.ok() ? CheckDevice(id->kind, id->index) : id.status();
  return absl::FailedPreconditionError(
      absl::StrCat("the job takes this worker for ", wanted, ", and it computes on ", own,
                   usable.ok() ? absl::StrCat("; start it with --device ", wanted)
                               : absl::StrCat("; ", std::string(usable.message())),
                   "; or say 'device: ", own, "' in the cluster file"));
}

absl::StatusOr<WorkerInfo> RankWorker::Join(const JobMembership& membership) {
  if (membership.version != environment_.version) {
    return Mismatch(absl::StatusCode::kPermissionDenied, "version", environment_.version,
                    membership.version);
  }
  const std::string instruction_set(InstructionSetName(EffectiveInstructionSet()));
  if (membership.strict && membership.instruction_set != instruction_set) {
    return Mismatch(absl::StatusCode::kFailedPrecondition, "instruction set", instruction_set,
                    membership.instruction_set);
  }
  if (membership.epoch > 0 && membership.epoch < epoch_) {
    return DeposedError(membership.epoch, epoch_, "the worker");
  }
  WEFT_RETURN_IF_ERROR(CheckOpLibraries(membership.op_libraries));
  WEFT_RETURN_IF_ERROR(CheckDeviceIs(membership.device, *environment_.device));
  WEFT_RETURN_IF_ERROR(CheckContinues(membership));
  if (joined_ && membership.job_id == membership_.job_id) {
    return absl::FailedPreconditionError(
        absl::StrCat(Name(), " has joined job ", membership.job_id, " already"));
  }
  EndPrograms();
  membership_ = membership;
  epoch_ = std::max(epoch_, membership.epoch);
  record_.Join(/*keeps_reports=*/membership.commits || membership.replication.every > 0 ||
                   membership.job_digest != 0,
               /*goes_on=*/membership.continues_job_id != 0);
  if (membership.continues_job_id == 0) {
    if (membership.recovers_job_id == 0) {
      inputs_.clear();
      held_.KeepOnly(0);
    }
    arena_ = std::make_unique<Arena>(*environment_.device);
    variables_ = std::make_unique<VariableStore>(*environment_.device);
  }
  watch_ = std::make_unique<FiniteWatch>(*environment_.clock, *variables_);
  owned_rows_ = std::make_unique<OwnedRowsWatch>(*environment_.clock, *variables_);
  if (membership.checkpoints) {
    checkpoints_ = std::make_unique<CheckpointWriter>(CheckpointFiles(), *environment_.clock,
                                                      *variables_, membership.rank);
  }
  ForgetPeakMemory();
  environment_.device->ForgetPeakBytes();
  memory_limit_ = ProcessMemoryLimit(files());
  // What the job gives a worker with a GPU is the GPU's memory (DeviceLimit).
  if (!HasDeviceMemory() && membership.memory_limit_bytes > 0 &&
      membership.memory_limit_bytes <= memory_limit_.bytes) {
    memory_limit_ = {membership.memory_limit_bytes, "what the job gives it"};
  }
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport,
                        environment_.open_transport(membership));
  std::shared_ptr<Transport> shared = std::move(transport);
  unexpected_bytes_limit_ = shared->unexpected_bytes_limit();
  ring_bytes_ = shared->ring_bytes();
  communicator_ = std::make_unique<TransportCommunicator>(
      *shared, *environment_.clock, JobIdentity{membership.job_id, incarnation_},
      absl::Seconds(membership.stall_timeout_seconds));
  if (membership.replication.every > 0) {
    WEFT_ASSIGN_OR_RETURN(copies_, OpenCopies(shared));
  }
  {
    MutexLock lock(transport_mutex_);
    transport_ = std::move(shared);
    aborted_ = absl::OkStatus();
    is_aborted_.store(false);
  }
  OpenCollectives();
  joined_ = true;
  failed_ = false;
  Log(LogLevel::kInfo, Name(), " has joined job ", membership.job_id, " of ",
      std::max<size_t>(membership.addresses.size(), 1), " processes");
  const DeviceInfo& device = environment_.device->info();
  return WorkerInfo{
      environment_.version,
      instruction_set,
      int64_t{getpid()},
      incarnation_,
      memory_limit_,
      {device.name, environment_.device_text.empty() ? card_.text : environment_.device_text,
       static_cast<int64_t>(device.memory_limit), KernelRegistry::Global().Count(device.kind),
       card_.driver},
      {card_.name, card_.nccl == nullptr ? 0 : card_.nccl->version(), card_.problem}};
}

void RankWorker::EndPrograms() {
  copies_.reset();
  EndTransfers();
  programs_.clear();
  {
    MutexLock lock(transport_mutex_);
    collectives_.reset();
  }
  barrier_.reset();
  communicator_.reset();
  checkpoints_.reset();
  watch_.reset();
}

void RankWorker::GiveUp() {
  if (!joined_) return;
  EndPrograms();
  record_ = RunRecord();
  held_.KeepOnly(0);
  inputs_.clear();
  arena_.reset();
  variables_.reset();
  std::shared_ptr<Transport> transport;  // ends outside the lock
  {
    MutexLock lock(transport_mutex_);
    transport.swap(transport_);
  }
  joined_ = false;
  Log(LogLevel::kInfo, Name(), " has given up job ", membership_.job_id);
  transport.reset();
  ReleaseFreeMemory();
}

absl::Status RankWorker::CheckContinues(const JobMembership& membership) const {
  const uint64_t continues = membership.continues_job_id;
  if (continues == 0) return absl::OkStatus();
  // It had joined the job that was to go on with that one, and has run nothing in it.
  const bool was_in = record_.runs() == 0 && continues == membership_.continues_job_id;
  if (!joined_ || (continues != membership_.job_id && !was_in)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the worker is to go on with job ", continues, " and is in ",
                     joined_ ? absl::StrCat("job ", membership_.job_id) : std::string("none"),
                     "; it has nothing of what that job has trained"));
  }
  return record_.CheckWhole(Name());
}

absl::StatusOr<std::unique_ptr<SnapshotCopies>> RankWorker::OpenCopies(
    const std::shared_ptr<Transport>& transport) {
  SnapshotCopiesOptions options;
  options.transport = transport;
  options.communicator = communicator_.get();
  options.clock = environment_.clock;
  options.variables = variables_.get();
  options.held = &held_;
  options.identity = {membership_.job_id, incarnation_};
  options.rank = membership_.rank;
  options.replication = membership_.replication;
  options.stall_timeout = absl::Seconds(membership_.stall_timeout_seconds);
  return SnapshotCopies::Open(std::move(options));
}

absl::StatusOr<StepCommit*> RankWorker::FindBarrier(const Partition& partition) {
  if (!membership_.commits || !partition.commits) return nullptr;
  if (barrier_ == nullptr) {
    WEFT_ASSIGN_OR_RETURN(barrier_, StepBarrier::Open(*communicator_, partition.mesh.size()));
  }
  return barrier_.get();
}

void RankWorker::OpenCollectives() {
  card_ =
      environment_.card.has_value() ? *environment_.card : CardOf(*environment_.device, files());
  if (card_.nccl == nullptr) return;
  auto collectives = std::make_shared<NcclCollectives>(
      *card_.nccl, *environment_.device, *environment_.clock, membership_.rank,
      absl::Seconds(membership_.stall_timeout_seconds));
  MutexLock lock(transport_mutex_);
  collectives_ = std::move(collectives);
}

absl::StatusOr<NcclCollectives*> RankWorker::FindCollectives() {
  WEFT_RETURN_IF_ERROR(CheckJoined());
  MutexLock lock(transport_mutex_);
  if (collectives_ != nullptr) return collectives_.get();
  return absl::FailedPreconditionError(
      absl::StrCat(Name(), " has no card that NCCL joins with others",
                   card_.problem.empty() ? "" : ": ", card_.problem));
}

absl::StatusOr<CardGroupId> RankWorker::Reply(const NewCardGroupRequest&) {
  WEFT_ASSIGN_OR_RETURN(NcclCollectives* const collectives, FindCollectives());
  WEFT_ASSIGN_OR_RETURN(std::string id, collectives->NewGroupId());
  return CardGroupId{std::move(id)};
}

absl::StatusOr<CardGroupsJoined> RankWorker::Reply(const UseCardGroupsRequest& request) {
  WEFT_RETURN_IF_ERROR(CheckJoined());
  if (card_.nccl == nullptr && request.groups.empty()) return CardGroupsJoined();
  WEFT_ASSIGN_OR_RETURN(NcclCollectives* const collectives, FindCollectives());
  const int version = request.groups.empty() ? card_.nccl->version() : request.nccl_version;
  WEFT_RETURN_IF_ERROR(collectives->UseGroups(request.groups, version));
  return CardGroupsJoined{static_cast<int32_t>(request.groups.size())};
}

absl::Status RankWorker::CheckJoined() const {
  if (!joined_) return absl::FailedPreconditionError("the worker has not joined a job");
  if (failed_) {
    return absl::FailedPreconditionError(
        absl::StrCat(Name(), " failed in this job; a new job must be joined"));
  }
  return absl::OkStatus();
}

absl::StatusOr<TimedInputSource*> RankWorker::OpenInput(const std::string& data) {
  if (data.empty()) return nullptr;
  const auto known = inputs_.find(data);
  if (known != inputs_.end()) return known->second.get();
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<InputSource> source, environment_.open_input(data));
  auto input = std::make_unique<TimedInputSource>(std::move(source), *environment_.clock);
  return inputs_.emplace(data, std::move(input)).first->second.get();
}

absl::Status RankWorker::CheckRoomFor(const std::string& program, const std::string& data) const {
  const auto limit = static_cast<size_t>(environment_.max_programs);
  const bool has_program = programs_.contains(program) || programs_.size() < limit;
  const bool has_data = data.empty() || inputs_.contains(data) || inputs_.size() < limit;
  if (has_program && has_data) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(Name(), " has ", limit, has_program ? " data sets" : " programs",
                   " of this job, and takes no more; program '", program,
                   "' would be the next: give fewer lengths to pad to, or fewer updates in turn"));
}

absl::Status RankWorker::CheckPartition(const Partition& partition) const {
  if (partition.rank != membership_.rank) {
    return absl::InvalidArgumentError(
        absl::StrCat(Name(), " got the partition of rank ", partition.rank.value));
  }
  const size_t ranks = membership_.addresses.size();
  if (ranks > 0 && static_cast<size_t>(partition.mesh.size()) > ranks) {
    return absl::InvalidArgumentError(absl::StrCat(
        Name(), " got a partition of ", partition.mesh.size(), " ranks; the job has ", ranks));
  }
  // OpenMP ends the process where the system has no thread left.
  const int max_threads = std::max(kMinThreadLimit, kThreadsPerCore * AvailableCores(files()));
  if (partition.threads <= max_threads) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(Name(), " is to use ", partition.threads,
                                                 " threads; this machine allows ", max_threads));
}

absl::StatusOr<MemoryRequirement> RankWorker::TakeProgram(const std::string& name,
                                                          Partition partition,
                                                          const std::string& data) {
  WEFT_RETURN_IF_ERROR(CheckJoined());
  WEFT_RETURN_IF_ERROR(CheckPartition(partition));
  WEFT_RETURN_IF_ERROR(CheckRoomFor(name, data));
  LoggedPhase phase(absl::StrCat(Name(), " compiles program '", name, "'"));
  Program program;
  program.partition = std::make_unique<Partition>(std::move(partition));
  WEFT_RETURN_IF_ERROR(variables_->Add(program.partition->variables));
  const std::vector<std::string> changed = CheckpointedVariables(*program.partition);
  program.changes_variables = !changed.empty();
  WEFT_RETURN_IF_ERROR(watch_->Add(changed));
  if (!HasDeviceMemory()) WEFT_RETURN_IF_ERROR(owned_rows_->Add(changed));
  if (checkpoints_ != nullptr) WEFT_RETURN_IF_ERROR(checkpoints_->Add(changed));
  if (copies_ != nullptr && program.partition->training) copies_->Add(*program.partition);
  WEFT_ASSIGN_OR_RETURN(program.input, OpenInput(data));
  ExecutorEnvironment environment;
  environment.device = environment_.device;
  environment.variables = variables_.get();
  environment.communicator = communicator_.get();
  environment.input = program.input;
  environment.clock = environment_.clock;
  environment.arena = arena_.get();
  environment.update_guard = owned_rows_.get();
  std::shared_ptr<NcclCollectives> collectives;
  {
    MutexLock lock(transport_mutex_);
    collectives = collectives_;
  }
  environment.device_collectives = collectives.get();
  WEFT_ASSIGN_OR_RETURN(environment.commit, FindBarrier(*program.partition));
  program.first_collective = collectives == nullptr ? 0 : collectives->opened();
  program.first_stream = communicator_->streams_opened();
  absl::StatusOr<std::unique_ptr<StepProgram>> step = CompileStep(*program.partition, environment);
  if (!step.ok()) return Annotate(step.status(), Name());
  program.step = *std::move(step);
  program.last_stream = communicator_->streams_opened();
  program.last_collective = collectives == nullptr ? 0 : collectives->opened();
  record_.ForgetProgram();
  arithmetic_.clear();
  if (programs_.erase(name) > 0) phase.Note("in place of the one before");
  const MemoryRequirement requirement = RequirementWith(program);
  phase.Note("needs ", DescribeMemory(requirement));
  WEFT_RETURN_IF_ERROR(CheckFits(Name(), requirement, memory_limit_));
  if (HasDeviceMemory()) {
    phase.Note("needs on the device ", DescribeDeviceMemory(requirement));
    WEFT_RETURN_IF_ERROR(
        CheckFitsOnDevice(Name(), environment_.device->info().name, requirement, DeviceLimit()));
  }
  programs_[name] = std::move(program);
  return requirement;
}

int64_t RankWorker::TransportBytes(const Program& added) const {
  std::map<RankId, int64_t> unexpected;  // by peer; programs share the streams
  const auto add = [&](const Partition& partition) {
    for (const auto& [peer, sum] : UnexpectedChannelBytes(partition)) {
      unexpected[peer] = std::max(unexpected[peer], sum);
    }
  };
  add(*added.partition);
  for (const auto& [name, program] : programs_) add(*program.partition);
  const int64_t limit = unexpected_bytes_limit_;
  if (limit == 0) return 0;
  int64_t bytes = ring_bytes_;
  for (size_t i = 0; i < membership_.addresses.size(); ++i) {
    const RankId peer(static_cast<int32_t>(i));
    if (peer == membership_.rank) continue;
    const int64_t copies = copies_ == nullptr ? 0 : copies_->unexpected_bytes(peer);
    bytes += ConnectionBytes(
        unexpected[peer] + communicator_->unexpected_collective_bytes(peer) + copies, limit);
  }
  return bytes;
}

MemoryLimit RankWorker::DeviceLimit() const {
  const auto own = static_cast<int64_t>(environment_.device->info().memory_limit);
  const int64_t given = membership_.memory_limit_bytes;
  if (given > 0 && (own == 0 || given < own)) return {given, "what the job gives it"};
  return {own, "what it may allocate there"};
}

MemoryRequirement RankWorker::RequirementWith(const Program& added) const {
  MemoryRequirement requirement;
  requirement.on_device = HasDeviceMemory();
  requirement.variable_bytes = variables_->bytes();
  requirement.arena_bytes = arena_->reserved_bytes();
  int threads = 1;
  const auto add = [&requirement, &threads](const Program& program) {
    threads = std::max(threads, program.partition->threads);
    const ProgramMemory& memory = program.step->memory();
    requirement.workspace_bytes = std::max(requirement.workspace_bytes, memory.workspace_bytes);
    requirement.constant_bytes += memory.constant_bytes;
    requirement.device_constant_bytes += memory.device_constant_bytes;
    requirement.packed_bytes += memory.packed_bytes;
    requirement.staging_bytes += memory.staging_bytes;
  };
  add(added);
  for (const auto& [name, program] : programs_) add(program);
  int64_t mapped = added.step->memory().mapped_constant_bytes;
  for (const auto& [name, program] : programs_) {
    mapped += program.step->memory().mapped_constant_bytes;
  }
  int64_t held_input = 0;
  for (const auto& [data, input] : inputs_) {
    requirement.input_bytes += input->max_bytes();
    held_input += input->held_bytes();
  }
  requirement.transport_bytes = TransportBytes(added);
  if (checkpoints_ != nullptr) requirement.checkpoint_bytes = checkpoints_->bytes();
  if (copies_ != nullptr) requirement.copies_bytes = copies_->bytes();
  {
    MutexLock lock(transport_mutex_);
    if (collectives_ != nullptr) {
      requirement.nccl_bytes = NcclBytesOf(membership_.rank, collectives_->joined());
    }
  }
  // Of what is counted above, the process has this by now.
  ReleaseFreeMemory();
  const bool on_device = requirement.on_device;
  const int64_t held = variables_->allocated_bytes() + arena_->allocated_bytes();
  const int64_t counted = (on_device ? 0 : held) + requirement.constant_bytes - mapped + held_input;
  const ProcessMemory memory = Measured();
  const int64_t later = std::max<int64_t>(0, requirement.total() - counted);
  requirement.process_bytes =
      std::max<int64_t>(0, memory.bytes - counted) +
      ProcessGrowthBytes(on_device ? 0 : requirement.variable_bytes + requirement.arena_bytes,
                         threads) +
      (on_device ? kDeviceProcessGrowthBytes : 0) + PageTableBytes(later);
  requirement.loading_bytes = std::max<int64_t>(0, memory.peak_bytes - requirement.total());
  return requirement;
}

absl::Status RankWorker::WriteVariable(const std::string& name, const Tensor& local) {
  WEFT_RETURN_IF_ERROR(CheckJoined());
  return variables_->Write(name, local);
}

absl::StatusOr<Tensor> RankWorker::ReadVariable(const std::string& name) {
  if (!joined_) return CheckJoined();
  if (failed_) EndTransfers();
  // The copy stays in this process: it takes the place of what no step needs now.
  arena_->Release();
  return variables_->Read(name);
}

absl::StatusOr<VariableShard> RankWorker::FindVariable(const std::string& name) const {
  if (!joined_) return CheckJoined();
  const VariableShard* const shard = variables_->Find(name);
  if (shard != nullptr) return *shard;
  return absl::NotFoundError(absl::StrCat(Name(), " has no variable '", name, "'"));
}

absl::Status RankWorker::WriteVariablePart(const std::string& name, int64_t offset,
                                           std::span<const std::byte> part) {
  WEFT_RETURN_IF_ERROR(CheckJoined());
  return variables_->WritePart(name, offset, part);
}

absl::Status RankWorker::ReadVariablePart(const std::string& name, int64_t offset,
                                          std::span<std::byte> part) {
  if (!joined_) return CheckJoined();
  return variables_->ReadPart(name, offset, part);
}

// A step whose loss is not finite has changed nothing: it is run again, looking at every node.
absl::Status RankWorker::RunStep(Program& program, const StepOptions& options, StepResult& result) {
  const absl::Status status = program.step->RunInto(options, result);
  if (!absl::IsOutOfRange(status) || options.check_numerics) return status;
  StepOptions checked = options;
  checked.check_numerics = true;
  checked.next_step = -1;
  const absl::Status again = program.step->RunInto(checked, result);
  // Another rank has found the node, and says so.
  if (absl::IsAborted(again)) return again;
  if (!absl::IsOutOfRange(again)) {
    communicator_->Abort(status);
    return status;
  }
  return absl::OutOfRangeError(absl::StrCat(status.message(), "; ", again.message()));
}

absl::Status RankWorker::RunSteps(const std::vector<StepRange>& ranges,
                                  const std::function<void(const StepReport&)>& report) {
  WEFT_RETURN_IF_ERROR(CheckJoined());
  record_.BeginRun(ranges.empty() ? std::map<std::string, double>() : ranges.front().note);
  const bool saves = std::any_of(ranges.begin(), ranges.end(),
                                 [](const StepRange& range) { return !range.checkpoint.empty(); });
  if (saves && checkpoints_ == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(Name(), " joined a job without checkpoints"));
  }
  // Those of the job that it went on from: from here on its state is another.
  if (copies_ == nullptr && !held_.empty()) held_.KeepOnly(0);
  // Too little memory for it is told by CheckpointRequest.
  if (saves) checkpoints_->Prepare().IgnoreError();
  for (size_t i = 0; i < ranges.size(); ++i) {
    const StepRange& range = ranges[i];
    WEFT_RETURN_IF_ERROR(RunRange(range, StepAfter(ranges, i), report));
    if (range.checkpoint.empty()) continue;
    const absl::Status saved = checkpoints_->Save(range.checkpoint);
    if (saved.ok()) continue;
    failed_ = true;
    return Annotate(saved, absl::StrCat(Name(), ", after step ", range.first_step + range.count));
  }
  return absl::OkStatus();
}

absl::Status RankWorker::RunRange(const StepRange& range, int64_t step_after,
                                  const std::function<void(const StepReport&)>& report) {
  const auto program = programs_.find(range.program);
  if (program == programs_.end()) {
    return absl::NotFoundError(absl::StrCat(Name(), " has no program '", range.program, "'"));
  }
  const LoggedPhase phase(absl::StrCat(Name(), " runs ", range.count, " steps of '", range.program,
                                       "' from step ", range.first_step),
                          LogLevel::kDebug);
  // What gRPC held of the initial values lies free in the heaps; the arena is taken from the
  // system.
  if (arena_->allocated_bytes() < arena_->reserved_bytes()) ReleaseFreeMemory();
  WEFT_RETURN_IF_ERROR(Annotate(program->second.step->Prepare(), Name()));
  program->second.step->EnableStatistics(range.statistics);
  StepOptions options;
  options.scalars = range.scalars;
  options.check_numerics = range.check_numerics;
  // Their memory is used again in every step.
  StepResult result;
  StepReport own;
  record_.BeginRange(program->second.partition->training ? program->second.step.get() : nullptr);
  const bool copies = copies_ != nullptr && program->second.partition->training;
  if (copies && range.count > 0) {
    WEFT_RETURN_IF_ERROR(AfterCopy(range.first_step, copies_->BeforeStep(range.first_step)));
  }
  for (int64_t i = 0; i < range.count; ++i) {
    options.step = range.first_step + i;
    options.next_step = i + 1 < range.count ? options.step + 1 : step_after;
    StepReport& done = record_.BeginStep(options.step, own);
    options.scalars[kStepInput] = static_cast<double>(options.step + 1);
    const int64_t begin = environment_.clock->MonotonicNanos();
    const bool has_values = !range.times_only || &done != &own;
    if (has_values) std::swap(result.reports, done.values);
    absl::Status status = AbortStatus();
    if (status.ok()) status = RunStep(program->second, options, result);
    if (status.ok()) status = CheckMappedFiles();
    if (!status.ok()) {
      failed_ = true;
      Log(LogLevel::kWarning, Name(), " failed in step ", options.step, ": ", status.ToString());
      return Annotate(status, Name());
    }
    ++program->second.steps;
    if (range.statistics) ++program->second.timed_steps;
    done.step = options.step;
    if (has_values) std::swap(result.reports, done.values);
    const int64_t nanoseconds = environment_.clock->MonotonicNanos() - begin;
    done.seconds = static_cast<double>(nanoseconds) * 1e-9;
    done.waited_seconds = result.waited_seconds;
    done.update_seconds = result.update_seconds;
    if (program->second.input != nullptr) {
      done.input_seconds = program->second.input->TakeSeconds();
    }
    program->second.seconds += done.seconds;
    program->second.input_seconds += done.input_seconds;
    record_.EndStep();
    if (report != nullptr) {
      if (range.times_only && has_values) {
        report(StepReport{done.step,
                          {},
                          done.seconds,
                          done.input_seconds,
                          done.waited_seconds,
                          done.update_seconds});
      } else {
        report(done);
      }
    }
    WEFT_RETURN_IF_ERROR(WatchVariables(program->second, options.step, nanoseconds));
    if (copies) {
      WEFT_RETURN_IF_ERROR(AfterCopy(options.step + 1, copies_->AfterStep(options.step + 1)));
    }
  }
  return absl::OkStatus();
}

absl::Status RankWorker::AfterCopy(int64_t step, const absl::Status& status) {
  if (status.ok()) return status;
  failed_ = true;
  Log(LogLevel::kWarning, Name(), " has no copy of its state after step ", step, ": ",
      status.ToString());
  return Annotate(status, Name());
}

absl::Status RankWorker::WatchVariables(const Program& program, int64_t step, int64_t nanoseconds) {
  if (!program.changes_variables) return absl::OkStatus();
  absl::Status status = watch_->AfterStep(nanoseconds);
  if (status.ok()) status = owned_rows_->AfterStep(step, nanoseconds);
  if (status.ok()) return status;
  failed_ = true;
  Log(LogLevel::kWarning, Name(), " ends after step ", step + 1, ": ", status.ToString());
  return Annotate(status, absl::StrCat(Name(), ", after step ", step + 1));
}

absl::StatusOr<ControlReply> RankWorker::Answer(const ControlRequest& request) {
  return std::visit(
      [this](const auto& one) -> absl::StatusOr<ControlReply> {
        WEFT_ASSIGN_OR_RETURN(auto reply, Reply(one));
        return ControlReply(std::move(reply));
      },
      request);
}

absl::StatusOr<CheckpointWrite> RankWorker::Reply(const CheckpointRequest& request) {
  if (!joined_) return CheckJoined();
  return checkpoints_ == nullptr ? CheckpointWrite() : checkpoints_->Poll(request.wait);
}

absl::StatusOr<StepProgress> RankWorker::Reply(const StepProgressRequest&) {
  if (!joined_) return CheckJoined();
  return record_.Progress();
}

absl::StatusOr<StepReport> RankWorker::Reply(const FinishStepRequest&) {
  if (!joined_) return CheckJoined();
  return record_.Finish(Name());
}

absl::StatusOr<std::vector<StepReport>> RankWorker::Reply(const StepReportsRequest& request) {
  if (!joined_) return CheckJoined();
  return request.noted ? record_.NotedReports(request.first) : record_.Reports(request.first);
}

absl::StatusOr<KeptJob> RankWorker::Reply(const KeptJobRequest&) {
  KeptJob kept;
  if (!joined_ || record_.note().empty()) return kept;
  const bool has_run = record_.runs() > 0 || membership_.continues_job_id == 0;
  kept.job_id = has_run ? membership_.job_id : membership_.continues_job_id;
  kept.job_digest = membership_.job_digest;
  kept.rank = membership_.rank;
  kept.runs = record_.runs();
  kept.note = record_.note();
  kept.steps = record_.noted_steps();
  std::map<std::string, VariableShard> shards;
  for (const std::string& name : variables_->names()) shards[name] = *variables_->Find(name);
  kept.shards_digest = ShardsDigest(shards);
  return kept;
}

absl::StatusOr<VariableDigests> RankWorker::Reply(const VariableDigestsRequest& request) {
  WEFT_RETURN_IF_ERROR(CheckJoined());
  if (arithmetic_.empty()) {
    int threads = 1;
    for (const auto& [name, program] : programs_) {
      if (program.changes_variables) threads = std::max(threads, program.partition->threads);
    }
    arithmetic_ = ArithmeticOf(*environment_.device, card_, threads, files());
  }
  VariableDigests digests;
  digests.arithmetic = arithmetic_;
  auto values = DigestVariables(*environment_.device, *variables_, request.variables);
  if (!values.ok()) return Annotate(values.status(), Name());
  digests.digests = *std::move(values);
  return digests;
}

absl::StatusOr<DeviceCopies> RankWorker::Reply(const DeviceCopiesRequest&) {
  WEFT_RETURN_IF_ERROR(CheckJoined());
  absl::StatusOr<DeviceCopies> copies =
      MeasureDeviceCopies(*environment_.device, *environment_.clock);
  if (copies.ok()) return copies;
  return Annotate(copies.status(),
                  absl::StrCat(Name(), ", timing copies of ", environment_.device->info().name));
}

absl::StatusOr<const StepProgram*> RankWorker::FindProgram(const std::string& name) const {
  if (!joined_) return CheckJoined();
  const auto program = programs_.find(name);
  if (program != programs_.end()) return program->second.step.get();
  return absl::NotFoundError(absl::StrCat(Name(), " has no program '", name, "'"));
}

absl::StatusOr<HostNodes> RankWorker::Reply(const HostNodesRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const StepProgram* const program, FindProgram(request.program));
  return HostNodes{program->host_nodes()};
}

absl::StatusOr<ProgramText> RankWorker::Reply(const ProgramTextRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const StepProgram* const program, FindProgram(request.program));
  const std::string text = program->DebugString();
  const auto size = static_cast<int64_t>(text.size());
  if (request.offset < 0 || request.offset > size) {
    return absl::OutOfRangeError(absl::StrCat("the text of program '", request.program, "' has ",
                                              size, " bytes, none at ", request.offset));
  }
  return ProgramText{text.substr(static_cast<size_t>(request.offset), kProgramTextBytes), size};
}

absl::StatusOr<HeldState> RankWorker::Reply(const HeldStateRequest& request) {
  if (copies_ != nullptr) copies_->Settle();
  return held_.State(request.verify);
}

absl::StatusOr<HeldPart> RankWorker::Reply(const ReadHeldRequest& request) {
  return held_.Read(request.key, request.offset, request.bytes);
}

absl::StatusOr<HeldSnapshot> RankWorker::Reply(const HoldStateRequest& request) {
  if (!joined_) return CheckJoined();
  WEFT_RETURN_IF_ERROR(record_.CheckWhole(Name()));
  if (copies_ != nullptr) copies_->Settle();
  if (failed_) EndTransfers();
  // Those of programs for steps of other sizes are the same.
  std::map<std::string, VariableShard> changed;
  for (const auto& [name, program] : programs_) {
    for (VariableShard& shard : SnapshotVariables(*program.partition, /*primaries=*/false)) {
      changed[shard.name] = std::move(shard);
    }
  }
  std::vector<VariableShard> shards;
  for (auto& [name, shard] : changed) shards.push_back(std::move(shard));
  const SnapshotLayout layout = LayOutSnapshot(std::move(shards));
  // It takes the place of what no step needs now.
  arena_->Release();
  WEFT_ASSIGN_OR_RETURN(const Tensor image, Tensor::Allocate(DType::kUint8, Shape({layout.bytes})));
  WEFT_RETURN_IF_ERROR(FillSnapshot(*variables_, layout, image));
  HeldSnapshot held;
  held.key = {membership_.job_id, membership_.rank.value, request.step};
  held.is_whole = true;
  held.bytes = layout.bytes;
  held.checksum = Checksum({static_cast<const std::byte*>(image.raw_data()), image.bytes()});
  held_.Hold(held, image);
  return held;
}

absl::StatusOr<WorkerTraffic> RankWorker::Reply(const TrafficRequest&) {
  if (!joined_) return CheckJoined();
  const std::vector<StreamTraffic> streams = communicator_->traffic();
  std::vector<DeviceTraffic> on_device;
  {
    MutexLock lock(transport_mutex_);
    if (collectives_ != nullptr) on_device = collectives_->traffic();
  }
  WorkerTraffic traffic;
  for (const auto& [name, program] : programs_) {
    std::map<std::pair<std::string, RankId>, StreamTraffic> by_name;
    for (size_t i = program.first_collective; i < program.last_collective; ++i) {
      StreamTraffic& sum = by_name[{on_device[i].name, on_device[i].to}];
      sum.name = on_device[i].name;
      sum.to = on_device[i].to;
      sum.messages += on_device[i].runs;
      sum.payload_bytes += on_device[i].sent_bytes;
    }
    for (size_t i = program.first_stream; i < program.last_stream; ++i) {
      StreamTraffic& sum = by_name[{streams[i].name, streams[i].to}];
      sum.name = streams[i].name;
      sum.to = streams[i].to;
      sum.messages += streams[i].messages;
      sum.payload_bytes += streams[i].payload_bytes;
    }
    ProgramTraffic& total = traffic.programs.emplace_back();
    total.program = name;
    total.steps = program.steps;
    for (auto& [key, stream] : by_name) {
      if (stream.to != membership_.rank) total.streams.push_back(std::move(stream));
    }
  }
  MutexLock lock(transport_mutex_);
  traffic.header_bytes = transport_->header_bytes_sent();
  return traffic;
}

absl::StatusOr<std::vector<ProgramStatistics>> RankWorker::Reply(const StatisticsRequest&) {
  if (!joined_) return CheckJoined();
  std::vector<ProgramStatistics> statistics;
  for (const auto& [name, program] : programs_) {
    statistics.push_back({name, program.steps, program.seconds, program.input_seconds,
                          program.timed_steps, program.step->statistics()});
  }
  return statistics;
}

absl::Status RankWorker::AbortStatus() {
  if (!is_aborted_.load(std::memory_order_relaxed)) [[likely]]
    return absl::OkStatus();
  MutexLock lock(transport_mutex_);
  return aborted_;
}

void RankWorker::Abort(const absl::Status& reason) {
  std::shared_ptr<Transport> transport;
  std::shared_ptr<NcclCollectives> collectives;
  {
    MutexLock lock(transport_mutex_);
    transport = transport_;
    collectives = collectives_;
    if (aborted_.ok()) {
      aborted_ = absl::AbortedError(absl::StrCat("the job was aborted: ", reason.message()));
    }
    is_aborted_.store(true);
  }
  if (transport != nullptr) transport->Abort(reason);
  if (collectives != nullptr) collectives->Abort(reason);
}

}  // namespace

std::unique_ptr<Worker> NewWorker(WorkerEnvironment environment) {
  return std::make_unique<RankWorker>(std::move(environment));
}

}  // namespace weft
