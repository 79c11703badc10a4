// CompiledStep: a step as a whole.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "executor/program/await_event.h"
#include "executor/program/compiled_step.h"
#include "executor/program/device_timeout.h"
#include "executor/program/numerics_check.h"
#include "platform/status_macros.h"
#include "tensor/timing/device_timer.h"

namespace weft {
namespace {

constexpr int64_t kNotTimed = -1;
// Of a stream that has nothing to do: at one more event.
constexpr absl::Duration kLastLook = absl::Milliseconds(100);

absl::Status RunKernel(void* argument, Stream&) {
  const auto* const run = static_cast<const bound::KernelRun*>(argument);
  return run->kernel->Run(run->context);
}

// True if the instruction may wait for a peer, who may wait for what is to be sent: the host in it,
// or the stream in one of the device, behind which the host may have to wait for room or memory.
// The next rows are on their way to the device before that.
bool AwaitsPeers(const Instruction& instruction) {
  return instruction.As<bound::Receive>() != nullptr ||
         instruction.As<bound::HostRun>() != nullptr ||
         instruction.As<bound::ValueRun>() != nullptr ||
         instruction.As<bound::WaitSent>() != nullptr ||
         instruction.As<bound::Collective>() != nullptr ||
         instruction.As<bound::Await>() != nullptr || instruction.As<bound::Guard>() != nullptr ||
         instruction.As<bound::Commit>() != nullptr;
}

// True if it works on the device alone: run again on what it read, it makes the same.
bool IsLaunch(const Instruction& instruction) {
  const auto* const copy = instruction.As<bound::Copy>();
  return instruction.As<bound::KernelRun>() != nullptr || instruction.As<bound::Add>() != nullptr ||
         instruction.As<bound::Pack>() != nullptr || (copy != nullptr && copy->from != copy->into);
}

// Waits for the stream, whose errors are the step's or come after it. False where it is still at
// work after that.
bool IsDrained(Device& device, Stream& stream) {
  if (!absl::IsDeadlineExceeded(stream.Synchronize(kDeviceTimeout))) return true;
  // That of a collective, which the stream keeps, or its own?
  const auto end = device.NewEvent();
  if (!end.ok()) return false;
  (void)stream.Record(**end);
  return AwaitEvent(**end, kLastLook).ok();
}

struct BytesOnDevice {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

// Of what a launch writes: where it also reads, so that it finds something else the next time.
std::vector<BytesOnDevice> WrittenInPlace(const LoweredInstruction& lowered,
                                          Instruction& instruction, const BufferTable& buffers) {
  std::vector<BytesOnDevice> read, written;
  const auto bytes_of = [&](BufferIndex buffer, const void* data) {
    return BytesOnDevice{static_cast<std::byte*>(const_cast<void*>(data)),
                         static_cast<size_t>(buffers.bytes(buffer))};
  };
  VisitAddresses(
      lowered, instruction,
      [&](BufferIndex buffer, const void*& place) { read.push_back(bytes_of(buffer, place)); },
      [&](BufferIndex buffer, void*& place) { written.push_back(bytes_of(buffer, place)); });
  if (instruction.As<bound::Add>() != nullptr) read = written;  // into += from
  std::vector<BytesOnDevice> in_place;
  const std::less<> before;
  for (const BytesOnDevice& one : written) {
    const bool is_read = std::any_of(read.begin(), read.end(), [&](const BytesOnDevice& other) {
      return before(one.data, other.data + other.bytes) && before(other.data, one.data + one.bytes);
    });
    if (is_read) in_place.push_back(one);
  }
  return in_place;
}

}  // namespace

inline absl::Status CompiledStep::Execute(Instruction& instruction, Stream& stream) {
  if (auto* const run = instruction.As<bound::KernelRun>()) [[likely]] {
    run->context.step = current_step_;
    if (host_accessible_) return run->kernel->Run(run->context);
    return stream.Enqueue({RunKernel, run});
  }
  return ExecuteOther(instruction, stream);
}

absl::Status CompiledStep::RunActions(const StepOptions& options) {
  if (!host_accessible_) return RunPart(0, compute_.size(), options);
  WEFT_RETURN_IF_ERROR(RunPart(0, first_update_, options));
  if (environment_.update_guard != nullptr) {
    WEFT_RETURN_IF_ERROR(environment_.update_guard->BeforeUpdates(current_step_));
  }
  const int64_t begin = environment_.clock->MonotonicNanos();
  const int64_t waited_before = waited_nanos_;
  absl::Status status = RunPart(first_update_, compute_.size(), options);
  update_nanos_ = environment_.clock->MonotonicNanos() - begin - (waited_nanos_ - waited_before);
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

// Launches ahead of the device: waits only where the host needs a value.
absl::Status CompiledStep::RunOnDevice(size_t first, size_t last) {
  const auto enqueue = [this](size_t i) { return Execute(compute_[i], *compute_stream_); };
  for (size_t i = first; i < last;) {
    const bool waits = AwaitsPeers(compute_[i]);
    absl::Status status = waits ? feeds_ahead_.StartNext() : absl::OkStatus();
    if (!status.ok()) return Fail(compute_[i], status);
    if (!sends_.empty()) WEFT_RETURN_IF_ERROR(SendWhatIsThere(waits));
    const size_t end = segments_.EndOf(i);
    size_t failed = i;
    status = end > i ? segments_.Run(i, *compute_stream_, enqueue, failed) : enqueue(i);
    if (!status.ok()) return Fail(compute_[failed], status);
    i = std::max(end, i + 1);
  }
  return feeds_ahead_.StartNext();
}

// Many runs between two waits; what they write over is given back before each, and the time of that
// is measured by itself. kNotTimed where there is no memory to keep it.
absl::StatusOr<int64_t> CompiledStep::LaunchNanos(size_t i) {
  Instruction& instruction = compute_[i];
  Device& device = *environment_.device;
  Stream& stream = *compute_stream_;
  struct Kept {
    BytesOnDevice original;
    std::shared_ptr<Buffer> copy;
  };
  std::vector<Kept> kept;
  // The copies live until nothing of what is enqueued here is under way, whatever it has come to.
  const absl::Cleanup at_end = [&] {
    if (stream.Synchronize(kDeviceTimeout).ok()) return;
    for (Kept& one : kept) held_.push_back(std::move(one.copy));
  };
  for (const BytesOnDevice& bytes : WrittenInPlace(step_.compute[i], instruction, step_.buffers)) {
    auto copy = device.Allocate(bytes.bytes);
    if (absl::IsResourceExhausted(copy.status())) return kNotTimed;
    WEFT_RETURN_IF_ERROR(copy.status());
    kept.push_back({bytes, *std::move(copy)});
    WEFT_RETURN_IF_ERROR(
        device.CopyOnDevice(stream, bytes.data, kept.back().copy->data(), bytes.bytes));
  }
  const auto give_back = [&]() -> absl::Status {
    for (const Kept& one : kept) {
      WEFT_RETURN_IF_ERROR(
          device.CopyOnDevice(stream, one.copy->data(), one.original.data, one.original.bytes));
    }
    return absl::OkStatus();
  };
  DeviceTimerOptions options;
  const auto* const run = instruction.As<bound::KernelRun>();
  options.can_record = run == nullptr || !run->kernel->depends_on_step();
  const auto timed = [&]() -> absl::StatusOr<double> {
    WEFT_ASSIGN_OR_RETURN(double seconds, SecondsOnDevice(
                                              stream, *environment_.clock,
                                              [&] {
                                                const absl::Status given = give_back();
                                                return given.ok() ? Execute(instruction, stream)
                                                                  : given;
                                              },
                                              options));
    if (kept.empty()) return seconds;
    WEFT_ASSIGN_OR_RETURN(const double besides,
                          SecondsOnDevice(stream, *environment_.clock, give_back, options));
    WEFT_RETURN_IF_ERROR(give_back());
    return std::max(0.0, seconds - besides);
  };
  WEFT_ASSIGN_OR_RETURN(const double seconds, timed());
  WEFT_RETURN_IF_ERROR(stream.Synchronize(kDeviceTimeout));
  return static_cast<int64_t>(1e9 * seconds);
}

absl::Status CompiledStep::RunTimed(size_t first, size_t last, const StepOptions& options) {
  Clock& clock = *environment_.clock;
  // A wait for the device costs more than many a kernel: launches are timed once, many together.
  const bool times_launches =
      statistics_enabled_ && !host_accessible_ && !environment_.device->info().runs_host_work;
  if (times_launches) launch_nanos_.resize(compute_.size(), kNotTimed);
  for (size_t i = first; i < last; ++i) {
    Instruction& instruction = compute_[i];
    const bool is_launch = times_launches && instruction.info >= 0 && IsLaunch(instruction);
    if (is_launch && launch_nanos_[i] == kNotTimed) {
      const absl::StatusOr<int64_t> nanos = LaunchNanos(i);
      if (!nanos.ok()) return Fail(instruction, nanos.status());
      launch_nanos_[i] = *nanos;
    }
    const int64_t begin = clock.MonotonicNanos();
    absl::Status status = Execute(instruction, *compute_stream_);
    if (status.ok() && !host_accessible_ && instruction.As<bound::Await>() == nullptr) {
      status = compute_stream_->Synchronize(kDeviceTimeout);
      if (status.ok()) WEFT_RETURN_IF_ERROR(SendWhatIsThere(/*wait=*/true));
    }
    const std::span<void* const> outputs = DeviceOutputs(instruction);
    if (status.ok() && options.check_numerics && instruction.info >= 0 && !outputs.empty()) {
      status = CheckOutputsFinite(outputs, step_.infos[instruction.info], *memory_work_,
                                  *environment_.device, *compute_stream_, held_);
    }
    if (!status.ok()) return Fail(instruction, status);
    if (statistics_enabled_ && instruction.info >= 0) {
      timings_[instruction.info].calls += 1;
      timings_[instruction.info].nanoseconds += is_launch && launch_nanos_[i] != kNotTimed
                                                    ? launch_nanos_[i]
                                                    : clock.MonotonicNanos() - begin;
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
  WEFT_RETURN_IF_ERROR(compute_stream_->Synchronize(kDeviceTimeout));
  return feeds_ahead_.Finish();
}

// After an error: nothing of the step is under way any more, so its memory may serve again.
bool CompiledStep::Drain() {
  if (host_accessible_) return true;
  bool is_over = true;
  const auto drain = [&](Stream* stream) {
    if (stream != nullptr && !IsDrained(*environment_.device, *stream)) is_over = false;
  };
  drain(compute_stream_.get());
  drain(communication_stream_.get());
  drain(collective_stream_.get());
  drain(feeds_ahead_.stream());
  for (const Lane& lane : lanes_) drain(lane.stream.get());
  return is_over;
}

void CompiledStep::HoldWhatIsInUse(const StepResult& result) {
  is_under_way_ = true;
  held_.push_back(arena_.buffer());
  for (const auto& [name, tensor] : result.reports) held_.push_back(tensor.buffer());
}

absl::Status CompiledStep::EndFormerStep() {
  if (!is_under_way_) return absl::OkStatus();
  if (!Drain()) {
    return absl::DeadlineExceededError(
        absl::StrCat("step ", current_step_, " is still under way on ",
                     environment_.device->info().name, ", which does not end it; end the job"));
  }
  is_under_way_ = false;
  held_.clear();
  slots_.Reset(step_.slots);
  return absl::OkStatus();
}

absl::Status CompiledStep::RunInto(const StepOptions& options, StepResult& result) {
  WEFT_RETURN_IF_ERROR(Prepare());
  current_step_ = options.step;
  const int64_t use = arena_.BeginUse();
  const bool is_kept = state_ == StepState::kDone && use == arena_use_ + 1;
  arena_use_ = use;
  feeds_ahead_.BeginStep(current_step_, options.next_step, is_kept);
  // Without a commit nobody knows where a step begins to change variables.
  const bool commits = commit_ < compute_.size();
  state_ = commits ? StepState::kUnchanged : StepState::kTorn;
  absl::Status status =
      scalars_.Write(current_step_, options.scalars, *environment_.device, *compute_stream_);
  if (status.ok()) status = PlaceReports(result);
  if (status.ok()) status = RunPrepared(options, result);
  if (!status.ok() && !Drain()) {
    state_ = StepState::kTorn;  // what is still under way may change anything
    HoldWhatIsInUse(result);
    return status;
  }
  held_.clear();
  if (guard_failed_) state_ = StepState::kUnchanged;
  if (status.ok()) state_ = StepState::kDone;
  if (state_ == StepState::kReady) {
    ready_reports_ = result.reports;  // what was computed so far may lie there
  } else {
    slots_.Reset(step_.slots);  // lets go of what the step made
  }
  return status;
}

absl::Status CompiledStep::Finish(StepResult& result) {
  if (state_ != StepState::kReady || !finishes_alone_) {
    return absl::FailedPreconditionError(
        absl::StrCat("step ", current_step_, " cannot be finished: ",
                     state_ != StepState::kReady ? "it has not come to its commit, or is over"
                                                 : "its updates need other ranks"));
  }
  state_ = StepState::kTorn;
  result.reports = std::exchange(ready_reports_, {});
  absl::Status status = RunPart(commit_ + 1, compute_.size(), {});
  if (status.ok()) status = ReadReports(result);
  if (!status.ok() && !Drain()) {
    HoldWhatIsInUse(result);
    return status;
  }
  if (status.ok()) state_ = StepState::kDone;
  slots_.Reset(step_.slots);
  return status;
}

absl::Status CompiledStep::RunPrepared(const StepOptions& options, StepResult& result) {
  guard_failed_ = false;
  waited_nanos_ = update_nanos_ = 0;
  sends_.Clear();
  started_ = 0;
  if (communication_ != nullptr) communication_->StartStep();
  absl::Status status = collective_stream_ == nullptr ? absl::OkStatus() : StartCollectives(0);
  if (status.ok()) status = RunActions(options);
  if (status.ok() && host_accessible_) status = compute_stream_->Synchronize(kDeviceTimeout);
  // What the host read, a guard above all, means nothing then.
  const bool is_over = status.ok() && finishes_alone_;  // what becomes of others changes nothing
  if (const absl::Status cause = CollectivesStatus(); !cause.ok() && !is_over) {
    status = cause;
    guard_failed_ = false;
  }
  // After a failed guard every rank stops at the same place and has signalled the same collectives,
  // so they are left to end; any other error ends them on all ranks.
  if (!status.ok() && !guard_failed_) {
    Abort(status);
    if (communication_ != nullptr) communication_->CancelStep();
  }
  if (communication_ != nullptr) {
    absl::Status communicated = Timed([this] { return communication_->FinishStep(); });
    if (status.ok()) status = communicated;
  }
  if (status.ok()) {
    status = ReadReports(result);  // where a device ends a step, with its errors
    if (const absl::Status cause = CollectivesStatus(); !cause.ok() && !is_over) status = cause;
    if (!status.ok()) Abort(status);
  }
  result.waited_seconds = static_cast<double>(waited_nanos_) * 1e-9;
  result.update_seconds = static_cast<double>(update_nanos_) * 1e-9;
  return status;
}

std::vector<std::string> CompiledStep::host_nodes() const {
  std::set<std::string> names;
  for (const Instruction& instruction : compute_) {
    if (instruction.As<bound::HostRun>() == nullptr || instruction.info < 0) continue;
    names.insert(step_.infos[static_cast<size_t>(instruction.info)].node);
  }
  return {names.begin(), names.end()};
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

}  // namespace weft
