// BatchChoice: what --batch auto chooses for a job, and how it finds that.
#ifndef WEFT_TOOLS_JOBS_BATCH_CHOICE_H_
#define WEFT_TOOLS_JOBS_BATCH_CHOICE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "tools/console/console.h"
#include "tools/flags/train_flags.h"
#include "training/checkpoint/flag_record.h"
#include "training/data/data_set.h"
#include "training/graph/training_spec.h"
#include "training/job/job_spec.h"

namespace weft {

// A job that has no plan yet. Borrows all.
struct UnplannedJob {
  const Graph& model;
  const TrainingSpec& training;
  const JobSpec& spec;
};

// Batch, rate and warm-up of a job (training/scaling/batch_rule.h). A value.
struct BatchChoice {
  int64_t batch = 0;       // samples
  double rate_factor = 1;  // times the learning rates that were given
  int64_t warmup = 0;      // steps; 0 = none, or the given one
  double noise_scale = 0;  // that it came from, in samples; 0 = it could not be told
};

// The measurement takes so many steps at most, a tenth of the run where that is less, but at least
// kMinMeasuringSteps. Those of the first half are not counted: the gradient shrinks quickly then.
inline constexpr int64_t kMaxMeasuringSteps = 100;
inline constexpr int64_t kMinMeasuringSteps = 20;
// Micro-batches of these steps, unless more were asked for: the more, the less the estimate varies.
inline constexpr int kMeasuringMicroBatches = 8;

// Chooses the batch of a job; `data` is its data in the base batch. A job that is resumed has the
// choice of its record, `saved_flags`. Else trains for some steps from the start weights, on the
// workers of the job and under its plan, with the base batch and the given rate, and throws that
// away. The choice is halved until the job fits its workers' memory. Says on `console` what was
// measured and chosen. Where the noise scale cannot be told, the base batch stays. All errors carry
// their exit code.
absl::StatusOr<BatchChoice> ChooseBatch(const TrainFlags& flags, const UnplannedJob& job,
                                        const std::shared_ptr<const DataSet>& data,
                                        const FlagRecord& saved_flags, Console& console);

// Gives a job the rates and the warm-up; a warm-up that was given stays.
void ApplyChoice(const BatchChoice& choice, TrainingSpec& training);

// To the flags of a job's record, and from them: nullopt where there is no choice.
void RecordChoice(const BatchChoice& choice, FlagRecord& flags);
std::optional<BatchChoice> RecordedChoice(const FlagRecord& flags);

}  // namespace weft

#endif  // WEFT_TOOLS_JOBS_BATCH_CHOICE_H_
