#include "executor/program/compiled_step.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "executor/interfaces/wait_info.h"
#include "executor/lowering/lowering.h"
#include "executor/lowering/step_description.h"
#include "executor/program/communication_thread.h"
#include "executor/program/deferred_sends.h"
#include "executor/program/device_timeout.h"
#include "executor/program/external_buffers.h"
#include "executor/program/feed_staging.h"
#include "executor/program/host_staging.h"
#include "executor/program/instruction.h"
#include "executor/program/memory_operations.h"
#include "executor/program/numerics_check.h"
#include "executor/program/recorded_segments.h"
#include "executor/program/step_scalars.h"
#include "executor/program/value_slots.h"
#include "platform/mapped_pages.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

class CompiledStep final : public StepProgram {
 public:
  CompiledStep(const ExecutorEnvironment& environment, const Partition& partition,
               std::unique_ptr<BodyRunner> own_bodies)
      : environment_(environment),
        guard_(partition.guard),
        total_micro_batches_(partition.total_micro_batches),
        own_bodies_(std::move(own_bodies)),
        slots_(environment),
        scalars_(step_.scalars),
        external_buffers_(step_),
        own_arena_(*environment.device),
        arena_(environment.arena != nullptr ? *environment.arena : own_arena_) {}
  ~CompiledStep() override {
    communication_.reset();
    compute_.clear();  // streams go last of all that work may touch
  }

  absl::Status Build(LoweredStep step);

  absl::Status Prepare() override;
  absl::Status RunInto(const StepOptions& options, StepResult& result) override;
  const ProgramMemory& memory() const override { return memory_; }
  void EnableStatistics(bool enabled) override { statistics_enabled_ = enabled; }
  std::vector<NodeStatistics> statistics() const override;
  std::string DebugString() const override { return Describe(step_); }

 private:
  absl::Status BuildStreams();
  void MeasureConstants();
  void MeasureMemory(const MemoryPlan& plan);
  // Calls visit(lowered, instruction) for both lists.
  template <typename Visit>
  absl::Status ForEach(const Visit& visit);
  absl::Status AddStaging(const LoweredInstruction& lowered, Instruction& instruction) const;
  absl::Status PrepareTransfers(size_t sends);
  absl::Status RunPrepared(const StepOptions& options, StepResult& result);
  absl::Status RunActions(const StepOptions& options);
  absl::Status RunPart(size_t first, size_t last, const StepOptions& options);
  absl::Status RunOnDevice(size_t first, size_t last);
  absl::Status RunTimed(size_t first, size_t last, const StepOptions& options);
  absl::Status Execute(Instruction& instruction, Stream& stream);
  absl::Status ExecuteOther(Instruction& instruction, Stream& stream);
  absl::Status ExecuteOnHost(Instruction& instruction, Stream& stream);
  // Runs operation(addresses) on what the host touches of the instruction.
  template <typename Operation>
  absl::Status OnHost(Instruction& instruction, Stream& stream, const Operation& operation) const;
  // The same, counting its time as waiting for peers. On the compute thread.
  template <typename Operation>
  absl::Status TimedOnHost(Instruction& instruction, Stream& stream, const Operation& operation);
  template <typename Wait>
  absl::Status Timed(const Wait& wait);
  absl::Status Fill(const lowered::Fill& fill, void* target);
  absl::Status FillDevice(const bound::Fill& fill, Stream& stream);
  absl::Status Send(Instruction& instruction, const void* data);
  absl::Status SendWhatIsThere(bool wait);
  absl::Status Guard(const lowered::Guard& guard, const void* data);
  MessageKey KeyOf(const Instruction& instruction) const {
    const auto* const collective = instruction.As<bound::Collective>();
    const bool is_across = collective != nullptr && collective->what->across_micro_batches;
    return {current_step_, is_across ? -1 : instruction.micro_batch};
  }
  absl::Status RunCommunication(int i);
  absl::Status Fail(const Instruction& instruction, const absl::Status& status) const;
  absl::Status PlaceReports(StepResult& result);
  absl::Status ReadReports(StepResult& result);
  void Drain();

