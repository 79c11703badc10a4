// Jobs under seeded schedules of faults: none hangs, and none comes to a wrong result.
//
// WEFT_SEEDS: how many (26). WEFT_FIRST_SEED: which is the first (1).
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/soak/fault_schedule.h"
#include "tests/soak/soak_run.h"

namespace weft::testing {
namespace {

int FromEnvironment(const char* name, int otherwise) {
  const char* const value = std::getenv(name);
  int number = 0;
  return value != nullptr && absl::SimpleAtoi(value, &number) ? number : otherwise;
}

// What a kind of fault has done, over all schedules that had it.
struct FaultTally {
  int schedules = 0;
  int struck = 0;
  int went_on = 0;  // after a loss
  int ended = 0;    // by an error
};

TEST(SoakTest, NoScheduleHangsOrComesToAWrongResult) {
  const std::vector<FaultRow>& rows = FaultRows();
  const int first = FromEnvironment("WEFT_FIRST_SEED", 1);
  const int seeds = FromEnvironment("WEFT_SEEDS", 2 * static_cast<int>(rows.size()));
  std::map<std::string, FaultTally> tallies;
  for (int seed = first; seed < first + seeds; ++seed) {
    const FaultRow& row = rows[static_cast<size_t>(seed) % rows.size()];
    const FaultSchedule schedule = DrawSchedule(seed, &row);
    const SoakOutcome outcome = RunSchedule(schedule);
    EXPECT_TRUE(outcome.complaints.empty())
        << DescribeSchedule(schedule) << "\n  " << absl::StrJoin(outcome.complaints, "\n  ")
        << "\n  error: " << outcome.error << "\nagain: bazel test //tests/soak:soak_test "
        << "--nocache_test_results --test_output=all --test_env=WEFT_SEEDS=1 "
        << "--test_env=WEFT_FIRST_SEED=" << seed;
    if (seeds == 1) {
      std::cout << DescribeSchedule(schedule)
                << "\n  struck: " << absl::StrJoin(outcome.struck, ", ") << "; " << outcome.losses
                << " losses, resumed from step " << outcome.resumed_from << ", waited "
                << absl::FormatDuration(outcome.turned) << "\n  error: " << outcome.error << "\n";
    }
    for (const SoakFault& fault : schedule.faults) {
      FaultTally& tally = tallies[fault.row->name];
      ++tally.schedules;
      if (!outcome.struck.contains(fault.row->name)) continue;
      ++tally.struck;
      tally.went_on += outcome.losses > 0 ? 1 : 0;
      tally.ended += outcome.error.empty() ? 0 : 1;
    }
  }
  std::cout << absl::StrFormat("%-18s%10s%10s%10s%10s\n", "fault", "schedules", "struck", "went on",
                               "ended");
  for (const FaultRow& row : rows) {
    const FaultTally& tally = tallies[row.name];
    std::cout << absl::StrFormat("%-18s%10d%10d%10d%10d\n", row.name, tally.schedules, tally.struck,
                                 tally.went_on, tally.ended);
    // A kind of fault that never comes tests nothing.
    if (seeds >= 5 * static_cast<int>(rows.size())) {
      EXPECT_GT(tally.struck, 0) << row.name;
    }
  }
}

TEST(FaultScheduleTest, IsTheSameForTheSameSeed) {
  for (int seed = 0; seed < 100; ++seed) {
    EXPECT_EQ(DescribeSchedule(DrawSchedule(seed)), DescribeSchedule(DrawSchedule(seed)));
  }
  EXPECT_NE(DescribeSchedule(DrawSchedule(1)).substr(7),
            DescribeSchedule(DrawSchedule(2)).substr(7));
}

TEST(FaultScheduleTest, HasNoSecondFaultThatHidesAnother) {
  for (int seed = 0; seed < 1000; ++seed) {
    int messages = 0;
    for (const SoakFault& fault : DrawSchedule(seed).faults) {
      messages += fault.row->strike == Strike::kMessage ? 1 : 0;
    }
    EXPECT_LE(messages, 1) << seed;
  }
}

}  // namespace
}  // namespace weft::testing
