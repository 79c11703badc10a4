#include "executor/program/recorded_segments.h"

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

}  // namespace

void RecordedSegments::Find(const std::vector<Instruction>& compute, size_t boundary) {
  segments_.clear();
  segment_of_.assign(compute.size(), -1);
  for (size_t first = 0; first < compute.size();) {
    size_t last = first;
    while (last < compute.size() && (last == first || last != boundary) &&
           CanBeRepeated(compute[last])) {
      ++last;
    }
    if (last - first >= kMinSegment) {
      segment_of_[first] = static_cast<int>(segments_.size());
      segments_.emplace_back().last = last;
    }
    first = last == first ? first + 1 : last;
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
  if (segment.has_run && !segment.is_current && can_record_) {
    WEFT_RETURN_IF_ERROR(Record(segment, first, stream, enqueue, failed));
  }
  if (segment.is_current) return segment.recording->Run(stream);
  segment.has_run = true;
  for (size_t i = first; i < segment.last; ++i) {
    failed = i;
    WEFT_RETURN_IF_ERROR(enqueue(i));
  }
  return absl::OkStatus();
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
