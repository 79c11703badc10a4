// OptimizerFlags: what is minimized and how: loss, optimizer, schedule, and the parameters that
// train.
#ifndef WEFT_TOOLS_FLAGS_OPTIMIZER_FLAGS_H_
#define WEFT_TOOLS_FLAGS_OPTIMIZER_FLAGS_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "onnx_import/parameters/trainable.h"
#include "tools/flags/tie_flags.h"
#include "training/adapters/adapter_options.h"
#include "training/graph/training_graph.h"
#include "training/job/alternation.h"
#include "training/quantization/quantization.h"

namespace weft {

// Binds flags to itself (so it must outlive the parser's use of it) and turns them into specs. All
// errors carry their exit code.
class OptimizerFlags {
 public:
  void AddLoss(CLI::App& app);
  void AddOptimizer(CLI::App& app);
  // --alternate. After AddLoss and AddOptimizer.
  void AddAlternation(CLI::App& app);

  absl::StatusOr<LossSpec> Loss() const;
  // Where --loss was not given: the loss becomes the model's output whose name says so
  // (LossOutputByName), if it has one. All commands decide by this.
  absl::Status TakeLoss(const Graph& model, LossSpec& loss) const;
  bool names_loss() const { return has_loss_ != nullptr && has_loss_->count() > 0; }
  // A schedule that runs over all steps of the run has total = 0 unless it was given: the caller,
  // who knows how long the run is, fills it in.
  absl::StatusOr<TrainingSpec> Training() const;
  // The updates that are made in turn; none unless they were asked for. `base` is Training.
  bool alternates() const { return !updates_.empty(); }
  absl::StatusOr<std::vector<UpdateSpec>> Updates(const TrainingSpec& base) const;
  // Which parameters of the model train, and the output that is the loss if the graph computes it.
  // Reads the files of --freeze and --trainable.
  absl::StatusOr<TrainableOptions> Trainable(const Graph& model) const;
  // Which tensors of the file are one.
  TieFlags ties() const { return ties_.BesideAdapters(adapters_); }
  // The adapters that train in the place of weights; none unless they were asked for.
  absl::StatusOr<std::optional<AdapterOptions>> Adapters() const;
  // How the model is quantized; not at all unless it was asked for.
  absl::StatusOr<std::optional<QuantizationSpec>> Qat() const;
  // --optimizer model: the model brings its algorithm along.
  bool model_training_info() const;
  // --initialize: so it does with its initial weights.
  bool initialize() const { return initialize_; }

 private:
  // The options that kinds of optimizers declare, each a flag.
  void AddOptimizerOptions(CLI::App& app);
  void AddGradientLimits(CLI::App& app);
  void AddGroups(CLI::App& app);
  void AddSchedule(CLI::App& app);
  void AddPrecision(CLI::App& app);
  void AddQuantization(CLI::App& app);
  absl::StatusOr<TrainingSpec> Assembled() const;
  absl::StatusOr<TrainingSpec> ModelTrainingInfo() const;

  bool initialize_ = false;
  std::string loss_ = LossSpec().kind;
  const CLI::Option* has_loss_ = nullptr;  // the parser's
  LossSpec loss_options_;                  // all but the kind
  std::string optimizer_ = OptimizerSpec().kind;
  std::map<std::string, std::optional<double>> numbers_;  // by name of the option
  std::map<std::string, bool> switches_;
  std::vector<std::string> learning_rates_;  // X or PATTERN=X
  std::vector<std::string> weight_decays_;   // X or PATTERN=X
  std::vector<std::string> undecayed_;
  bool undecayed_vectors_ = false;
  RateSchedule schedule_;
  double last_rate_ = 0;
  double clip_norm_ = 0;
  double clip_value_ = 0;
  double average_decay_ = 0;
  std::string qat_;
  std::vector<std::string> qat_skip_;  // patterns
  int64_t qat_block_ = QuantizationSpec().block;
  AdapterTexts adapters_;
  TrainableOptions trainable_;
  TieFlags ties_;
  std::vector<std::string> train_mode_;  // patterns
  std::string precision_ = "fp32";
  LossScaleSpec loss_scale_;
  std::vector<std::string> updates_;  // NAME: key=value, ...
};

}  // namespace weft

#endif  // WEFT_TOOLS_FLAGS_OPTIMIZER_FLAGS_H_
