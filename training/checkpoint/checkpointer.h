// Checkpointer: decides when a job's checkpoints are due, and reports their results.
#ifndef WEFT_TRAINING_CHECKPOINT_CHECKPOINTER_H_
#define WEFT_TRAINING_CHECKPOINT_CHECKPOINTER_H_

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "distributed/coordinator.h"
#include "platform/clock.h"
#include "training/checkpoint/checkpoint_index.h"
#include "training/checkpoint/checkpoint_store.h"

namespace weft {

// When checkpoints are written, where, and how many are kept.
struct CheckpointOptions {
  // One is due before every step whose number is a multiple, or when so much time has passed since
  // the last; 0 = not so. The loop asks for one at its end, too.
  int64_t every_steps = 0;
  double every_seconds = 0;
  int keep = 3;
  // Whether one is wanted now, whatever the numbers say; asked between steps. Null: never.
  std::function<bool()> is_wanted = nullptr;
  // Whether this process may still write: asked before one begins, and before it gets its name; an
  // error ends the run. From any thread. Null: it may.
  std::function<absl::Status()> may_write = nullptr;
};

// What came of the checkpoints of a run.
struct CheckpointSummary {
  int64_t written = 0;
  int64_t failed = 0;
  int64_t last_step = 0;     // of the newest that was written
  int64_t bytes = 0;         // of its files
  double pause_seconds = 0;  // that steps waited, all of them
  double longest_pause_seconds = 0;
  double write_seconds = 0;  // of the newest, while steps went on
};

// Drives the workers' writers through the coordinator. Steps wait only for the copy of the state;
// files, index and clean-up are the business of other threads. What cannot be written is a warning,
// and is tried again: after 10 s, then after twice as long each time, up to 5 minutes;
// the errors of the calls are those of lost workers and of may_write. Borrows store, clock and
// `warn`'s captures. One thread calls it.
class Checkpointer {
 public:
  // Begins with `step` steps done, of which a checkpoint is there (or nothing to save).
  Checkpointer(CheckpointStore& store, CheckpointJob job, const CheckpointOptions& options,
               int64_t step, Clock& clock, std::function<void(const std::string&)> warn);
  // Waits for what is being written by this process.
  ~Checkpointer();

  // The first number of steps in [done, end) after which one is due, and the first after that.
  std::optional<int64_t> Due(int64_t done, int64_t end);
  int64_t DueAfter(int64_t step) const;
  int64_t last_step() const { return last_step_; }
  // Checkpoints that are begun from now on are of this plan (CheckpointJob::plan).
  void set_plan(std::string plan) { job_.plan = std::move(plan); }

  // The folder for StepRange::checkpoint, for the state after `step` steps; waits until the one
  // before is written. "" when that cannot be, after a warning. `loop` goes into the index.
  absl::StatusOr<std::string> Begin(Coordinator& coordinator, int64_t step,
                                    const std::map<std::string, double>& loop);
  // Looks what has become of the one under way; waits for it if `wait`.
  absl::Status Poll(Coordinator& coordinator, bool wait);

  // The workers have gone on without one of them, which had a part of the checkpoint under way: it
  // is left out, after a warning with this reason, and due again.
  void GiveUp(const std::string& reason);

  const CheckpointSummary& summary() const { return summary_; }

 private:
  struct Pending {
    int64_t step = 0;
    std::string folder;
    int64_t before = 0;  // last_step_, before it began
    std::string plan;
    std::map<std::string, double> loop;
    bool committing = false;
    int64_t bytes = 0;
    double write_seconds = 0;
  };

  struct Committed {
    absl::Status status;
    absl::Status pruned;
    absl::Status allowed = {};  // may_write; an error: nothing was done
  };
  absl::Status MayWrite() const {
    return options_.may_write == nullptr ? absl::OkStatus() : options_.may_write();
  }

  // The index of what the workers have written; an error of theirs, with the worker's name.
  absl::StatusOr<CheckpointIndex> IndexOf(const Coordinator& coordinator,
                                          const std::vector<CheckpointWrite>& writes) const;
  // Ends the pending one.
  void Conclude(const Committed& committed);
  void Warn(int64_t step, const absl::Status& status);

  CheckpointStore& store_;
  CheckpointJob job_;
  const CheckpointOptions options_;
  Clock& clock_;
  const std::function<void(const std::string&)> warn_;
  const uint64_t unique_;          // of this job
  int64_t last_step_;              // of the newest that was begun
  int64_t last_nanos_;             // when
  int64_t retry_nanos_ = 0;        // when to try again; 0: nothing has failed
  int64_t retry_delay_nanos_ = 0;  // of the newest failure; 0 since the newest success
  std::optional<Pending> pending_;
  std::future<Committed> commit_;  // of the pending one
  CheckpointSummary summary_;
};

}  // namespace weft

#endif  // WEFT_TRAINING_CHECKPOINT_CHECKPOINTER_H_
