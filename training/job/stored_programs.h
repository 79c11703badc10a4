// StoredPrograms: the programs of a job apart from it, as they lie in a folder
// (training/job/partition_folder.h), and how a job takes them instead of making its own.
#ifndef WEFT_TRAINING_JOB_STORED_PROGRAMS_H_
#define WEFT_TRAINING_JOB_STORED_PROGRAMS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/plan.h"
#include "training/checkpoint/flag_record.h"
#include "training/data/data_set.h"
#include "training/job/job_spec.h"

namespace weft {

// The kinds of a job's programs.
inline constexpr char kTrainingSteps[] = "train";
inline constexpr char kEvaluationSteps[] = "evaluate";
// Of training steps that also measure the noise of their gradient. None are stored.
inline constexpr char kNoiseSteps[] = "noise";

// "train/128", or "train/128x64" where padded inputs have that length.
std::string ProgramName(const std::string& kind, const BatchShape& shape);

struct ProgramKey {
  std::string kind;
  BatchShape shape;
};
// The inverse. InvalidArgument for what is no name of a program of the kinds above.
absl::StatusOr<ProgramKey> ParseProgramName(const std::string& name);

// No weights, and nothing of the graphs that programs were made of but what tells whether a job has
// the same.
struct StoredPrograms {
  std::string folder;  // where they were found, for messages
  int workers = 1;     // of the cluster that the plan's worker numbers count
  Plan plan;           // with the digest of the training graph
  // GraphDigest of the evaluation's graph; 0 = there are no programs of an evaluation.
  uint64_t evaluation_digest = 0;
  // The flags that were given and change what is computed, with their values.
  FlagRecord flags;
  std::vector<JobProgram> programs;  // of training, then of evaluation
};

// Gives the job, which has its graph and data, the plan and the programs of `spec.stored` of this
// kind: one for each shape of the data. FailedPrecondition naming the folder and what differs when
// they were made for another graph, data or number of workers, or lack a program; InvalidArgument
// when a partition (it may have been edited) does not go with the graph's variables or the data.
absl::Status TakeStoredPrograms(const JobSpec& spec, const std::string& kind, PreparedJob& job);

}  // namespace weft

#endif  // WEFT_TRAINING_JOB_STORED_PROGRAMS_H_
