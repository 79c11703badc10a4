// TrainingJob: what `train` is about to run, from its flags to programs for every rank.
#ifndef WEFT_TOOLS_JOBS_TRAINING_JOB_H_
#define WEFT_TOOLS_JOBS_TRAINING_JOB_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "onnx_import/edit/tie_report.h"
#include "onnx_import/importer.h"
#include "onnx_import/parameters/trainable.h"
#include "tools/console/console.h"
#include "tools/flags/tie_flags.h"
#include "tools/flags/train_flags.h"
#include "tools/jobs/batch_choice.h"
#include "tools/jobs/job_loop.h"
#include "tools/jobs/trained_model.h"
#include "tools/jobs/unfolding.h"
#include "tools/jobs/worker_group.h"
#include "training/adapters/lora.h"
#include "training/checkpoint/flag_record.h"
#include "training/graph/training_spec.h"
#include "training/job/alternation.h"
#include "training/job/job.h"
#include "training/quantization/quantization.h"

namespace weft {

struct TrainingJob {
  ImportedModel model;
  std::vector<LoraAdapter> adapters;
  Quantization quantization;  // of nothing without --qat
  TieReport ties;
  UnfoldingReport repair;
  ExportMode export_mode = ExportMode::kAsImported;
  // On each parameter of the file; adapters freeze more. None with a step of the model's own.
  std::vector<ParameterDecision> decisions;
  TrainingSpec training;
  std::vector<UpdateSpec> updates;  // in turn; empty: one, as `training` says
  std::vector<std::string> frozen;  // trainable parameters of none of them
  int64_t steps = 0;                // at which the run ends
  int64_t noise_every = 0;          // steps between measurements of the gradient's noise; 0 = none
  // Of --batch auto.
  std::optional<BatchChoice> choice;
  JobSpec spec;
  // It goes on without a worker that it loses: with what the others have, or with an earlier state.
  bool goes_on = false;
  PreparedJob job;

  // Borrows this.
  TrainedModel trained() const { return {model, adapters, export_mode, &quantization}; }
};

// Reads model and data, takes the plan of flags, model or checkpoint, or finds one, and makes the
// programs; `loop` looks for the checkpoint to resume from, and prepares evaluations. Writes no
// file. `given_flags` are LoopFlags::GivenFlags. Says on `console` what people should know before.
// All errors carry their exit code.
absl::StatusOr<std::unique_ptr<TrainingJob>> PrepareTrainingJob(const TrainFlags& flags,
                                                                FlagRecord given_flags,
                                                                JobLoop& loop, Console& console);

// Says on `console` what the job is: model, data, loss, plan, notes.
void DescribeTrainingJob(const TrainingJob& job, const TrainFlags& flags, Console& console);

// Starts the workers and hands out the job, or goes on with what they keep of it (--resume, with a
// cluster file). `asks_spares`: the job has the cluster's spares for itself, and one of them may
// keep what a lost worker had; WorkerGroup::AddFurther comes first then. Where the job does not
// fit, the error names alternatives.
absl::StatusOr<std::unique_ptr<WorkerGroup>> StartTrainingJob(const TrainingJob& job,
                                                              const TrainFlags& flags,
                                                              JobLoop& loop, Console& console,
                                                              bool asks_spares = false);

}  // namespace weft

#endif  // WEFT_TOOLS_JOBS_TRAINING_JOB_H_
