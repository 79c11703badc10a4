// Runs programs on all workers of a cluster at once and measures their time.
#ifndef WEFT_TRAINING_CALIBRATION_PROBE_SESSION_H_
#define WEFT_TRAINING_CALIBRATION_PROBE_SESSION_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "distributed/control_calls.h"
#include "distributed/coordinator.h"
#include "distributed/worker_client.h"
#include "graph/partition.h"
#include "tensor/tensor.h"

namespace weft {

// What a step takes on one rank, in seconds: medians over rounds, each a mean over its steps. Times
// of nodes are then stretched to add up to the median of their sum.
struct ProbeTimes {
  double step_seconds = 0;  // of a step in which no node was timed
  double input_seconds = 0;
  std::map<std::string, double> node_seconds;  // by the node's name: all its runs in a step
};

// What all workers run: one partition per rank.
struct ProbeProgram {
  std::string name;
  std::vector<Partition> partitions;
};

// Borrows the coordinator, whose workers it joins anew for every job. One thread.
class ProbeSession {
 public:
  // `addresses` are the ranks' data addresses (empty in-process), `devices` what each is taken to
  // compute on (JobMembership::device; empty: any). A worker that computes on another refuses.
  ProbeSession(Coordinator& coordinator, std::vector<std::string> addresses, std::string version,
               std::vector<std::string> devices = {})
      : coordinator_(coordinator),
        addresses_(std::move(addresses)),
        version_(std::move(version)),
        devices_(std::move(devices)) {}

  // A new job: what workers had before is gone. `data` is the description of a data set, or "", of
  // which the first `data_steps` steps are taken again and again.
  absl::Status Begin(const std::vector<ProbeProgram>& programs, const std::string& data,
                     const std::map<std::string, Tensor>& values, int64_t data_steps = INT64_MAX);
  // Of each kind, with nodes timed and without: many short ones, so that those in which the machine
  // did something else are few.
  static constexpr int kRounds = 20;
  // Runs a program for about `seconds`, in rounds that alternate between timing every node and
  // none, `rounds` of each at most; by rank.
  absl::StatusOr<std::vector<ProbeTimes>> Measure(const std::string& program, double seconds,
                                                  const std::map<std::string, double>& scalars,
                                                  int rounds = kRounds);
  // What copies of each worker's device take, all at the same time; by rank. REQUIRES: a job.
  absl::StatusOr<std::vector<DeviceCopies>> MeasureCopies() {
    return coordinator_.AskAll(DeviceCopiesRequest());
  }
  // Whether NCCL runs collectives of the programs of this job.
  bool uses_nccl() const { return coordinator_.card_use().ranks > 0; }
  int size() const { return coordinator_.size(); }
  // What the workers say of themselves, by rank; empty before the first job.
  const std::vector<WorkerInfo>& workers() const { return workers_; }

 private:
  using Statistics = std::vector<std::vector<ProgramStatistics>>;  // by rank
  absl::StatusOr<Statistics> RunRound(const std::string& program, int64_t steps, bool timed,
                                      const std::map<std::string, double>& scalars);

  Coordinator& coordinator_;
  const std::vector<std::string> addresses_;
  const std::string version_;
  const std::vector<std::string> devices_;
  std::vector<WorkerInfo> workers_;
  int64_t data_steps_ = INT64_MAX;
  int64_t next_step_ = 0;
};

}  // namespace weft

#endif  // WEFT_TRAINING_CALIBRATION_PROBE_SESSION_H_
