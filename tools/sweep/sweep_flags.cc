#include "tools/sweep/sweep_flags.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/console/exit_code.h"
#include "tools/flags/options.h"

namespace weft {
namespace {

constexpr char kSweepOptions[] = "sweep";

// What a sweep cannot have, and why.
constexpr std::pair<const char*, const char*> kWithoutSweep[] = {
    {"--checkpoint", "its trials have no checkpoints; give it to a run with the best values"},
    {"--best", "give -o with --select best"},
    {"--save-programs", "give it to a run with the best values"},
    {"--rebalance", "shares that follow the speed of workers would change what is compared"},
    {"--partitions", "they are of one job, and a sweep has several"},
};

// What is written of the best trial.
constexpr const char* kResultsOfBest[] = {"--out", "--ema-out", "--adapters-out",
                                          "--save-gradients"};

bool IsGiven(const CLI::App& app, const char* name) {
  const CLI::Option* const option = app.get_option_no_throw(name);
  return option != nullptr && option->count() > 0;
}

}  // namespace

void SweepFlags::Add(CLI::App& app) {
  app.add_option(
         "--sweep", sweeps_,
         "train with each of these values, side by side on equal shares of the workers, and "
         "print a table. May be repeated: all combinations run. A..B:N stands for N values, "
         "A..B:logN for equal ratios. FLAG.KEY is for values of the form KEY=VALUE, as "
         "lora.rank=4,8")
      ->type_name("FLAG=VALUE,...")
      ->group(kSweepOptions);
  app.add_option("--select", select_, "best: write the model of the best trial to -o")
      ->type_name("best")
      ->check(CLI::IsMember({"best"}).description(""))
      ->group(kSweepOptions);
  app.add_option("--sweep-stop", early_end_,
                 "which trials end early: those worse than the median of the earlier ones at equal "
                 "data, or none (default median)")
      ->type_name("median|none")
      ->check(CLI::IsMember({"median", "none"}).description(""))
      ->group(kSweepOptions);
  app.add_option("--side-by-side", side_by_side_,
                 "trials at once, each on an equal share of the workers (default: as many as there "
                 "are workers for)")
      ->type_name("N")
      ->check(AtLeastOne)
      ->group(kSweepOptions);
}

absl::Status SweepFlags::Check(const CLI::App& app) const {
  if (!wanted()) {
    for (const char* const flag : {"--select", "--sweep-stop", "--side-by-side"}) {
      if (IsGiven(app, flag)) {
        return UsageError(absl::StrCat(flag, " needs --sweep, as --sweep lr=0.1,0.03"));
      }
    }
    return absl::OkStatus();
  }
  for (const auto& [flag, why] : kWithoutSweep) {
    if (IsGiven(app, flag))
      return UsageError(absl::StrCat("--sweep goes without ", flag, ": ", why));
  }
  if (selects_best()) return absl::OkStatus();
  for (const char* const flag : kResultsOfBest) {
    if (!IsGiven(app, flag)) continue;
    const std::string name = std::string(flag) == "--out" ? "-o" : flag;
    return UsageError(
        absl::StrCat("which trial's result shall ", name, " have? give --select best with it"));
  }
  return absl::OkStatus();
}

}  // namespace weft