  const ExecutorEnvironment environment_;
  const std::string guard_;
  const int total_micro_batches_;
  std::unique_ptr<BodyRunner> own_bodies_;  // unless the environment has one
  LoweredStep step_;
  ValueSlots slots_;
  StepScalars scalars_;
  const MemoryWork* memory_work_ = nullptr;
  // Where the host cannot reach the device's memory:
  std::vector<FeedStaging> feed_staging_;  // by feed
  DeferredSends sends_;
  RecordedSegments segments_;
  ExternalBuffers external_buffers_;  // none where the host cannot reach the device's memory
  Arena own_arena_;                   // unless the environment has one
  Arena& arena_;
  void* arena_memory_ = nullptr;  // that the addresses are in
  bool prepared_ = false;
  std::vector<Instruction> compute_;
  std::vector<Instruction> communication_list_;
  std::vector<std::unique_ptr<Event>> signal_events_;  // compute has come to the signal
  std::vector<std::unique_ptr<Event>> done_events_;    // communication is over, by instruction
  std::unique_ptr<Stream> compute_stream_;
  std::unique_ptr<Stream> communication_stream_;
  std::unique_ptr<Stream> host_stream_;  // of kernels that run on the host (HostRun)
  bool host_accessible_ = true;
  ProgramMemory memory_;
  int64_t current_step_ = 0;
  bool guard_failed_ = false;  // in the current step
  size_t first_update_ = 0;    // of compute_: after everything that belongs to a micro-batch
  int64_t waited_nanos_ = 0;   // in the current step; of the compute thread
  int64_t update_nanos_ = 0;
  bool statistics_enabled_ = false;
  struct Timing {
    int64_t calls = 0;
    int64_t nanoseconds = 0;
  };
  std::vector<Timing> timings_;  // by info
  std::unique_ptr<CommunicationThread> communication_;
};

template <typename Visit>
absl::Status CompiledStep::ForEach(const Visit& visit) {
  for (size_t i = 0; i < compute_.size(); ++i) {
    WEFT_RETURN_IF_ERROR(visit(step_.compute[i], compute_[i]));
  }
  for (size_t i = 0; i < communication_list_.size(); ++i) {
    WEFT_RETURN_IF_ERROR(visit(step_.communication[i], communication_list_[i]));
  }
  return absl::OkStatus();
}

absl::Status CompiledStep::AddStaging(const LoweredInstruction& lowered,
                                      Instruction& instruction) const {
  const std::vector<int64_t> bytes = HostOperandBytes(lowered, step_.buffers);
  if (host_accessible_ || bytes.empty()) return absl::OkStatus();
  instruction.staging = std::make_unique<HostStaging>();
  return instruction.staging->Allocate(*environment_.device, bytes);
}

// Each comes twice: as the graph has it, and as kernels read it.
void CompiledStep::MeasureConstants() {
  for (size_t i = 0; i + 1 < step_.constants.size(); i += 2) {
    const Tensor& own = step_.constants[i];
    const Tensor& read = step_.constants[i + 1];
    const auto bytes = static_cast<int64_t>(own.bytes());
    const bool is_copied = own.raw_data() != read.raw_data();
    const bool is_mapped = ReleaseMappedPages(
        {static_cast<const std::byte*>(own.raw_data()), static_cast<size_t>(bytes)});
    memory_.constant_bytes += is_copied && !is_mapped ? 2 * bytes : bytes;
    if (is_mapped && !is_copied) memory_.mapped_constant_bytes += bytes;
  }
}

