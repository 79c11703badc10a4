#include "graph/schedule/schedule_simulator.h"

#include <algorithm>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

std::vector<ActionList> AllRanks(const std::string& schedule, int ranks, int micro_batches,
                                 bool training = true, int chunks = 1) {
  std::vector<ActionList> lists;
  for (int r = 0; r < ranks; ++r) {
    lists.push_back(*MakeActions(schedule, ranks, r, micro_batches, training, chunks));
  }
  return lists;
}

std::vector<ActionList> Parse(const std::vector<std::string>& texts) {
  std::vector<ActionList> lists;
  for (const std::string& text : texts) lists.push_back(*ParseActionList(text));
  return lists;
}

std::string MessageOf(const std::vector<std::string>& stages, int micro_batches) {
  return std::string(ValidateActions(Parse(stages), micro_batches).message());
}

ScheduleSimulation Simulate(const std::string& schedule, int ranks, int micro_batches,
                            int chunks = 1) {
  ScheduleOptions options;
  options.micro_batches = micro_batches;
  const auto simulation =
      SimulateSchedule(AllRanks(schedule, ranks, micro_batches, true, chunks), options);
  EXPECT_TRUE(simulation.ok()) << simulation.status();
  return simulation.ok() ? *simulation : ScheduleSimulation();
}

// Issue: within two points; these are equal but for rounding.
constexpr double kTolerance = 1e-9;

TEST(ScheduleSimulatorTest, BubblesOfGpipeAndOneForwardOneBackwardEqualTheory) {
  for (const char* schedule : {"gpipe", "1f1b"}) {
    for (int ranks : {2, 4, 8}) {
      for (int m : {1, 2, 5, 8, 16, 32}) {
        const double theory = (ranks - 1.0) / (m + ranks - 1.0);
        EXPECT_NEAR(Simulate(schedule, ranks, m).BubbleShare(), theory, kTolerance)
            << schedule << " " << ranks << " stages, " << m << " micro-batches";
      }
    }
  }
}

TEST(ScheduleSimulatorTest, InterleavedDividesTheBubbleByTheChunks) {
  for (int ranks : {2, 4, 8}) {
    for (int chunks : {2, 3, 4}) {
      for (int m : {ranks, 2 * ranks, 4 * ranks}) {
        const double theory = (ranks - 1.0) / (chunks * m + ranks - 1.0);
        EXPECT_NEAR(Simulate("interleaved", ranks, m, chunks).BubbleShare(), theory, kTolerance)
            << ranks << " ranks, " << chunks << " chunks, " << m << " micro-batches";
      }
    }
  }
}

// Idle (P - 1) (F + B - W) of Qi et al., table 2; F, B and W cost the same.
TEST(ScheduleSimulatorTest, ZeroBubbleLeavesAThirdOfTheBubble) {
  for (int ranks : {2, 4, 8}) {
    for (int m : {ranks, 2 * ranks, 4 * ranks}) {
      const double theory = (ranks - 1.0) / (3 * m + ranks - 1.0);
      EXPECT_NEAR(Simulate("zero_bubble", ranks, m).BubbleShare(), theory, kTolerance)
          << ranks << " stages, " << m << " micro-batches";
    }
  }
}

TEST(ScheduleSimulatorTest, ZeroBubbleIsFasterWhereTheorySaysSo) {
  int cases = 0;
  for (int ranks : {2, 4, 8}) {
    for (int m = ranks; m <= 4 * ranks; ++m) {
      const double theory = (3 * m + 3 * (ranks - 1.0)) / (3 * m + ranks - 1.0);
      if (theory < 1.2) continue;
      ++cases;
      EXPECT_GE(Simulate("1f1b", ranks, m).makespan / Simulate("zero_bubble", ranks, m).makespan,
                1.15)
          << ranks << " stages, " << m << " micro-batches";
    }
  }
  EXPECT_GE(cases, 10);
}

TEST(ScheduleSimulatorTest, MicroBatchesInFlightAreThoseOfTheSchedule) {
  for (int ranks : {2, 4, 8}) {
    for (int m : {1, 3, 8, 20}) {
      const ScheduleSimulation gpipe = Simulate("gpipe", ranks, m);
      const ScheduleSimulation one_one = Simulate("1f1b", ranks, m);
      const ScheduleSimulation zero_bubble = Simulate("zero_bubble", ranks, m);
      for (int r = 0; r < ranks; ++r) {
        EXPECT_EQ(gpipe.max_in_flight[r], m);
        EXPECT_EQ(one_one.max_in_flight[r], std::min(m, ranks - r));
        // As much as the first stage of 1F1B, on every stage: W of stage s comes s backwards later.
        EXPECT_EQ(zero_bubble.max_in_flight[r], std::min(m, ranks));
      }
    }
  }
  EXPECT_THAT(Simulate("interleaved", 4, 8, 2).max_in_flight, ElementsAre(11, 9, 7, 5));
}

TEST(ScheduleSimulatorTest, CostsAndLatencyAreThoseGiven) {
  ScheduleOptions options;
  options.micro_batches = 1;
  options.latency = 0.5;
  options.costs = {{1, 2, 3, 4, 5}, {1, 20, 30, 40, 50}};
  const auto simulation =
      SimulateSchedule(Parse({"Begin F0 B0 W0 U", "Begin F0 B0 W0 U"}), options);
  ASSERT_TRUE(simulation.ok()) << simulation.status();
  // Stage 1: Begin ends at 1, F0 comes at 3.5; stage 0: B0 comes at 54.
  EXPECT_DOUBLE_EQ(simulation->actions[1][1].start, 3.5);
  EXPECT_DOUBLE_EQ(simulation->actions[0][2].start, 54);
  EXPECT_DOUBLE_EQ(simulation->actions[0].back().end, 54 + 3 + 4 + 5);
  EXPECT_DOUBLE_EQ(simulation->makespan, 3.5 + 20 + 30 + 40 + 50);
  EXPECT_DOUBLE_EQ(simulation->busy[0], 15);
  EXPECT_DOUBLE_EQ(simulation->bubble_share[0], 1 - 15 / simulation->makespan);
}

