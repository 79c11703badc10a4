#include "placement/simulation/simulator.h"

#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "placement/simulation/testing/pipeline_model.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::PipelineLists;
using testing::PipelineModel;
using Instruction = StepInstruction;

constexpr double kRounding = 1e-9;

Simulation Simulate(const StepModel& model, const SimulationOptions& options = {}) {
  auto simulation = SimulateStep(model, options);
  EXPECT_TRUE(simulation.ok()) << simulation.status();
  return simulation.ok() ? *std::move(simulation) : Simulation();
}

// Ranks that each run one action of these instructions and these jobs.
StepModel OneAction(const std::vector<StepSegment>& segments,
                    const std::vector<StepJob>& jobs = {}) {
  StepModel model;
  for (const StepSegment& segment : segments) {
    StepRank rank;
    rank.worker = static_cast<int32_t>(model.ranks.size());
    rank.routine = static_cast<int32_t>(model.routines.size());
    model.ranks.push_back(rank);
    StepRoutine routine;
    routine.actions = {{{Action::Kind::kForward, 0, 0}, model.AddSegment(segment)}};
    routine.jobs = jobs;
    model.routines.push_back(routine);
  }
  return model;
}

// A collective of all ranks, the next one in each one's table.
void AddCollective(StepModel& model, const std::string& name, double seconds) {
  StepCollective collective;
  collective.name = model.AddName(name);
  collective.seconds = seconds;
  for (size_t rank = 0; rank < model.ranks.size(); ++rank) {
    collective.members.push_back(static_cast<int32_t>(rank));
    model.ranks[rank].collectives.push_back(static_cast<int32_t>(model.collectives.size()));
  }
  model.collectives.push_back(collective);
}

// The next channel in both ends' tables.
StepChannel& AddChannel(StepModel& model, const std::string& name, int from, int to) {
  StepChannel channel;
  channel.name = model.AddName(name);
  channel.from = from;
  channel.to = to;
  channel.credits = 0;
  model.ranks[from].channels.push_back(static_cast<int32_t>(model.channels.size()));
  model.ranks[to].channels.push_back(static_cast<int32_t>(model.channels.size()));
  model.channels.push_back(channel);
  return model.channels.back();
}

double BubbleShare(const Simulation& simulation) {
  double bubble = 0;
  for (const RankTime& rank : simulation.ranks) bubble += rank.bubble;
  return bubble / (simulation.step_seconds * static_cast<double>(simulation.ranks.size()));
}

// -- Pipelines, against theory and against the schedule simulator.

TEST(SimulatorTest, BubblesOfGpipeAndOneForwardOneBackwardEqualTheory) {
  for (const char* schedule : {"gpipe", "1f1b"}) {
    for (int p : {2, 4, 8}) {
      for (int m : {1, 5, 8, 32}) {
        const StepModel model = PipelineModel(PipelineLists(schedule, p, m), {});
        EXPECT_NEAR(BubbleShare(Simulate(model)), (p - 1.0) / (m + p - 1.0), kRounding)
            << schedule << " " << p << " stages, " << m << " micro-batches";
      }
    }
  }
}

TEST(SimulatorTest, AgreesWithTheScheduleSimulatorOnPipelines) {
  std::mt19937 random(7);
  const auto draw = [&](double max_value) {
    return std::uniform_real_distribution<double>(0, max_value)(random);
  };
  const std::vector<std::pair<std::string, int>> schedules = {
      {"gpipe", 1}, {"1f1b", 1}, {"zero_bubble", 1}, {"interleaved", 2}, {"interleaved", 3}};
  for (int round = 0; round < 200; ++round) {
    const auto& [schedule, chunks] = schedules[static_cast<size_t>(round) % schedules.size()];
    const int ranks = 2 + round % 5;
    const std::vector<ActionList> lists = PipelineLists(schedule, ranks, 1 + round % 11, chunks);
    ScheduleOptions options;
    options.micro_batches = 1 + round % 11;
    options.latency = draw(0.5);
    options.credits = round % 4;
    for (int stage = 0; stage < ranks * chunks; ++stage) {
      options.costs.push_back({draw(1), draw(2), draw(2), draw(2), draw(1)});
    }
    const auto expected = SimulateSchedule(lists, options);
    ASSERT_TRUE(expected.ok()) << expected.status();
    const Simulation simulation = Simulate(PipelineModel(lists, options));
    EXPECT_NEAR(simulation.step_seconds, expected->makespan, kRounding) << schedule << " " << round;
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_NEAR(simulation.ranks[rank].compute, expected->busy[rank], kRounding);
    }
  }
}

