#include "executor/program/compiled_step.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "executor/interfaces/wait_info.h"
#include "executor/lowering/lowering.h"
#include "executor/program/communication_thread.h"
#include "executor/program/external_buffers.h"
#include "executor/program/instruction.h"
#include "executor/program/numerics_check.h"
#include "executor/program/value_slots.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Long enough for any kernel; a stream that takes longer hangs.
constexpr absl::Duration kDeviceTimeout = absl::Minutes(10);

// Whether the communicator or the input source touches the operands from the host.
bool IsHostOperation(OpCode code) {
  return code == OpCode::kFill || code == OpCode::kSend || code == OpCode::kReceive ||
         code == OpCode::kCollective || code == OpCode::kGuard;
}

class CompiledStep final : public StepProgram {
 public:
  CompiledStep(const ExecutorEnvironment& environment, const Partition& partition,
               std::unique_ptr<BodyRunner> own_bodies)
      : environment_(environment),
        guard_(partition.guard),
        total_micro_batches_(partition.total_micro_batches),
        own_bodies_(std::move(own_bodies)),
        slots_(environment),
        movable_(step_),
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
  void MeasureMemory(const MemoryPlan& plan);
  int64_t StagingBytes(const LoweredInstruction& lowered, BufferIndex buffer) const;
  absl::Status AddStaging(Instruction& instruction, const LoweredInstruction& lowered);
  void SetAddresses(Instruction& instruction, const LoweredInstruction& lowered, void* arena) const;
  absl::Status WriteScalars(const StepOptions& options);
  absl::Status RunActions(const StepOptions& options);
  absl::Status RunPart(size_t first, size_t last, const StepOptions& options);
  absl::Status RunTimed(size_t first, size_t last, const StepOptions& options);
  absl::Status Execute(Instruction& instruction, Stream& stream);
  absl::Status ExecuteOther(Instruction& instruction, Stream& stream);
  absl::Status ExecuteOnHost(Instruction& instruction, Stream& stream);
  absl::Status RunHostOperation(Instruction& instruction, void* const* buffers);
  absl::Status Communicate(Instruction& instruction, void* const* buffers);
  // Counts what `wait` takes as waiting for peers. On the compute thread.
  template <typename Wait>
  absl::Status Timed(const Wait& wait);
  absl::Status Fill(const Instruction& instruction, void* target);
  absl::Status Guard(const Instruction& instruction, const void* data);
  absl::Status RunCommunication(int i);
  absl::Status Fail(const Instruction& instruction, const absl::Status& status) const;
  absl::Status PlaceReports(StepResult& result);
  absl::Status ReadReports(StepResult& result);

  const ExecutorEnvironment environment_;
  const std::string guard_;
  const int total_micro_batches_;
  std::unique_ptr<BodyRunner> own_bodies_;  // unless the environment has one
  LoweredStep step_;
  ValueSlots slots_;
  ExternalBuffers movable_;  // none where the host cannot reach the device's memory
  Arena own_arena_;          // unless the environment has one
  Arena& arena_;
  void* arena_memory_ = nullptr;  // that the addresses are in
  bool prepared_ = false;
  std::vector<Instruction> compute_;
  std::vector<Instruction> communication_list_;
  std::vector<std::unique_ptr<Event>> signal_events_;
  std::unique_ptr<Stream> compute_stream_;
  std::unique_ptr<Stream> communication_stream_;
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

// A bucket's first slot stands for the whole region.
int64_t CompiledStep::StagingBytes(const LoweredInstruction& lowered, BufferIndex buffer) const {
  const bool is_bucket = lowered.code == OpCode::kCollective && buffer == lowered.inputs.front();
  const int64_t bytes = step_.buffers.bytes(buffer);
  return is_bucket ? std::max(bytes, lowered.bytes) : bytes;
}

absl::Status CompiledStep::AddStaging(Instruction& instruction, const LoweredInstruction& lowered) {
  if (host_accessible_ || !IsHostOperation(lowered.code)) return absl::OkStatus();
  for (BufferIndex buffer : lowered.inputs.empty() ? lowered.outputs : lowered.inputs) {
    const int64_t bytes = StagingBytes(lowered, buffer);
    WEFT_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> memory,
                          CpuDevice().Allocate(static_cast<size_t>(std::max<int64_t>(bytes, 1))));
    instruction.staging.push_back(std::move(memory));
    instruction.staging_bytes.push_back(bytes);
  }
  return absl::OkStatus();
}