void CompiledStep::MeasureMemory(const MemoryPlan& plan) {
  memory_.arena_bytes = plan.arena_bytes;
  memory_.workspace_bytes = step_.workspace_bytes;
  memory_.lower_bound_bytes = plan.lower_bound_bytes;
  memory_.variable_bytes = environment_.variables->bytes();
  MeasureConstants();
  for (const std::unique_ptr<Kernel>& kernel : step_.kernels) {
    memory_.packed_bytes += static_cast<int64_t>(kernel->retained_bytes());
  }
  if (host_accessible_) return;
  memory_.staging_bytes = scalars_.staging_bytes(*environment_.device);
  feed_staging_.resize(step_.feeds.size());
  for (const auto* list : {&step_.compute, &step_.communication}) {
    for (const LoweredInstruction& lowered : *list) {
      const auto* const fill = lowered.As<lowered::Fill>();
      if (fill != nullptr) feed_staging_[fill->feed].Add(step_.buffers.bytes(fill->into));
      for (const int64_t bytes : HostOperandBytes(lowered, step_.buffers)) {
        memory_.staging_bytes += bytes;
      }
    }
  }
  for (const FeedStaging& feed : feed_staging_) memory_.staging_bytes += feed.bytes();
}

absl::Status CompiledStep::Build(LoweredStep step) {
  step_ = std::move(step);
  slots_.Reset(step_.slots);
  host_accessible_ = environment_.device->info().host_accessible;
  WEFT_ASSIGN_OR_RETURN(memory_work_, MemoryWorkOf(*environment_.device));
  WEFT_ASSIGN_OR_RETURN(const MemoryPlan plan,
                        step_.buffers.PlanArena(environment_.max_arena_bytes));
  MeasureMemory(plan);
  arena_.Reserve(plan.arena_bytes);
  for (const LoweredInstruction& lowered : step_.compute) {
    WEFT_ASSIGN_OR_RETURN(compute_.emplace_back(), NewInstruction(lowered, total_micro_batches_));
  }
  for (const LoweredInstruction& lowered : step_.communication) {
    WEFT_ASSIGN_OR_RETURN(communication_list_.emplace_back(),
                          NewInstruction(lowered, total_micro_batches_));
  }
  for (size_t i = 0; i < compute_.size(); ++i) {
    if (compute_[i].micro_batch >= 0) first_update_ = i + 1;
  }
  bool awaited_next = false;
  for (auto instruction = compute_.rbegin(); instruction != compute_.rend(); ++instruction) {
    if (auto* const signal = instruction->As<bound::Signal>()) {
      signal->is_awaited_next = awaited_next;
    } else {
      awaited_next = instruction->As<bound::Await>() != nullptr;
    }
  }
  timings_.resize(step_.infos.size());
  if (host_accessible_) {
    external_buffers_.Find(compute_, communication_list_);
  } else {
    segments_.Find(compute_, first_update_);
  }
  return BuildStreams();
}

absl::Status CompiledStep::BuildStreams() {
  Device& device = *environment_.device;
  WEFT_ASSIGN_OR_RETURN(compute_stream_, device.NewStream("compute"));
  if (!host_accessible_) {
    WEFT_ASSIGN_OR_RETURN(host_stream_, CpuDevice().NewStream("host"));
  }
  // The vectors no longer move: the contexts may point at their elements.
  for (Instruction& instruction : compute_) {
    if (auto* const run = instruction.As<bound::KernelRun>()) {
      run->context.inputs = run->inputs.data();
      run->context.outputs = run->outputs.data();
      run->context.stream = compute_stream_.get();
    }
    if (instruction.As<bound::Signal>() == nullptr) continue;
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Event> event, device.NewEvent());
    signal_events_.push_back(std::move(event));
  }
  if (communication_list_.empty()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(communication_stream_, device.NewStream("communication"));
  for (size_t i = 0; i < communication_list_.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(done_events_.emplace_back(), device.NewEvent());
  }
  communication_ = std::make_unique<CommunicationThread>(
      static_cast<int>(communication_list_.size()),
      [this](int i) { return communication_list_[i].As<bound::Collective>()->what->wait_signals; },
      [this](int i) { return RunCommunication(i); });
  return absl::OkStatus();
}

