#include "tools/flags/optimizer_flags.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ops/defs/optimizer/optimizer.h"
#include "platform/file_system.h"
#include "platform/status_macros.h"
#include "tools/console/exit_code.h"
#include "tools/flags/options.h"
#include "tools/flags/pattern_list.h"
#include "training/graph/loss.h"

namespace weft {
namespace {

constexpr char kModelTrainingInfo[] = "model";
constexpr char kLossOptions[] = "loss";
constexpr char kOptimizerOptions[] = "optimizer";
constexpr char kScheduleOptions[] = "learning rate schedule";
constexpr char kPrecisionOptions[] = "precision";
constexpr char kOutputLoss[] = "output:";

// A number for all parameters, and numbers for those with a name.
struct GroupNumbers {
  double base = 0;
  bool has_base = false;
  std::map<std::string, double> by_pattern;
};

absl::StatusOr<GroupNumbers> ParseGroups(const char* flag, const std::vector<std::string>& texts) {
  GroupNumbers numbers;
  for (const std::string& text : texts) {
    const size_t equals = text.rfind('=');
    const bool has_pattern = equals != std::string::npos;
    double number = 0;
    if (!absl::SimpleAtod(has_pattern ? text.substr(equals + 1) : text, &number)) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, " ", text, ": expected a number or PATTERN=NUMBER"));
    }
    if (has_pattern) {
      numbers.by_pattern[text.substr(0, equals)] = number;
    } else if (numbers.has_base) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, " ", text, ": there is a number for all parameters already, ",
                       numbers.base, "; for some of them give PATTERN=", text));
    } else {
      numbers.base = number;
      numbers.has_base = true;
    }
  }
  return numbers;
}

// "default 0.9 for lars, momentum; 0 for rmsprop". A switch names its kinds alone: "for rmsprop".
std::string UsualValues(const std::string& option) {
  std::vector<std::pair<double, std::string>> kinds_of;
  bool is_switch = false;
  for (const OptimizerKind* const kind : AllOptimizers()) {
    const OptimizerOption* const own = kind->FindOption(option);
    if (own == nullptr) continue;
    is_switch = own->is_switch;
    const auto same = std::find_if(kinds_of.begin(), kinds_of.end(),
                                   [own](const auto& kinds) { return kinds.first == own->usual; });
    if (same == kinds_of.end()) {
      kinds_of.emplace_back(own->usual, kind->name);
    } else {
      absl::StrAppend(&same->second, ", ", kind->name);
    }
  }
  const auto append = [is_switch](std::string* text, const auto& kinds) {
    if (!is_switch) absl::StrAppend(text, kinds.first, " ");
    absl::StrAppend(text, "for ", kinds.second);
  };
  return absl::StrCat(is_switch ? "" : "default ", absl::StrJoin(kinds_of, "; ", append));
}

}  // namespace

void OptimizerFlags::AddLoss(CLI::App& app) {
  has_loss_ =
      app.add_option("--loss", loss_, "softmax_cross_entropy, mse, mae, huber, ... or output:NAME")
          ->type_name("LOSS");
  app.add_option(
         "--loss-output", loss_options_.output,
         absl::StrCat("the model's output for loss and metrics (default: the first). Losses: ",
                      absl::StrJoin(LossKinds(), ", ")))
      ->type_name("NAME")
      ->group(kLossOptions);
  app.add_option(
         "--class-axis", loss_options_.class_axis,
         "axis of the classes in that output; a negative one counts from the end (default -1)")
      ->type_name("N")
      ->group(kLossOptions);
  app.add_option("--label-smoothing", loss_options_.label_smoothing,
                 "share of the target that is spread evenly over all classes, as 0.1 (default 0)")
      ->type_name("X")
      ->group(kLossOptions);
  app.add_option("--ignore-index", loss_options_.ignore_index,
                 "ignore labels of this class, as -100 for padding")
      ->type_name("CLASS")
      ->group(kLossOptions);
  app.add_option("--class-weights", loss_options_.class_weights,
                 "a weight for each class (default 1)")
      ->type_name("X,X,...")
      ->delimiter(',')
      ->group(kLossOptions);
  app.add_flag("--soft-labels", loss_options_.soft_labels,
               "each label has a number per class (one-hot, probabilities)")
      ->group(kLossOptions);
  app.add_option("--huber-delta", loss_options_.huber_delta,
                 "for huber: errors above this count linearly, not squared (default 1)")
      ->type_name("X")
      ->check(CLI::Validator(CLI::PositiveNumber).description(""))
      ->group(kLossOptions);
}