void CompiledStep::SetAddresses(Instruction& instruction, const LoweredInstruction& lowered,
                                void* arena) const {
  for (size_t i = 0; i < lowered.inputs.size(); ++i) {
    instruction.inputs[i] = step_.buffers.AddressIn(lowered.inputs[i], arena);
  }
  for (size_t i = 0; i < lowered.outputs.size(); ++i) {
    instruction.outputs[i] = step_.buffers.AddressIn(lowered.outputs[i], arena);
  }
  instruction.context.workspace = step_.buffers.AddressIn(lowered.workspace, arena);
}

void CompiledStep::MeasureMemory(const MemoryPlan& plan) {
  memory_.arena_bytes = plan.arena_bytes;
  memory_.workspace_bytes = step_.workspace_bytes;
  memory_.lower_bound_bytes = plan.lower_bound_bytes;
  memory_.variable_bytes = environment_.variables->bytes();
  const void* known = nullptr;
  for (const Tensor& constant : step_.constants) {
    // One that needs no copy comes twice.
    if (constant.raw_data() != known) {
      memory_.constant_bytes += static_cast<int64_t>(constant.bytes());
    }
    known = constant.raw_data();
  }
  for (const std::unique_ptr<Kernel>& kernel : step_.kernels) {
    memory_.packed_bytes += static_cast<int64_t>(kernel->retained_bytes());
  }
  if (host_accessible_) return;
  for (const auto* list : {&step_.compute, &step_.communication}) {
    for (const LoweredInstruction& lowered : *list) {
      if (!IsHostOperation(lowered.code)) continue;
      for (BufferIndex buffer : lowered.inputs.empty() ? lowered.outputs : lowered.inputs) {
        memory_.staging_bytes += StagingBytes(lowered, buffer);
      }
    }
  }
}

absl::Status CompiledStep::Build(LoweredStep step) {
  step_ = std::move(step);
  slots_.Reset(step_.slots);
  host_accessible_ = environment_.device->info().host_accessible;
  WEFT_ASSIGN_OR_RETURN(const MemoryPlan plan,
                        step_.buffers.PlanArena(environment_.max_arena_bytes));
  MeasureMemory(plan);
  arena_.Reserve(plan.arena_bytes);
  for (const LoweredInstruction& lowered : step_.compute) {
    compute_.push_back(NewInstruction(lowered, total_micro_batches_));
  }
  for (const LoweredInstruction& lowered : step_.communication) {
    communication_list_.push_back(NewInstruction(lowered, total_micro_batches_));
    communication_list_.back().is_beside_compute = true;
  }
  for (size_t i = 0; i < compute_.size(); ++i) {
    if (compute_[i].micro_batch >= 0) first_update_ = i + 1;
  }
  bool awaited_next = false;
  for (auto instruction = compute_.rbegin(); instruction != compute_.rend(); ++instruction) {
    instruction->is_last_before_await = instruction->code == OpCode::kSignal && awaited_next;
    if (instruction->code != OpCode::kSignal) awaited_next = instruction->code == OpCode::kAwait;
  }
  timings_.resize(step_.infos.size());
  if (host_accessible_) movable_.Find(compute_, communication_list_);
  return BuildStreams();
}

absl::Status CompiledStep::BuildStreams() {
  Device& device = *environment_.device;
  WEFT_ASSIGN_OR_RETURN(compute_stream_, device.NewStream("compute"));
  // The vectors no longer move: the contexts may point at their elements.
  for (Instruction& instruction : compute_) {
    instruction.context.inputs = instruction.inputs.data();
    instruction.context.outputs = instruction.outputs.data();
    instruction.context.stream = compute_stream_.get();
    if (instruction.code != OpCode::kSignal) continue;
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Event> event, device.NewEvent());
    signal_events_.push_back(std::move(event));
  }
  if (communication_list_.empty()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(communication_stream_, device.NewStream("communication"));
  communication_ = std::make_unique<CommunicationThread>(
      static_cast<int>(communication_list_.size()),
      [this](int i) { return communication_list_[i].wait_signals; },
      [this](int i) { return RunCommunication(i); });
  return absl::OkStatus();
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
    for (size_t i = 0; i < compute_.size(); ++i) {
      WEFT_RETURN_IF_ERROR(AddStaging(compute_[i], step_.compute[i]));
    }
    for (size_t i = 0; i < communication_list_.size(); ++i) {
      WEFT_RETURN_IF_ERROR(AddStaging(communication_list_[i], step_.communication[i]));
    }
  }
  for (size_t i = 0; i < compute_.size(); ++i) SetAddresses(compute_[i], step_.compute[i], arena);
  for (size_t i = 0; i < communication_list_.size(); ++i) {
    SetAddresses(communication_list_[i], step_.communication[i], arena);
  }
  movable_.Reset(arena);
  arena_memory_ = arena;
  prepared_ = true;
  return absl::OkStatus();
}

