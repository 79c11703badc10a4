// Many schedules of faults by hand: bazel run //tests/soak -- --first-seed 1 --schedules 1000
#include <iostream>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "tests/soak/fault_schedule.h"
#include "tests/soak/soak_run.h"
#include "tests/soak/soak_tally.h"

namespace weft::testing {
namespace {

// The exit code: 0 where nothing is wrong.
int RunSoak(int first, int schedules, bool verbose) {
  SoakTally tally;
  for (int seed = first; seed < first + schedules; ++seed) {
    const FaultSchedule schedule = SoakTally::ScheduleOf(seed);
    const SoakOutcome outcome = RunSchedule(schedule);
    tally.Add(schedule, outcome);
    if (verbose) {
      std::cout << DescribeSchedule(schedule)
                << "\n  struck: " << absl::StrJoin(outcome.struck, ", ") << "; " << outcome.losses
                << " losses, " << outcome.from_copies
                << " of them made good from copies, resumed from step " << outcome.resumed_from
                << ", waited " << absl::FormatDuration(outcome.turned)
                << "\n  error: " << outcome.error << "\n";
    }
    if (!outcome.complaints.empty()) std::cout << ComplaintText(schedule, outcome) << std::flush;
    if (tally.schedules() % 100 == 0) std::cout << tally.Text() << std::flush;
  }
  std::cout << tally.Text();
  return tally.wrong() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace weft::testing

int main(int argc, char** argv) {
  CLI::App app("Runs jobs of this process under seeded schedules of faults, and counts their ends");
  int first = 1;
  int schedules = 1000;
  bool verbose = false;
  app.add_option("--first-seed", first, "the first seed (default 1)");
  app.add_option("--schedules", schedules, "how many, each with the next seed (default 1000)");
  app.add_flag("--verbose", verbose, "tell of each schedule");
  CLI11_PARSE(app, argc, argv);
  return weft::testing::RunSoak(first, schedules, verbose);
}
