// FeedsAhead: copies rows of coming micro-batches to a device while it computes. Internal to
// executor/.
#ifndef WEFT_EXECUTOR_PROGRAM_FEEDS_AHEAD_H_
#define WEFT_EXECUTOR_PROGRAM_FEEDS_AHEAD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "executor/interfaces/input_source.h"
#include "executor/lowering/lowered_step.h"
#include "executor/program/feed_staging.h"
#include "executor/program/instruction.h"
#include "tensor/device.h"

namespace weft {

// The fills of a program that have memory of the device for it (lowered::Fill::ahead), in groups:
// neighbours of one micro-batch. The rows of one group at a time go there, on a stream of their
// own:
//
//   feeds     wait taken   rows of group 1 ─▶ ahead, record copied    wait taken   rows of group 2
//   ... compute   wait copied  ahead ─▶ kernels' buffers   record taken   kernels of group 1 ...
//
// The group after the last one of a step is the first of the next step, where that is known.
// Kernels, and so what was recorded of them, know nothing of it. Used by the program's compute
// thread only. Borrows all that it is given.
class FeedsAhead {
 public:
  // `staging`: by feed, ready when the first rows are copied.
  FeedsAhead(const LoweredStep& step, std::vector<FeedStaging>& staging)
      : lowered_(step), staging_(staging) {}

  // Looks for the groups of the list, which must not move.
  void Find(const std::vector<Instruction>& compute);
  // Makes what it needs of the device, if there are groups. Called once, after Find.
  absl::Status Build(Device& device, InputSource* input);
  // Ends its stream: before the memory that it copies.
  void End() { stream_.reset(); }

  // A step begins. `is_kept`: the device's memory is as the last step left it; else what was copied
  // for this one is copied again.
  void BeginStep(int64_t step, int64_t next_step, bool is_kept);
  // Copies the rows of the next group, where they are not under way. Rows that cannot be had are
  // left to the fill that asks for them. Does not wait for the device, but for staging memory that
  // it has still to read.
  absl::Status StartNext();
  // Does the fill, which is the next one of the list that has rows ahead: once `compute` comes to
  // it, its rows are in the buffer. An error of the rows is that of the input.
  absl::Status Take(const bound::Fill& fill, Stream& compute);
  // Waits for what is under way: at the end of a step.
  absl::Status Finish();
  Stream* stream() const { return stream_.get(); }  // null without groups

 private:
  // Its fills, as indices into the list.
  using Group = std::vector<size_t>;

  const bound::Fill& FillAt(size_t place) const;
  // Copies the rows of the group's next fill, if `filled` is OK then.
  absl::Status StartOne(absl::Status& filled);

  const LoweredStep& lowered_;
  std::vector<FeedStaging>& staging_;
  const std::vector<Instruction>* compute_ = nullptr;
  std::vector<Group> groups_;
  Device* device_ = nullptr;
  InputSource* input_ = nullptr;
  std::unique_ptr<Event> taken_;  // the rows of the last group
  std::unique_ptr<Stream> stream_;

  int64_t step_ = -1;       // under way
  int64_t next_step_ = -1;  // after it
  // Of the group that is to be taken next; step -1: nobody knows it.
  int64_t of_step_ = -1;
  size_t group_ = 0;
  size_t started_ = 0;       // of its fills: the rows are on their way or there
  size_t taken_fills_ = 0;   // of its fills
  bool is_missing_ = false;  // rows of it could not be had
  bool is_busy_ = false;     // the stream has work that no fill has waited for
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_PROGRAM_FEEDS_AHEAD_H_