void OptimizerFlags::AddOptimizer(CLI::App& app) {
  app.add_option("--optimizer", optimizer_,
                 "momentum, adam, adamw, lion, ...; model: its own (default sgd)")
      ->type_name("NAME");
  app.add_option("--lr", learning_rates_,
                 "learning rate; 'head/*=1e-2' sets that of parameters by name")
      ->type_name("X|PATTERN=X");
  app.add_flag(
         "--initialize", initialize_,
         "start with the weights of the model's own initialization (its training_info), not with "
         "its stored weights")
      ->group(kOptimizerOptions);
  AddOptimizerOptions(app);
  AddGradientLimits(app);
  AddGroups(app);
  AddSchedule(app);
  AddPrecision(app);
}

void OptimizerFlags::AddOptimizerOptions(CLI::App& app) {
  std::map<std::string, OptimizerOption> options;
  for (const OptimizerKind* const kind : AllOptimizers()) {
    for (const OptimizerOption& option : kind->options) options.emplace(option.name, option);
  }
  for (const auto& [name, option] : options) {
    const std::string flag = absl::StrCat("--", name);
    const std::string text = absl::StrCat(option.help, " (", UsualValues(name), ")");
    if (option.is_switch) {
      app.add_flag(flag, switches_[name], text)->group(kOptimizerOptions);
    } else {
      app.add_option(flag, numbers_[name], text)->type_name("X")->group(kOptimizerOptions);
    }
  }
}

void OptimizerFlags::AddGradientLimits(CLI::App& app) {
  CLI::Option* const norm =
      app.add_option("--clip-norm", clip_norm_,
                     "scale the gradients of a step down so that their common norm is at most X")
          ->type_name("X")
          ->group(kOptimizerOptions);
  app.add_option("--clip-value", clip_value_,
                 "clip each element of a gradient to at most this magnitude")
      ->type_name("X")
      ->excludes(norm)
      ->group(kOptimizerOptions);
  app.add_option("--ema", average_decay_,
                 "keep moving averages of the parameters with this decay, as 0.999; see --ema-out, "
                 "--eval-ema")
      ->type_name("X")
      ->group(kOptimizerOptions);
}

void OptimizerFlags::AddGroups(CLI::App& app) {
  app.add_option("--weight-decay", weight_decays_,
                 absl::StrCat("weight decay; 'head/*=0.1' sets that of parameters by name; may be "
                              "repeated (default 0). Every optimizer has one: ",
                              absl::StrJoin(OptimizerKinds(), ", ")))
      ->type_name("X|PATTERN=X")
      ->group(kOptimizerOptions);
  app.add_option("--no-decay", undecayed_, "no weight decay for these parameters ('*', '?')")
      ->type_name("PATTERN")
      ->group(kOptimizerOptions);
  app.add_flag("--no-decay-vectors", undecayed_vectors_,
               "no weight decay for parameters of rank 0 and 1: biases, scales of normalizations")
      ->group(kOptimizerOptions);
  app.add_option("--freeze", trainable_.freeze,
                 "do not train these parameters ('*', '?'; @FILE: one pattern a line)")
      ->type_name("PATTERN|@FILE")
      ->group(kOptimizerOptions);
  app.add_option("--trainable", trainable_.trainable,
                 "train these parameters although the rules exclude them")
      ->type_name("PATTERN|@FILE")
      ->group(kOptimizerOptions);
  ties_.Add(app, kOptimizerOptions);
  app.add_option(
         "--lora", adapters_.lora,
         "freeze the weights and train adapters: rank=8,alpha=16,match=*attn*. match is a pattern "
         "of weights or nodes (default rank=8, alpha=rank, all weights). train=PATTERN trains "
         "these parameters too. The exported model has the adapters merged")
      ->type_name("KEY=VALUE,...")
      ->delimiter(',')
      ->group(kOptimizerOptions);
  app.add_option("--qlora", adapters_.quantized,
                 "as --lora, over weights that are kept in whole numbers of 4 or 8 bits; int4 has "
                 "a scale for each block of the inputs (default block=64)")
      ->type_name("int8|int4,block=N")
      ->delimiter(',')
      ->group(kOptimizerOptions);
  app.add_option("--adapters-in", adapters_.file,
                 "start with the adapters of --adapters-out or of PEFT; the file says which "
                 "weights have some")
      ->type_name("FILE.safetensors")
      ->group(kOptimizerOptions);
  app.add_option(
         "--train-mode", train_mode_,
         "put these BatchNormalization and Dropout nodes into training mode although the model "
         "was exported for inference ('*': all)")
      ->type_name("PATTERN")
      ->group(kOptimizerOptions);
}

