// What a simulation says of ranks that wait too long.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/simulation/simulator.h"
#include "placement/simulation/testing/pipeline_model.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::PipelineLists;
using testing::PipelineModel;
using Instruction = StepInstruction;

Simulation Simulate(const StepModel& model, const SimulationOptions& options) {
  auto simulation = SimulateStep(model, options);
  EXPECT_TRUE(simulation.ok()) << simulation.status();
  return simulation.ok() ? *std::move(simulation) : Simulation();
}

// Three stages of one second per pass.
class StallTest : public ::testing::Test {
 protected:
  StallTest() : model_(PipelineModel(PipelineLists("gpipe", 3, 2), {})) {
    options_.steps = 4;
    options_.stall_timeout_seconds = 60;
  }
  StepModel model_;
  SimulationOptions options_;
};

TEST_F(StallTest, APipelineWithoutScriptDoesNotStall) {
  const Simulation simulation = Simulate(model_, options_);
  EXPECT_FALSE(simulation.stall.has_value());
  EXPECT_EQ(simulation.step_ends.size(), 4u);
}

TEST_F(StallTest, NamesTheRankThatStoppedAndWhoWaitedForWhomSinceWhen) {
  options_.script = {{ScriptedChange::Kind::kRankStops, 2, 1, 0, 1}};
  const Simulation simulation = Simulate(model_, options_);
  ASSERT_TRUE(simulation.stall.has_value());
  const SimulatedStall& stall = *simulation.stall;
  EXPECT_EQ(simulation.step_ends.size(), 1u);
  EXPECT_THAT(stall.stopped, ElementsAre(2));
  // Stage 1 passes micro-batch 1 of step 1 on before it waits, and later than stage 0 does.
  EXPECT_EQ(stall.first.rank, 0);
  EXPECT_DOUBLE_EQ(stall.at_seconds, stall.first.since + 60);
  EXPECT_EQ(stall.text,
            "rank 0 waited 1m for tensor 'gradient' from rank 1 (step 1, micro-batch 0); rank 1 "
            "waited for tensor 'gradient' from rank 2 (step 1, micro-batch 0); rank 2 has stopped");
  ASSERT_EQ(stall.waits.size(), 2u);
  EXPECT_THAT(stall.waits[1].on_ranks, ElementsAre(2));
}

TEST_F(StallTest, WithoutADeadlineWaitsAreForEver) {
  options_.stall_timeout_seconds = 0;
  options_.script = {{ScriptedChange::Kind::kRankStops, 2, 1, 0, 1}};
  const Simulation simulation = Simulate(model_, options_);
  ASSERT_TRUE(simulation.stall.has_value());
  EXPECT_TRUE(simulation.stall->text.starts_with("rank 0 waited for ever for tensor"))
      << simulation.stall->text;
}

TEST_F(StallTest, ARankThatIsTooSlowExpiresAWaitBeforeItsMessageComes) {
  options_.script = {{ScriptedChange::Kind::kRankSlower, 1, 100, 0, 2}};
  const Simulation simulation = Simulate(model_, options_);
  ASSERT_TRUE(simulation.stall.has_value());
  EXPECT_EQ(simulation.step_ends.size(), 2u);
  EXPECT_THAT(simulation.stall->stopped, IsEmpty());
  EXPECT_EQ(simulation.stall->text,
            "rank 2 waited 1m for tensor 'activation' from rank 1 (step 2, micro-batch 0)");
  options_.stall_timeout_seconds = 1000;
  EXPECT_FALSE(Simulate(model_, options_).stall.has_value());
}

TEST_F(StallTest, ACollectiveWaitsForTheMemberThatStopped) {
  StepModel model;
  model.names = {"bucket0"};
  StepRoutine routine;
  routine.actions = {
      {{Action::Kind::kBackward, 0, 0},
       model.AddSegment({Instruction::Compute(1), Instruction::Signal(1), Instruction::Await(1)})}};
  routine.jobs = {{0, 1}};
  model.routines = {routine};
  model.ranks.resize(3);
  for (StepRank& rank : model.ranks) rank.collectives = {0};
  StepCollective collective;
  collective.name = 0;
  collective.members = {0, 1, 2};
  collective.seconds = 0.5;
  model.collectives = {collective};
  options_.script = {{ScriptedChange::Kind::kRankStops, 1, 1, 0.5, -1}};
  const Simulation simulation = Simulate(model, options_);
  ASSERT_TRUE(simulation.stall.has_value());
  EXPECT_EQ(simulation.stall->text,
            "rank 0 waited 1m for collective 'bucket0' from rank 1 (step 0); rank 1 has stopped");
  EXPECT_DOUBLE_EQ(simulation.stall->at_seconds, 61);
}

TEST_F(StallTest, ARankThatNobodyNeedsIsNamedToo) {
  StepModel model;
  StepRoutine routine;
  routine.actions = {{{}, model.AddSegment({Instruction::Compute(1)})}};
  model.routines = {routine};
  model.ranks.resize(1);
  options_.script = {{ScriptedChange::Kind::kRankStops, 0, 1, 1.5, -1}};
  const Simulation simulation = Simulate(model, options_);
  ASSERT_TRUE(simulation.stall.has_value());
  EXPECT_EQ(simulation.stall->text, "rank 0 has stopped in step 1");
  EXPECT_THAT(simulation.step_ends, ElementsAre(1));
}

}  // namespace
}  // namespace weft
