#include "tools/flags/loop_flags.h"

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tools/console/exit_code.h"
#include "tools/flags/data_flags.h"
#include "tools/flags/named_files.h"
#include "tools/flags/options.h"

namespace weft {
namespace {

constexpr char kCheckpointOptions[] = "checkpoints";
constexpr char kEvaluationOptions[] = "evaluation";
constexpr char kDefaultEvery[] = "300s";
constexpr char kAccuracy[] = "accuracy";
constexpr char kLoss[] = "loss";
constexpr char kIgnore[] = "ignore";

}  // namespace

absl::StatusOr<Interval> ParseInterval(const std::string& text, bool allows_seconds) {
  Interval interval;
  const std::string number = text.substr(0, text.size() - (text.empty() ? 0 : 1));
  const char unit = text.empty() ? '\0' : text.back();
  bool good = false;
  if (unit == 's' && allows_seconds) {
    good = absl::SimpleAtod(number, &interval.seconds) && interval.seconds > 0 &&
           interval.seconds < 1e9;
  } else if (unit == 'e') {
    good = absl::SimpleAtoi(number, &interval.epochs) && interval.epochs > 0 &&
           interval.epochs < (int64_t{1} << 31);
  } else {
    good = absl::SimpleAtoi(text, &interval.steps) && interval.steps > 0;
  }
  if (good) return interval;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not an interval; expected N (steps), Ne (epochs)",
                   allows_seconds ? " or Ns (seconds)" : ""));
}

void LoopFlags::Add(CLI::App& app) {
  const auto checkpoints = [](CLI::Option* option) { option->group(kCheckpointOptions); };
  const auto evaluation = [](CLI::Option* option) { option->group(kEvaluationOptions); };
  checkpoints(app.add_option("--checkpoint", folder_, "write checkpoints of the job to this folder")
                  ->type_name("DIR"));
  checkpoints(
      app.add_option(
             "--checkpoint-every", every_,
             "interval of checkpoints in steps, seconds (300s) or epochs (2e); one more at the end")
          ->type_name("N|Ns|Ne"));
  checkpoints(app.add_option("--keep", keep_, "keep the newest N checkpoints (default 3)")
                  ->type_name("N")
                  ->check(AtLeastOne));
  checkpoints(app.add_flag("--resume", resume_,
                           "resume from the newest valid checkpoint, with the current workers and "
                           "plan; start from scratch if there is none. With --cluster, from what "
                           "the workers keep of the job, where its last run was killed"));
  AddEvaluation(app);
  evaluation(app.add_option("--until", until_,
                            "end the run once an evaluation meets this rule: 'accuracy>=0.95'")
                 ->type_name("RULE"));
  evaluation(
      app.add_option("--patience", patience_,
                     "end the run after N evaluations in a row without a better first metric")
          ->type_name("N")
          ->check(AtLeastOne));
  evaluation(app.add_option("--best", best_output_, "write the model with the best first metric")
                 ->type_name("OUT.onnx"));
  app.add_flag(
         "--rebalance", rebalance_,
         "give replicas with slow workers fewer micro-batches, from one step to the next; more "
         "--micro-batches allow finer shares")
      ->group("placement");
  app.add_option(
         "--on-loss", on_loss_,
         "when a worker is lost: continue goes on with the others from the same step, and takes "
         "in a worker in its place when one has come; wait waits for that one first; stop ends "
         "the run (default continue). Where the others lack a part of the state, all go back to "
         "their newest copies (--replicate) or to the newest checkpoint; without either the run "
         "ends")
      ->type_name("continue|wait|stop")
      ->check(CLI::IsMember({kContinue, kWait, kStop}).description(""))
      ->group("placement");
  app.add_option("--wait", wait_,
                 "seconds that --on-loss wait waits; then it goes on with the others (default 60)")
      ->type_name("SECONDS")
      ->check(AtLeastOne)
      ->group("placement");
  app.add_option("--listen", listen_,
                 "where workers may ask to join the job while it runs (worker --join): unix:/path "
                 "or host:port; with keys also beyond this machine. They become further replicas, "
                 "as far as there are micro-batches, or take the places of lost workers. Needs "
                 "--local or --cluster")
      ->type_name("ADDRESS")
      ->group("placement");
  app.add_option(
         "--replicate", replicate_,
         "copy what each worker alone has of the state (zero, pp, tp) into the memory of "
         "another every N steps, of another host where there is one. What a lost worker had "
         "comes from there, and the steps since the copy are done again")
      ->type_name("every=N")
      ->group("placement");
  app.add_option("--detect", detect_,
                 "how soon a worker that does not answer is lost: default within 4 s, fast within "
                 "1 s, also where it is only starved of its processor")
      ->type_name("default|fast")
      ->check(CLI::IsMember({"default", kFast}).description(""))
      ->group("placement");
  app.add_option("--digest-every", digest_every_,
                 "compare the bits of replicas' variables every N steps, or never (0); auto: as "
                 "often as takes at most 0.5 % of the time (default auto)")
      ->type_name("auto|N")
      ->group("placement");
  app.add_option("--on-divergence", on_divergence_,
                 "when replicas' bits differ: repair gives them the majority's copy, and ends the "
                 "run where there is none; stop ends it; ignore warns (default repair)")
      ->type_name("repair|stop|ignore")
      ->check(CLI::IsMember({kRepair, kStop, kIgnore}).description(""))
      ->group("placement");
  app.add_flag("--check-numerics", check_numerics_,
               "check every value of every step for NaN and infinity; slow")
      ->group("results");
}

