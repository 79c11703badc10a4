#include "tools/flags/train_flags.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/status_macros.h"
#include "tools/console/exit_code.h"
#include "tools/flags/options.h"

namespace weft {
namespace {

// Flags of train that change nothing of a step: neither its graph nor its shapes nor where it runs.
// A flag that is not here is taken to change them: cli/planned_flags_test holds this list against
// the flags that there are.
const std::set<std::string>& FlagsOfRuns() {
  static const auto* const flags = new std::set<std::string>{
      // When the run is saved, measured and ended. --checkpoint itself takes memory.
      "checkpoint-every", "keep", "resume", "until", "patience", "best",
      // What watches the steps. --noise-scale has programs of its own for the steps that measure.
      "rebalance", "on-loss", "replicate", "wait", "listen", "detect", "digest-every",
      "on-divergence", "check-numerics", "noise-scale",
      // What is written. The gradients of --save-gradients come from a program of their own, which
      // the first step alone runs.
      "out", "ema-out", "adapters-out", "export-mode", "metrics", "tensorboard", "save-gradients",
      "save-programs"};
  return *flags;
}

// Those of evaluations, which have programs of their own.
const std::set<std::string>& FlagsOfEvaluations() {
  static const auto* const flags = new std::set<std::string>{
      "eval-every", "eval-data", "eval-labels", "eval-metric", "eval-ema"};
  return *flags;
}

}  // namespace

void TrainFlags::AddForPlanning(CLI::App& app, Looks looks, const std::vector<std::string>& own) {
  Add(app);
  job_.RequireData(app, false);
  for (const std::string& name : own) app.remove_option(app.get_option(name));
  for (CLI::Option* const option : app.get_options()) {
    const std::string name = option->get_lnames().empty() ? "" : option->get_lnames().front();
    const bool none = FlagsOfRuns().contains(name) ||
                      (looks != Looks::kAtAllProgramsToo && FlagsOfEvaluations().contains(name)) ||
                      (looks == Looks::kAtOneWorker && JobFlags::IsOfPlacement(*option));
    if (none) option->group(kWithoutEffect);
  }
  for (const char* const length : {"--steps", "--epochs"}) {
    app.get_option(length)->group("learning rate schedule");
  }
}

absl::StatusOr<TrainingSpec> TrainFlags::PlannedTraining(const DataSet* data) const {
  if (job_.alternates()) {
    return UsageError(
        "--alternate: this command looks at one loss at a time; give that of one update, as "
        "--loss output:NAME, in its place");
  }
  if (job_.auto_batch().has_value()) {
    return UsageError(
        "--batch auto is measured by train alone; give the number of samples that it has chosen");
  }
  WEFT_ASSIGN_OR_RETURN(TrainingSpec training, job_.Training());
  WEFT_RETURN_IF_ERROR(Check(training));
  RateSchedule& schedule = training.schedule;
  if (schedule.total == 0) schedule.total = data != nullptr ? Steps(*data) : steps_;
  return training;
}

std::string TrainFlags::NoteWithoutEffect(const CLI::App& app) const {
  std::vector<std::string> names;
  for (const CLI::Option* const option : app.get_options()) {
    if (option->count() > 0 && option->get_group() == kWithoutEffect) {
      names.push_back(absl::StrCat("--", option->get_lnames().front()));
    }
  }
  return names.empty()
             ? ""
             : absl::StrCat("note: without effect here: ", absl::StrJoin(names, ", "), "\n");
}

void TrainFlags::Add(CLI::App& app) {
  job_.AddModel(app);
  job_.AddData(app, /*required=*/true);
  job_.AllowAutoBatch(app);
  job_.AddLoss(app);
  job_.AddOptimizer(app);
  job_.AddAlternation(app);
  CLI::Option* const steps =
      app.add_option("--steps", steps_, "train for N steps")->type_name("N")->check(AtLeastOne);
  app.add_option("--epochs", epochs_, "train for N passes over the data")
      ->type_name("N")
      ->check(AtLeastOne)
      ->excludes(steps);
  job_.AddPlacement(app);
  job_.DefaultToPlanSearch();
  job_.AddPrediction(app);
  loop_.Add(app);
  AddResults(app);
  job_.AddPartitions(app);
}

void TrainFlags::AddResults(CLI::App& app) {
  app.add_option("-o,--out", results_.model, "write the trained model to this file")
      ->type_name("OUT.onnx");
  app.add_option("--ema-out", results_.averages,
                 "write the model with the averages of --ema to this file")
      ->type_name("OUT.onnx")
      ->group("results");
  AddExportMode(app, export_mode_, "results");
  app.add_option("--adapters-out", results_.adapters,
                 "write only the adapters, as safetensors with PEFT's names, and "
                 "adapter_config.json beside them")
      ->type_name("FILE.safetensors")
      ->group("results");
  app.add_option("--metrics", results_.metrics,
                 "write a row per step as CSV or lines of JSON: step, loss, learning rate, samples "
                 "per second, input stall, bytes sent, and the metrics of evaluations")
      ->type_name("FILE.csv|FILE.jsonl")
      ->group("results");
  app.add_option("--tensorboard", results_.tensorboard,
                 "write the curves as TensorBoard event files")
      ->type_name("DIR")
      ->group("results");
  app.add_option("--noise-scale", noise_every_,
                 "measure the noise scale of the gradient every N steps: how large a batch pays")
      ->type_name("N")
      ->check(AtLeastOne)
      ->group("results");
  app.add_flag("--no-shuffle", no_shuffle_, "keep the order of the samples in the files")
      ->group("data");
  app.add_option("--save-gradients", results_.gradients,
                 "write the gradients of the first step to this folder, each as NAME.npy")
      ->type_name("DIR")
      ->group("results");
  app.add_option("--save-programs", results_.programs,
                 "write the instructions of each worker to this folder, as worker-0.train-128.txt")
      ->type_name("DIR")
      ->group("results");
  AddOutputFormat(app, format_)->group("results");
}

absl::StatusOr<TrainingSpec> TrainFlags::Training() const {
  if (steps_ == 0 && epochs_ == 0) return UsageError("how long? give --steps N or --epochs N");
  WEFT_ASSIGN_OR_RETURN(TrainingSpec training, job_.Training());
  WEFT_RETURN_IF_ERROR(Check(training));
  training.report_gradients = !results_.gradients.empty();
  training.measure_noise = noise_every_ > 0;
  return training;
}

absl::Status TrainFlags::Check(const TrainingSpec& training) const {
  if (job_.misses_labels(training.loss) && !training.model_training_info) {
    return UsageError("--labels is required");
  }
  if (training.model_training_info && (loop_.evaluates() || !results_.gradients.empty())) {
    return UsageError(
        "--optimizer model goes without --eval-every and --save-gradients; evaluate the "
        "trained model with graph_runner eval");
  }
  if (job_.alternates()) WEFT_RETURN_IF_ERROR(CheckAlternation(training));
  if (training.precision == Precision::kFloat16 && loop_.check_numerics()) {
    return UsageError(
        "--check-numerics ends the run at the first infinite number, and --precision fp16 "
        "survives them; give one of them");
  }
  if (job_.repair().unfolds() && (loop_.saves() || training.model_training_info)) {
    return UsageError(absl::StrCat(
        "--repair goes without --checkpoint and --optimizer model: write the repaired model with "
        "graph_runner check MODEL --repair unfold-bn --data NAME=FILE --repaired-out "
        "REPAIRED.onnx, and train "
        "that with --train-mode '",
        RepairFlags::TrainModePattern(), "'"));
  }
  if (job_.auto_batch().has_value() && job_.runs_partitions()) {
    return UsageError(
        "--batch auto chooses a batch, and the programs of --partitions are for one; give --batch "
        "N");
  }
  if (noise_every_ > 0 && loop_.rebalances()) {
    return UsageError(
        "--noise-scale measures with programs of one plan, and --rebalance changes it; give one of "
        "them");
  }
  if (noise_every_ > 0 && training.model_training_info) {
    return UsageError(
        "--noise-scale measures between micro-batches, and --optimizer model takes whole batches");
  }
  if (!results_.averages.empty() && training.average_decay == 0) {
    return UsageError("--ema-out needs --ema DECAY, as --ema 0.999");
  }
  return loop_.Check(training.average_decay > 0);
}

absl::Status TrainFlags::CheckAlternation(const TrainingSpec& training) const {
  const bool others = training.model_training_info || training.precision == Precision::kFloat16 ||
                      loop_.evaluates() || loop_.rebalances() || !results_.gradients.empty() ||
                      noise_every_ > 0 || job_.auto_batch().has_value() ||
                      job_.searches_by_name() || job_.runs_partitions();
  if (!others) return absl::OkStatus();
  return UsageError(
      "--alternate goes without --optimizer model, --precision fp16, --eval-every, --rebalance, "
      "--save-gradients, --noise-scale, --batch auto, --partitions and --parallel auto");
}

int64_t TrainFlags::Steps(const std::vector<PreparedUpdate>& updates) const {
  if (steps_ > 0) return steps_;
  const PreparedUpdate& first = updates.front();
  const int64_t own = epochs_ * first.data->steps_per_epoch();
  return (own + first.steps - 1) / first.steps * TurnOrderOf(updates).cycle();
}

absl::Status TrainFlags::CheckAdapters(bool has_adapters) const {
  if (results_.adapters.empty() || has_adapters) return absl::OkStatus();
  return UsageError("--adapters-out needs --lora rank=8, --qlora or --adapters-in");
}

}  // namespace weft
