#include "training/checkpoint/checkpointer.h"

#include <algorithm>
#include <limits>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/log.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr int64_t kFirstRetryNanos = int64_t{10} * 1000000000;
constexpr int64_t kLongestRetryNanos = int64_t{300} * 1000000000;

uint64_t RandomNumber() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

CheckpointPart PartOf(const VariableShard& shard, int file, uint64_t checksum) {
  CheckpointPart part;
  part.file = file;
  part.checksum = checksum;
  if (shard.tensor_sharding.is_split() && shard.tensor_shards > 1) {
    part.sharding = shard.tensor_sharding;
    part.shards = shard.tensor_shards;
    part.shard = shard.tensor_index;
  }
  if (shard.data_shards > 1) {
    part.row_shards = shard.data_shards;
    part.row_shard = shard.data_index;
  }
  return part;
}

}  // namespace

Checkpointer::Checkpointer(CheckpointStore& store, CheckpointJob job,
                           const CheckpointOptions& options, int64_t step, Clock& clock,
                           std::function<void(const std::string&)> warn)
    : store_(store),
      job_(std::move(job)),
      options_(options),
      clock_(clock),
      warn_(std::move(warn)),
      unique_(RandomNumber()),
      last_step_(step),
      last_nanos_(clock.MonotonicNanos()) {}

Checkpointer::~Checkpointer() {
  if (commit_.valid()) commit_.wait();
}

int64_t Checkpointer::DueAfter(int64_t step) const {
  if (options_.every_steps <= 0) return std::numeric_limits<int64_t>::max();
  return (step / options_.every_steps + 1) * options_.every_steps;
}

std::optional<int64_t> Checkpointer::Due(int64_t done, int64_t end) {
  const int64_t now = clock_.MonotonicNanos();
  if (retry_nanos_ > 0 && now >= retry_nanos_ && done > last_step_) return done;
  const double waited = static_cast<double>(now - last_nanos_) * 1e-9;
  if (options_.every_seconds > 0 && waited >= options_.every_seconds && done > last_step_) {
    return done;
  }
  if (done > last_step_ && options_.is_wanted != nullptr && options_.is_wanted()) return done;
  const int64_t due = DueAfter(std::max(done - 1, last_step_));
  if (due < end) return due;
  return std::nullopt;
}

absl::StatusOr<std::string> Checkpointer::Begin(Coordinator& coordinator, int64_t step,
                                                const std::map<std::string, double>& loop) {
  const int64_t begin = clock_.MonotonicNanos();
  WEFT_RETURN_IF_ERROR(Poll(coordinator, /*wait=*/true));
  WEFT_RETURN_IF_ERROR(MayWrite());
  summary_.pause_seconds += static_cast<double>(clock_.MonotonicNanos() - begin) * 1e-9;
  const int64_t before = std::exchange(last_step_, step);
  last_nanos_ = clock_.MonotonicNanos();
  retry_nanos_ = 0;
  absl::StatusOr<std::string> folder = store_.Begin(step, unique_);
  if (!folder.ok()) {
    Warn(step, folder.status());
    return std::string();
  }
  Log(LogLevel::kInfo, "checkpoint of step ", step, " begins in ", *folder);
  pending_ = Pending{step, *folder, before, job_.plan, loop};
  return *std::move(folder);
}

