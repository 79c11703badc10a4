#include "placement/rules/stage_transfers.h"

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(StageTransfersTest, AForwardReadComesBeforeABackwardOne) {
  const StageRead forward = {Phase::kForward, 5};
  const StageRead backward = {Phase::kBackward, 1};
  for (const StageRead& first : {FirstRead(forward, backward), FirstRead(backward, forward)}) {
    EXPECT_EQ(first.phase, Phase::kForward);
    EXPECT_EQ(first.stage, 5);
  }
}

TEST(StageTransfersTest, OfOnePhaseTheStageThatTheStepReachesFirstReadsFirst) {
  EXPECT_EQ(FirstRead({Phase::kForward, 4}, {Phase::kForward, 2}).stage, 2);
  EXPECT_EQ(FirstRead({Phase::kForward, 2}, {Phase::kForward, 4}).stage, 2);
  EXPECT_EQ(FirstRead({Phase::kBackward, 4}, {Phase::kBackward, 2}).stage, 4);
  EXPECT_EQ(FirstRead({Phase::kBackward, 2}, {Phase::kBackward, 4}).stage, 4);
  EXPECT_EQ(FirstRead({Phase::kBegin, 4}, {Phase::kBegin, 2}).stage, 2);
}

TEST(StageTransfersTest, ValuesTravelInThePhaseThatReachesTheirReader) {
  EXPECT_EQ(PhaseOfTransfer(/*is_made_forward=*/true, 1, 3), Phase::kForward);
  EXPECT_EQ(PhaseOfTransfer(/*is_made_forward=*/true, 3, 1), Phase::kBackward);
  EXPECT_EQ(PhaseOfTransfer(/*is_made_forward=*/false, 3, 1), Phase::kBackward);
  EXPECT_FALSE(PhaseOfTransfer(/*is_made_forward=*/false, 1, 3).has_value());
}

}  // namespace
}  // namespace weft
