#include "tools/sweep/trial_flags.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "platform/text/nearest_name.h"
#include "tools/console/exit_code.h"
#include "tools/flags/loop_flags.h"
#include "tools/flags/options.h"
#include "tools/sweep/rungs.h"

namespace weft {
namespace {

constexpr char kBatch[] = "batch";
constexpr char kSteps[] = "steps";

// A parser with all flags of train, as the command line has them.
std::unique_ptr<CLI::App> TrainParser(TrainFlags& flags) {
  auto app = std::make_unique<CLI::App>();
  app->set_help_flag();
  app->option_defaults()->group(kMainOptions);
  flags.Add(*app);
  for (CLI::Option* const option : app->get_options()) {
    if (!option->get_positional()) option->allow_extra_args(false);
  }
  return app;
}

const CLI::Option* FindOption(const CLI::App& app, std::string_view name) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->check_lname(std::string(name))) return option;
  }
  return nullptr;
}

// Whether a value of the command line is one that the axis sets.
bool IsOfAxis(const SweepAxis& axis, const CLI::Option& option, const std::string& value) {
  if (!axis.key.empty()) return absl::StartsWith(value, axis.key + "=");
  return option.get_items_expected_max() == 1 || !absl::StrContains(value, "=");
}

absl::Status CheckSwept(const SweepAxis& axis, const CLI::App& app, const CLI::App& given) {
  const CLI::Option* const option = FindOption(app, axis.option);
  if (option == nullptr) {
    std::vector<std::string> known;
    for (const CLI::Option* one : app.get_options()) {
      if (LoopFlags::Decides(*one)) known.push_back(one->get_lnames().front());
    }
    return UsageError(absl::StrCat("--sweep ", axis.Name(), ": train has no flag --", axis.option,
                                   DidYouMean(axis.option, known)));
  }
  if (!LoopFlags::Decides(*option)) {
    return UsageError(
        absl::StrCat("--sweep ", axis.Name(), ": --", axis.option,
                     " says where a run takes place, when it ends or what is written; sweep a flag "
                     "of the training, as lr, batch, optimizer or seed"));
  }
  if (!axis.key.empty() && option->get_items_expected_max() == 1) {
    return UsageError(absl::StrCat("--sweep ", axis.Name(), ": --", axis.option,
                                   " has one value, without keys; give --sweep ", axis.option,
                                   "=VALUE,VALUE"));
  }
  const CLI::Option* const besides = FindOption(given, axis.option);
  if (besides == nullptr) return absl::OkStatus();
  for (const std::string& value : besides->results()) {
    if (!IsOfAxis(axis, *besides, value)) continue;
    return UsageError(absl::StrCat("--sweep ", axis.Name(), " and --", axis.option, " ", value,
                                   " are both given; leave one out"));
  }
  return absl::OkStatus();
}

void AppendArgument(const std::string& name, const std::string& value,
                    std::vector<std::string>& arguments) {
  if (value.empty()) {
    arguments.insert(arguments.end(), {absl::StrCat("--", name), value});
  } else {
    arguments.push_back(absl::StrCat("--", name, "=", value));
  }
}

// What `given` was given that `app` knows; files of curves become those of the trial.
std::vector<std::string> GivenArguments(const CLI::App& given, const CLI::App& app, int number) {
  std::vector<std::string> arguments;
  std::vector<std::string> positional;
  for (const CLI::Option* option : given.get_options()) {
    if (option->get_positional()) {
      positional.insert(positional.end(), option->results().begin(), option->results().end());
      continue;
    }
    if (option->count() == 0 || option->get_lnames().empty()) continue;
    const std::string& name = option->get_lnames().front();
    if (FindOption(app, name) == nullptr) continue;
    for (const std::string& value : option->results()) {
      std::string own = value;
      if (name == "metrics") own = TrialFile(value, number);
      if (name == "tensorboard") own = absl::StrCat(value, "/trial-", number);
      AppendArgument(name, own, arguments);
    }
  }
  arguments.push_back("--");
  arguments.insert(arguments.end(), positional.begin(), positional.end());
  return arguments;
}

// The smallest value of a swept batch, where --steps counts its steps; else 0.
int64_t SmallestSweptBatch(const std::vector<SweepAxis>& axes, const CLI::App& given) {
  const CLI::Option* const steps = FindOption(given, kSteps);
  if (steps == nullptr || steps->count() == 0) return 0;
  int64_t smallest = std::numeric_limits<int64_t>::max();
  for (const SweepAxis& axis : axes) {
    if (axis.option != kBatch) continue;
    for (const std::string& value : axis.values) {
      int64_t batch = 0;
      if (absl::SimpleAtoi(value, &batch) && batch > 0) smallest = std::min(smallest, batch);
    }
  }
  return smallest == std::numeric_limits<int64_t>::max() ? 0 : smallest;
}