absl::Status CompiledStep::PrepareTransfers(size_t sends) {
  Device& device = *environment_.device;
  WEFT_RETURN_IF_ERROR(scalars_.Prepare(device));
  for (FeedStaging& feed : feed_staging_) WEFT_RETURN_IF_ERROR(feed.Allocate(device));
  return host_accessible_ ? absl::OkStatus() : sends_.Prepare(device, sends);
}

absl::Status CompiledStep::Prepare() {
  const absl::StatusOr<void*> memory = arena_.Memory();
  if (!memory.ok()) {
    const std::string largest = DescribeLargestValue(step_);
    if (largest.empty()) return memory.status();
    return absl::Status(memory.status().code(),
                        absl::StrCat(std::string(memory.status().message()), "; ", largest));
  }
  void* const arena = *memory;
  if (prepared_ && arena == arena_memory_) return absl::OkStatus();
  if (!prepared_) {
    for (const auto& [name, buffer] : step_.variables) {
      WEFT_ASSIGN_OR_RETURN(void* const address, environment_.variables->DevicePointer(name));
      step_.buffers.SetAddress(buffer, address);
    }
    size_t sends = 0;
    WEFT_RETURN_IF_ERROR(ForEach([&](const auto& lowered, auto& instruction) {
      sends += instruction.template As<bound::Send>() != nullptr ? 1 : 0;
      return AddStaging(lowered, instruction);
    }));
    WEFT_RETURN_IF_ERROR(PrepareTransfers(sends));
  }
  const auto address = [&](BufferIndex buffer) { return step_.buffers.AddressIn(buffer, arena); };
  WEFT_RETURN_IF_ERROR(ForEach([&](const auto& lowered, auto& instruction) {
    VisitAddresses(
        lowered, instruction,
        [&](BufferIndex buffer, const void*& place) { place = address(buffer); },
        [&](BufferIndex buffer, void*& place) { place = address(buffer); });
    return absl::OkStatus();
  }));
  external_buffers_.Reset(arena);
  segments_.Reset();
  arena_memory_ = arena;
  prepared_ = true;
  return absl::OkStatus();
}

absl::Status RunKernel(void* argument, Stream&) {
  const auto* const run = static_cast<const bound::KernelRun*>(argument);
  return run->kernel->Run(run->context);
}

inline absl::Status CompiledStep::Execute(Instruction& instruction, Stream& stream) {
  if (auto* const run = instruction.As<bound::KernelRun>()) [[likely]] {
    run->context.step = current_step_;
    if (host_accessible_) return run->kernel->Run(run->context);
    return stream.Enqueue({RunKernel, run});
  }
  return ExecuteOther(instruction, stream);
}

absl::Status CompiledStep::ExecuteOther(Instruction& instruction, Stream& stream) {
  if (auto* const add = instruction.As<bound::Add>()) {
    return stream.Enqueue({memory_work_->sum, &add->arguments});
  }
  if (auto* const pack = instruction.As<bound::Pack>()) {
    return stream.Enqueue({memory_work_->copy_rows, &pack->arguments});
  }
  if (const auto* const copy = instruction.As<bound::Copy>()) {
    if (copy->from == copy->into) return absl::OkStatus();
    return environment_.device->CopyOnDevice(stream, copy->from, copy->into,
                                             static_cast<size_t>(copy->what->bytes));
  }
  if (const auto* const wait = instruction.As<bound::WaitSent>()) {
    return Timed([&] { return environment_.communicator->WaitSent(wait->what->channel); });
  }
  if (const auto* const signal = instruction.As<bound::Signal>()) {
    const int count = signal->what->count;
    WEFT_RETURN_IF_ERROR(stream.Record(*signal_events_[count - 1]));
    communication_->Signal(count, /*wake=*/!signal->is_awaited_next);
    return absl::OkStatus();
  }
  if (const auto* const await = instruction.As<bound::Await>()) {
    WEFT_RETURN_IF_ERROR(Timed([&] { return communication_->Await(await->what->count); }));
    return host_accessible_ ? absl::OkStatus() : stream.Wait(*done_events_[await->what->count - 1]);
  }
  if (const auto* const run = instruction.As<bound::ValueRun>()) return slots_.Run(*run, stream);
  if (const auto* const take = instruction.As<bound::TakeValue>()) {
    return slots_.Take(*take, step_.feeds[take->what->feed]);
  }
  if (const auto* const load = instruction.As<bound::Load>()) return slots_.Load(*load, stream);
  return ExecuteOnHost(instruction, stream);
}

