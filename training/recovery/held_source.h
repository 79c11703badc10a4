// HeldSource: the state of a job from what workers hold in their memory.
#ifndef WEFT_TRAINING_RECOVERY_HELD_SOURCE_H_
#define WEFT_TRAINING_RECOVERY_HELD_SOURCE_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "distributed/recovery/held_state.h"
#include "distributed/worker_client.h"
#include "graph/partition.h"
#include "training/checkpoint/state_source.h"
#include "training/job/job_spec.h"

namespace weft {

// What a state of the job must have: the variables that its steps change, by name.
std::set<std::string> StateNames(const PreparedJob& job);

// Reads parts of snapshots through the workers' clients (ReadHeldRequest), a variable at a time. A
// part that several workers hold comes from the first of them that gives it. Borrows the clients.
class HeldSource final : public StateSource {
 public:
  // The newest state that has all of `wanted`, of those that these workers hold: snapshots of one
  // job and one step, of any number of ranks, whose parts make every variable up. `job_id`: of this
  // job alone; 0: of any. Each worker reads what it holds first, and leaves out what is damaged.
  // NotFound, which says what was found, where no state is whole. A worker that does not answer
  // counts as one that holds nothing. `newest`, if any: the newest step of which anything is held,
  // also where that is not whole; -1: of none.
  static absl::StatusOr<HeldSource> FindNewest(const std::vector<WorkerClient*>& clients,
                                               const std::set<std::string>& wanted,
                                               uint64_t job_id = 0, int64_t* newest = nullptr);

  int64_t step() const override { return step_; }
  std::string text() const override;
  std::vector<std::string> names() const override;
  absl::StatusOr<Tensor> Read(const std::string& name) override;
  uint64_t job_id() const { return job_id_; }

 private:
  // Where its bytes are.
  struct Place {
    WorkerClient* client = nullptr;
    SnapshotKey key;
    int64_t offset = 0;
  };
  struct Part {
    VariableShard shard;
    std::vector<Place> places;  // one at least; all have the same bytes
  };
  // Snapshots of one job and step, each with a worker that holds it.
  using Snapshots = std::vector<std::pair<HeldSnapshot, WorkerClient*>>;

  HeldSource() = default;
  // The parts of these variables in the snapshots. NotFound where they do not make one up.
  static absl::StatusOr<HeldSource> Of(const Snapshots& snapshots,
                                       const std::set<std::string>& wanted);
  static absl::StatusOr<Tensor> ReadPart(const Part& part, const Place& place);
  // From the first place that gives it.
  static absl::StatusOr<Tensor> ReadPart(const Part& part);
  // Each from its first place, those of one worker one after the other, workers side by side. Not
  // OK where that place does not give it.
  static std::vector<absl::StatusOr<Tensor>> ReadSideBySide(const std::vector<Part>& parts);

  int64_t step_ = 0;
  uint64_t job_id_ = 0;
  std::set<std::string> workers_;                   // that hold some of it, by name
  std::map<std::string, std::vector<Part>> parts_;  // by variable; they make it up, once
};

}  // namespace weft

#endif  // WEFT_TRAINING_RECOVERY_HELD_SOURCE_H_