TEST(SimulatorTest, ADeadlockNamesWhoWaitsForWhat) {
  const std::vector<ActionList> stuck = {*ParseActionList("Begin F0 B0 F1 B1 U"),
                                         *ParseActionList("Begin F0 F1 B0 B1 U")};
  const auto simulation = SimulateStep(PipelineModel(stuck, {}), {});
  ASSERT_FALSE(simulation.ok());
  EXPECT_EQ(std::string(simulation.status().message()),
            "deadlock: rank 0 waits for ever for tensor 'gradient' from rank 1 (step 0, "
            "micro-batch 0); rank 1 waits for ever for tensor 'activation' from rank 0 (step 0, "
            "micro-batch 1)");
}

// -- Messages.

StepModel OneMessage() {
  StepModel model = OneAction({{Instruction::Compute(1), Instruction::Send(0)},
                               {Instruction::Receive(0), Instruction::Compute(2)}});
  StepChannel& channel = AddChannel(model, "h", 0, 1);
  channel.link = 0;
  channel.bytes = 300;
  channel.send_seconds = 0.25;
  channel.receive_seconds = 0.5;
  model.links.push_back({"a -> b", 0.125, 100, 1});
  return model;
}

TEST(SimulatorTest, AMessageTakesItsBytesAndThenTheLatency) {
  const Simulation simulation = Simulate(OneMessage());
  EXPECT_DOUBLE_EQ(simulation.step_seconds, 1 + 0.25 + 3 + 0.125 + 0.5 + 2);
  EXPECT_DOUBLE_EQ(simulation.ranks[0].communication, 0.25);
  // While the sender computes the receiver is idle; then the message is under way.
  EXPECT_DOUBLE_EQ(simulation.ranks[1].bubble, 1);
  EXPECT_DOUBLE_EQ(simulation.ranks[1].communication, 0.25 + 3 + 0.125 + 0.5);
  EXPECT_THAT(simulation.link_bytes, ElementsAre(300));
  EXPECT_THAT(simulation.sent_bytes, ElementsAre(300, 0));
}

TEST(SimulatorTest, MessagesOfOneLinkQueueUnlessItHasLanes) {
  const auto step_with = [](int lanes) {
    StepModel model = OneAction({{Instruction::Send(0), Instruction::Send(1)},
                                 {Instruction::Receive(0)},
                                 {Instruction::Receive(0)}});
    for (const int to : {1, 2}) {
      StepChannel& channel = AddChannel(model, "h", 0, to);
      channel.link = 0;
      channel.bytes = 100;
    }
    model.links.push_back({"a -> b", 0, 100, lanes});
    return Simulate(model).step_seconds;
  };
  EXPECT_DOUBLE_EQ(step_with(1), 2);
  EXPECT_DOUBLE_EQ(step_with(2), 1);
}

// -- Collectives.

TEST(SimulatorTest, ACollectiveBeginsWithItsLastMember) {
  StepModel model = OneAction({{Instruction::Compute(1), Instruction::Collective(0)},
                               {Instruction::Compute(4), Instruction::Collective(0)}});
  AddCollective(model, "sum", 2);
  model.collectives[0].member_bytes = {10, 20};
  model.collectives[0].link_bytes = {{0, 30}};
  model.links.push_back({"a -> b", 0, 0, 1});
  const Simulation simulation = Simulate(model);
  EXPECT_DOUBLE_EQ(simulation.step_seconds, 6);
  EXPECT_DOUBLE_EQ(simulation.ranks[0].bubble, 3);
  EXPECT_DOUBLE_EQ(simulation.ranks[0].communication, 2);
  EXPECT_DOUBLE_EQ(simulation.ranks[1].bubble, 0);
  EXPECT_THAT(simulation.sent_bytes, ElementsAre(10, 20));
  EXPECT_THAT(simulation.link_bytes, ElementsAre(30));
}

// Signal after 1 s; the two jobs take 3 s and 1 s; 2 s of computing hide 2 s of them.
StepModel Overlapping() {
  const StepSegment segment = {Instruction::Compute(1), Instruction::Signal(1),
                               Instruction::Compute(2), Instruction::Await(2),
                               Instruction::Compute(1)};
  StepModel model = OneAction({segment, segment}, {{0, 1}, {1, 1}});
  AddCollective(model, "bucket0", 3);
  AddCollective(model, "bucket1", 1);
  return model;
}

