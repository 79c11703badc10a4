// The training graph of a job's flags, and a trial of it: what `train` refuses, found without a
// run.
#ifndef WEFT_TOOLS_JOBS_TRAINING_TRIAL_H_
#define WEFT_TOOLS_JOBS_TRAINING_TRIAL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "tools/flags/train_flags.h"
#include "tools/jobs/phase_dump.h"
#include "training/graph/training_spec.h"

namespace weft {

// Gives the data inputs of a graph their shapes (BindInputs of training/job/job.h).
using ShapeInputsFn = std::function<absl::Status(Graph&)>;

// The one way from a model, its trainable variables marked, to its training graph: train, plan and
// check all go it. Inputs are shaped, functions expanded, and loss, gradients and updates added.
// Where that fails and the model has operators that nothing runs, the error is what `check` says of
// those. `dump` (null: nobody) is told of the phases; Cancelled where it ends there. Errors carry
// their exit code.
absl::StatusOr<Graph> MakeTrainingGraph(const Graph& model, const TrainingSpec& training,
                                        const ShapeInputsFn& shape_inputs,
                                        PhaseDump* dump = nullptr);

// The error of a job. Where the model has operators that nothing runs, what `check` says of them:
// in its place if it names one of them, else behind it.
absl::Status ExplainedByOperators(const Graph& model, absl::Status error);

// What came of a trial.
struct TrainingTrial {
  absl::Status refusal;  // OK: it trains
  // Why nothing was tried: an input without a shape, and no data. "": it was.
  std::string not_tried = {};
  // Sizes that nobody gave: "batch = 128", "L = 16".
  std::vector<std::string> assumed = {};
};

// What the trial is made with where the flags name no data.
struct TrialSizes {
  std::map<std::string, int64_t> by_name = {};  // of symbolic dimensions
  bool batch_given = false;  // else the batch that the model was exported for counts, if any
};

// Does what `train` with these flags does up to its first step, for one worker: makes the training
// graph and its partition, and compiles it. Nothing runs. Without data, sizes that nobody gave are
// 16, and 224 where that is too small. A schedule over all steps of a run whose length the flags do
// not say is over 1,000. Errors are those of flags and files; they carry their exit
// code.
absl::StatusOr<TrainingTrial> TryTraining(const TrainFlags& flags, const TrialSizes& sizes);

// Whether the model trains and the data fit it, before a plan is looked for. `training`: with a
// schedule whose length is known. Errors carry the exit code of model or data.
absl::Status CheckModelAndData(const Graph& model, const TrainingSpec& training,
                               const DataSet& data);

}  // namespace weft

#endif  // WEFT_TOOLS_JOBS_TRAINING_TRIAL_H_