TEST(ScheduleSimulatorTest, ASenderWithoutCreditWaits) {
  ScheduleOptions options;
  options.micro_batches = 3;
  options.costs = {{0, 1, 0, 0, 0}, {0, 10, 0, 0, 0}};
  const std::vector<ActionList> lists = Parse({"Begin F0 F1 F2 U", "Begin F0 F1 F2 U"});
  EXPECT_DOUBLE_EQ(SimulateSchedule(lists, options)->actions[0].back().end, 3);
  options.credits = 1;
  // F1's message goes when stage 1 takes the first (1), F2's when it takes the second (11).
  EXPECT_DOUBLE_EQ(SimulateSchedule(lists, options)->actions[0].back().end, 11);
}

TEST(ScheduleSimulatorTest, ACreditTooFewIsNamed) {
  const std::vector<ActionList> lists = Parse(
      {"Begin F0 F1 F2 B0 B1 B2 U", "Begin F0 F1 F2 B0 B1 B2 U", "Begin F0 F1 F2 B0 B1 B2 U"});
  ScheduleOptions options;
  options.micro_batches = 3;
  // The last stage takes what the first sends it only in the backward pass.
  options.channels = {{"h", 0, Action::Kind::kForward, 1, Action::Kind::kForward},
                      {"skip", 0, Action::Kind::kForward, 2, Action::Kind::kBackward, 1},
                      {"y", 1, Action::Kind::kForward, 2, Action::Kind::kForward}};
  EXPECT_EQ(ValidateActions(lists, options).message(),
            "deadlock: stage 0 waits for ever to end F1: the channel of 'skip' from stage 0 to 2 "
            "has no credit left for micro-batch 1 (it has 1)");
  options.channels->at(1).credits = 2;
  EXPECT_TRUE(ValidateActions(lists, options).ok()) << ValidateActions(lists, options);
}

TEST(ScheduleSimulatorTest, GeneratedSchedulesEndForAllSizesWithOneCredit) {
  for (const auto& [schedule, chunks] : std::vector<std::pair<std::string, int>>{
           {"gpipe", 1}, {"1f1b", 1}, {"zero_bubble", 1}, {"interleaved", 2}, {"interleaved", 3}}) {
    for (int ranks = 1; ranks <= 6; ++ranks) {
      for (int m = 0; m <= 13; ++m) {
        for (bool training : {true, false}) {
          ScheduleOptions options;
          options.micro_batches = m;
          options.credits = 1;
          const auto status =
              ValidateActions(AllRanks(schedule, ranks, m, training, chunks), options);
          EXPECT_TRUE(status.ok()) << schedule << " " << ranks << " ranks, " << m << ": " << status;
        }
      }
    }
  }
}

TEST(ValidateActionsTest, FindsADeadlock) {
  // Stage 1 wants micro-batch 1 first; stage 0 sends it only after the backward of 0.
  EXPECT_EQ(MessageOf({"Begin F0 B0 F1 B1 U", "Begin F1 F0 B0 B1 U"}, 2),
            "deadlock: stage 0 waits for ever to start B0: the channel of 'gradient' from stage 1 "
            "to 0 never brings micro-batch 0");
  EXPECT_EQ(MessageOf({"Begin B0 F0 U"}, 1),
            "deadlock: stage 0 waits for ever to start B0: F0 of its own comes later");
}

TEST(ValidateActionsTest, FindsWhatIsMissing) {
  EXPECT_EQ(MessageOf({"Begin F0 F1 B0 U"}, 2), "stage 0: B1 is missing");
  EXPECT_EQ(MessageOf({"Begin F0 B0 W0 U", "Begin F0 B0 U"}, 1), "stage 1: W0 is missing");
  EXPECT_EQ(MessageOf({"Begin F0 F0.1 B0.1 U"}, 1), "stage 0: B0 is missing");
  EXPECT_EQ(MessageOf({"Begin F0 B0"}, 1), "stage 0: U is not last");
  EXPECT_EQ(MessageOf({"F0 B0 U"}, 1), "stage 0: Begin is not first");
}

TEST(ValidateActionsTest, FindsWhatComesTwice) {
  EXPECT_EQ(MessageOf({"Begin F0 B0 U", "Begin F0 F0 B0 U"}, 1), "stage 1: F0 comes twice");
}

TEST(ValidateActionsTest, FindsMicroBatchesThatAreNotThere) {
  EXPECT_EQ(MessageOf({"Begin F0 F1 U"}, 1), "stage 0: action F1 names a micro-batch outside 0..0");
}

TEST(ActionGridTest, ShowsTheBubble) {
  EXPECT_EQ(ActionGrid(AllRanks("gpipe", 2, 2), 2),
            "stage 0 Begin F0    F1    .     .     B0    B1    U\n"
            "stage 1 Begin .     F0    F1    B0    B1    U\n");
  EXPECT_EQ(ActionGrid(AllRanks("zero_bubble", 2, 2), 2),
            "stage 0 Begin F0    F1    .     B0    W0    B1    W1    U\n"
            "stage 1 Begin .     F0    B0    F1    B1    W0    W1    U\n");
}

}  // namespace
}  // namespace weft