TEST(SimulatorTest, JobsRunBesideTheComputeStreamOneAfterTheOther) {
  const Simulation simulation = Simulate(Overlapping());
  EXPECT_DOUBLE_EQ(simulation.step_seconds, 1 + 3 + 1 + 1);
  EXPECT_DOUBLE_EQ(simulation.ranks[0].compute, 4);
  EXPECT_DOUBLE_EQ(simulation.ranks[0].communication, 2);
  EXPECT_DOUBLE_EQ(simulation.ranks[0].bubble, 0);
}

TEST(SimulatorTest, ComputingAndACollectiveBesideItShareTheCores) {
  const auto simulate = [](double seconds, double contention, int nodes) {
    StepSegment segment = {Instruction::Signal(1)};
    for (int i = 0; i < nodes; ++i) segment.push_back(Instruction::Compute(seconds / nodes));
    StepModel model = OneAction({segment, segment}, {{0, 1}});
    AddCollective(model, "sum", 5);
    model.collectives[0].contention = contention;
    return Simulate(model);
  };
  for (const int nodes : {1, 20}) {
    EXPECT_NEAR(simulate(20, 0, nodes).step_seconds, 20, kRounding);
    EXPECT_NEAR(simulate(20, 1, nodes).step_seconds, 25, kRounding);
    EXPECT_NEAR(simulate(20, 0.5, nodes).step_seconds, 22.5, kRounding);
    // Computing ends first.
    EXPECT_NEAR(simulate(2, 0.5, nodes).step_seconds, 6, kRounding);
    EXPECT_NEAR(simulate(2, 0.5, nodes).ranks[0].compute, 3, kRounding);
  }
}

TEST(SimulatorTest, AMessageOnItsWayTakesFromWhatBothEndsCompute) {
  const auto simulate = [](double sent_before, int nodes, double contention) {
    StepSegment sender = {Instruction::Send(0)};
    if (sent_before > 0) sender.insert(sender.begin(), Instruction::Compute(sent_before));
    StepSegment receiver;
    for (int i = 0; i < nodes; ++i) {
      sender.push_back(Instruction::Compute(8.0 / nodes));
      receiver.push_back(Instruction::Compute(8.0 / nodes));
    }
    receiver.push_back(Instruction::Receive(0));
    StepModel model = OneAction({sender, receiver});
    StepLink link;
    link.bytes_per_second = 1;
    model.links.push_back(link);
    StepChannel& channel = AddChannel(model, "h", 0, 1);
    channel.link = 0;
    channel.bytes = 4;
    channel.contention = contention;
    return Simulate(model);
  };
  for (const int nodes : {1, 16}) {
    EXPECT_NEAR(simulate(0, nodes, 0).step_seconds, 8, kRounding);
    // In the four seconds that it is on its way, either side gets 4 / 1.5 seconds' work done.
    for (const double before : {0, 3}) {
      const Simulation shared = simulate(before, nodes, 0.5);
      EXPECT_NEAR(shared.ranks[0].compute, before + 8 + 4 - 4 / 1.5, kRounding) << before;
      EXPECT_NEAR(shared.ranks[1].compute, 8 + 4 - 4 / 1.5, kRounding) << before;
    }
    // The receiver waits for it, and computes nothing that could take longer.
    EXPECT_NEAR(simulate(8, nodes, 0.5).ranks[1].compute, 8, kRounding);
    // It ends while the receiver still computes, and the last of it does not.
    EXPECT_NEAR(simulate(6, nodes, 0.5).ranks[1].compute, 9, kRounding);
  }
}

TEST(SimulatorTest, WaitingForAJobsMembersIsBubble) {
  StepModel model = Overlapping();
  model.ranks[1].slow_down = 2;  // comes to its signal at 2 s, to its wait at 6 s
  const Simulation simulation = Simulate(model);
  EXPECT_DOUBLE_EQ(simulation.step_seconds, 6 + 2);
  // Waits from 3 to 6; the jobs run from 2 to 6. Then 1 s of its own, and 1 s for the other.
  EXPECT_DOUBLE_EQ(simulation.ranks[0].communication, 3);
  EXPECT_DOUBLE_EQ(simulation.ranks[0].bubble, 1);
}