// Operations in which the host reads or writes buffers: directly where it can, else through staging
// memory.
template <typename Operation>
absl::Status CompiledStep::OnHost(Instruction& instruction, Stream& stream,
                                  const Operation& operation) const {
  const HostOperands operands = HostOperandsOf(instruction);
  if (host_accessible_) return operation(operands.addresses);
  return instruction.staging->Run(operands, *environment_.device, stream, operation);
}

template <typename Operation>
absl::Status CompiledStep::TimedOnHost(Instruction& instruction, Stream& stream,
                                       const Operation& operation) {
  return OnHost(instruction, stream,
                [&](void* const* buffers) { return Timed([&] { return operation(buffers); }); });
}

absl::Status CompiledStep::ExecuteOnHost(Instruction& instruction, Stream& stream) {
  Communicator& communicator = *environment_.communicator;
  const MessageKey key = KeyOf(instruction);
  if (auto* const run = instruction.As<bound::HostRun>()) {
    run->context.step = current_step_;
    run->context.stream = host_stream_.get();
    return OnHost(instruction, stream, [run](void* const* operands) {
      PointAtHost(*run, operands);
      return run->what->kernel->Run(run->context);
    });
  }
  if (const auto* const fill = instruction.As<bound::Fill>()) {
    return host_accessible_ ? Fill(*fill->what, fill->into) : FillDevice(*fill, stream);
  }
  if (const auto* const send = instruction.As<bound::Send>()) {
    if (host_accessible_) return Send(instruction, send->from);
    return sends_.Add(instruction, *environment_.device, stream);
  }
  if (const auto* const receive = instruction.As<bound::Receive>()) {
    return TimedOnHost(instruction, stream, [&](void* const* buffers) {
      return communicator.Receive(receive->what->channel, key, buffers[0]);
    });
  }
  if (const auto* const collective = instruction.As<bound::Collective>()) {
    return TimedOnHost(instruction, stream, [&](void* const* buffers) {
      return communicator.RunCollective(collective->what->handle, key, buffers);
    });
  }
  const auto& guard = std::get<bound::Guard>(instruction.work);
  return OnHost(instruction, stream,
                [&](void* const* buffers) { return Guard(*guard.what, buffers[0]); });
}

template <typename Wait>
absl::Status CompiledStep::Timed(const Wait& wait) {
  const int64_t begin = environment_.clock->MonotonicNanos();
  absl::Status status = wait();
  waited_nanos_ += environment_.clock->MonotonicNanos() - begin;
  return status;
}

// Writes the rows to `target`, or has their readers read them where they are.
absl::Status CompiledStep::Fill(const lowered::Fill& fill, void* target) {
  InputSource& source = *environment_.input;
  const FeedInput& feed = step_.feeds[fill.feed];
  const BufferIndex buffer = fill.into;
  const int64_t bytes = external_buffers_.BytesOfInput(buffer);
  if (bytes > 0) {
    const std::span<const std::byte> borrowed =
        source.BorrowBatch(current_step_, feed, fill.first_sample, fill.samples);
    if (static_cast<int64_t>(borrowed.size()) >= bytes) {
      // Nobody but this instruction writes there.
      external_buffers_.Move(buffer, const_cast<std::byte*>(borrowed.data()));
      return absl::OkStatus();
    }
    external_buffers_.Move(buffer, nullptr);
    target = external_buffers_.AddressOf(buffer);
  }
  return source.Fill(current_step_, feed, fill.first_sample, fill.samples, target);
}

