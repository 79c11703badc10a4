#include "placement/cost/cost_model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "placement/cost/op_key.h"
#include "placement/graph_node_view.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

// Rates that are easy to reckon with.
DeviceProfile RoundDevice() {
  DeviceProfile device;
  device.name = "round";
  device.contraction[DType::kFloat32] = {{{1, 1e9}}};
  device.elementwise = {{{1, 1e8}}};
  device.movement = {{{1, 2e8}}};
  device.elementwise_flops = 1e9;
  device.node_seconds = 1e-6;
  return device;
}

LinkProfile RoundLink(double latency, double rate) {
  LinkProfile link;
  link.latency_seconds = latency;
  link.bytes_per_second = rate;
  return link;
}

// Workers on hosts, in order.
ClusterProfile RoundProfile(const std::vector<int>& hosts) {
  ClusterProfile profile;
  profile.devices = {RoundDevice()};
  profile.device_of.assign(hosts.size(), 0);
  profile.host_of = hosts;
  profile.within_host = RoundLink(1e-5, 1e9);
  profile.between_hosts = RoundLink(1e-3, 1e8);
  return profile;
}

CostModel ModelOf(ClusterProfile profile) { return *CostModel::Create(std::move(profile)); }

// One node, and how cost and key see it.
class NodeProbe {
 public:
  NodeProbe(const std::string& op, const std::vector<Shape>& shapes, Attributes attributes = {},
            DType dtype = DType::kFloat32) {
    GraphBuilder builder(graph_);
    std::vector<ValueId> inputs;
    for (const Shape& shape : shapes) {
      inputs.push_back(graph_.AddInput("x", {ValueKind::kTensor, dtype, shape}));
    }
    const ValueId output = builder.Op(op, inputs, std::move(attributes));
    EXPECT_TRUE(builder.status().ok()) << builder.status();
    node_ = graph_.value(output).producer;
  }
  GraphNodeView View() const { return *GraphNodeView::Create(graph_, graph_.node(node_)); }
  uint64_t Key() const { return OpKey(View()); }
  Node& node() { return graph_.node(node_); }

 private:
  Graph graph_;
  NodeId node_;
};

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

TEST(OpKeyTest, IsThatOfTheWorkAndNotOfTheName) {
  NodeProbe one("Relu", {Shape{4, 8}});
  NodeProbe other("Relu", {Shape{4, 8}});
  other.node().name = "elsewhere";
  EXPECT_EQ(one.Key(), other.Key());
  EXPECT_EQ(OpText(one.View()), "Relu float32[4,8]");
}

TEST(OpKeyTest, OperatorShapesTypesAndAttributesMatter) {
  const Attributes first{{"perm", std::vector<int64_t>{0, 1}}};
  const Attributes second{{"perm", std::vector<int64_t>{1, 0}}};
  const std::vector<uint64_t> keys = {
      NodeProbe("Relu", {Shape{4, 8}}).Key(),
      NodeProbe("Relu", {Shape{8, 4}}).Key(),
      NodeProbe("Relu", {Shape{4, 8, 1}}).Key(),
      NodeProbe("Tanh", {Shape{4, 8}}).Key(),
      NodeProbe("Relu", {Shape{4, 8}}, {}, DType::kFloat64).Key(),
      NodeProbe("Transpose", {Shape{4, 4}}, first).Key(),
      NodeProbe("Transpose", {Shape{4, 4}}, second).Key(),
      NodeProbe("Add", {Shape{4, 8}, Shape{4, 8}}).Key(),
      NodeProbe("Add", {Shape{4, 8}, Shape{8}}).Key(),
  };
  for (size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(std::count(keys.begin(), keys.end(), keys[i]), 1) << i;
  }
}

// It is written to files.
TEST(OpKeyTest, IsTheSameEverywhere) {
  EXPECT_EQ(NodeProbe("Relu", {Shape{4, 8}}).Key(), uint64_t{12184376141080725334u});
}

TEST(KindKeyTest, IsThatOfOpTypesAndRanks) {
  const auto kind = [](const NodeProbe& probe) { return KindKey(probe.View()); };
  const uint64_t relu = kind(NodeProbe("Relu", {Shape{4, 8}}));
  EXPECT_EQ(relu, kind(NodeProbe("Relu", {Shape{8, 1}})));
  EXPECT_NE(relu, kind(NodeProbe("Relu", {Shape{4, 8, 1}})));
  EXPECT_NE(relu, kind(NodeProbe("Tanh", {Shape{4, 8}})));
  EXPECT_NE(relu, kind(NodeProbe("Relu", {Shape{4, 8}}, {}, DType::kFloat64)));
  // It is written to files.
  EXPECT_EQ(relu, uint64_t{941420462525807523u});
}

