#include "executor/program/compiled_step.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "executor/lowering/lowering.h"
#include "executor/program/host_staging.h"
#include "executor/program/memory_operations.h"
#include "ops/memory_work.h"
#include "platform/mapped_pages.h"
#include "platform/status_macros.h"

namespace weft {

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
    if (!host_accessible_) {
      memory_.device_constant_bytes += bytes;
      memory_.constant_bytes += is_mapped ? 0 : bytes;
      continue;
    }
    memory_.constant_bytes += is_copied && !is_mapped ? 2 * bytes : bytes;
    if (is_mapped && !is_copied) memory_.mapped_constant_bytes += bytes;
  }
}

void CompiledStep::MeasureMemory(const MemoryPlan& plan) {
  memory_.arena_bytes = plan.arena_bytes;
  memory_.workspace_bytes = step_.workspace_bytes;
  memory_.lower_bound_bytes = plan.lower_bound_bytes;
  memory_.variable_bytes = environment_.variables->bytes();
  memory_.on_device = !host_accessible_;
  MeasureConstants();
  std::set<const Kernel*> on_host;  // what these keep is in the host's memory
  for (const LoweredInstruction& lowered : step_.compute) {
    if (const auto* const run = lowered.As<lowered::HostRun>()) on_host.insert(run->kernel);
  }
  for (const std::unique_ptr<Kernel>& kernel : step_.kernels) {
    (on_host.contains(kernel.get()) ? memory_.staging_bytes : memory_.packed_bytes) +=
        static_cast<int64_t>(kernel->retained_bytes());
  }
  if (host_accessible_) return;
  memory_.staging_bytes += scalars_.staging_bytes(*environment_.device);
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
  WEFT_RETURN_IF_ERROR(AddStepNumber());
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
  FindCommit();
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
    segments_.Find(compute_);
    feeds_ahead_.Find(compute_);
  }
  return BuildStreams();
}

// For kernels that read it there, so that they can be part of a recording.
absl::Status CompiledStep::AddStepNumber() {
  if (host_accessible_) return absl::OkStatus();
  const bool is_read =
      std::any_of(step_.kernels.begin(), step_.kernels.end(), [](const auto& kernel) {
        return dynamic_cast<const StepReadingKernel*>(kernel.get()) != nullptr;
      });
  return is_read ? scalars_.AddStep(*environment_.device) : absl::OkStatus();
}

void CompiledStep::FindCommit() {
  const auto commits = [](const Instruction& one) { return one.As<bound::Commit>() != nullptr; };
  const auto needs_peers = [](const Instruction& one) {
    return one.As<bound::Send>() != nullptr || one.As<bound::Receive>() != nullptr ||
           one.As<bound::Collective>() != nullptr || one.As<bound::Await>() != nullptr;
  };
  const auto commit = std::find_if(compute_.begin(), compute_.end(), commits);
  commit_ = static_cast<size_t>(commit - compute_.begin());
  finishes_alone_ = commit != compute_.end() && std::none_of(commit, compute_.end(), needs_peers);
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
      run->context.step_on_device = scalars_.step_on_device();
    }
    if (instruction.As<bound::Signal>() == nullptr) continue;
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Event> event, device.NewEvent());
    signal_events_.push_back(std::move(event));
  }
  WEFT_RETURN_IF_ERROR(BuildCollectiveStream());
  WEFT_RETURN_IF_ERROR(BuildLanes());
  WEFT_RETURN_IF_ERROR(feeds_ahead_.Build(device, environment_.input));
  for (size_t i = 0; i < communication_list_.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(done_events_.emplace_back(), device.NewEvent());
    if (!communication_list_[i].As<bound::Collective>()->what->on_device) {
      thread_jobs_.push_back(static_cast<int>(i));
    }
  }
  if (thread_jobs_.empty()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(communication_stream_, device.NewStream("communication"));
  communication_ = std::make_unique<CommunicationThread>(
      static_cast<int>(thread_jobs_.size()),
      [this](int i) {
        return communication_list_[thread_jobs_[i]].As<bound::Collective>()->what->wait_signals;
      },
      [this](int i) { return RunCommunication(thread_jobs_[i]); });
  return absl::OkStatus();
}

absl::Status CompiledStep::BuildCollectiveStream() {
  bool is_needed = false;
  for (const auto* list : {&compute_, &communication_list_}) {
    for (const Instruction& instruction : *list) {
      const auto* const collective = instruction.As<bound::Collective>();
      is_needed = is_needed || (collective != nullptr && collective->what->on_device);
    }
  }
  if (!is_needed) return absl::OkStatus();
  uses_device_collectives_ = true;
  Device& device = *environment_.device;
  WEFT_ASSIGN_OR_RETURN(collective_stream_, device.NewStream("collectives"));
  WEFT_ASSIGN_OR_RETURN(collective_ready_, device.NewEvent());
  WEFT_ASSIGN_OR_RETURN(collective_done_, device.NewEvent());
  return absl::OkStatus();
}

absl::Status CompiledStep::BuildLanes() {
  Device& device = *environment_.device;
  const auto add = [&](int lane) -> absl::Status {
    uses_device_collectives_ = true;
    if (static_cast<size_t>(lane) >= lanes_.size()) lanes_.resize(static_cast<size_t>(lane) + 1);
    Lane& own = lanes_[static_cast<size_t>(lane)];
    if (own.stream != nullptr) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(own.stream, device.NewStream(absl::StrCat("lane ", lane)));
    WEFT_ASSIGN_OR_RETURN(own.ready, device.NewEvent());
    WEFT_ASSIGN_OR_RETURN(own.received, device.NewEvent());
    return absl::OkStatus();
  };
  for (const Instruction& instruction : compute_) {
    if (const auto* const receive = instruction.As<bound::Receive>()) {
      if (receive->what->lane >= 0) WEFT_RETURN_IF_ERROR(add(receive->what->lane));
    } else if (const auto* const send = instruction.As<bound::Send>()) {
      if (send->what->lane < 0) continue;
      WEFT_RETURN_IF_ERROR(add(send->what->lane));
      std::unique_ptr<Event>& sent = sent_[send->what->channel];
      if (sent != nullptr) continue;
      WEFT_ASSIGN_OR_RETURN(sent, device.NewEvent());
    }
  }
  return absl::OkStatus();
}

absl::Status CompiledStep::PrepareTransfers(size_t sends) {
  Device& device = *environment_.device;
  WEFT_RETURN_IF_ERROR(scalars_.Prepare(device));
  for (FeedStaging& feed : feed_staging_) WEFT_RETURN_IF_ERROR(feed.Allocate(device));
  return host_accessible_ ? absl::OkStatus() : sends_.Prepare(device, sends);
}

absl::Status CompiledStep::Prepare() {
  WEFT_RETURN_IF_ERROR(EndFormerStep());
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
      const auto* const send = instruction.template As<bound::Send>();
      sends += send != nullptr && send->what->lane < 0 ? 1 : 0;
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