// While the device copies these rows, the next ones are filled.
absl::Status CompiledStep::FillDevice(const bound::Fill& fill, Stream& stream) {
  FeedStaging& staging = feed_staging_[fill.what->feed];
  WEFT_ASSIGN_OR_RETURN(void* const rows, staging.Next());
  WEFT_RETURN_IF_ERROR(Fill(*fill.what, rows));
  return staging.Copy(*environment_.device, stream, fill.into,
                      step_.buffers.bytes(fill.what->into));
}

absl::Status CompiledStep::Send(Instruction& instruction, const void* data) {
  const Communicator::ChannelHandle channel = instruction.As<bound::Send>()->what->channel;
  return Timed([&] { return environment_.communicator->Send(channel, KeyOf(instruction), data); });
}

// What has come to the host by now, or all that is to be sent.
absl::Status CompiledStep::SendWhatIsThere(bool wait) {
  return sends_.Flush(wait, [this](Instruction& instruction) {
    absl::Status status = Send(instruction, instruction.staging->address(0));
    return status.ok() ? status : Fail(instruction, status);
  });
}

absl::Status CompiledStep::Guard(const lowered::Guard& guard, const void* data) {
  if (FindNonFinite(guard.dtype, 1, data) < 0) return absl::OkStatus();
  double value = 0;
  DispatchDType(guard.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>) {
      value = ToFloat(*static_cast<const T*>(data));
    } else {
      value = static_cast<double>(*static_cast<const T*>(data));
    }
  });
  guard_failed_ = true;
  return absl::OutOfRangeError(absl::StrCat(guard_, " is ", value, " at step ", current_step_,
                                            "; no variable was changed in this step"));
}

absl::Status CompiledStep::RunCommunication(int i) {
  Instruction& instruction = communication_list_[i];
  const lowered::Collective& collective = *instruction.As<bound::Collective>()->what;
  if (!host_accessible_ && collective.wait_signals > 0) {
    WEFT_RETURN_IF_ERROR(communication_stream_->Wait(*signal_events_[collective.wait_signals - 1]));
  }
  // It keeps the compute list waiting only in an await.
  absl::Status status = OnHost(instruction, *communication_stream_, [&](void* const* buffers) {
    return environment_.communicator->RunCollective(collective.handle, KeyOf(instruction), buffers);
  });
  if (status.ok() && !host_accessible_) status = communication_stream_->Record(*done_events_[i]);
  return status.ok() ? status : Fail(instruction, status);
}

int FeedOf(const Instruction& instruction) {
  if (const auto* const fill = instruction.As<bound::Fill>()) return fill->what->feed;
  if (const auto* const take = instruction.As<bound::TakeValue>()) return take->what->feed;
  return -1;
}

absl::Status CompiledStep::Fail(const Instruction& instruction, const absl::Status& status) const {
  if (instruction.As<bound::Await>() != nullptr)
    return status;  // the collective's own, which says where
  std::string where = absl::StrCat("step ", current_step_);
  if (instruction.micro_batch >= 0) {
    absl::StrAppend(&where, ", micro-batch ", instruction.micro_batch);
  }
  std::string place = where;
  if (instruction.info >= 0) {
    const InstructionInfo& info = step_.infos[instruction.info];
    place = absl::StrCat("node '", info.node, "', ", where);
    absl::StrAppend(&where, ", node '", info.node, "' (", info.op, ", ", info.shapes, ")");
  } else if (const int feed = FeedOf(instruction); feed >= 0) {
    absl::StrAppend(&where, ", input '", step_.feeds[feed].name, "'");
  }
  return Annotate(WithWaitPlace(status, place), where);
}

