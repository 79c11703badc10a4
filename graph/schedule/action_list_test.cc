#include "graph/schedule/action_list.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

TEST(ActionListTest, TextFormsAreInverse) {
  const std::string text = "Begin F0 F1 B0 F12 F1.2 B1 B12 W0 W0.1 U";
  EXPECT_EQ(ActionListToString(*ParseActionList(text)), text);
}

TEST(ActionListTest, ParseNamesWhatItDoesNotKnow) {
  for (const std::string word :
       {"G0", "F", "F-1", "Fx", "u", "F99999999999", "F0.", "F0.1.2", "W", "B.1"}) {
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
    EXPECT_EQ(MaxInFlight(*MakeActions("1f1b", 4, stage, 16, true)), 4 - stage);
  }
}

TEST(ActionListTest, MicroBatchesAreInFlightFromForwardToTheLastOfTheBackwardPass) {
  EXPECT_EQ(MaxInFlight(*ParseActionList("Begin F0 F1 B0 F2 B1 B2 U")), 2);
  EXPECT_EQ(MaxInFlight(*ParseActionList("Begin F0 B0 F1 B1 W0 W1 U")), 2);
  EXPECT_EQ(MaxInFlight(*ParseActionList("Begin F0 F0.1 B0.1 B0 U")), 2);
  EXPECT_EQ(MaxInFlight(*ParseActionList("Begin F0 F1 U")), 0);  // an evaluation keeps nothing
  EXPECT_EQ(MicroBatchesHeld(*ParseActionList("Begin F0 F1 U")), 1);
  EXPECT_EQ(MicroBatchesHeld(*ParseActionList("Begin F0 F1 B0 B1 U")), 2);
  // Three halves of a micro-batch.
  EXPECT_EQ(MicroBatchesHeld(*ParseActionList("Begin F0 F0.1 F1 B0.1 B0 F1.1 B1.1 B1 U")), 2);
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
            "unknown pipeline schedule '2f2b'; expected gpipe, 1f1b, interleaved or zero_bubble");
}

TEST(ActionListTest, ZeroBubbleDelaysWeightGradientsByTheStage) {
  EXPECT_EQ(ActionListToString(*MakeActions("zero_bubble", 3, 0, 4, true)),
            "Begin F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3 U");
  EXPECT_EQ(ActionListToString(*MakeActions("zero_bubble", 3, 2, 4, true)),
            "Begin F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3 U");
}

TEST(ActionListTest, InterleavedSendsGroupsThroughTheChunks) {
  EXPECT_EQ(ActionListToString(*MakeActions("interleaved", 2, 1, 4, true, 2)),
            "Begin F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 F3 B1 F2.1 B2.1 F3.1 B3.1 B2 B3 U");
  EXPECT_EQ(ActionListToString(*MakeActions("interleaved", 2, 1, 3, true, 2)),
            "Begin F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 B1 F2.1 B2.1 B2 U");
  EXPECT_EQ(ActionListToString(*MakeActions("interleaved", 2, 0, 3, false, 2)),
            "Begin F0 F1 F0.1 F1.1 F2 F2.1 U");
}

TEST(ActionListTest, ChunksBelongToInterleaved) {
  EXPECT_EQ(
      MakeActions("interleaved", 2, 0, 4, true, 1).status().message(),
      "the schedule interleaved with 1 chunk is 1f1b; say how many chunks each rank runs, for "
      "example chunks 2");
  EXPECT_EQ(MakeActions("zero_bubble", 2, 0, 4, true, 2).status().message(),
            "the schedule zero_bubble runs one chunk per rank, not 2; several need the schedule "
            "interleaved");
}

}  // namespace
}  // namespace weft
