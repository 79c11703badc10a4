#include "executor/program/feeds_ahead.h"

#include "executor/program/device_timeout.h"
#include "platform/status_macros.h"

namespace weft {

void FeedsAhead::Find(const std::vector<Instruction>& compute) {
  compute_ = &compute;
  groups_.clear();
  const Instruction* former = nullptr;  // of the group
  for (size_t i = 0; i < compute.size(); ++i) {
    const auto* const fill = compute[i].As<bound::Fill>();
    if (fill == nullptr || fill->what->ahead == kNoBuffer) {
      former = nullptr;
      continue;
    }
    if (former == nullptr || former->micro_batch != compute[i].micro_batch) groups_.emplace_back();
    groups_.back().push_back(i);
    former = &compute[i];
  }
}

absl::Status FeedsAhead::Build(Device& device, InputSource* input) {
  if (groups_.empty()) return absl::OkStatus();
  device_ = &device;
  input_ = input;
  WEFT_ASSIGN_OR_RETURN(taken_, device.NewEvent());
  WEFT_ASSIGN_OR_RETURN(stream_, device.NewStream("feeds"));
  return absl::OkStatus();
}

void FeedsAhead::BeginStep(int64_t step, int64_t next_step, bool is_kept) {
  const bool has_first = is_kept && of_step_ == step && group_ == 0 && taken_fills_ == 0;
  if (!has_first) started_ = 0;
  step_ = of_step_ = step;
  next_step_ = next_step;
  group_ = taken_fills_ = 0;
  is_missing_ = false;
}

const bound::Fill& FeedsAhead::FillAt(size_t place) const {
  return *(*compute_)[groups_[group_][place]].As<bound::Fill>();
}

absl::Status FeedsAhead::StartOne(absl::Status& filled) {
  const bound::Fill& fill = FillAt(started_);
  const lowered::Fill& what = *fill.what;
  // What lies there has been read by then, also if a step before has left it.
  if (started_ == 0) WEFT_RETURN_IF_ERROR(stream_->Wait(*taken_));
  FeedStaging& staging = staging_[static_cast<size_t>(what.feed)];
  WEFT_ASSIGN_OR_RETURN(void* const rows, staging.Next());
  const FeedInput& feed = lowered_.feeds[static_cast<size_t>(what.feed)];
  filled = input_->Fill(of_step_, feed, what.first_sample, what.samples, rows);
  if (!filled.ok()) return absl::OkStatus();
  is_busy_ = true;
  WEFT_RETURN_IF_ERROR(
      staging.Copy(*device_, *stream_, fill.ahead, lowered_.buffers.bytes(what.into)));
  ++started_;
  return absl::OkStatus();
}

absl::Status FeedsAhead::StartNext() {
  if (groups_.empty() || of_step_ < 0) return absl::OkStatus();
  while (!is_missing_ && started_ < groups_[group_].size()) {
    absl::Status filled;
    WEFT_RETURN_IF_ERROR(StartOne(filled));
    is_missing_ = !filled.ok();
  }
  return absl::OkStatus();
}

absl::Status FeedsAhead::Take(const bound::Fill& fill, Stream& compute) {
  if (of_step_ != step_ || &FillAt(taken_fills_) != &fill) {
    return absl::InternalError("the fills of a step are not run in the order of its list");
  }
  while (started_ <= taken_fills_) {
    absl::Status filled;
    WEFT_RETURN_IF_ERROR(StartOne(filled));
    WEFT_RETURN_IF_ERROR(filled);
  }
  const lowered::Fill& what = *fill.what;
  WEFT_RETURN_IF_ERROR(compute.Wait(staging_[static_cast<size_t>(what.feed)].copied()));
  WEFT_RETURN_IF_ERROR(device_->CopyOnDevice(
      compute, fill.ahead, fill.into, static_cast<size_t>(lowered_.buffers.bytes(what.into))));
  if (++taken_fills_ < groups_[group_].size()) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(compute.Record(*taken_));
  is_busy_ = false;
  const bool is_last = group_ + 1 == groups_.size();
  of_step_ = is_last ? next_step_ : step_;
  group_ = is_last ? 0 : group_ + 1;
  started_ = taken_fills_ = 0;
  is_missing_ = false;
  return absl::OkStatus();
}

absl::Status FeedsAhead::Finish() {
  if (!is_busy_) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(stream_->Synchronize(kDeviceTimeout));
  is_busy_ = false;
  return absl::OkStatus();
}

}  // namespace weft