void OptimizerFlags::AddSchedule(CLI::App& app) {
  app.add_option("--schedule", schedule_.kind,
                 absl::StrCat(absl::StrJoin(RateScheduleKinds(), ", "), " (default constant)"))
      ->type_name("NAME")
      ->group(kScheduleOptions);
  app.add_option("--warmup", schedule_.warmup,
                 "steps in which the rate rises from 0 to its value (default 0)")
      ->type_name("N")
      ->check(CLI::Validator(CLI::NonNegativeNumber).description(""))
      ->group(kScheduleOptions);
  app.add_option("--schedule-steps", schedule_.total,
                 "steps of the schedule, warm-up included (default: the steps of the run)")
      ->type_name("N")
      ->check(AtLeastOne)
      ->group(kScheduleOptions);
  app.add_option("--lr-end", last_rate_,
                 "for cosine, linear and polynomial: the rate after the last step (default 0)")
      ->type_name("X")
      ->check(CLI::Validator(CLI::NonNegativeNumber).description(""))
      ->group(kScheduleOptions);
  app.add_option("--lr-gamma", schedule_.gamma,
                 "for step and exponential: the factor of the rate (default 0.1)")
      ->type_name("X")
      ->group(kScheduleOptions);
  app.add_option("--lr-every", schedule_.every,
                 "for step: the number of steps at one rate (default 1)")
      ->type_name("N")
      ->check(AtLeastOne)
      ->group(kScheduleOptions);
  app.add_option("--lr-power", schedule_.power, "for polynomial: the exponent (default 1)")
      ->type_name("X")
      ->group(kScheduleOptions);
}

void OptimizerFlags::AddQuantization(CLI::App& app) {
  app.add_option(
         "--qat", qat_,
         "train with the rounding of a quantized model and export that: int8, int4 (weights "
         "alone) or fp8, of Conv, Gemm and MatMul")
      ->type_name("KIND")
      ->group(kPrecisionOptions);
  app.add_option("--qat-skip", qat_skip_,
                 "for --qat: leave these weights or nodes float ('*', '?'; default none)")
      ->type_name("PATTERN")
      ->group(kPrecisionOptions);
  app.add_option("--qat-block", qat_block_,
                 "for --qat int4: weights that share a scale (default 32)")
      ->type_name("N")
      ->group(kPrecisionOptions);
}

void OptimizerFlags::AddPrecision(CLI::App& app) {
  app.add_option(
         "--precision", precision_,
         "number format of products: fp32, bf16 or fp16; weights stay float32 (default fp32)")
      ->type_name("NAME")
      ->group(kPrecisionOptions);
  AddQuantization(app);
  app.add_option(
         "--loss-scale", loss_scale_.initial,
         "for fp16: first factor of the loss; it is halved whenever gradients overflow (default "
         "65536)")
      ->type_name("X")
      ->group(kPrecisionOptions);
  app.add_option("--loss-scale-window", loss_scale_.growth_interval,
                 "for fp16: good steps in a row until it is doubled (default 2000)")
      ->type_name("N")
      ->check(AtLeastOne)
      ->group(kPrecisionOptions);
}