TEST(FamilyTest, FollowsFromFlopsPerElement) {
  const auto family = [](const NodeProbe& probe) {
    return FamilyOf(CostOf(probe.View()), DType::kFloat32);
  };
  EXPECT_EQ(family(NodeProbe("MatMul", {Shape{256, 256}, Shape{256, 256}})),
            OpFamily::kContraction);
  EXPECT_EQ(family(NodeProbe("Conv", {Shape{8, 16, 28, 28}, Shape{16, 16, 3, 3}})),
            OpFamily::kContraction);
  // A product with a vector reads each weight for two FLOPs: memory is what limits it.
  EXPECT_EQ(family(NodeProbe("MatMul", {Shape{1, 512}, Shape{512, 512}})), OpFamily::kElementwise);
  EXPECT_EQ(family(NodeProbe("Gelu", {Shape{64, 64}})), OpFamily::kElementwise);
  EXPECT_EQ(family(NodeProbe("Transpose", {Shape{64, 64}})), OpFamily::kMovement);
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

// RoundDevice with ops of which each took so many times as long as the roofline says, at the best
// rate of arithmetic and the rate of main memory.
class KindTest : public ::testing::Test {
 protected:
  static double Roofline(const NodeProbe& probe) {
    const Cost cost = CostOf(probe.View());
    return 1e-6 + std::max(cost.flops / 1e9, cost.bytes / 2e8);
  }
  void Measure(const NodeProbe& probe, double factor, int threads = 1) {
    profile_.devices[0].ops[{probe.Key(), threads}] = {factor * Roofline(probe), "",
                                                       WorkOf(probe.View())};
  }
  double Seconds(const NodeProbe& probe, int worker = 0, int threads = 1) const {
    return ModelOf(profile_).NodeSeconds(probe.View(), worker, threads);
  }
  double Factor(const NodeProbe& probe) const { return Seconds(probe) / Roofline(probe); }

  ClusterProfile profile_ = RoundProfile({0});
};

TEST_F(KindTest, OtherSizesTakeTheFactorOfThoseThatWereMeasured) {
  Measure(NodeProbe("Relu", {Shape{1000}}), 3);
  EXPECT_NEAR(Seconds(NodeProbe("Relu", {Shape{4000}})), 3 * (1e-6 + 4000 * 8 / 2e8), 1e-12);
  for (const int64_t size : {1, 100, 10'000, 1'000'000}) {
    EXPECT_NEAR(Factor(NodeProbe("Relu", {Shape{size}})), 3, 1e-9) << size;
  }
  EXPECT_FALSE(ModelOf(profile_).IsMeasured(NodeProbe("Relu", {Shape{4000}}).View(), 0, 1));
}

// The rates of small probes are not those of small ops in a step.
TEST_F(KindTest, AProductOfASmallerBatchTakesLessInProportion) {
  profile_.devices[0].contraction[DType::kFloat32] = {{{1e3, 1e6}, {1e6, 1e9}}};
  Measure(NodeProbe("MatMul", {Shape{64, 256}, Shape{256, 256}}), 2);
  EXPECT_NEAR(Factor(NodeProbe("MatMul", {Shape{2, 256}, Shape{256, 256}})), 2, 1e-9);
}

TEST_F(KindTest, TheFactorIsGeometricBetweenSmallerAndLarger) {
  Measure(NodeProbe("Relu", {Shape{100}}), 2);
  Measure(NodeProbe("Relu", {Shape{10'000}}), 8);
  EXPECT_NEAR(Factor(NodeProbe("Relu", {Shape{1000}})), 4, 1e-9);
  EXPECT_NEAR(Factor(NodeProbe("Relu", {Shape{101}})), 2, 0.01);
  EXPECT_NEAR(Factor(NodeProbe("Relu", {Shape{9999}})), 8, 0.01);
  EXPECT_NEAR(Factor(NodeProbe("Relu", {Shape{10}})), 2, 1e-9);
  EXPECT_NEAR(Factor(NodeProbe("Relu", {Shape{100'000}})), 8, 1e-9);
}

TEST_F(KindTest, NearestIsByAllDimensionsNotByWork) {
  const NodeProbe same_weights("MatMul", {Shape{8, 64}, Shape{64, 256}});
  const NodeProbe same_work("MatMul", {Shape{16, 64}, Shape{64, 17}});
  const NodeProbe asked("MatMul", {Shape{1, 64}, Shape{64, 256}});
  Measure(same_weights, 2);
  Measure(same_work, 5);
  ASSERT_NEAR(CostOf(same_work.View()).flops / CostOf(asked.View()).flops, 1, 0.1);
  EXPECT_NEAR(Factor(asked), 2, 1e-9);
}

TEST_F(KindTest, NearestIsByMicroBatchesInFlightToo) {
  const NodeProbe measured("Relu", {Shape{1000}});
  const NodeProbe asked("Relu", {Shape{500}});
  Measure(measured, 2);
  profile_.devices[0].ops[{measured.Key(), 1, 16}] = {5 * Roofline(measured), "",
                                                      WorkOf(measured.View())};
  const CostModel model = ModelOf(profile_);
  EXPECT_NEAR(model.NodeSeconds(asked.View(), 0, 1, 1) / Roofline(asked), 2, 1e-9);
  EXPECT_GT(model.NodeSeconds(asked.View(), 0, 1, 16) / Roofline(asked), 3.5);
}

TEST_F(KindTest, AMeasurementOfTheVeryOpGoesBefore) {
  const NodeProbe relu("Relu", {Shape{1000}});
  Measure(relu, 3);
  Measure(NodeProbe("Relu", {Shape{999}}), 7);
  Measure(NodeProbe("Relu", {Shape{1001}}), 7);
  EXPECT_NEAR(Factor(relu), 3, 1e-12);
}

TEST_F(KindTest, OtherThreadsDevicesAndKindsSayNothing) {
  const NodeProbe asked("Relu", {Shape{4000}});
  const double formula = Seconds(asked);
  profile_.devices.push_back(RoundDevice());
  profile_.device_of = {1};
  Measure(NodeProbe("Relu", {Shape{1000}}), 3);  // another device's
  EXPECT_EQ(Seconds(asked), formula);
  profile_.device_of = {0};
  EXPECT_EQ(Seconds(asked, 0, 2), formula);
  EXPECT_NE(Seconds(asked), formula);
  profile_.devices[0].ops.clear();
  Measure(NodeProbe("Tanh", {Shape{1000}}), 3);
  Measure(NodeProbe("Relu", {Shape{1000, 1}}), 3);
  Measure(NodeProbe("Relu", {Shape{1000}}, {}, DType::kFloat64), 3);
  EXPECT_EQ(Seconds(asked), formula);
}

TEST_F(KindTest, ProfilesWithoutKindsServeExactlyOnly) {
  const NodeProbe measured("Relu", {Shape{1000}});
  const NodeProbe asked("Relu", {Shape{4000}});
  const double formula = Seconds(asked);
  Measure(measured, 3);
  profile_.devices[0].ops.begin()->second.work = {};
  EXPECT_EQ(Seconds(asked), formula);
  EXPECT_NEAR(Factor(measured), 3, 1e-9);
}

// A file may say anything.
TEST_F(KindTest, MeasurementsWithoutTimeOrWithOtherDimensionsAreLeftOut) {
  const NodeProbe asked("Relu", {Shape{4000}});
  const double formula = Seconds(asked);
  const NodeProbe measured("Relu", {Shape{1000}});
  Measure(measured, 3);
  Measure(NodeProbe("Relu", {Shape{3999}}), 0);
  EXPECT_NEAR(Factor(asked), 3, 1e-9);
  profile_.devices[0].ops.clear();
  Measure(measured, 3);
  profile_.devices[0].ops.begin()->second.work.dims = {1000};
  EXPECT_EQ(Seconds(asked), formula);
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

// Groups beyond 16 members are counted and not played: both ways agree where both can be had.
TEST(CollectiveSecondsTest, LargeGroupsAreCountedAsSmallOnesArePlayed) {
  ClusterProfile profile = RoundProfile(std::vector<int>(32, 0));
  const CostModel model = ModelOf(profile);
  std::vector<int> workers;
  for (int i = 0; i < 32; ++i) workers.push_back(i);
  const AllReduceTask task{32, {}, 1'000'000, 4};
  std::vector<CollectiveSchedule> schedules;
  for (int member = 0; member < 32; ++member) {
    schedules.push_back(AllReduceBy(QuickestAllReduce(task), task, member));
  }
  const double played = model.CollectiveSeconds(schedules, 4, workers);
  EXPECT_NEAR(model.AllReduceSeconds(task, workers) / played, 1, 0.1);
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
