#include "placement/cost/cost_model.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/cost/published_specs.h"
#include "placement/cost/testing/round_profile.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

TEST(CostModelTest, AProductTakesWhatOfItsTrafficIsNotHiddenBesides) {
  const NodeProbe product("MatMul", {Shape{64, 64}, Shape{64, 64}});
  ClusterProfile profile = RoundProfile({0});
  const double arithmetic = 2.0 * 64 * 64 * 64 / 1e9;
  const double traffic = 3.0 * 64 * 64 * 4 / 2e8;
  EXPECT_NEAR(ModelOf(profile).NodeSeconds(product.View(), 0, 1),
              1e-6 + std::max(arithmetic, traffic), 1e-12);
  profile.devices[0].product_exposed = 0.25;
  EXPECT_NEAR(ModelOf(profile).NodeSeconds(product.View(), 0, 1),
              1e-6 + std::max(arithmetic, traffic) + 0.25 * std::min(arithmetic, traffic), 1e-12);
}

TEST(NodeSecondsTest, IsTheRooflineAndTheOverhead) {
  const CostModel model = ModelOf(RoundProfile({0}));
  // 2 * 256^3 FLOPs at 1 GFLOP/s, more than 3 * 256^2 * 4 bytes take.
  EXPECT_NEAR(
      model.NodeSeconds(NodeProbe("MatMul", {Shape{256, 256}, Shape{256, 256}}).View(), 0, 1),
      1e-6 + 2.0 * 256 * 256 * 256 / 1e9, 1e-9);
  // Twice the threads, half the time.
  EXPECT_NEAR(
      model.NodeSeconds(NodeProbe("MatMul", {Shape{256, 256}, Shape{256, 256}}).View(), 0, 2),
      1e-6 + 256.0 * 256 * 256 / 1e9, 1e-9);
  // 3 * 4000 bytes at 100 MB/s; threads share the memory.
  for (const int threads : {1, 2}) {
    EXPECT_NEAR(model.NodeSeconds(NodeProbe("Add", {Shape{1000}, Shape{1000}}).View(), 0, threads),
                1e-6 + 12000 / 1e8, 1e-9);
  }
  // 8000 bytes at 200 MB/s.
  EXPECT_NEAR(model.NodeSeconds(NodeProbe("Transpose", {Shape{10, 100}}).View(), 0, 1),
              1e-6 + 8000 / 2e8, 1e-9);
}

TEST(NodeSecondsTest, ViewsAreFree) {
  const CostModel model = ModelOf(RoundProfile({0}));
  EXPECT_EQ(model.NodeSeconds(NodeProbe("Identity", {Shape{1000}}).View(), 0, 1), 0);
}

// A GPU whose link to the host moves 10 MB/s, at 2 milliseconds a copy.
CostModel WithHostLink(std::vector<std::string> host_ops) {
  ClusterProfile profile = RoundProfile({0});
  profile.devices[0].host_bytes_per_second = 1e7;
  profile.devices[0].host_copy_seconds = 2e-3;
  return ModelOf(profile).WithHostOps(host_ops);
}

// Two operands of 4,000 bytes, and a work on the host that is little beside them.
TEST(NodeSecondsTest, ANodeOnTheHostTakesTwoCopiesAndTheHostsTime) {
  const NodeProbe relu("Relu", {Shape{1000}});
  const HostCopies copies = HostCopiesOf(relu.View());
  EXPECT_EQ(copies.bytes, 8000);
  EXPECT_EQ(copies.copies, 2);
  const double copying = 2 * 2e-3 + 8000 / 1e7;
  const CostModel model = WithHostLink({"Relu"});
  EXPECT_TRUE(model.RunsOnHost(relu.View(), 0));
  EXPECT_GT(model.NodeSeconds(relu.View(), 0, 1), copying);
  EXPECT_NEAR(model.NodeSeconds(relu.View(), 0, 1), copying, 1e-5);
  EXPECT_EQ(model.NodeSeconds(relu.View(), 0, 1), model.HostSeconds(relu.View(), 0, 1));
}

TEST(NodeSecondsTest, OtherNodesAndDevicesInTheHostsMemoryStayWhereTheyAre) {
  const NodeProbe relu("Relu", {Shape{1000}});
  const double usual = ModelOf(RoundProfile({0})).NodeSeconds(relu.View(), 0, 1);
  EXPECT_EQ(WithHostLink({"Gelu"}).NodeSeconds(relu.View(), 0, 1), usual);
  EXPECT_EQ(WithHostLink({"*"}).NodeSeconds(relu.View(), 0, 1), usual);
  EXPECT_EQ(ModelOf(RoundProfile({0})).WithHostOps({"Relu"}).NodeSeconds(relu.View(), 0, 1), usual);
}

