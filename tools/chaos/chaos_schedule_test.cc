#include "tools/chaos/chaos_schedule.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/chaos/fault_kind.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<FaultKind> AllKinds() {
  std::vector<FaultKind> kinds;
  for (const FaultKindRow& row : FaultKindRows()) kinds.push_back(row.kind);
  return kinds;
}

std::string TextOf(const ChaosSchedule& schedule) {
  std::string text;
  for (const ChaosFault& fault : schedule.faults) {
    text += FaultText(fault) + " of " + std::to_string(fault.worker) + " at " +
            std::to_string(fault.step) + "\n";
  }
  return text;
}

TEST(FaultKindTest, RowsStandAtTheirKinds) {
  for (const FaultKindRow& row : FaultKindRows()) EXPECT_STREQ(RowOf(row.kind).name, row.name);
}

TEST(FaultKindTest, ParsesEachKindOnceInOneOrder) {
  const auto kinds = ParseFaultKinds("stop, kill,stop");
  ASSERT_TRUE(kinds.ok()) << kinds.status();
  EXPECT_THAT(*kinds, ElementsAre(FaultKind::kKill, FaultKind::kStop));
  EXPECT_EQ(FaultKindNames(*kinds), "kill,stop");
}

TEST(FaultKindTest, NamesAWordThatIsNone) {
  EXPECT_THAT(std::string(ParseFaultKinds("kil").status().message()),
              AllOf(HasSubstr("'kil' is no fault"), HasSubstr("'kill'")));
}

TEST(ChaosScheduleTest, IsTheSameForTheSameSeed) {
  for (int seed = 0; seed < 100; ++seed) {
    EXPECT_EQ(TextOf(DrawChaosSchedule(seed, AllKinds(), 200, 3, 4)),
              TextOf(DrawChaosSchedule(seed, AllKinds(), 200, 3, 4)));
  }
}

TEST(ChaosScheduleTest, DrawsEachKindWithinTheRun) {
  std::set<FaultKind> drawn;
  for (int seed = 0; seed < 200; ++seed) {
    const ChaosSchedule schedule = DrawChaosSchedule(seed, AllKinds(), 200, 3, 4);
    int64_t before = 0;
    for (const ChaosFault& fault : schedule.faults) {
      drawn.insert(fault.kind);
      EXPECT_GE(fault.step, std::max<int64_t>(before, 10)) << seed;
      EXPECT_LT(fault.step, 160) << seed;
      EXPECT_LT(fault.worker, 3) << seed;
      before = fault.step;
    }
  }
  EXPECT_EQ(drawn.size(), FaultKindRows().size());
}

TEST(ChaosScheduleTest, StopsForMuchLessOrMuchMoreThanIsNoticed) {
  bool has_short = false;
  bool has_long = false;
  for (int seed = 0; seed < 50; ++seed) {
    for (const ChaosFault& fault : DrawChaosSchedule(seed, {FaultKind::kStop}, 200, 3, 4).faults) {
      EXPECT_TRUE(fault.is_long ? fault.seconds >= 6 : fault.seconds <= 1.2) << fault.seconds;
      (fault.is_long ? has_long : has_short) = true;
    }
  }
  EXPECT_TRUE(has_short && has_long);
}

TEST(ChaosScheduleTest, LeavesFaultsOfWorkersOutWhereNoneAre) {
  for (int seed = 0; seed < 50; ++seed) {
    for (const ChaosFault& fault : DrawChaosSchedule(seed, AllKinds(), 200, 0, 4).faults) {
      EXPECT_FALSE(RowOf(fault.kind).strikes_worker) << RowOf(fault.kind).name;
    }
  }
}

TEST(ChaosScheduleTest, AsksForProxiesWhereConnectionsFail) {
  EXPECT_TRUE(DrawChaosSchedule(1, {FaultKind::kCut}, 200, 3, 4).needs_proxies());
  EXPECT_FALSE(DrawChaosSchedule(1, {FaultKind::kKill}, 200, 3, 4).needs_proxies());
}

}  // namespace
}  // namespace weft
