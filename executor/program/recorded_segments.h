// RecordedSegments: runs of instructions that a device repeats as a whole. Internal to executor/.
#ifndef WEFT_EXECUTOR_PROGRAM_RECORDED_SEGMENTS_H_
#define WEFT_EXECUTOR_PROGRAM_RECORDED_SEGMENTS_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "executor/program/instruction.h"
#include "tensor/device.h"

namespace weft {

// The segments of a program's compute list: instructions one after the other that need nothing of
// the host and do the same in each step, but for what they read on the device (its memory has the
// learning rate and the step's number). The first run of a segment enqueues them, so that what is
// initialised at first use is not recorded. The second records them (Stream::BeginRecording) and
// from then on the recording runs: one call of the host instead of one for each kernel. A kernel
// that has shown in the first run that it asks the host for the step cuts its segment in two. On
// devices that cannot record, instructions are enqueued always. Used by the compute thread only.
class RecordedSegments {
 public:
  // Looks for segments. Borrows the list, which must not move.
  void Find(const std::vector<Instruction>& compute);
  // The addresses of the instructions have changed: recordings are made anew, after a plain run.
  void Reset();

  // One past the segment that begins at instruction `first`; `first` itself where none does.
  size_t EndOf(size_t first) const;
  // Runs the segment that begins there. `enqueue(i)` puts instruction i into the stream. After an
  // error of `enqueue`, `failed` is its instruction; else the first of the segment.
  absl::Status Run(size_t first, Stream& stream, absl::FunctionRef<absl::Status(size_t)> enqueue,
                   size_t& failed);

 private:
  struct Segment {
    size_t last = 0;  // one past
    bool has_run = false;
    bool is_current = false;  // the recording has today's addresses
    std::unique_ptr<RecordedWork> recording;
  };
  // Makes segments of what can be recorded of instructions [first, last).
  void AddWithin(size_t first, size_t last, bool has_run);
  absl::Status Record(Segment& segment, size_t first, Stream& stream,
                      absl::FunctionRef<absl::Status(size_t)> enqueue, size_t& failed);

  bool can_record_ = true;  // as far as is known
  const std::vector<Instruction>* compute_ = nullptr;
  std::vector<Segment> segments_;
  std::vector<int> segment_of_;  // by first instruction; -1: none begins there
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_PROGRAM_RECORDED_SEGMENTS_H_
