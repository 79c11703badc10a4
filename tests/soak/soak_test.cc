// Jobs under seeded schedules of faults: none hangs, and none comes to a wrong result.
//
// WEFT_SEEDS: how many (two for each kind of fault). WEFT_FIRST_SEED: which is the first (1).
#include <cstdlib>
#include <iostream>
#include <set>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "graph/plan.h"
#include "gtest/gtest.h"
#include "tests/soak/fault_schedule.h"
#include "tests/soak/soak_run.h"
#include "tests/soak/soak_tally.h"

namespace weft::testing {
namespace {

int FromEnvironment(const char* name, int otherwise) {
  const char* const value = std::getenv(name);
  int number = 0;
  return value != nullptr && absl::SimpleAtoi(value, &number) ? number : otherwise;
}

TEST(SoakTest, NoScheduleHangsOrComesToAWrongResult) {
  const int rows = static_cast<int>(FaultRows().size());
  const int first = FromEnvironment("WEFT_FIRST_SEED", 1);
  const int seeds = FromEnvironment("WEFT_SEEDS", 2 * rows);
  SoakTally tally;
  for (int seed = first; seed < first + seeds; ++seed) {
    const FaultSchedule schedule = SoakTally::ScheduleOf(seed);
    const SoakOutcome outcome = RunSchedule(schedule);
    EXPECT_TRUE(outcome.complaints.empty()) << ComplaintText(schedule, outcome);
    tally.Add(schedule, outcome);
  }
  std::cout << tally.Text();
  // A kind of fault that never comes tests nothing, nor does a loss that always ends the job.
  if (seeds < 5 * rows) return;
  for (const FaultRow& row : FaultRows()) EXPECT_GT(tally.struck(row.name), 0) << row.name;
  for (const char* const row : {"kill", "freeze", "kill of a host", "kill and return"}) {
    EXPECT_GT(tally.went_on(row), 0) << row;
  }
  EXPECT_GT(tally.from_copies(), 0) << "of no job whose state was lost were copies of use";
}

TEST(FaultScheduleTest, IsTheSameForTheSameSeed) {
  for (int seed = 0; seed < 100; ++seed) {
    EXPECT_EQ(DescribeSchedule(DrawSchedule(seed)), DescribeSchedule(DrawSchedule(seed)));
  }
  EXPECT_NE(DescribeSchedule(DrawSchedule(1)).substr(7),
            DescribeSchedule(DrawSchedule(2)).substr(7));
}

TEST(FaultScheduleTest, DrawsEachMesh) {
  std::set<std::string> meshes;
  for (int seed = 0; seed < 500; ++seed) {
    const FaultSchedule schedule = DrawSchedule(seed);
    meshes.insert(absl::StrCat(schedule.mesh.ToString(), " zero=", schedule.zero));
  }
  for (const Mesh& mesh :
       {Mesh{2, 1, 1}, Mesh{4, 1, 1}, Mesh{2, 1, 2}, Mesh{1, 1, 2}, Mesh{2, 2, 1}, Mesh{1, 2, 1}}) {
    EXPECT_TRUE(meshes.contains(absl::StrCat(mesh.ToString(), " zero=0"))) << mesh.ToString();
  }
  for (const int zero : {1, 2, 3}) {
    EXPECT_TRUE(meshes.contains(absl::StrCat(Mesh{4, 1, 1}.ToString(), " zero=", zero))) << zero;
  }
}

TEST(FaultScheduleTest, CopiesStatesWhereRanksHavePartsOfThem) {
  std::set<std::string> copied;
  for (int seed = 0; seed < 2000; ++seed) {
    const FaultSchedule schedule = DrawSchedule(seed);
    if (schedule.replicate_every == 0) continue;
    EXPECT_TRUE(schedule.goes_on) << DescribeSchedule(schedule);
    EXPECT_TRUE(schedule.zero > 0 || schedule.mesh.tensor * schedule.mesh.pipeline > 1)
        << DescribeSchedule(schedule);
    copied.insert(absl::StrCat(schedule.mesh.pipeline, " stages, ", schedule.mesh.tensor,
                               " shards, zero=", schedule.zero, ", every ",
                               schedule.replicate_every));
  }
  for (const int every : {1, 3, 10}) {
    for (const char* const split : {"2 stages, 1 shards, zero=0", "1 stages, 2 shards, zero=0",
                                    "1 stages, 1 shards, zero=3"}) {
      EXPECT_TRUE(copied.contains(absl::StrCat(split, ", every ", every))) << split << " " << every;
    }
  }
  for (const FaultRow& row : FaultRows()) {
    if (!row.of_copies) continue;
    for (int seed = 0; seed < 100; ++seed) {
      EXPECT_GT(DrawSchedule(seed, &row).replicate_every, 0) << row.name << " " << seed;
    }
  }
}

TEST(FaultScheduleTest, StrikesTheRanksOfOneHostTogether) {
  for (const FaultRow& row : FaultRows()) {
    if (row.struck != Struck::kHost) continue;
    for (int seed = 0; seed < 100; ++seed) {
      const FaultSchedule schedule = DrawSchedule(seed, &row);
      const SoakFault& fault = schedule.faults.front();
      if (fault.other_rank < 0) {
        EXPECT_EQ(fault.rank, schedule.mesh.size() - 1) << DescribeSchedule(schedule);
      } else {
        EXPECT_EQ(fault.other_rank / 2, fault.rank / 2) << DescribeSchedule(schedule);
        EXPECT_NE(fault.other_rank, fault.rank);
      }
    }
  }
}

TEST(FaultScheduleTest, HasNoSecondFaultThatHidesAnother) {
  for (int seed = 0; seed < 1000; ++seed) {
    int messages = 0;
    int flips = 0;
    int losses = 0;
    for (const SoakFault& fault : DrawSchedule(seed).faults) {
      messages += fault.row->strike == Strike::kMessage ? 1 : 0;
      flips += fault.row->strike == Strike::kFlip ? 1 : 0;
      losses += fault.row->harm == Harm::kLosesRank || fault.row->harm == Harm::kLeaves ? 1 : 0;
    }
    EXPECT_LE(messages, 1) << seed;
    EXPECT_LE(flips, 1) << seed;
    EXPECT_TRUE(flips == 0 || losses == 0) << seed;
  }
}

}  // namespace
}  // namespace weft::testing