absl::Status CompiledStep::RunActions(const StepOptions& options) {
  WEFT_RETURN_IF_ERROR(RunPart(0, first_update_, options));
  const int64_t begin = environment_.clock->MonotonicNanos();
  const int64_t waited_before = waited_nanos_;
  absl::Status status = RunPart(first_update_, compute_.size(), options);
  if (host_accessible_) {
    update_nanos_ = environment_.clock->MonotonicNanos() - begin - (waited_nanos_ - waited_before);
  }
  return status;
}

absl::Status CompiledStep::RunPart(size_t first, size_t last, const StepOptions& options) {
  if (statistics_enabled_ || options.check_numerics) return RunTimed(first, last, options);
  if (!host_accessible_) return RunOnDevice(first, last);
  Stream& stream = *compute_stream_;
  for (size_t i = first; i < last; ++i) {
    Instruction& instruction = compute_[i];
    if (absl::Status status = Execute(instruction, stream); !status.ok()) [[unlikely]] {
      return Fail(instruction, status);
    }
  }
  return absl::OkStatus();
}

// True if the instruction may wait for a peer, who may wait for what is to be sent.
bool AwaitsPeers(const Instruction& instruction) {
  return instruction.As<bound::Receive>() != nullptr ||
         instruction.As<bound::WaitSent>() != nullptr ||
         instruction.As<bound::Collective>() != nullptr ||
         instruction.As<bound::Await>() != nullptr || instruction.As<bound::Guard>() != nullptr;
}

// Launches ahead of the device: waits only where the host needs a value.
absl::Status CompiledStep::RunOnDevice(size_t first, size_t last) {
  const auto enqueue = [this](size_t i) { return Execute(compute_[i], *compute_stream_); };
  for (size_t i = first; i < last;) {
    if (!sends_.empty()) WEFT_RETURN_IF_ERROR(SendWhatIsThere(AwaitsPeers(compute_[i])));
    const size_t end = segments_.EndOf(i);
    size_t failed = i;
    absl::Status status =
        end > i ? segments_.Run(i, *compute_stream_, enqueue, failed) : enqueue(i);
    if (!status.ok()) return Fail(compute_[failed], status);
    i = std::max(end, i + 1);
  }
  return absl::OkStatus();
}

absl::Status CompiledStep::RunTimed(size_t first, size_t last, const StepOptions& options) {
  Clock& clock = *environment_.clock;
  for (size_t i = first; i < last; ++i) {
    Instruction& instruction = compute_[i];
    const int64_t begin = clock.MonotonicNanos();
    absl::Status status = Execute(instruction, *compute_stream_);
    if (status.ok() && !host_accessible_ && instruction.As<bound::Await>() == nullptr) {
      status = compute_stream_->Synchronize(kDeviceTimeout);
      if (status.ok()) WEFT_RETURN_IF_ERROR(SendWhatIsThere(/*wait=*/true));
    }
    const std::span<void* const> outputs = DeviceOutputs(instruction);
    if (status.ok() && options.check_numerics && instruction.info >= 0 && !outputs.empty()) {
      status = CheckOutputsFinite(outputs, step_.infos[instruction.info], *memory_work_,
                                  *environment_.device, *compute_stream_);
    }
    if (!status.ok()) return Fail(instruction, status);
    if (statistics_enabled_ && instruction.info >= 0) {
      timings_[instruction.info].calls += 1;
      timings_[instruction.info].nanoseconds += clock.MonotonicNanos() - begin;
    }
  }
  return absl::OkStatus();
}

// Tensors for the reports; those that can are made right there.
absl::Status CompiledStep::PlaceReports(StepResult& result) {
  for (const LoweredReport& report : step_.reports) {
    if (report.slot != kNoSlot) continue;
    Tensor& tensor = result.reports[report.name];
    const bool reusable = tensor.buffer() != nullptr && tensor.buffer().use_count() == 1 &&
                          tensor.dtype() == report.dtype && tensor.shape() == report.shape;
    if (!reusable) {
      WEFT_ASSIGN_OR_RETURN(tensor, Tensor::Allocate(report.dtype, report.shape));
    }
    const int64_t bytes = external_buffers_.BytesOfReport(report.buffer);
    if (bytes > 0 && bytes <= static_cast<int64_t>(tensor.bytes())) {
      external_buffers_.Move(report.buffer, tensor.raw_data());
    }
  }
  return absl::OkStatus();
}

