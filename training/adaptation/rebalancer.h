// Rebalancer: reports workers that become slower, and gives them fewer micro-batches.
#ifndef WEFT_TRAINING_ADAPTATION_REBALANCER_H_
#define WEFT_TRAINING_ADAPTATION_REBALANCER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/coordinator.h"
#include "graph/plan.h"
#include "placement/completion/balanced_shares.h"
#include "training/adaptation/straggler_detector.h"
#include "training/adaptation/straggler_log.h"
#include "training/job/job.h"
#include "training/job/trainer.h"

namespace weft {

// What a Rebalancer may do, and whom it informs.
struct RebalancerOptions {
  // Moves micro-batches between replicas; otherwise says only who is slow, and what moving would
  // do.
  bool moves = false;
  // Is told lines for people: "slow    worker:1 (...) works 2.1 times slower than before ...". Few:
  // StragglerLog says when.
  std::function<void(const std::string& line)> say;
  // Is told the plan that the following steps run under; may be null.
  std::function<void(const Plan& plan)> on_plan;
  // By which a slow worker is seen to last; null: RealClock().
  Clock* clock = nullptr;
};

// Adds the programs of other shares to the job and to its workers. Variables stay where they are,
// and so does what is computed: only who computes which micro-batch changes (Plan::shares). In a
// strict job not one bit changes.
class Rebalancer final : public StepWatch {
 public:
  // The programs of the job under `plan`, named `kind`/SHAPE (PartitionTraining).
  using Repartition = std::function<absl::StatusOr<std::vector<JobProgram>>(
      const Plan& plan, const std::string& kind)>;

  // Borrows job and coordinator, which has started it. Its programs are appended to job.programs
  // between two stretches of steps.
  Rebalancer(PreparedJob& job, const Coordinator& coordinator, Repartition repartition,
             RebalancerOptions options);

  void Observe(int rank, const StepReport& report) override;
  absl::StatusOr<std::string> ChooseProgram(Coordinator& coordinator, int64_t step) override;
  // Begins anew with the job's plan. What was said of workers that are left stays said.
  void MembersChanged() override;

  // Why nothing can be moved under this plan, with what to do; "" = something can.
  static std::string WhyNothingMoves(const Plan& plan);

  // No more steps come: says what is left to say of stragglers.
  void Finish() { log_.Finish(); }

  // That the following steps run under.
  const Plan& plan() const { return plan_; }
  // How often the shares have changed.
  int moves() const { return moves_; }

 private:
  // What all ranks worked in a step, as far as they have said.
  struct Row {
    std::vector<RankWork> ranks;
    int count = 0;
  };

  // Watches the ranks of the job's plan, which have its programs alone.
  void Begin();
  // Of each replica, by the plan.
  std::vector<int> MicroBatches() const;
  // Of one, in a step that has `total`.
  int MicroBatchesOf(int replica, int total) const;
  std::vector<ReplicaSpeed> ReplicaSpeeds() const;
  void Tell(const SpeedChange& change);
  // What --rebalance would do, or why it can do nothing.
  std::string Advice() const;
  // The kind of the programs for these shares, which are on the workers now; that of the present
  // ones where they cannot be.
  absl::StatusOr<std::string> AddPrograms(Coordinator& coordinator, const Plan& plan);
  // ResourceExhausted when a worker has no memory for them beside what it has.
  absl::Status CheckMemory(const std::vector<JobProgram>& programs) const;

  PreparedJob& job_;
  const Coordinator& coordinator_;
  const Repartition repartition_;
  const RebalancerOptions options_;
  StragglerDetector watch_;
  StragglerLog log_;
  Plan plan_;
  std::string kind_;
  std::map<std::vector<int>, std::string> kinds_;  // that the workers have, by shares
  std::map<int64_t, Row> rows_;                    // by step
  bool told_ = false;                              // of a change since the last decision
  int64_t decided_ = 0;                            // at how many observations
  bool gave_up_ = false;
  int moves_ = 0;
};

}  // namespace weft

#endif  // WEFT_TRAINING_ADAPTATION_REBALANCER_H_