TEST(SimulatorTest, AStepEndsWhenItsJobsHaveEndedThoughNobodyAwaitsThem) {
  StepModel model = OneAction({{Instruction::Signal(1), Instruction::Compute(1)}}, {{0, 1}});
  AddCollective(model, "late", 3);
  EXPECT_DOUBLE_EQ(Simulate(model).step_seconds, 3);
}

TEST(SimulatorTest, ComputeCommunicationAndBubbleAddUpToTheStep) {
  std::mt19937 random(11);
  const auto draw = [&] { return std::uniform_real_distribution<double>(0, 2)(random); };
  for (int round = 0; round < 50; ++round) {
    ScheduleOptions costs;
    costs.latency = draw();
    costs.credits = 1 + round % 3;
    for (int stage = 0; stage < 4; ++stage) {
      costs.costs.push_back({draw(), draw(), draw(), draw(), draw()});
    }
    SimulationOptions options;
    options.steps = 1 + round % 3;
    const Simulation simulation =
        Simulate(PipelineModel(PipelineLists("1f1b", 4, 6), costs, 64, 100), options);
    for (const RankTime& rank : simulation.ranks) {
      EXPECT_NEAR(rank.compute + rank.communication + rank.bubble,
                  simulation.step_ends.back() / options.steps, kRounding);
    }
  }
}

// -- Several steps.

TEST(SimulatorTest, RanksGoOnWithoutWaitingForTheStepsOfOthers) {
  // Rank 0 sends and goes on; rank 1 takes longer.
  StepModel model = OneAction({{Instruction::Compute(1), Instruction::Send(0)},
                               {Instruction::Receive(0), Instruction::Compute(3)}});
  AddChannel(model, "h", 0, 1);
  SimulationOptions options;
  options.steps = 3;
  const Simulation simulation = Simulate(model, options);
  EXPECT_THAT(simulation.step_ends, ElementsAre(4, 7, 10));
  EXPECT_DOUBLE_EQ(simulation.step_seconds, 3);
  model.channels[0].credits = 1;
  EXPECT_THAT(Simulate(model, options).step_ends, ElementsAre(4, 7, 10));
}

TEST(SimulatorTest, OverheadGoesBeforeEachStep) {
  StepModel model = OneAction({{Instruction::Compute(1)}});
  model.ranks[0].overhead_seconds = 0.5;
  SimulationOptions options;
  options.steps = 2;
  EXPECT_THAT(Simulate(model, options).step_ends, ElementsAre(1.5, 3));
}

// -- Scripts.

TEST(SimulatorTest, ARankThatGetsSlowerInTheMiddleEndsTheRestLater) {
  const StepModel model = OneAction({{Instruction::Compute(4)}});
  SimulationOptions options;
  options.steps = 3;
  options.script = {{ScriptedChange::Kind::kRankSlower, 0, 3, 3, -1},
                    {ScriptedChange::Kind::kRankSlower, 0, 2, 0, 2}};
  // 3 s at full speed, 1 s three times as long; a whole step so; then twice.
  EXPECT_THAT(Simulate(model, options).step_ends, ElementsAre(6, 18, 26));
}

TEST(SimulatorTest, ASlowerLinkMakesItsCollectivesSlower) {
  StepModel model = OneAction({{Instruction::Collective(0)}, {Instruction::Collective(0)}});
  AddCollective(model, "sum", 2);
  model.links.push_back({"a -> b", 0, 100, 1});
  model.collectives[0].link_bytes = {{0, 100}};
  SimulationOptions options;
  options.steps = 2;
  options.script = {{ScriptedChange::Kind::kLinkSlower, 0, 5, 0, 1}};
  EXPECT_THAT(Simulate(model, options).step_ends, ElementsAre(2, 12));
}

TEST(SimulatorTest, TheSameScriptGivesTheSameEventsInTheSameOrder) {
  const StepModel model = PipelineModel(PipelineLists("interleaved", 4, 8, 2), {}, 1000, 1e4);
  SimulationOptions options;
  options.steps = 3;
  options.record_events = true;
  options.script = {{ScriptedChange::Kind::kRankSlower, 2, 3, 11.5, -1},
                    {ScriptedChange::Kind::kLinkSlower, 0, 2, 0, 1}};
  const Simulation first = Simulate(model, options);
  EXPECT_EQ(first.events, Simulate(model, options).events);
  EXPECT_GT(first.events.size(), 3u * 4 * 8 * 2);
  options.script.pop_back();
  EXPECT_NE(first.events, Simulate(model, options).events);
}