void OptimizerFlags::AddAlternation(CLI::App& app) {
  CLI::Option* const alternate =
      app.add_option(
             "--alternate", updates_,
             "updates in turn, as for a GAN; give two or more. 'critic: loss=output:loss_d, "
             "train=critic.*, steps=5' makes 5 steps of that loss on these parameters (joined by "
             "+). optimizer, its options, lr, weight-decay, clip-norm, batch and seed may differ")
          ->type_name("NAME: KEY=VALUE,...")
          ->group(kOptimizerOptions);
  // Losses are those of the updates; the rest is not known to be right there.
  for (const char* const other :
       {"--loss", "--loss-output", "--lora", "--qlora", "--adapters-in", "--qat"}) {
    CLI::Option* const option = app.get_option_no_throw(other);
    if (option != nullptr) alternate->excludes(option);
  }
}

absl::StatusOr<std::vector<UpdateSpec>> OptimizerFlags::Updates(const TrainingSpec& base) const {
  std::vector<UpdateSpec> updates;
  for (const std::string& text : updates_) {
    auto update = ParseUpdate(text, base);
    if (!update.ok()) return UsageError(absl::StrCat("--alternate: ", update.status().message()));
    updates.push_back(*std::move(update));
  }
  if (updates.size() != 1) return updates;
  return UsageError("--alternate: one update has none to take turns with; give another");
}

absl::StatusOr<LossSpec> OptimizerFlags::Loss() const {
  auto loss = ParseLoss(loss_);
  if (!loss.ok()) return WithExitCode(loss.status(), ExitCode::kUsage);
  LossSpec spec = loss_options_;
  spec.kind = loss->kind;
  return spec;
}

absl::Status OptimizerFlags::TakeLoss(const Graph& model, LossSpec& loss) const {
  const bool is_open = has_loss_ != nullptr && !names_loss() && !alternates();
  if (!is_open || model_training_info()) return absl::OkStatus();
  const absl::StatusOr<std::string> output = LossOutputByName(model);
  if (!output.ok()) return WithExitCode(output.status(), ExitCode::kUsage);
  if (output->empty()) return absl::OkStatus();
  loss.kind = absl::StrCat(kOutputLoss, *output);
  loss.by_name = true;
  return absl::OkStatus();
}

