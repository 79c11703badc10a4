// Puts back BatchNormalization that an exporter has folded away, with the statistics of training
// data: `--repair unfold-bn`.
#ifndef WEFT_TOOLS_JOBS_UNFOLDING_H_
#define WEFT_TOOLS_JOBS_UNFOLDING_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "onnx_import/model_file.h"
#include "onnx_import/unfolding/unfold_norms.h"
#include "tools/flags/repair_flags.h"
#include "tools/flags/train_flags.h"
#include "training/data/data_set.h"
#include "training/graph/training_spec.h"

namespace weft {

// Batches of training data that statistics are taken from, at most.
inline constexpr int64_t kUnfoldingBatches = 64;

// What a model does on those batches, in inference.
struct BatchMeasurement {
  int64_t batches = 0;
  int64_t samples = 0;
  std::map<std::string, ChannelStatistics> channels;  // by FoldedNorm::output
  std::map<std::string, double> metrics;              // by name; none without labels
};

// Runs a model forward over the first batches of the data, kUnfoldingBatches and one epoch at most,
// in this process, and keeps no more than a batch. The mean and the variance of a batch are joined
// with those before it in double: Chan, Golub and LeVeque, "Updating Formulae and a Pairwise
// Algorithm for Computing Sample Variances", 1979. A model that was exported for a number of
// samples gets so many at a time, and what is left of a batch counts nowhere. `metrics` as for
// BuildEvaluationGraph; those that need all samples at once are left out. Errors carry their exit
// code.
absl::StatusOr<BatchMeasurement> MeasureBatches(const ModelFile& file,
                                                const std::vector<FoldedNorm>& norms,
                                                const std::shared_ptr<const DataSet>& data,
                                                const LossSpec& loss,
                                                const std::vector<std::string>& metrics);

// What was done, for people.
struct UnfoldingReport {
  std::vector<FoldedNorm> norms = {};
  BatchMeasurement before = {};
  std::map<std::string, double> after = {};  // metrics of the repaired model

  // Lines with control characters escaped; "" where nothing was done.
  std::string Text() const;
};

// The file repaired (UnfoldNorms of FindFoldedNorms), with statistics of the data; `report` is
// filled. Errors carry their exit code.
absl::StatusOr<ModelFile> UnfoldOnData(ModelFile file, const std::vector<std::string>& patterns,
                                       const std::shared_ptr<const DataSet>& data,
                                       const LossSpec& loss,
                                       const std::vector<std::string>& metrics,
                                       UnfoldingReport& report);

// The repair that the flags ask for, on the job's training data; null where they ask for none. The
// metrics are those of evaluations of the loss that the job will have; of updates in turn, none.
// Borrows both.
FileRepair RepairOnData(const TrainFlags& flags, UnfoldingReport& report);

}  // namespace weft

#endif  // WEFT_TOOLS_JOBS_UNFOLDING_H_