absl::Status RunKernel(void* argument, Stream&) {
  auto* instruction = static_cast<Instruction*>(argument);
  return instruction->kernel->Run(instruction->context);
}

absl::Status RunAdd(void* argument, Stream&) {
  auto* instruction = static_cast<Instruction*>(argument);
  return AddInto(instruction->dtype, instruction->elements, instruction->inputs[0],
                 instruction->outputs[0]);
}

absl::Status RunPack(void* argument, Stream&) {
  auto* instruction = static_cast<Instruction*>(argument);
  CopyRows(instruction->region, instruction->inputs[0], instruction->outputs[0]);
  return absl::OkStatus();
}

inline absl::Status CompiledStep::Execute(Instruction& instruction, Stream& stream) {
  if (instruction.code == OpCode::kKernel) {
    instruction.context.step = current_step_;
    if (host_accessible_) return instruction.kernel->Run(instruction.context);
    return stream.Enqueue({RunKernel, &instruction});
  }
  return ExecuteOther(instruction, stream);
}

absl::Status CompiledStep::ExecuteOther(Instruction& instruction, Stream& stream) {
  switch (instruction.code) {
    case OpCode::kKernel:
      break;
    case OpCode::kAdd:
      return stream.Enqueue({RunAdd, &instruction});
    case OpCode::kPack:
      return stream.Enqueue({RunPack, &instruction});
    case OpCode::kCopy:
      if (instruction.inputs[0] == instruction.outputs[0]) return absl::OkStatus();
      return environment_.device->CopyOnDevice(stream, instruction.inputs[0],
                                               instruction.outputs[0],
                                               static_cast<size_t>(instruction.bytes));
    case OpCode::kWaitSent:
      return Timed([&] { return environment_.communicator->WaitSent(instruction.handle); });
    case OpCode::kSignal:
      WEFT_RETURN_IF_ERROR(stream.Record(*signal_events_[instruction.handle - 1]));
      communication_->Signal(instruction.handle, /*wake=*/!instruction.is_last_before_await);
      return absl::OkStatus();
    case OpCode::kAwait:
      return Timed([&] { return communication_->Await(instruction.handle); });
    case OpCode::kFill:
    case OpCode::kSend:
    case OpCode::kReceive:
    case OpCode::kCollective:
    case OpCode::kGuard:
      return ExecuteOnHost(instruction, stream);
    case OpCode::kValues:
    case OpCode::kTakeValue:
    case OpCode::kLoad:
      return slots_.Execute(instruction, step_.feeds, stream);
  }
  return absl::OkStatus();
}

// Operations in which the host reads or writes buffers: directly where it can, else through staging
// memory with the stream drained on both sides.
absl::Status CompiledStep::ExecuteOnHost(Instruction& instruction, Stream& stream) {
  const bool reads = !instruction.inputs.empty();
  if (host_accessible_) {
    if (!reads) return RunHostOperation(instruction, instruction.outputs.data());
    return RunHostOperation(instruction, const_cast<void* const*>(instruction.inputs.data()));
  }
  Device& device = *environment_.device;
  void* staging[kMaxRank] = {};
  const size_t count = std::min<size_t>(instruction.staging.size(), kMaxRank);
  for (size_t i = 0; i < count; ++i) {
    staging[i] = instruction.staging[i]->data();
    if (!reads) continue;
    WEFT_RETURN_IF_ERROR(device.CopyToHost(stream, instruction.inputs[i], staging[i],
                                           static_cast<size_t>(instruction.staging_bytes[i])));
  }
  WEFT_RETURN_IF_ERROR(stream.Synchronize(kDeviceTimeout));
  WEFT_RETURN_IF_ERROR(RunHostOperation(instruction, staging));
  if (instruction.outputs.empty()) return absl::OkStatus();
  void* target = reads ? const_cast<void*>(instruction.inputs[0]) : instruction.outputs[0];
  WEFT_RETURN_IF_ERROR(device.CopyFromHost(stream, staging[0], target,
                                           static_cast<size_t>(instruction.staging_bytes[0])));
  return stream.Synchronize(kDeviceTimeout);
}