absl::Status CompiledStep::ReadReports(StepResult& result) {
  for (const LoweredReport& report : step_.reports) {
    if (report.slot != kNoSlot) {
      result.values[report.name] = slots_.at(report.slot);
      continue;
    }
    Tensor& tensor = result.reports[report.name];
    const void* const source = external_buffers_.AddressOf(report.buffer);
    if (source == tensor.raw_data()) continue;
    WEFT_RETURN_IF_ERROR(environment_.device->CopyToHost(*compute_stream_, source,
                                                         tensor.raw_data(), tensor.bytes()));
  }
  return compute_stream_->Synchronize(kDeviceTimeout);
}

// After an error: nothing of the step is under way any more, so its memory may serve again.
void CompiledStep::Drain() {
  if (host_accessible_) return;
  // Their errors are the step's, or come after it.
  (void)compute_stream_->Synchronize(kDeviceTimeout);
  if (communication_stream_ != nullptr) {
    (void)communication_stream_->Synchronize(kDeviceTimeout);
  }
}

absl::Status CompiledStep::RunInto(const StepOptions& options, StepResult& result) {
  WEFT_RETURN_IF_ERROR(Prepare());
  current_step_ = options.step;
  absl::Status status = scalars_.Write(options.scalars, *environment_.device, *compute_stream_);
  if (status.ok()) status = PlaceReports(result);
  if (status.ok()) status = RunPrepared(options, result);
  if (!status.ok()) Drain();
  slots_.Reset(step_.slots);  // lets go of what the step made
  return status;
}

absl::Status CompiledStep::RunPrepared(const StepOptions& options, StepResult& result) {
  guard_failed_ = false;
  waited_nanos_ = update_nanos_ = 0;
  sends_.Clear();
  if (communication_ != nullptr) communication_->StartStep();
  absl::Status status = RunActions(options);
  if (status.ok() && host_accessible_) status = compute_stream_->Synchronize(kDeviceTimeout);
  // After a failed guard every rank stops at the same place and has signalled the same collectives,
  // so they are left to end; any other error ends them on all ranks.
  if (!status.ok() && !guard_failed_) {
    environment_.communicator->Abort(status);
    if (communication_ != nullptr) communication_->CancelStep();
  }
  if (communication_ != nullptr) {
    absl::Status communicated = Timed([this] { return communication_->FinishStep(); });
    if (status.ok()) status = communicated;
  }
  if (status.ok()) {
    status = ReadReports(result);  // where a device ends a step, with its errors
    if (!status.ok()) environment_.communicator->Abort(status);
  }
  result.waited_seconds = static_cast<double>(waited_nanos_) * 1e-9;
  result.update_seconds = static_cast<double>(update_nanos_) * 1e-9;
  return status;
}

std::vector<NodeStatistics> CompiledStep::statistics() const {
  std::vector<NodeStatistics> result;
  for (size_t i = 0; i < step_.infos.size(); ++i) {
    const InstructionInfo& info = step_.infos[i];
    if (info.group >= 0) continue;  // its time is the group's
    result.push_back({info.node, info.op, info.phase, timings_[i].calls, timings_[i].nanoseconds});
  }
  return result;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StepProgram>> CompileWithBodies(
    const Partition& partition, const ExecutorEnvironment& environment,
    std::unique_ptr<BodyRunner> own_bodies) {
  WEFT_ASSIGN_OR_RETURN(LoweredStep step,
                        LowerStep(partition, environment, environment.observe_lowering));
  auto program = std::make_unique<CompiledStep>(environment, partition, std::move(own_bodies));
  WEFT_RETURN_IF_ERROR(program->Build(std::move(step)));
  return program;
}

}  // namespace weft
