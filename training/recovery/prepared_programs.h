// PreparedPrograms: makes the programs of plans that a job may come to, while its steps run.
#ifndef WEFT_TRAINING_RECOVERY_PREPARED_PROGRAMS_H_
#define WEFT_TRAINING_RECOVERY_PREPARED_PROGRAMS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "graph/plan.h"
#include "platform/mutex.h"
#include "training/job/job_spec.h"

namespace weft {

// What may be kept.
struct PreparedLimits {
  size_t plans = 16;
  int64_t nodes = 400'000;  // of all graphs of all ranks; a node takes about half a KiB
};

// What the programs of two plans of one job have in common: equal texts mean equal programs. Which
// workers the ranks are is not in it, for partitions name none.
std::string ProgramsKey(const Plan& plan);

// A thread of the lowest priority makes one plan's programs after the other, in the order in which
// they were asked for, until the limits are reached. Nobody waits for it, but the destructor for
// the plan under way. Plans with the same ProgramsKey are made once. The other methods are called
// by one thread.
class PreparedPrograms {
 public:
  using Repartition = std::function<absl::StatusOr<std::vector<JobProgram>>(const Plan& plan)>;

  // `repartition` is called in the thread: what it reads must not change meanwhile.
  explicit PreparedPrograms(Repartition repartition, PreparedLimits limits = {});
  ~PreparedPrograms();
  PreparedPrograms(const PreparedPrograms&) = delete;
  PreparedPrograms& operator=(const PreparedPrograms&) = delete;

  // The job may come to these plans now, and to no others: what was made for others is given up.
  void Expect(const std::vector<Plan>& plans);
  // Plans of the same ProgramsKey mean other programs from here on: everything is given up.
  void ForgetAll();
  // This plan goes before all that were not begun yet.
  void Hurry(const Plan& plan);
  // Whether waiting for the plan's programs is of no more use: they are there, could not be made,
  // or would be too much to keep.
  bool IsSettled(const Plan& plan);
  // The programs, which are then gone from here; nothing where they are not there (yet).
  std::optional<std::vector<JobProgram>> Take(const Plan& plan);
  // Plans whose programs are there.
  int ready();

 private:
  struct Entry {
    Plan plan;
    bool is_settled = false;
    int64_t nodes = 0;
    std::optional<std::vector<JobProgram>> programs;
  };
  std::string KeyOf(const Plan& plan) const;
  void Run();
  void Keep(const std::string& key, absl::StatusOr<std::vector<JobProgram>> programs)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Repartition repartition_;
  const PreparedLimits limits_;
  Mutex mutex_;
  CondVar changed_;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  // What keys begin with: programs that are under way when all is forgotten belong to nobody.
  int64_t generation_ = 0;
  // By generation and ProgramsKey.
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> queue_ ABSL_GUARDED_BY(mutex_);  // keys of those that are to be made
  std::thread thread_;
};

}  // namespace weft

#endif  // WEFT_TRAINING_RECOVERY_PREPARED_PROGRAMS_H_
