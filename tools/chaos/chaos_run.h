// ChaosRun: one run of a job, and what befalls it.
#ifndef WEFT_TOOLS_CHAOS_CHAOS_RUN_H_
#define WEFT_TOOLS_CHAOS_CHAOS_RUN_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "platform/file_system.h"
#include "platform/process.h"
#include "tools/chaos/chaos_job.h"
#include "tools/chaos/chaos_schedule.h"
#include "tools/chaos/chaos_workers.h"
#include "tools/chaos/disk_fault.h"
#include "tools/chaos/result_comparison.h"
#include "tools/chaos/run_watch.h"
#include "tools/chaos/slow_worker.h"

namespace weft {

// A fault of a schedule, and what became of it.
struct StruckFault {
  ChaosFault fault;
  bool has_struck = false;
  int64_t step = 0;    // that the job had told of
  double seconds = 0;  // since the run began
  std::string target;  // "worker pid 4711", "coordinator"
  std::vector<std::string> said;
  // Until the job has told of a step that was done after it; none came.
  std::optional<double> next_step_seconds = std::nullopt;
  // What was done instead, and why, where the machine does not allow it.
  std::string note;
};

// What a run came to.
struct ChaosOutcome {
  ChaosSchedule schedule;
  std::vector<StruckFault> faults;
  std::vector<std::string> exits;  // of the coordinator, in order
  int last_code = 0;               // its newest exit code; 1 where a signal ended it
  ChaosResult result;
  int64_t steps = 0;
  double seconds = 0;
  bool has_hung = false;
  int orphans = 0;  // processes that were left, and killed
  // What did not hold, a line each; empty: all did.
  std::vector<std::string> complaints;
};

// What all runs of a job have in common. Borrowed.
struct ChaosPlace {
  ProcessLauncher& launcher;
  FileSystem& files;
  std::string program;  // graph_runner
  std::string folder;   // of all runs
  const ChaosJob& job;
  int64_t checkpoint_every = 1;      // steps; the job's own --checkpoint-every comes first
  absl::Duration timeout;            // without a new step, after which a run hangs
  DiskFault& disk;                   // the folder of checkpoints
  std::function<bool()> is_stopped;  // the person wants to end
};

// Runs the job once: starts its coordinator, does to it what the schedule says, and starts it again
// with --resume where a fault has ended it. The processes it starts are gone when it returns. One
// thread, which must not end before.
class ChaosRun {
 public:
  // `number`: of the run, for the names of its files. `workers`: those of chaos; null: the job has
  // its own (--local).
  ChaosRun(const ChaosPlace& place, ChaosSchedule schedule, int number, ChaosWorkers* workers);
  ChaosRun(const ChaosRun&) = delete;
  ChaosRun& operator=(const ChaosRun&) = delete;
  ~ChaosRun();

  // Errors are of chaos itself: a process that cannot be started; Cancelled when it is to stop.
  // What the job does is in the outcome.
  absl::StatusOr<ChaosOutcome> Run();

 private:
  // What lasts: ends at a time.
  struct OngoingFault {
    absl::Time end;
    std::function<void()> undo;
  };

  std::string PathOf(const std::string& name) const;
  absl::Status StartJob();
  void Look();
  void KeepUp();
  absl::Status StrikeDue();
  absl::Status Strike(StruckFault& struck);
  absl::Status StrikeCoordinator(StruckFault& struck);
  absl::Status StrikeWorker(StruckFault& struck);
  absl::Status StrikeConnections(StruckFault& struck);
  void EndFaults();
  // The coordinator has ended: whether the job goes on with --resume.
  absl::StatusOr<bool> GoesOn(const ExitStatus& ended);
  void Conclude(const ExitStatus& ended);
  // Processes that nobody waits for any more, after at most so long; they are killed.
  void EndOrphans(absl::Duration patience);
  bool MayHaveLost() const;
  bool HasStruck(FaultKind kind) const;
  double Since() const;
  // Sends a signal to a worker, wherever it runs; whether it lives.
  bool SignalWorker(int64_t id, int signal) const;
  std::vector<int64_t> LivingWorkers() const;

  const ChaosPlace& place_;
  const int number_;
  ChaosWorkers* const workers_;
  ChaosOutcome outcome_;
  size_t next_fault_ = 0;
  std::unique_ptr<Process> process_;  // the coordinator
  std::unique_ptr<RunWatch> watch_;   // of it
  int starts_ = 0;
  bool is_killed_ = false;  // by us
  std::string last_error_;  // that it has said
  std::map<int64_t, std::string> losses_;
  absl::Time began_;
  absl::Time progress_at_;
  int64_t seen_steps_ = 0;
  std::vector<OngoingFault> ongoing_;
  std::vector<std::unique_ptr<SlowWorker>> slow_;
  std::set<int64_t> leaving_;      // ids of the workers that were told to leave
  std::vector<bool> awaits_word_;  // by fault: the next step counts once the job has said something
};

}  // namespace weft

#endif  // WEFT_TOOLS_CHAOS_CHAOS_RUN_H_
