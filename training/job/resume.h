// Resumes a job from a checkpoint.
#ifndef WEFT_TRAINING_JOB_RESUME_H_
#define WEFT_TRAINING_JOB_RESUME_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "distributed/coordinator.h"
#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/state_source.h"
#include "training/job/job.h"

namespace weft {

// What the job that goes on with a checkpoint has otherwise, a line each: "--lr was 0.1, is 0.01".
// Workers, plan, the paths of files, and how they are read ahead may differ.
std::vector<std::string> JobDifferences(const CheckpointJob& saved, const CheckpointJob& now);

// What two runs have equal that have no JobDifferences: XXH3-64 of what is compared there. Not 0.
uint64_t JobDigest(const CheckpointJob& job);

// XXH3-64 over the names and contents of the graph's variables that begin with given values.
uint64_t WeightsChecksum(const Graph& graph);

// Hands the state to the workers of a job that has started, cut for its plan: one whole tensor at a
// time is held here. FailedPrecondition naming what the source lacks, or has beyond the job.
absl::Status Restore(Coordinator& coordinator, const PreparedJob& job, StateSource& source);
absl::Status Restore(Coordinator& coordinator, const PreparedJob& job,
                     const Checkpoint& checkpoint);

}  // namespace weft

#endif  // WEFT_TRAINING_JOB_RESUME_H_
