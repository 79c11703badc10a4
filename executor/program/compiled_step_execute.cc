// CompiledStep: one instruction of each family, and what its error says.
#include <algorithm>
#include <span>
#include <type_traits>
#include <variant>

#include "absl/strings/str_cat.h"
#include "executor/interfaces/device_collectives.h"
#include "executor/interfaces/wait_info.h"
#include "executor/program/compiled_step.h"
#include "executor/program/device_timeout.h"
#include "executor/program/host_staging.h"
#include "executor/program/memory_operations.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

int FeedOf(const Instruction& instruction) {
  if (const auto* const fill = instruction.As<bound::Fill>()) return fill->what->feed;
  if (const auto* const take = instruction.As<bound::TakeValue>()) return take->what->feed;
  return -1;
}

}  // namespace

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
    if (wait->what->lane >= 0) return stream.Wait(*sent_.at(wait->what->channel));
    return Timed([&] { return environment_.communicator->WaitSent(wait->what->channel); });
  }
  if (const auto* const signal = instruction.As<bound::Signal>()) {
    const int count = signal->what->count;
    WEFT_RETURN_IF_ERROR(stream.Record(*signal_events_[count - 1]));
    if (communication_ != nullptr) {
      communication_->Signal(count, /*wake=*/!signal->is_awaited_next);
    }
    return collective_stream_ == nullptr ? absl::OkStatus() : StartCollectives(count);
  }
  if (const auto* const await = instruction.As<bound::Await>()) {
    return Await(await->what->count, stream);
  }
  if (instruction.As<bound::Commit>() != nullptr) return Commit(stream);
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
    const lowered::Send& what = *send->what;
    if (what.lane >= 0) {
      return Transfer(instruction, what.channel, what.lane, send->from, *sent_.at(what.channel));
    }
    if (host_accessible_) return Send(instruction, send->from);
    return sends_.Add(instruction, *environment_.device, stream);
  }
  if (const auto* const receive = instruction.As<bound::Receive>()) {
    if (const lowered::Receive& what = *receive->what; what.lane >= 0) {
      Event& received = *lanes_[static_cast<size_t>(what.lane)].received;
      WEFT_RETURN_IF_ERROR(Transfer(instruction, what.channel, what.lane, receive->into, received));
      return stream.Wait(received);
    }
    return TimedOnHost(instruction, stream, [&](void* const* buffers) {
      return communicator.Receive(receive->what->channel, key, buffers[0]);
    });
  }
  if (const auto* const collective = instruction.As<bound::Collective>()) {
    if (collective->what->on_device) return RunCollective(instruction, stream);
    return TimedOnHost(instruction, stream, [&](void* const* buffers) {
      return communicator.RunCollective(collective->what->handle, key, buffers);
    });
  }
  const auto& guard = std::get<bound::Guard>(instruction.work);
  return OnHost(instruction, stream,
                [&](void* const* buffers) { return Guard(*guard.what, buffers[0]); });
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
  if (fill.what->ahead != kNoBuffer) return feeds_ahead_.Take(fill, stream);
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

// Where work goes beside the host, what was summed is known to have come only when it is there.
absl::Status CompiledStep::Commit(Stream& stream) {
  if (!host_accessible_) WEFT_RETURN_IF_ERROR(stream.Synchronize(kDeviceTimeout));
  WEFT_RETURN_IF_ERROR(CollectivesStatus());
  state_ = StepState::kReady;
  WEFT_RETURN_IF_ERROR(Timed([this] { return environment_.commit->Agree(current_step_); }));
  state_ = StepState::kTorn;  // until all has changed
  return absl::OkStatus();
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

absl::Status CompiledStep::RunCollective(const Instruction& instruction, Stream& stream) {
  const auto& collective = *instruction.As<bound::Collective>();
  WEFT_RETURN_IF_ERROR(stream.Record(*collective_ready_));
  WEFT_RETURN_IF_ERROR(collective_stream_->Wait(*collective_ready_));
  WEFT_RETURN_IF_ERROR(environment_.device_collectives->Enqueue(
      collective.what->handle, KeyOf(instruction), collective.buffers.data(), *collective_stream_));
  WEFT_RETURN_IF_ERROR(collective_stream_->Record(*collective_done_));
  return stream.Wait(*collective_done_);
}

absl::Status CompiledStep::Transfer(const Instruction& instruction, int channel, int lane,
                                    const void* buffer, Event& done) {
  Lane& own = lanes_[static_cast<size_t>(lane)];
  WEFT_RETURN_IF_ERROR(compute_stream_->Record(*own.ready));
  WEFT_RETURN_IF_ERROR(own.stream->Wait(*own.ready));
  void* const address = const_cast<void*>(buffer);  // a send only reads it
  WEFT_RETURN_IF_ERROR(
      environment_.device_collectives->Enqueue(channel, KeyOf(instruction), &address, *own.stream));
  return own.stream->Record(done);
}

// In the order of the list, which is that of all ranks, also where a later one is ready earlier.
absl::Status CompiledStep::StartCollectives(int signals) {
  for (; started_ < communication_list_.size(); ++started_) {
    const Instruction& instruction = communication_list_[started_];
    const auto& collective = *instruction.As<bound::Collective>();
    const int needed = collective.what->wait_signals;
    if (needed > signals) break;
    if (!collective.what->on_device) continue;
    absl::Status status;
    if (needed > 0) status = collective_stream_->Wait(*signal_events_[needed - 1]);
    if (status.ok()) {
      status =
          environment_.device_collectives->Enqueue(collective.what->handle, KeyOf(instruction),
                                                   collective.buffers.data(), *collective_stream_);
    }
    if (status.ok()) status = collective_stream_->Record(*done_events_[started_]);
    if (!status.ok()) return Fail(instruction, status);
  }
  return absl::OkStatus();
}

// Of the list's first `count`, the thread has run its own, and the stream waits for the device's.
absl::Status CompiledStep::Await(int count, Stream& stream) {
  const auto end = std::lower_bound(thread_jobs_.begin(), thread_jobs_.end(), count);
  if (const auto jobs = static_cast<int>(end - thread_jobs_.begin()); jobs > 0) {
    WEFT_RETURN_IF_ERROR(Timed([&] { return communication_->Await(jobs); }));
    if (host_accessible_) return absl::OkStatus();
    WEFT_RETURN_IF_ERROR(stream.Wait(*done_events_[thread_jobs_[jobs - 1]]));
  }
  int last = count - 1;
  while (last >= 0 && !communication_list_[last].As<bound::Collective>()->what->on_device) --last;
  return last < 0 ? absl::OkStatus() : stream.Wait(*done_events_[last]);
}

absl::Status CompiledStep::CollectivesStatus() const {
  return uses_device_collectives_ ? environment_.device_collectives->status() : absl::OkStatus();
}

void CompiledStep::Abort(const absl::Status& reason) {
  environment_.communicator->Abort(reason);
  if (uses_device_collectives_) environment_.device_collectives->Abort(reason);
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

}  // namespace weft
