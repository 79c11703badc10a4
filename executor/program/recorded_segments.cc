#include "executor/program/recorded_segments.h"

#include <algorithm>
#include <utility>

#include "platform/status_macros.h"

namespace weft {
namespace {

// Fewer kernels cost the host as little one by one.
constexpr size_t kMinSegment = 3;

// What it does is on the device alone, and the same in each step.
bool CanBeRepeated(const Instruction& instruction) {
  if (const auto* const run = instruction.As<bound::KernelRun>()) {
    return !run->kernel->depends_on_step();
  }
  return instruction.As<bound::Add>() != nullptr || instruction.As<bound::Copy>() != nullptr ||
         instruction.As<bound::Pack>() != nullptr;
}

absl::Status EnqueueAll(size_t first, size_t last, absl::FunctionRef<absl::Status(size_t)> enqueue,
                        size_t& failed) {
  for (size_t i = first; i < last; ++i) {
    failed = i;
    WEFT_RETURN_IF_ERROR(enqueue(i));
  }
  return absl::OkStatus();
}

}  // namespace

void RecordedSegments::Find(const std::vector<Instruction>& compute) {
  compute_ = &compute;
  segments_.clear();
  segment_of_.assign(compute.size(), -1);
  AddWithin(0, compute.size(), /*has_run=*/false);
}

void RecordedSegments::AddWithin(size_t first, size_t last, bool has_run) {
  for (size_t begin = first; begin < last;) {
    size_t end = begin;
    while (end < last && CanBeRepeated((*compute_)[end])) ++end;
    if (end - begin >= kMinSegment) {
      segment_of_[begin] = static_cast<int>(segments_.size());
      Segment& segment = segments_.emplace_back();
      segment.last = end;
      segment.has_run = has_run;
    }
    begin = std::max(end, begin + 1);
  }
}

void RecordedSegments::Reset() {
  for (Segment& segment : segments_) segment.has_run = segment.is_current = false;
}

size_t RecordedSegments::EndOf(size_t first) const {
  if (!can_record_ || segment_of_.empty() || segment_of_[first] < 0) return first;
  return segments_[static_cast<size_t>(segment_of_[first])].last;
}

absl::Status RecordedSegments::Run(size_t first, Stream& stream,
                                   absl::FunctionRef<absl::Status(size_t)> enqueue,
                                   size_t& failed) {
  Segment& segment = segments_[static_cast<size_t>(segment_of_[first])];
  failed = first;
  const size_t last = segment.last;
  if (segment.has_run && !segment.is_current && can_record_) {
    const auto begin = compute_->begin();
    if (std::all_of(begin + static_cast<ptrdiff_t>(first), begin + static_cast<ptrdiff_t>(last),
                    CanBeRepeated)) {
      WEFT_RETURN_IF_ERROR(Record(segment, first, stream, enqueue, failed));
    } else {
      // Its parts are recorded in the next step.
      segment_of_[first] = -1;
      segment.recording.reset();
      AddWithin(first, last, /*has_run=*/true);
      return EnqueueAll(first, last, enqueue, failed);
    }
  }
  if (segment.is_current) return segment.recording->Run(stream);
  segment.has_run = true;
  return EnqueueAll(first, last, enqueue, failed);
}

absl::Status RecordedSegments::Record(Segment& segment, size_t first, Stream& stream,
                                      absl::FunctionRef<absl::Status(size_t)> enqueue,
                                      size_t& failed) {
  const absl::Status begun = stream.BeginRecording();
  if (absl::IsUnimplemented(begun)) {
    can_record_ = false;
    return absl::OkStatus();
  }
  WEFT_RETURN_IF_ERROR(begun);
  absl::Status status;
  for (size_t i = first; i < segment.last && status.ok(); ++i) {
    status = enqueue(i);
    if (!status.ok()) failed = i;
  }
  auto recording = stream.EndRecording(std::move(segment.recording));
  WEFT_RETURN_IF_ERROR(status);
  WEFT_RETURN_IF_ERROR(recording.status());
  segment.recording = *std::move(recording);
  segment.is_current = true;
  return absl::OkStatus();
}

}  // namespace weft