TEST(SimulatorTest, RefusesAScriptThatDoesNotFit) {
  const StepModel model = OneAction({{Instruction::Compute(1)}});
  const auto message = [&](const ScriptedChange& change) {
    SimulationOptions options;
    options.script = {change};
    return std::string(SimulateStep(model, options).status().message());
  };
  EXPECT_EQ(message({ScriptedChange::Kind::kRankStops, 1, 1, 0, -1}),
            "the script changes rank 1, but there are 1");
  EXPECT_EQ(message({ScriptedChange::Kind::kRankSlower, 0, 0, 0, -1}),
            "the script's factor 0 is not a number > 0");
  EXPECT_EQ(message({ScriptedChange::Kind::kRankSlower, 0, 2, -1, -1}),
            "the script's time -1 is not 0 seconds or more");
}

// -- Timelines.

TEST(SimulatorTest, ATimelineIsAChromeTraceOfBothStreams) {
  const StepModel model = Overlapping();
  SimulationOptions options;
  options.timeline = TimelineDetail::kActions;
  const Simulation simulation = Simulate(model, options);
  const auto json = nlohmann::json::parse(TimelineJson(model, simulation.timeline), nullptr, false);
  ASSERT_FALSE(json.is_discarded());
  std::vector<std::string> spans;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] != "X" || event["pid"] != 0) continue;
    spans.push_back(event["name"].get<std::string>() + " on " +
                    std::to_string(event["tid"].get<int>()) + " from " +
                    std::to_string(event["ts"].get<int>()) + " for " +
                    std::to_string(event["dur"].get<int>()));
  }
  EXPECT_THAT(spans, ElementsAre("collective 'bucket0' on 1 from 1000000 for 3000000",
                                 "collective 'bucket1' on 1 from 4000000 for 1000000",
                                 "F0 on 0 from 0 for 6000000"));
  options.timeline = TimelineDetail::kNone;
  EXPECT_THAT(Simulate(model, options).timeline, IsEmpty());
}

TEST(SimulatorTest, ADetailedTimelineShowsInstructionsAndWaits) {
  SimulationOptions options;
  options.timeline = TimelineDetail::kInstructions;
  StepModel model = OneMessage();
  model.segments[0][0].name = model.AddName("fc1/MatMul");
  std::vector<std::string> spans;
  for (const TimelineSpan& span : Simulate(model, options).timeline) {
    spans.push_back(absl::StrCat(span.rank, ": ", span.name, " ", span.start, "-", span.end));
  }
  EXPECT_THAT(spans,
              ElementsAre("0: fc1/MatMul 0-1", "0: send tensor 'h' 1-1.25", "0: F0 0-1.25",
                          "1: wait for tensor 'h' 0-4.375", "1: receive tensor 'h' 4.375-4.875",
                          "1: compute 4.875-6.875", "1: F0 0-6.875"));
}

// -- Models that do not fit.

TEST(StepModelTest, NamesWhatDoesNotFit) {
  const auto message = [](const StepModel& model) { return std::string(model.Check().message()); };
  StepModel model = OneAction({{Instruction::Send(0)}, {Instruction::Receive(0)}});
  EXPECT_EQ(message(model),
            "rank 0 of the simulated step: its table's channel 0 does not exist, there are 0");
  AddChannel(model, "h", 1, 0);
  EXPECT_EQ(message(model),
            "rank 0 of the simulated step: it sends on channel 0, which rank 1 sends on");
  model.channels[0].from = 0;
  model.channels[0].to = 1;
  EXPECT_EQ(message(model), "");
  model.channels[0].send_seconds = -1;
  EXPECT_THAT(message(model), HasSubstr("a channel's time to send -1 is not a time"));
  StepModel other = OneAction({{Instruction::Await(1)}});
  EXPECT_EQ(message(other), "an instruction awaits 1 collectives of 0 that run beside it");
}

TEST(StepModelTest, EqualSegmentsAndNamesAreShared) {
  StepModel model;
  EXPECT_EQ(model.AddSegment({Instruction::Compute(1)}), 0);
  EXPECT_EQ(model.AddSegment({Instruction::Compute(2)}), 1);
  EXPECT_EQ(model.AddSegment({Instruction::Compute(1)}), 0);
  EXPECT_EQ(model.AddName("h"), 0);
  EXPECT_EQ(model.AddName("h"), 0);
}

}  // namespace
}  // namespace weft
