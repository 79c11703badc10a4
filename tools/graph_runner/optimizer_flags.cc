#include "tools/graph_runner/optimizer_flags.h"

#include "absl/strings/match.h"
#include "platform/status_macros.h"
#include "tools/graph_runner/exit_code.h"
#include "tools/graph_runner/options.h"

namespace weft {
namespace {

constexpr char kOptimizerOptions[] = "optimizer";
constexpr char kOutputLoss[] = "output:";

}  // namespace

void OptimizerFlags::AddLoss(CLI::App& app) {
  app.add_option("--loss", loss_, "softmax_cross_entropy, mse, or output:NAME if the graph has it")
      ->type_name("LOSS");
}

void OptimizerFlags::AddOptimizer(CLI::App& app) {
  app.add_option("--optimizer", optimizer_.kind, "sgd, momentum, nesterov, adam or adamw (sgd)")
      ->type_name("NAME");
  app.add_option("--lr", learning_rate_, "learning rate (0.01; adam and adamw 0.001)")
      ->type_name("X")
      ->check(CLI::Validator(CLI::PositiveNumber).description(""));
  app.add_option("--momentum", optimizer_.momentum, "of momentum and nesterov (0.9)")
      ->type_name("X")
      ->group(kOptimizerOptions);
  app.add_option("--weight-decay", optimizer_.weight_decay, "weight decay (0)")
      ->type_name("X")
      ->group(kOptimizerOptions);
  app.add_option("--beta1", optimizer_.beta1, "of adam and adamw (0.9)")
      ->type_name("X")
      ->group(kOptimizerOptions);
  app.add_option("--beta2", optimizer_.beta2, "of adam and adamw (0.999)")
      ->type_name("X")
      ->group(kOptimizerOptions);
  app.add_option("--epsilon", optimizer_.epsilon, "of adam and adamw (1e-8)")
      ->type_name("X")
      ->group(kOptimizerOptions);
  app.add_option("--freeze", trainable_.freeze, "parameters that shall not train ('*', '?')")
      ->type_name("PATTERN")
      ->group(kOptimizerOptions);
  app.add_option("--trainable", trainable_.trainable,
                 "parameters that shall train though the rules leave them out")
      ->type_name("PATTERN")
      ->group(kOptimizerOptions);
}

absl::StatusOr<LossSpec> OptimizerFlags::Loss() const {
  auto loss = ParseLoss(loss_);
  if (!loss.ok()) return WithExitCode(loss.status(), ExitCode::kUsage);
  return loss;
}

absl::StatusOr<TrainingSpec> OptimizerFlags::Training() const {
  TrainingSpec spec;
  WEFT_ASSIGN_OR_RETURN(spec.loss, Loss());
  spec.optimizer = optimizer_;
  const bool adaptive = optimizer_.kind == "adam" || optimizer_.kind == "adamw";
  spec.optimizer.learning_rate = learning_rate_ > 0 ? learning_rate_ : (adaptive ? 0.001 : 0.01);
  WEFT_RETURN_IF_ERROR(WithExitCode(ValidateOptimizer(spec.optimizer), ExitCode::kUsage));
  return spec;
}

TrainableOptions OptimizerFlags::Trainable() const {
  TrainableOptions options = trainable_;
  if (absl::StartsWith(loss_, kOutputLoss)) options.loss = loss_.substr(sizeof(kOutputLoss) - 1);
  return options;
}

}  // namespace weft
