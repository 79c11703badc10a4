#include "graph/schedule/action_list.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

std::vector<ActionList> AllStages(const std::string& schedule, int stages, int micro_batches,
                                  bool training) {
  std::vector<ActionList> lists;
  for (int s = 0; s < stages; ++s) {
    lists.push_back(*MakeActions(schedule, stages, s, micro_batches, training));
  }
  return lists;
}

std::string MessageOf(const std::vector<std::string>& stages, int micro_batches) {
  std::vector<ActionList> lists;
  for (const std::string& text : stages) lists.push_back(*ParseActionList(text));
  return std::string(ValidateActions(lists, micro_batches).message());
}

// The most micro-batches whose forward is done and whose backward is not.
int MostInFlight(const ActionList& actions) {
  int now = 0;
  int most = 0;
  for (const Action& action : actions) {
    if (action.kind == Action::Kind::kForward) most = std::max(most, ++now);
    if (action.kind == Action::Kind::kBackward) --now;
  }
  return most;
}

TEST(ActionListTest, TextFormsAreInverse) {
  const std::string text = "Begin F0 F1 B0 F12 B1 B12 U";
  EXPECT_EQ(ActionListToString(*ParseActionList(text)), text);
}

TEST(ActionListTest, ParseNamesWhatItDoesNotKnow) {
  for (const std::string word : {"G0", "F", "F-1", "Fx", "u", "F99999999999"}) {
    const absl::Status status = ParseActionList("F0 " + word).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("unknown action '" + word + "'"));
  }
}

TEST(ActionListTest, GpipeRunsAllForwardsFirst) {
  EXPECT_EQ(ActionListToString(*MakeActions("gpipe", 2, 0, 3, true)), "Begin F0 F1 F2 B0 B1 B2 U");
}

TEST(ActionListTest, OneForwardOneBackwardWarmsUpByTheStagesBehind) {
  EXPECT_EQ(ActionListToString(*MakeActions("1f1b", 3, 0, 4, true)),
            "Begin F0 F1 F2 B0 F3 B1 B2 B3 U");
  EXPECT_EQ(ActionListToString(*MakeActions("1f1b", 3, 2, 4, true)),
            "Begin F0 B0 F1 B1 F2 B2 F3 B3 U");
}

TEST(ActionListTest, OneForwardOneBackwardKeepsFewMicroBatches) {
  for (int stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(MostInFlight(*MakeActions("1f1b", 4, stage, 16, true)), 4 - stage);
  }
}

TEST(ActionListTest, OneStageRunsEachMicroBatchToTheEnd) {
  EXPECT_EQ(ActionListToString(*MakeActions("gpipe", 1, 0, 2, true)), "Begin F0 B0 F1 B1 U");
  EXPECT_EQ(ActionListToString(*MakeActions("1f1b", 1, 0, 2, true)), "Begin F0 B0 F1 B1 U");
}

TEST(ActionListTest, EvaluationRunsForwardsOnly) {
  EXPECT_EQ(ActionListToString(*MakeActions("1f1b", 2, 1, 2, false)), "Begin F0 F1 U");
}

TEST(ActionListTest, UnknownSchedulesAreNamed) {
  EXPECT_EQ(MakeActions("2f2b", 1, 0, 1, true).status().message(),
            "unknown pipeline schedule '2f2b'; expected gpipe or 1f1b");
}

TEST(ActionListTest, GeneratedSchedulesEndForAllSizes) {
  for (const char* schedule : {"gpipe", "1f1b"}) {
    for (int stages = 1; stages <= 6; ++stages) {
      for (int micro_batches = 0; micro_batches <= 9; ++micro_batches) {
        for (bool training : {true, false}) {
          const auto lists = AllStages(schedule, stages, micro_batches, training);
          EXPECT_TRUE(ValidateActions(lists, micro_batches).ok())
              << schedule << " " << stages << " " << micro_batches << " "
              << ValidateActions(lists, micro_batches);
        }
      }
    }
  }
}

TEST(ValidateActionsTest, FindsADeadlock) {
  // Stage 1 wants micro-batch 1 first; stage 0 sends it only after the backward of 0.
  EXPECT_EQ(MessageOf({"Begin F0 B0 F1 B1 U", "Begin F1 F0 B0 B1 U"}, 2),
            "deadlock: stage 0 waits for ever to start B0");
}

TEST(ValidateActionsTest, FindsWhatIsMissing) {
  EXPECT_EQ(MessageOf({"Begin F0 F1 B0 U"}, 2), "stage 0: B1 is missing");
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
  EXPECT_EQ(ActionGrid(AllStages("gpipe", 2, 2, true), 2),
            "stage 0 Begin F0    F1    .     .     B0    B1    U\n"
            "stage 1 Begin .     F0    F1    B0    B1    U\n");
}

}  // namespace
}  // namespace weft