absl::Status CompiledStep::RunHostOperation(Instruction& instruction, void* const* buffers) {
  if (instruction.code == OpCode::kFill) return Fill(instruction, buffers[0]);
  if (instruction.code == OpCode::kGuard) return Guard(instruction, buffers[0]);
  // What runs beside the compute list keeps it waiting only in kAwait.
  if (instruction.is_beside_compute) return Communicate(instruction, buffers);
  return Timed([&] { return Communicate(instruction, buffers); });
}

absl::Status CompiledStep::Communicate(Instruction& instruction, void* const* buffers) {
  Communicator& communicator = *environment_.communicator;
  const MessageKey key{current_step_, instruction.micro_batch};
  if (instruction.code == OpCode::kSend) {
    return communicator.Send(instruction.handle, key, buffers[0]);
  }
  if (instruction.code == OpCode::kReceive) {
    return communicator.Receive(instruction.handle, key, buffers[0]);
  }
  return communicator.RunCollective(instruction.handle, key, buffers);
}

template <typename Wait>
absl::Status CompiledStep::Timed(const Wait& wait) {
  const int64_t begin = environment_.clock->MonotonicNanos();
  absl::Status status = wait();
  waited_nanos_ += environment_.clock->MonotonicNanos() - begin;
  return status;
}

// Writes the rows to `target`, or has their readers read them where they are.
absl::Status CompiledStep::Fill(const Instruction& instruction, void* target) {
  InputSource& source = *environment_.input;
  const FeedInput& feed = step_.feeds[instruction.feed];
  const BufferIndex buffer = instruction.filled;
  const int64_t bytes = movable_.BytesOfInput(buffer);
  if (bytes > 0) {
    const std::span<const std::byte> borrowed =
        source.BorrowBatch(current_step_, feed, instruction.first, instruction.count);
    if (static_cast<int64_t>(borrowed.size()) >= bytes) {
      // Nobody but this instruction writes there.
      movable_.Move(buffer, const_cast<std::byte*>(borrowed.data()));
      return absl::OkStatus();
    }
    movable_.Move(buffer, nullptr);
    target = movable_.AddressOf(buffer);
  }
  return source.Fill(current_step_, feed, instruction.first, instruction.count, target);
}