// A kernel may lack a type: nodes of others stay on the device.
TEST(NodeSecondsTest, AnOperatorMayRunOnTheHostForSomeTypes) {
  const NodeProbe relu("Relu", {Shape{1000}});
  const CostModel model = WithHostLink({"Relu(float32) -> float32"});
  EXPECT_TRUE(model.RunsOnHost(relu.View(), 0));
  EXPECT_EQ(model.NodeSeconds(relu.View(), 0, 1), model.HostSeconds(relu.View(), 0, 1));
  for (const char* other : {"Relu(float64) -> float64", "Relu(float32)", "Relu(", "Rel(float32)"}) {
    EXPECT_FALSE(WithHostLink({other}).RunsOnHost(relu.View(), 0)) << other;
  }
  const NodeProbe add("Add", {Shape{10}, Shape{10}});
  EXPECT_TRUE(WithHostLink({"Add(float32, float32) -> float32"}).RunsOnHost(add.View(), 0));
}

TEST(NodeSecondsTest, AMeasurementGoesBefore) {
  const NodeProbe relu("Relu", {Shape{4, 8}});
  ClusterProfile profile = RoundProfile({0, 0});
  profile.devices.push_back(RoundDevice());
  profile.device_of = {0, 1};
  profile.devices[1].ops[{relu.Key(), 2}] = {0.125, ""};
  const CostModel model = ModelOf(profile);
  EXPECT_EQ(model.NodeSeconds(relu.View(), 1, 2), 0.125);
  EXPECT_TRUE(model.IsMeasured(relu.View(), 1, 2));
  // Other threads, another device.
  EXPECT_FALSE(model.IsMeasured(relu.View(), 1, 1));
  EXPECT_LT(model.NodeSeconds(relu.View(), 0, 2), 0.001);
}

TEST(NodeSecondsTest, OfMeasurementsTheNearestByMicroBatchesInFlightCounts) {
  const NodeProbe relu("Relu", {Shape{4, 8}});
  const NodeProbe other("Relu", {Shape{8, 8}});
  ClusterProfile profile = RoundProfile({0});
  profile.devices[0].ops[{relu.Key(), 1, 2}] = {0.25, ""};
  profile.devices[0].ops[{relu.Key(), 1, 16}] = {0.5, ""};
  profile.devices[0].ops[{other.Key(), 1}] = {0.125, ""};
  const CostModel model = ModelOf(profile);
  EXPECT_TRUE(model.IsMeasured(relu.View(), 0, 1));
  EXPECT_EQ(model.NodeSeconds(relu.View(), 0, 1), 0.25);
  EXPECT_EQ(model.NodeSeconds(relu.View(), 0, 1, 5), 0.25);  // 2.5 times 2, and 3.2 times below 16
  EXPECT_EQ(model.NodeSeconds(relu.View(), 0, 1, 6), 0.5);
  EXPECT_EQ(model.NodeSeconds(relu.View(), 0, 1, 1000), 0.5);
  EXPECT_EQ(model.NodeSeconds(other.View(), 0, 1, 16), 0.125);
  EXPECT_EQ(model.MeasuredInFlight(1), 1);
  EXPECT_EQ(model.MeasuredInFlight(3), 2);
  EXPECT_EQ(model.MeasuredInFlight(7), 16);
  EXPECT_EQ(ModelOf(RoundProfile({0})).MeasuredInFlight(7), 1);
}