// --steps of the trial, that it sees as much data as that of the smallest batch.
void AdjustSteps(const SweepTrials& sweep, const SweepTrial& trial,
                 std::vector<std::string>& arguments) {
  for (size_t i = 0; i < sweep.axes.size(); ++i) {
    int64_t batch = 0;
    const bool is_batch =
        sweep.axes[i].option == kBatch && absl::SimpleAtoi(trial.values[i], &batch) && batch > 0;
    if (!is_batch || sweep.smallest_batch == 0) continue;
    const std::string begin = absl::StrCat("--", kSteps, "=");
    for (std::string& argument : arguments) {
      int64_t steps = 0;
      if (!absl::StartsWith(argument, begin) ||
          !absl::SimpleAtoi(argument.substr(begin.size()), &steps) || steps < 1) {
        continue;
      }
      argument = absl::StrCat(begin, StepsForBatch(steps, sweep.smallest_batch, batch));
    }
  }
}

// Of flags that are swept or given besides.
absl::Status CheckTrial(const JobFlags& job) {
  if (job.alternates()) {
    return UsageError(
        "--sweep goes without --alternate: several losses in turn are no score by which trials "
        "could be compared");
  }
  if (!job.auto_batch().has_value()) return absl::OkStatus();
  return UsageError(
      "--sweep goes without --batch auto: each trial would choose a batch of its own, and trials "
      "are compared at equal data; give --sweep batch=64,128, or the number that train has chosen");
}

absl::StatusOr<TrialFlags> ParseTrial(const SweepTrial& trial) {
  TrialFlags parsed;
  parsed.flags = std::make_unique<TrainFlags>();
  parsed.app = TrainParser(*parsed.flags);
  // The last one first, as CLI11 takes them.
  std::vector<std::string> arguments(trial.arguments.rbegin(), trial.arguments.rend());
  try {
    parsed.app->parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    return UsageError(absl::StrCat("--sweep: trial with ", trial.text, ": ", error.what()));
  }
  WEFT_RETURN_IF_ERROR(CheckTrial(parsed.flags->job()));
  const auto training = parsed.flags->Training();
  WEFT_RETURN_IF_ERROR(
      Annotate(training.status(), absl::StrCat("--sweep: trial with ", trial.text)));
  return parsed;
}

SweepTrial TrialAt(const SweepTrials& sweep, const std::vector<size_t>& point,
                   const CLI::App& given, const CLI::App& any) {
  const int number = static_cast<int>(sweep.trials.size()) + 1;
  SweepTrial trial;
  std::vector<std::string> texts;
  for (size_t i = 0; i < point.size(); ++i) {
    const SweepAxis& axis = sweep.axes[i];
    const std::string& value = axis.values[point[i]];
    trial.values.push_back(value);
    texts.push_back(absl::StrCat(axis.Name(), " ", value));
    AppendArgument(axis.option, axis.key.empty() ? value : absl::StrCat(axis.key, "=", value),
                   trial.arguments);
  }
  trial.text = absl::StrJoin(texts, ", ");
  std::vector<std::string> others = GivenArguments(given, any, number);
  AdjustSteps(sweep, trial, others);
  trial.arguments.insert(trial.arguments.end(), others.begin(), others.end());
  return trial;
}

}  // namespace

std::string TrialFile(const std::string& path, int number) {
  const size_t slash = path.rfind('/');
  const size_t stop = path.rfind('.');
  const bool has_ending = stop != std::string::npos && (slash == std::string::npos || stop > slash);
  const std::string ending = has_ending ? path.substr(stop) : "";
  return absl::StrCat(path.substr(0, path.size() - ending.size()), ".trial-", number, ending);
}

absl::StatusOr<SweepTrials> MakeSweepTrials(const CLI::App& given,
                                            const std::vector<std::string>& sweeps) {
  TrainFlags any_flags;
  const std::unique_ptr<CLI::App> any = TrainParser(any_flags);
  SweepTrials sweep;
  auto axes = ParseSweepAxes(
      sweeps, [&any](std::string_view name) { return FindOption(*any, name) != nullptr; });
  if (!axes.ok()) return WithExitCode(axes.status(), ExitCode::kUsage);
  sweep.axes = *std::move(axes);
  for (const SweepAxis& axis : sweep.axes) WEFT_RETURN_IF_ERROR(CheckSwept(axis, *any, given));
  const auto points = GridPoints(sweep.axes);
  if (!points.ok()) return WithExitCode(points.status(), ExitCode::kUsage);
  sweep.smallest_batch = SmallestSweptBatch(sweep.axes, given);
  for (const std::vector<size_t>& point : *points) {
    sweep.trials.push_back(TrialAt(sweep, point, given, *any));
    // For its errors alone.
    WEFT_RETURN_IF_ERROR(ParseTrial(sweep.trials.back()).status());
  }
  return sweep;
}

absl::StatusOr<TrialFlags> SweepTrials::Flags(size_t trial) const {
  return ParseTrial(trials[trial]);
}

}  // namespace weft