absl::Status CompiledStep::Guard(const Instruction& instruction, const void* data) {
  if (FindNonFinite(instruction.dtype, 1, data) < 0) return absl::OkStatus();
  double value = 0;
  DispatchDType(instruction.dtype, [&](auto zero) {
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
  if (!host_accessible_ && instruction.wait_signals > 0) {
    WEFT_RETURN_IF_ERROR(
        communication_stream_->Wait(*signal_events_[instruction.wait_signals - 1]));
  }
  absl::Status status = ExecuteOnHost(instruction, *communication_stream_);
  return status.ok() ? status : Fail(instruction, status);
}

absl::Status CompiledStep::Fail(const Instruction& instruction, const absl::Status& status) const {
  if (instruction.code == OpCode::kAwait) return status;  // the collective's own, which says where
  std::string where = absl::StrCat("step ", current_step_);
  if (instruction.micro_batch >= 0) {
    absl::StrAppend(&where, ", micro-batch ", instruction.micro_batch);
  }
  std::string place = where;
  if (instruction.info >= 0) {
    const InstructionInfo& info = step_.infos[instruction.info];
    place = absl::StrCat("node '", info.node, "', ", where);
    absl::StrAppend(&where, ", node '", info.node, "' (", info.op, ", ", info.shapes, ")");
  } else if (instruction.feed >= 0) {
    absl::StrAppend(&where, ", input '", step_.feeds[instruction.feed].name, "'");
  }
  return Annotate(WithWaitPlace(status, place), where);
}

absl::Status CompiledStep::WriteScalars(const StepOptions& options) {
  for (StepScalar& scalar : step_.scalars) {
    const auto value = options.scalars.find(scalar.name);
    if (value == options.scalars.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("step input '", scalar.name, "' was not given a value"));
    }
    double bits = 0;  // holds any scalar's bytes
    bool known = false;
    DispatchDType(scalar.dtype, [&](auto zero) {
      using T = decltype(zero);
      if constexpr (std::is_arithmetic_v<T>) {
        const T typed = static_cast<T>(value->second);
        std::memcpy(&bits, &typed, sizeof(T));
        known = true;
      }
    });
    if (!known || scalar.device_value.num_elements() != 1) {
      return absl::InvalidArgumentError(absl::StrCat("step input '", scalar.name,
                                                     "' must be a number, not ",
                                                     scalar.device_value.shape().ToString()));
    }
    WEFT_RETURN_IF_ERROR(environment_.device->CopyFromHost(
        *compute_stream_, &bits, scalar.device_value.raw_data(), scalar.device_value.bytes()));
    if (!host_accessible_) WEFT_RETURN_IF_ERROR(compute_stream_->Synchronize(kDeviceTimeout));
  }
  return absl::OkStatus();
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
  Stream& stream = *compute_stream_;
  for (size_t i = first; i < last; ++i) {
    Instruction& instruction = compute_[i];
    if (absl::Status status = Execute(instruction, stream); !status.ok()) [[unlikely]] {
      return Fail(instruction, status);
    }
  }
  return absl::OkStatus();
}

absl::Status CompiledStep::RunTimed(size_t first, size_t last, const StepOptions& options) {
  Clock& clock = *environment_.clock;
  for (size_t i = first; i < last; ++i) {
    Instruction& instruction = compute_[i];
    const int64_t begin = clock.MonotonicNanos();
    absl::Status status = Execute(instruction, *compute_stream_);
    if (status.ok() && !host_accessible_ && instruction.code != OpCode::kAwait) {
      status = compute_stream_->Synchronize(kDeviceTimeout);
    }
    if (status.ok() && options.check_numerics && instruction.info >= 0 &&
        instruction.code == OpCode::kKernel) {
      status = CheckOutputsFinite(instruction, step_.infos[instruction.info], *environment_.device,
                                  *compute_stream_, kDeviceTimeout);
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
    const int64_t bytes = movable_.BytesOfReport(report.buffer);
    if (bytes > 0 && bytes <= static_cast<int64_t>(tensor.bytes())) {
      movable_.Move(report.buffer, tensor.raw_data());
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
    const void* const source = movable_.AddressOf(report.buffer);
    if (source == tensor.raw_data()) continue;
    WEFT_RETURN_IF_ERROR(environment_.device->CopyToHost(*compute_stream_, source,
                                                         tensor.raw_data(), tensor.bytes()));
  }
  return compute_stream_->Synchronize(kDeviceTimeout);
}

absl::Status CompiledStep::RunInto(const StepOptions& options, StepResult& result) {
  WEFT_RETURN_IF_ERROR(Prepare());
  current_step_ = options.step;
  guard_failed_ = false;
  waited_nanos_ = update_nanos_ = 0;
  WEFT_RETURN_IF_ERROR(WriteScalars(options));
  WEFT_RETURN_IF_ERROR(PlaceReports(result));
  if (communication_ != nullptr) communication_->StartStep();
  absl::Status status = RunActions(options);
  if (status.ok()) status = compute_stream_->Synchronize(kDeviceTimeout);
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
  if (status.ok()) status = ReadReports(result);
  result.waited_seconds = static_cast<double>(waited_nanos_) * 1e-9;
  result.update_seconds = static_cast<double>(update_nanos_) * 1e-9;
  slots_.Reset(step_.slots);  // lets go of what the step made
  return status;
}

std::vector<NodeStatistics> CompiledStep::statistics() const {
  std::vector<NodeStatistics> result;
  for (size_t i = 0; i < step_.infos.size(); ++i) {
    const InstructionInfo& info = step_.infos[i];
    result.push_back({info.node, info.op, info.phase, timings_[i].calls, timings_[i].nanoseconds});
  }
  return result;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StepProgram>> CompileWithBodies(
    const Partition& partition, const ExecutorEnvironment& environment,
    std::unique_ptr<BodyRunner> own_bodies) {
  WEFT_ASSIGN_OR_RETURN(LoweredStep step, LowerStep(partition, environment));
  auto program = std::make_unique<CompiledStep>(environment, partition, std::move(own_bodies));
  WEFT_RETURN_IF_ERROR(program->Build(std::move(step)));
  return program;
}

}  // namespace weft