absl::StatusOr<TrainingSpec> OptimizerFlags::Assembled() const {
  TrainingSpec spec;
  spec.optimizer.kind = optimizer_;
  for (const auto& [name, number] : numbers_) {
    if (number.has_value()) spec.optimizer.options[name] = *number;
  }
  for (const auto& [name, is_on] : switches_) {
    if (is_on) spec.optimizer.options[name] = 1;
  }
  WEFT_ASSIGN_OR_RETURN(GroupNumbers rates, ParseGroups("--lr", learning_rates_));
  WEFT_ASSIGN_OR_RETURN(GroupNumbers decays, ParseGroups("--weight-decay", weight_decays_));
  spec.optimizer.learning_rate = rates.has_base ? rates.base : UsualLearningRate(optimizer_);
  if (!(spec.optimizer.learning_rate > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--lr ", spec.optimizer.learning_rate, ": expected a number above 0"));
  }
  spec.optimizer.weight_decay = decays.base;
  spec.groups.learning_rates = std::move(rates.by_pattern);
  spec.groups.weight_decays = std::move(decays.by_pattern);
  for (const std::string& pattern : undecayed_) spec.groups.weight_decays[pattern] = 0;
  spec.groups.decay_vectors = !undecayed_vectors_;
  spec.schedule = schedule_;
  spec.schedule.end = last_rate_ / spec.optimizer.learning_rate;
  spec.clip_norm = clip_norm_;
  spec.clip_value = clip_value_;
  spec.average_decay = average_decay_;
  WEFT_ASSIGN_OR_RETURN(spec.precision, ParsePrecision(precision_));
  spec.loss_scale = loss_scale_;
  const LossScaleSpec usual;
  const bool is_scaled =
      loss_scale_.initial != usual.initial || loss_scale_.growth_interval != usual.growth_interval;
  if (is_scaled && spec.precision != Precision::kFloat16) {
    return absl::InvalidArgumentError(
        absl::StrCat("--loss-scale is of --precision fp16; ", precision_, " needs none"));
  }
  TrainingSpec checked = spec;
  if (checked.schedule.total == 0) checked.schedule.total = std::numeric_limits<int64_t>::max();
  WEFT_RETURN_IF_ERROR(ValidateTraining(checked));
  return spec;
}

bool OptimizerFlags::model_training_info() const { return optimizer_ == kModelTrainingInfo; }

absl::StatusOr<TrainingSpec> OptimizerFlags::ModelTrainingInfo() const {
  const bool given = !learning_rates_.empty() || !weight_decays_.empty() || !undecayed_.empty() ||
                     undecayed_vectors_ || schedule_.kind != RateSchedule().kind ||
                     clip_norm_ > 0 || clip_value_ > 0 || average_decay_ > 0 || adapters_.any() ||
                     precision_ != "fp32" || !trainable_.freeze.empty() ||
                     !trainable_.trainable.empty() || !train_mode_.empty() || ties_.given() ||
                     !qat_.empty();
  if (given) {
    return absl::InvalidArgumentError(
        "--optimizer model: the model's training_info says what trains and how; leave out --lr, "
        "--weight-decay, --schedule, --clip-norm, --freeze and the like");
  }
  TrainingSpec spec;
  spec.model_training_info = true;
  return spec;
}

absl::StatusOr<TrainingSpec> OptimizerFlags::Training() const {
  WEFT_ASSIGN_OR_RETURN(const LossSpec loss, Loss());
  auto spec = model_training_info() ? ModelTrainingInfo() : Assembled();
  if (!spec.ok()) return WithExitCode(spec.status(), ExitCode::kUsage);
  spec->loss = loss;
  spec->train_mode = train_mode_;
  return spec;
}

absl::StatusOr<std::optional<AdapterOptions>> OptimizerFlags::Adapters() const {
  if (!adapters_.any()) return std::nullopt;
  auto options = ReadAdapterOptions(RealFileSystem(), adapters_);
  if (!options.ok()) return WithExitCode(options.status(), ExitCode::kUsage);
  return std::optional<AdapterOptions>(*std::move(options));
}

absl::StatusOr<std::optional<QuantizationSpec>> OptimizerFlags::Qat() const {
  if (qat_.empty()) {
    if (qat_skip_.empty() && qat_block_ == QuantizationSpec().block) return std::nullopt;
    return UsageError("--qat-skip and --qat-block need --qat int8, int4 or fp8");
  }
  if (adapters_.any()) {
    return UsageError(
        "--qat trains the weights that it quantizes, and --lora freezes them; give "
        "one of them");
  }
  auto spec = ParseQuantization(qat_, qat_block_, qat_skip_);
  if (!spec.ok()) return WithExitCode(spec.status(), ExitCode::kUsage);
  return std::optional<QuantizationSpec>(*std::move(spec));
}

absl::StatusOr<TrainableOptions> OptimizerFlags::Trainable(const Graph& model) const {
  TrainableOptions options = trainable_;
  for (const auto& [flag, patterns] :
       {std::pair("--freeze", &options.freeze), std::pair("--trainable", &options.trainable)}) {
    auto read = ReadPatternList(RealFileSystem(), flag, *patterns);
    if (!read.ok()) return WithExitCode(read.status(), ExitCode::kUsage);
    *patterns = *std::move(read);
  }
  LossSpec loss;
  loss.kind = loss_;
  WEFT_RETURN_IF_ERROR(TakeLoss(model, loss));
  if (loss.is_output()) options.loss = loss.kind.substr(sizeof(kOutputLoss) - 1);
  return options;
}

}  // namespace weft
