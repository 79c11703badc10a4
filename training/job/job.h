// A job: graph, data and plan of a training or evaluation, and the partition of each rank.
#ifndef WEFT_TRAINING_JOB_JOB_H_
#define WEFT_TRAINING_JOB_JOB_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/coordinator.h"
#include "distributed/state_handover.h"
#include "distributed/worker.h"
#include "graph/cluster_spec.h"
#include "graph/graph.h"
#include "graph/partition.h"
#include "graph/passes/pass.h"
#include "graph/plan.h"
#include "placement/cost/cost_model.h"
#include "placement/cost/run_history.h"
#include "training/data/data_set.h"
#include "training/graph/training_graph.h"
#include "training/job/job_spec.h"
#include "training/job/stored_programs.h"

namespace weft {

// Gives the data inputs of a graph the sample shapes of the data (axis 0 stays symbolic) and infers
// again. `length`: of padded inputs, where they have several; 0 = the longest that occurs.
// `observe` sees the graph after each pass that changes it. InvalidArgument naming input and file
// shape where they do not fit.
absl::Status BindInputs(Graph& graph, const DataSet& data, int64_t length = 0,
                        const GraphObserver& observe = nullptr);

// Sizes that stand for data where there is none: of symbolic dimensions by name, and of all others.
struct InputSizes {
  std::map<std::string, int64_t> by_name;
  int64_t other = 0;  // of dimensions without a name and of names that are not in `by_name`
};

// The same where there is no data: dimensions of the data inputs that are not known get these
// sizes; axis 0 stays symbolic. Adds to `assumed` the sizes that `other` stood for, as "L = 16".
// InvalidArgument for an input of unknown rank.
absl::Status BindInputs(Graph& graph, const InputSizes& sizes, std::vector<std::string>* assumed,
                        const GraphObserver& observe = nullptr);

// Whether one worker can run steps of `batch` samples: partitions the training graph of `model`, as
// PrepareTraining does, and compiles the result; allocates and runs nothing. The errors are those
// of PrepareTraining and of StartJob, but for those of plan, memory and data.
absl::Status CheckStepRuns(const Graph& training_graph, const Graph& model, int64_t batch);

// Training graph, plan and partitions for all shapes that steps of the data set have; the plan is
// made for the first. With training.measure_noise there are programs for steps that measure, too;
// InvalidArgument says why a plan cannot measure, and what to do. `model` has its trainable
// variables marked. Where spec.stored has plan and partitions, those are taken
// (TakeStoredPrograms); so below. Where nodes mix samples, the batch is kept whole, or
// InvalidArgument says what would cut it (LimitBatchCuts); so below.
absl::StatusOr<PreparedJob> PrepareTraining(const Graph& model, const TrainingSpec& training,
                                            const JobSpec& spec,
                                            std::shared_ptr<const DataSet> data);
absl::StatusOr<PreparedJob> PrepareEvaluation(const Graph& model, const LossSpec& loss,
                                              const std::vector<std::string>& metrics,
                                              const JobSpec& spec,
                                              std::shared_ptr<const DataSet> data);

// The same for evaluations within a training job, on its workers and with its variables as they
// are: under its plan, whatever `spec` says. Started with the job (StartJob). `averages`: of the
// moving averages of the parameters, which the job keeps; FailedPrecondition if it keeps none.
absl::StatusOr<PreparedJob> PrepareEvaluationWithin(const PreparedJob& training, const Graph& model,
                                                    const LossSpec& loss,
                                                    const std::vector<std::string>& metrics,
                                                    const JobSpec& spec,
                                                    std::shared_ptr<const DataSet> data,
                                                    bool averages = false);

// The programs of a training job's steps under another plan of its mesh, by the names `kind`/SHAPE.
// `model` and `training` are what the job was prepared from.
absl::StatusOr<std::vector<JobProgram>> PartitionTraining(const PreparedJob& job,
                                                          const Graph& model,
                                                          const TrainingSpec& training,
                                                          const Plan& plan,
                                                          const std::string& kind);

// The runs of equal steps that cover [first, last), for programs named `kind`/SHAPE.
std::vector<StepRange> StepRanges(const DataSet& data, const std::string& kind, int64_t first,
                                  int64_t last, const std::map<std::string, double>& scalars);

// How a job begins on its workers, where it may go on with what they have.
struct JobStart {
  uint64_t epoch = 0;  // JobMembership's; so the next two
  uint64_t job_digest = 0;
  // Where it is not 0, no initial values are handed out: `newcomers` begin anew, and take the state
  // of others (`handovers`).
  uint64_t continues_job_id = 0;
  std::set<int> newcomers = {};
  std::vector<Handover> handovers = {};
  uint64_t recovers_job_id = 0;  // JobMembership's
};

// Joins the workers, hands out programs and the initial values of the graph's variables.
// ResourceExhausted when the job does not fit: a worker into its memory, or those of one host
// together into what they share. Nothing large has been allocated then.
// The job has a new random number, its id; `addresses` are the ranks' data addresses (empty
// in-process). `evaluation`, if any, is of PrepareEvaluationWithin.
absl::Status StartJob(Coordinator& coordinator, const PreparedJob& job, const JobSpec& spec,
                      const std::string& version, std::vector<std::string> addresses,
                      const PreparedJob* evaluation = nullptr, const JobStart& start = {});

// Hands the initial values of the graph's variables, but for these, to workers that have the
// programs.
absl::Status WriteInitialValues(Coordinator& coordinator, const PreparedJob& job,
                                const std::set<std::string>& others);

// Hands out the job's programs, and those of an evaluation within it, to workers that have joined.
absl::Status AddPrograms(Coordinator& coordinator, const PreparedJob& job,
                         const PreparedJob* evaluation);

// The factory that workers open data sets with: DataSpec as JSON, files read through `files`.
InputSourceFactory NewDataSetFactory(FileSystem& files);

}  // namespace weft

#endif  // WEFT_TRAINING_JOB_JOB_H_