TEST(CollectiveSecondsTest, TwoMembersExchangeOnce) {
  const CostModel model = ModelOf(RoundProfile({0, 0}));
  AllReduceTask task{2, {}, 250'000, 4};
  // A megabyte at 1 GB/s and the latency, then 3 MB at 100 MB/s to add.
  EXPECT_NEAR(model.AllReduceSeconds(task, std::vector<int>{0, 1}), 1e-3 + 1e-5 + 0.03, 1e-4);
  EXPECT_EQ(model.AllReduceSeconds(task, std::vector<int>{0}), 0);
}

TEST(CollectiveSecondsTest, BothWaysAtOnceMayBeSlower) {
  ClusterProfile profile = RoundProfile({0, 0});
  profile.devices[0].elementwise = {{{1, 1e15}}};
  profile.within_host.exchange_bytes_per_second = 5e8;
  const AllReduceTask task{2, {}, 250'000, 4};
  EXPECT_NEAR(ModelOf(profile).AllReduceSeconds(task, std::vector<int>{0, 1}), 2e-3 + 1e-5, 1e-5);
}

TEST(CollectiveSecondsTest, TheSlowestLinkSetsThePaceOfARing) {
  ClusterProfile profile = RoundProfile({0, 0, 1});
  profile.devices[0].elementwise = {{{1, 1e15}}};
  std::vector<CollectiveSchedule> schedules;
  for (int member = 0; member < 3; ++member) {
    schedules.push_back(RingAllReduce(3, member, 300'000));
  }
  const double seconds =
      ModelOf(profile).CollectiveSeconds(schedules, 4, std::vector<int>{0, 1, 2});
  // Four rounds of a third of 1.2 MB over 100 MB/s and 1 ms, some of them beside others.
  EXPECT_GT(seconds, 3 * (0.4e6 / 1e8 + 1e-3));
  EXPECT_LT(seconds, 4.5 * (0.4e6 / 1e8 + 1e-3));
}

TEST(CollectiveSecondsTest, WorkersOfAHostShareItsRails) {
  ClusterProfile profile = RoundProfile({0, 0, 1, 1});
  profile.devices[0].elementwise = {{{1, 1e15}}};
  // Both members of a host exchange with the other host at once.
  std::vector<CollectiveSchedule> schedules;
  for (int member = 0; member < 4; ++member) {
    CollectiveSchedule schedule;
    schedule.buffer_elements = {100'000};
    const int peer = (member + 2) % 4;
    schedule.steps = {{CollectiveStep::Kind::kSend, peer, {0, 0, 100'000}, {}},
                      {CollectiveStep::Kind::kReceive, peer, {}, {0, 0, 100'000}}};
    schedules.push_back(schedule);
  }
  const std::vector<int> workers = {0, 1, 2, 3};
  const double shared = ModelOf(profile).CollectiveSeconds(schedules, 4, workers);
  EXPECT_NEAR(shared, 2 * 0.4e6 / 1e8 + 1e-3, 1e-5);
  profile.between_hosts.rails = 2;
  EXPECT_NEAR(ModelOf(profile).CollectiveSeconds(schedules, 4, workers), 0.4e6 / 1e8 + 1e-3, 1e-5);
}

TEST(CollectiveSecondsTest, AMemberThatNobodySendsToWaitsForEver) {
  std::vector<CollectiveSchedule> schedules(2);
  schedules[0].steps = {{CollectiveStep::Kind::kReceive, 1, {}, {0, 0, 1}}};
  EXPECT_EQ(ModelOf(RoundProfile({0, 0})).CollectiveSeconds(schedules, 4, std::vector<int>{0, 1}),
            std::numeric_limits<double>::infinity());
}

// Groups beyond 16 members are counted and not simulated: both ways agree where both can be had.
TEST(CollectiveSecondsTest, LargeGroupsAreCountedAsSmallOnesAreSimulated) {
  ClusterProfile profile = RoundProfile(std::vector<int>(32, 0));
  const CostModel model = ModelOf(profile);
  std::vector<int> workers;
  for (int i = 0; i < 32; ++i) workers.push_back(i);
  const AllReduceTask task{32, {}, 1'000'000, 4};
  std::vector<CollectiveSchedule> schedules;
  for (int member = 0; member < 32; ++member) {
    schedules.push_back(AllReduceBy(FastestAllReduce(task), task, member));
  }
  const double simulated = model.CollectiveSeconds(schedules, 4, workers);
  EXPECT_NEAR(model.AllReduceSeconds(task, workers) / simulated, 1, 0.1);
}

// Workers with devices of their own: copies to the host take 10 us and 1 ns a byte.
ClusterProfile CardsOn(const std::vector<int>& hosts) {
  ClusterProfile profile = RoundProfile(hosts);
  profile.devices[0].host_bytes_per_second = 1e9;
  profile.devices[0].host_copy_seconds = 1e-5;
  return profile;
}

// Two cards, and two processors, on one host.
ClusterProfile CardsAndProcessors() {
  ClusterProfile profile = CardsOn({0, 0, 0, 0});
  profile.devices.push_back(RoundDevice());
  profile.device_of = {0, 0, 1, 1};
  return profile;
}

// The published link "loopback": 70 us and 2.5 GB/s.
TEST(MessageWayTest, ThroughAHostMessagesAreCopiedToItAndFromIt) {
  const CostModel model = ModelOf(CardsAndProcessors());
  EXPECT_EQ(model.WayBetween(0, 1), MessageWay::kDirect);
  EXPECT_NEAR(model.Link(0, 1).MessageSeconds(1e6), 1e-5 + 1e-3, 1e-9);
  EXPECT_NEAR(model.Link(0, 1, MessageWay::kHost).MessageSeconds(1e6),
              7e-5 + 4e-4 + 2 * (1e-5 + 1e-3), 1e-9);
  // From a card to a processor there is one copy, and between processors none.
  EXPECT_EQ(model.WayBetween(0, 2), MessageWay::kHost);
  EXPECT_NEAR(model.Link(0, 2).MessageSeconds(1e6), 7e-5 + 4e-4 + 1e-5 + 1e-3, 1e-9);
  EXPECT_NEAR(model.Link(2, 3).MessageSeconds(1e6), 7e-5 + 4e-4, 1e-9);
}

TEST(MessageWayTest, WithoutDevicesLinksAreTheProfiles) {
  const CostModel model = ModelOf(RoundProfile({0, 0, 1}));
  for (const int to : {1, 2}) {
    EXPECT_EQ(model.WayBetween(0, to), MessageWay::kHost);
    const LinkProfile& link = model.profile().link(0, to);
    EXPECT_EQ(model.Link(0, to).latency_seconds, link.latency_seconds);
    EXPECT_EQ(model.Link(0, to).bytes_per_second, link.bytes_per_second);
  }
}

// Between hosts it is the profile's link, as far as one stream of TCP fills it: 6.25 GB/s, 70 us.
TEST(MessageWayTest, BetweenHostsAStreamHasALimit) {
  ClusterProfile profile = CardsOn({0, 1});
  EXPECT_NEAR(ModelOf(profile).Link(0, 1, MessageWay::kHost).MessageSeconds(1e6),
              1e-3 + 1e-2 + 2 * (1e-5 + 1e-3), 1e-9);
  profile.between_hosts = RoundLink(1e-6, 5e10);
  EXPECT_NEAR(ModelOf(profile).Link(0, 1).MessageSeconds(1e6), 1e-6 + 2e-5, 1e-9);
  EXPECT_NEAR(ModelOf(profile).Link(0, 1, MessageWay::kHost).MessageSeconds(1e6),
              7e-5 + 1e6 / 6.25e9 + 2 * (1e-5 + 1e-3), 1e-9);
}

TEST(MessageWayTest, WhatWasMeasuredThroughHostsHasTheCopies) {
  ClusterProfile profile = CardsOn({0, 0});
  profile.within_host.through_host = true;
  const CostModel model = ModelOf(profile);
  EXPECT_NEAR(model.Link(0, 1, MessageWay::kHost).MessageSeconds(1e6), 1e-5 + 1e-3, 1e-9);
}

TEST(MessageWayTest, WorkersOfOneCardMeetInTheirHost) {
  const CostModel model = ModelOf(CardsOn({0, 0, 0})).WithWays({false, {5, 5, 6}});
  EXPECT_EQ(model.WayBetween(0, 1), MessageWay::kHost);
  EXPECT_EQ(model.WayBetween(1, 2), MessageWay::kDirect);
  EXPECT_EQ(model.WayOfGroup(std::vector<int>{0, 1, 2}), MessageWay::kHost);
  EXPECT_EQ(model.WayOfGroup(std::vector<int>{0, 2}), MessageWay::kDirect);
}

TEST(MessageWayTest, OrderedSumsGoThroughHostsAndMessagesDoNot) {
  const CostModel model = ModelOf(CardsOn({0, 0})).WithWays({true, {}});
  EXPECT_EQ(model.WayOfGroup(std::vector<int>{0, 1}), MessageWay::kHost);
  EXPECT_EQ(model.WayBetween(0, 1), MessageWay::kDirect);
}

// One exchange of a megabyte, a sum of 3 MB by a processor, and a copy there and back of each.
TEST(MessageWayTest, ThroughHostsProcessorsAddUp) {
  const CostModel model = ModelOf(CardsOn({0, 0}));
  const AllReduceTask task{2, {}, 250'000, 4};
  const std::vector<int> both = {0, 1};
  EXPECT_NEAR(model.AllReduceSeconds(task, both), 1e-3 + 1e-5 + 0.03, 1e-4);
  const double exchange = 2e-5 + 4e-4 + 7e-5 + 2e-5;  // with what a thread is busy in each end
  const double sum = 3e6 / CommonCpu(1).elementwise.At(3e6);
  const double copies = 2 * (1e-5 + 1e-3);
  EXPECT_NEAR(model.AllReduceSeconds(task, both, MessageWay::kHost), exchange + sum + copies, 1e-6);
  EXPECT_NEAR(model.RingSeconds(1e6, both, MessageWay::kHost), 7e-5 + 4e-5 + 0.5e6 / 2.5e9 + copies,
              1e-6);
  EXPECT_NEAR(model.WithWays({true, {}}).AllToAllSeconds(1e6, both),
              7e-5 + 4e-5 + 0.5e6 / 2.5e9 + 2 * (1e-5 + 0.5e-3), 1e-6);
}

// As of direct ways: large groups by formulas, small ones simulated.
TEST(MessageWayTest, LargeGroupsThroughHostsAreCountedAsSmallOnesAreSimulated) {
  const CostModel model = ModelOf(CardsOn(std::vector<int>(32, 0)));
  std::vector<int> workers;
  for (int i = 0; i < 32; ++i) workers.push_back(i);
  const AllReduceTask task{32, {}, 1'000'000, 4};
  std::vector<CollectiveSchedule> schedules;
  for (int member = 0; member < 32; ++member) {
    schedules.push_back(AllReduceBy(FastestAllReduce(task), task, member));
  }
  const double simulated = model.CollectiveSeconds(schedules, 4, workers, MessageWay::kHost);
  EXPECT_NEAR(model.AllReduceSeconds(task, workers, MessageWay::kHost) / simulated, 1, 0.15);
}

TEST(CostModelTest, AProfileWithoutRatesIsRefused) {
  ClusterProfile profile = RoundProfile({0});
  profile.devices[0].movement.points.clear();
  EXPECT_THAT(std::string(CostModel::Create(profile).status().message()),
              HasSubstr("device 'round' of the profile has no positive rate for movement"));
  profile = RoundProfile({0});
  profile.within_host.bytes_per_second = 0;
  EXPECT_FALSE(CostModel::Create(profile).ok());
  profile = RoundProfile({0});
  profile.device_of = {3};
  EXPECT_THAT(std::string(CostModel::Create(profile).status().message()),
              HasSubstr("a worker with device 3 of 1"));
}

TEST(PlanSignatureTest, PlansOfOtherSpeedAreTold) {
  Plan plan;
  plan.mesh.data = 2;
  plan.workers = {0, 1};
  Plan same = plan;
  same.workers.clear();  // those that a plan has when nobody says
  EXPECT_EQ(PlanSignature(same), PlanSignature(plan));
  const auto differs = [&](const std::function<void(Plan&)>& change) {
    Plan other = plan;
    change(other);
    return PlanSignature(other) != PlanSignature(plan);
  };
  EXPECT_TRUE(differs([](Plan& other) { other.shares = {2, 1}; }));
  EXPECT_TRUE(differs([](Plan& other) { other.workers = {1, 0}; }));
  EXPECT_TRUE(differs([](Plan& other) { other.workers = {0, 2}; }));
  EXPECT_TRUE(differs([](Plan& other) { other.micro_batches = 4; }));
  EXPECT_TRUE(differs([](Plan& other) { other.recompute["node"] = "node"; }));
  EXPECT_TRUE(differs([](Plan& other) { other.tf32 = true; }));
  EXPECT_TRUE(differs([](Plan& other) { other.host_ops = {"Relu"}; }));
  EXPECT_TRUE(differs([](Plan& other) { other.uses_cudnn = true; }));
  EXPECT_TRUE(differs([](Plan& other) { other.fuses_nodes = true; }));
}

TEST(CostModelTest, PlansThatWereRunHaveFactorsOfTheirOwn) {
  Plan run;
  run.mesh.data = 2;
  Plan other = run;
  other.mesh = {1, 1, 2};
  CostCorrections corrections;
  corrections.step = 1.5;
  corrections.plans[PlanSignature(run)] = 1.25;
  const CostModel model = ModelOf(RoundProfile({0, 0})).With(corrections);
  EXPECT_EQ(model.StepFactor(run), 1.25);
  EXPECT_EQ(model.StepFactor(other), 1.5);
}

}  // namespace
}  // namespace weft