void LoopFlags::AddEvaluation(CLI::App& app) {
  const auto evaluation = [](CLI::Option* option) { option->group(kEvaluationOptions); };
  evaluation(
      app.add_option("--eval-every", eval_every_, "interval of evaluations in steps or epochs")
          ->type_name("N|Ne"));
  evaluation(
      app.add_option("--eval-data", eval_data_,
                     "data of evaluations, as --data (default: the part that --validation-split "
                     "holds out)")
          ->type_name("NAME=FILE[,...]"));
  evaluation(
      app.add_option("--eval-labels", eval_labels_, "labels of evaluations")->type_name("FILE"));
  evaluation(
      app.add_option("--eval-metric", eval_metrics_,
                     "metrics of evaluations (default accuracy and loss, or loss without classes)")
          ->type_name("NAME[,NAME]")
          ->delimiter(','));
  evaluation(app.add_flag("--eval-ema", eval_averages_,
                          "evaluate the averages of --ema, and write these to --best"));
}

absl::Status LoopFlags::Check(bool averages) const {
  if (folder_.empty() && (resume_ || !every_.empty())) {
    return UsageError(
        absl::StrCat(resume_ ? "--resume" : "--checkpoint-every", " needs --checkpoint DIR"));
  }
  if (!every_.empty()) {
    const auto every = ParseInterval(every_, /*allows_seconds=*/true);
    if (!every.ok()) {
      return UsageError(absl::StrCat("--checkpoint-every ", every.status().message()));
    }
  }
  if (!listen_.empty() && !continues()) {
    return UsageError("--listen takes workers in while the job runs, which --on-loss stop forbids");
  }
  int64_t digest_every = 0;
  if (digest_every_ != kAuto &&
      (!absl::SimpleAtoi(digest_every_, &digest_every) || digest_every < 0)) {
    return UsageError(absl::StrCat("--digest-every '", digest_every_,
                                   "' is not a number of steps; expected auto, 0 or N"));
  }
  if (!replicate_.empty() && replicate_every() == 0) {
    return UsageError(absl::StrCat("--replicate '", replicate_,
                                   "' says no number of steps; expected every=N, as every=10"));
  }
  const bool asks = !until_.empty() || patience_ > 0 || !best_output_.empty() ||
                    !eval_data_.empty() || !eval_labels_.empty() || !eval_metrics_.empty() ||
                    eval_averages_;
  if (eval_averages_ && !averages) {
    return UsageError("--eval-ema needs --ema DECAY, as --ema 0.999");
  }
  if (!evaluates()) {
    return asks ? UsageError("an evaluation needs --eval-every N") : absl::OkStatus();
  }
  const auto every = ParseInterval(eval_every_, /*allows_seconds=*/false);
  if (!every.ok()) return UsageError(absl::StrCat("--eval-every ", every.status().message()));
  if (until_.empty()) return absl::OkStatus();
  const auto rule = ParseStopRule(until_);
  return rule.ok() ? absl::OkStatus()
                   : UsageError(absl::StrCat("--until ", rule.status().message()));
}

