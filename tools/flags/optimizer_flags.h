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
#include "training/graph/lora.h"
#include "training/graph/training_graph.h"

namespace weft {

// Binds flags to itself (so it must outlive the parser's use of it) and turns them into specs. All
// errors carry their exit code.
class OptimizerFlags {
 public:
  void AddLoss(CLI::App& app);
  void AddOptimizer(CLI::App& app);

  absl::StatusOr<LossSpec> Loss() const;
  // A schedule that runs over all steps of the run has total = 0 unless it was given: the caller,
  // who knows how long the run is, fills it in.
  absl::StatusOr<TrainingSpec> Training() const;
  // Which parameters train, and the output that is the loss if the graph computes it. Reads the
  // files of --freeze and --trainable.
  absl::StatusOr<TrainableOptions> Trainable() const;
  // Which tensors of the file are one.
  TieFlags ties() const { return ties_.BesideLora(lora_); }
  // The adapters that train in the place of weights; none unless they were asked for.
  absl::StatusOr<std::optional<LoraSpec>> Lora() const;
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
  absl::StatusOr<TrainingSpec> Assembled() const;
  absl::StatusOr<TrainingSpec> ModelTrainingInfo() const;

  bool initialize_ = false;
  std::string loss_ = "softmax_cross_entropy";
  LossSpec loss_options_;  // all but the kind
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
  std::vector<std::string> lora_;  // KEY=VALUE
  TrainableOptions trainable_;
  TieFlags ties_;
  std::vector<std::string> train_mode_;  // patterns
  std::string precision_ = "fp32";
  LossScaleSpec loss_scale_;
};

}  // namespace weft

#endif  // WEFT_TOOLS_FLAGS_OPTIMIZER_FLAGS_H_