absl::Status Checkpointer::Poll(Coordinator& coordinator, bool wait) {
  if (!pending_.has_value()) return absl::OkStatus();
  if (!pending_->committing) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<CheckpointWrite> writes,
                          coordinator.AskAll(CheckpointRequest{wait}));
    double pause = 0;
    for (const CheckpointWrite& write : writes) {
      // Not begun yet: the step before it has not ended.
      const bool begun = write.folder == pending_->folder;
      if (!begun || write.state != CheckpointWrite::State::kDone) return absl::OkStatus();
      pause = std::max(pause, write.pause_seconds);
      pending_->write_seconds = std::max(pending_->write_seconds, write.write_seconds);
    }
    summary_.pause_seconds += pause;
    summary_.longest_pause_seconds = std::max(summary_.longest_pause_seconds, pause);
    absl::StatusOr<CheckpointIndex> index = IndexOf(coordinator, writes);
    if (!index.ok()) {
      Conclude({index.status(), absl::OkStatus()});
      return absl::OkStatus();
    }
    pending_->bytes = index->bytes();
    pending_->committing = true;
    commit_ = std::async(std::launch::async,
                         [this, folder = pending_->folder, index = *std::move(index)] {
                           Committed committed;
                           committed.allowed = MayWrite();
                           if (!committed.allowed.ok()) return committed;
                           committed.status = store_.Commit(folder, index);
                           if (committed.status.ok()) {
                             committed.pruned = store_.Prune(options_.keep);
                           }
                           return committed;
                         });
  }
  if (wait || commit_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
    const Committed committed = commit_.get();
    Conclude(committed);
    return committed.allowed;
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckpointIndex> Checkpointer::IndexOf(
    const Coordinator& coordinator, const std::vector<CheckpointWrite>& writes) const {
  CheckpointIndex index;
  index.step = pending_->step;
  index.job = job_;
  index.job.plan = pending_->plan;
  index.loop = pending_->loop;
  std::map<std::string, CheckpointTensor> tensors;
  for (size_t i = 0; i < writes.size(); ++i) {
    const CheckpointWrite& write = writes[i];
    if (!write.status.ok()) return Annotate(write.status, absl::StrCat("worker:", i));
    if (write.file.empty()) continue;
    const int file = static_cast<int>(index.files.size());
    index.files.push_back({write.file, write.bytes, write.checksum});
    const auto& shards = coordinator.shards(static_cast<int>(i));
    for (const auto& [name, checksum] : write.tensors) {
      const auto shard = shards.find(name);
      if (shard == shards.end()) {
        return absl::InternalError(
            absl::StrCat("worker:", i, " has written '", name, "', which it was never given"));
      }
      CheckpointTensor& tensor = tensors[name];
      tensor.name = name;
      tensor.dtype = shard->second.dtype;
      tensor.shape = shard->second.global_shape;
      tensor.trainable = shard->second.trainable;
      tensor.slot_of = shard->second.slot_of;
      tensor.parts.push_back(PartOf(shard->second, file, checksum));
    }
  }
  for (auto& [name, tensor] : tensors) index.tensors.push_back(std::move(tensor));
  return index;
}

void Checkpointer::Conclude(const Committed& committed) {
  if (!committed.allowed.ok()) {
    store_.Abandon(pending_->folder);
  } else if (committed.status.ok()) {
    ++summary_.written;
    retry_nanos_ = retry_delay_nanos_ = 0;
    summary_.last_step = pending_->step;
    summary_.bytes = pending_->bytes;
    summary_.write_seconds = pending_->write_seconds;
    Log(LogLevel::kInfo, "checkpoint of step ", pending_->step, " is whole: ", pending_->bytes,
        " bytes, written in ", pending_->write_seconds, " s");
  } else {
    Warn(pending_->step, committed.status);
    store_.Abandon(pending_->folder);
  }
  if (!committed.pruned.ok()) {
    warn_(absl::StrCat("older checkpoints remain: ", std::string(committed.pruned.message())));
  }
  pending_.reset();
}

void Checkpointer::GiveUp(const std::string& reason) {
  if (!pending_.has_value()) return;
  if (pending_->committing) return Conclude(commit_.get());  // all parts are there
  last_step_ = pending_->before;
  Conclude({absl::UnavailableError(reason), absl::OkStatus()});
}

void Checkpointer::Warn(int64_t step, const absl::Status& status) {
  ++summary_.failed;
  retry_delay_nanos_ = std::clamp(2 * retry_delay_nanos_, kFirstRetryNanos, kLongestRetryNanos);
  retry_nanos_ = clock_.MonotonicNanos() + retry_delay_nanos_;
  Log(LogLevel::kWarning, "no checkpoint of step ", step, ": ", status.ToString());
  warn_(absl::StrCat("no checkpoint of step ", step, ": ", std::string(status.message()),
                     "; training goes on, and it is tried again in ",
                     retry_delay_nanos_ / 1000000000, " s"));
}

}  // namespace weft