CheckpointOptions LoopFlags::Checkpoints(const DataSet& data) const {
  const Interval every = *ParseInterval(every_.empty() ? kDefaultEvery : every_, true);
  return {.every_steps = every.StepsOf(data), .every_seconds = every.seconds, .keep = keep_};
}

int64_t LoopFlags::replicate_every() const {
  int64_t every = 0;
  const bool good = absl::StartsWith(replicate_, kEvery) &&
                    absl::SimpleAtoi(replicate_.substr(sizeof(kEvery) - 1), &every) && every > 0;
  return good ? every : 0;
}

ReplicaCheckOptions LoopFlags::Comparing() const {
  ReplicaCheckOptions options;
  if (digest_every_ != kAuto && !absl::SimpleAtoi(digest_every_, &options.every)) {
    options.every = 0;  // Check has refused it
  }
  options.on_divergence = on_divergence_ == kRepair ? OnDivergence::kRepair
                          : on_divergence_ == kStop ? OnDivergence::kStop
                                                    : OnDivergence::kIgnore;
  return options;
}

std::vector<std::string> LoopFlags::Metrics(const LossSpec& loss) const {
  std::vector<std::string> metrics = eval_metrics_;
  if (metrics.empty() && loss.kind == LossSpec().kind) metrics.push_back(kAccuracy);
  if (metrics.empty() || eval_metrics_.empty()) metrics.push_back(kLoss);
  const auto rule = ParseStopRule(until_);
  if (rule.ok() && std::find(metrics.begin(), metrics.end(), rule->metric) == metrics.end()) {
    metrics.push_back(rule->metric);
  }
  return metrics;
}

EvaluationOptions LoopFlags::Evaluation(const DataSet& data, const LossSpec& loss) const {
  EvaluationOptions options;
  options.every = ParseInterval(eval_every_, false)->StepsOf(data);
  if (!until_.empty()) options.until = *ParseStopRule(until_);
  options.patience = patience_;
  options.metric = Metrics(loss).front();
  return options;
}

absl::StatusOr<std::shared_ptr<const DataSet>> LoopFlags::OpenEvaluationData(
    const DataSpec& training) const {
  const auto named = ParseNamedFiles(eval_data_, "--eval-data");
  if (!named.ok()) return WithExitCode(named.status(), ExitCode::kUsage);
  return weft::OpenEvaluationData(training, *named, eval_labels_);
}

bool LoopFlags::Decides(const CLI::Option& option) {
  // Where it runs, what is written, and when it ends may differ; the contents of model and data
  // files are compared, not their paths.
  static const auto* const free_groups =
      new std::set<std::string>{kCheckpointOptions, kEvaluationOptions, "placement", "results",
                                kTrustOptions,      kWithoutEffect,     "sweep"};
  static const auto* const free_flags = new std::set<std::string>{
      "data",   "labels",       "local",     "cluster", "steps",   "epochs",   "out",
      "config", "print-config", "log-level", "dump",    "explain", "prefetch", "reader-threads"};
  // Of the free groups, these change what is computed.
  static const auto* const decides =
      new std::set<std::string>{"strict", "tf32", "cudnn", "fuse", "batch-norm", "allow-batch-cut"};
  if (option.get_lnames().empty()) return false;
  const std::string& name = option.get_lnames().front();
  const bool is_free = free_groups->contains(option.get_group()) || free_flags->contains(name);
  return !is_free || decides->contains(name);
}

FlagRecord LoopFlags::GivenFlags(const CLI::App& app) {
  FlagRecord given;
  bool strict = false;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || option->get_lnames().empty()) continue;
    const std::string name = option->get_lnames().front();
    strict = strict || name == "strict";
    if (!Decides(*option)) continue;
    given["--" + name] = option->results();
  }
  // Of a strict job the bits depend on it.
  const CLI::Option* const micro_batches = app.get_option_no_throw("--micro-batches");
  if (strict && micro_batches != nullptr && micro_batches->count() > 0) {
    given["--micro-batches"] = micro_batches->results();
  }
  return given;
}

}  // namespace weft
