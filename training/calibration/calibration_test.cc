// Calibration of workers in this process. What is measured differs from run to run; what is asked
// here is that everything is measured that a plan needs, and that it is put where it belongs.
#include "training/calibration/calibration.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "distributed/in_process_cluster.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "graph/node_class.h"
#include "graph/schedule/action_list.h"
#include "gtest/gtest.h"
#include "ops/testing/test_tensors.h"
#include "placement/cost/cost_model.h"
#include "placement/cost/estimates.h"
#include "placement/cost/op_key.h"
#include "placement/cost/published_specs.h"
#include "placement/graph_views/graph_node_view.h"
#include "platform/testing/fake_file_system.h"
#include "tensor/testing/fake_device.h"
#include "training/calibration/solo_partition.h"
#include "training/data/data_file.h"
#include "training/job/rank_device.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kVersion[] = "test";
constexpr int64_t kSamples = 16;
constexpr int64_t kBatch = 8;
constexpr int64_t kFeatures = 4;

ValueType FloatType(std::vector<Dim> dims) {
  return {ValueKind::kTensor, DType::kFloat32, SymbolicShape(std::move(dims))};
}

// scores [N,3] = tanh(x [N,4] w [4,6]) v [6,3].
Graph Model() {
  Graph graph;
  const ValueId x = graph.AddInput("x", FloatType({Dim::Symbol("N"), kFeatures}));
  const ValueId w = graph.AddVariable("w", FloatType({kFeatures, 6}),
                                      testing::RandomTensor({kFeatures, 6}, 1), true);
  const ValueId v =
      graph.AddVariable("v", FloatType({6, 3}), testing::RandomTensor({6, 3}, 2), true);
  GraphBuilder builder(graph);
  const ValueId hidden = builder.Op("Tanh", {builder.Op("MatMul", {x, w})});
  graph.AddOutput(builder.Op("MatMul", {hidden, v}));
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  return graph;
}

class CalibrationTest : public ::testing::Test {
 protected:
  CalibrationTest() {
    Write("x", testing::RandomTensor({kSamples, kFeatures}, 3));
    Write("labels", Tensor::Of<int64_t>({kSamples}, std::vector<int64_t>(kSamples, 1)));
    data_spec_.batch = kBatch;
  }

  void Write(const std::string& input, const Tensor& tensor) {
    const std::string path = "/" + input + ".npy";
    ASSERT_TRUE(files_.WriteFileAtomically(path, *ToNpy(tensor)).ok());
    data_spec_.files.push_back({input, path, 0});
  }

  PreparedJob Prepare(const Mesh& mesh, int micro_batches) {
    JobSpec spec;
    spec.cluster = cluster_spec_;
    spec.plan.mesh = mesh;
    spec.plan.micro_batches = micro_batches;
    auto job = PrepareTraining(Model(), TrainingSpec(), spec, *DataSet::Open(files_, data_spec_));
    EXPECT_TRUE(job.ok()) << job.status();
    return *std::move(job);
  }

  absl::StatusOr<ClusterProfile> Measure(const std::vector<const PreparedJob*>& jobs) {
    InProcessCluster cluster(static_cast<int>(cluster_spec_.workers.size()),
                             NewDataSetFactory(files_), kVersion);
    Coordinator coordinator(cluster.clients());
    ProbeSession session(coordinator, {}, kVersion);
    CalibrationOptions options;
    options.jobs = jobs;
    options.device_seconds = options.link_seconds = options.job_seconds = 0.01;
    return Calibrate(session, cluster_spec_, options);
  }

  testing::FakeFileSystem files_;
  DataSpec data_spec_;
  ClusterSpec cluster_spec_ = ClusterSpec::Local(2, 1);
};

TEST_F(CalibrationTest, MeasuresEveryDeviceAndLink) {
  const auto profile = Measure({});
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->cluster_digest, cluster_spec_.Digest());
  EXPECT_EQ(profile->device_of, (std::vector<int>{0, 1}));
  for (const DeviceProfile& device : profile->devices) {
    EXPECT_EQ(device.source, "measured");
    EXPECT_GT(device.node_seconds, 0);
    EXPECT_GT(device.wake_seconds, 0);
    EXPECT_GT(device.memory_bytes, 0);
    EXPECT_GE(device.contraction.at(DType::kFloat32).points.size(), 5u);
    EXPECT_GE(device.elementwise.points.size(), 5u);
    EXPECT_GE(device.movement.points.size(), 5u);
    EXPECT_GT(device.elementwise_flops, 0);
  }
  const LinkProfile& link = profile->links.at({0, 0});
  EXPECT_EQ(link.source, "measured");
  EXPECT_GT(link.bytes_per_second, 0);
  EXPECT_GT(link.exchange_bytes_per_second, 0);
  EXPECT_GT(link.send_seconds, 0);
  EXPECT_FALSE(link.through_host);  // there is nothing to copy
  EXPECT_GE(link.contention, 0);
  EXPECT_LE(link.contention, 1);
  EXPECT_TRUE(CostModel::Create(*profile).ok());
}

// All nodes of the plans that were given, on each worker, whichever ran them.
TEST_F(CalibrationTest, KnowsEveryNodeOfItsJobs) {
  const PreparedJob pipeline = Prepare({1, 1, 2}, 2);
  const PreparedJob data = Prepare({2, 1, 1}, 2);
  const auto profile = Measure({&pipeline, &data});
  ASSERT_TRUE(profile.ok()) << profile.status();
  const auto model = CostModel::Create(*profile);
  ASSERT_TRUE(model.ok()) << model.status();
  int nodes = 0;
  EXPECT_EQ(MicroBatchesHeld(pipeline.programs.front().partitions[0].actions), 2);
  for (const PreparedJob* job : {&pipeline, &data}) {
    for (const Partition& partition : job->programs.front().partitions) {
      for (const Graph* graph : {&partition.micro.front(), &partition.end}) {
        for (const NodeId id : graph->node_ids()) {
          const Node& node = graph->node(id);
          if (IsCommunication(node) || IsBoundary(node) || !node.schema->aliases().empty())
            continue;
          const auto view = GraphNodeView::Create(*graph, node);
          ASSERT_TRUE(view.ok()) << view.status();
          ++nodes;
          const int in_flight = MicroBatchesHeld(partition.actions);
          for (const int worker : {0, 1}) {
            EXPECT_TRUE(profile->devices[worker].ops.contains({OpKey(*view), 1, in_flight}))
                << node.name << ", " << in_flight << " in flight";
            EXPECT_TRUE(model->IsMeasured(*view, worker, 1)) << node.name << ", " << node.op;
            EXPECT_GT(model->NodeSeconds(*view, worker, 1), 0) << node.name;
          }
        }
      }
    }
  }
  EXPECT_GT(nodes, 20);
  for (const DeviceProfile& device : profile->devices) {
    for (const auto& [op, measured] : device.ops)
      EXPECT_NE(measured.work.kind, 0u) << measured.text;
  }
  EXPECT_GT(profile->devices[0].input_bytes_per_second, 0);
}

TEST_F(CalibrationTest, WithoutPeersNothingIsSentAndNamesStay) {
  const PreparedJob job = Prepare({2, 1, 1}, 2);
  for (const Partition& original : job.programs.front().partitions) {
    Partition solo = original.Clone();
    ASSERT_TRUE(RemovePeers(solo).ok());
    EXPECT_TRUE(solo.channels.empty());
    for (const NodeId id : solo.end.node_ids()) EXPECT_FALSE(IsCommunication(solo.end.node(id)));
    std::vector<std::string> before, after;
    for (const ValueId id : original.end.outputs()) before.push_back(original.end.value(id).name);
    for (const ValueId id : solo.end.outputs()) after.push_back(solo.end.value(id).name);
    EXPECT_EQ(after, before);
  }
}

TEST_F(CalibrationTest, WhatAPeerWouldSendIsZeros) {
  const PreparedJob job = Prepare({1, 1, 2}, 2);
  Partition last = job.programs.front().partitions[1].Clone();
  ASSERT_TRUE(RemovePeers(last).ok());
  EXPECT_TRUE(last.channels.empty());
  const bool has_zeros =
      std::any_of(last.variables.begin(), last.variables.end(),
                  [](const VariableShard& shard) { return shard.name.rfind("solo/", 0) == 0; });
  EXPECT_TRUE(has_zeros);
}

constexpr char kCard[] = "NVIDIA L4, compute capability 8.9";
constexpr char kOtherCard[] = "NVIDIA A10, compute capability 8.6";
constexpr size_t kCardBytes = size_t{4} << 20;

// A worker whose device has memory of its own, and says that it is such a card; the cluster file
// says that it is an H100. It computes with the kernels of the CPU.
class CardCalibrationTest : public CalibrationTest {
 protected:
  CardCalibrationTest() {
    cluster_spec_ = ClusterSpec::Local(1, 1);
    cluster_spec_.workers[0].device = DeviceKind::kCuda;
    cluster_spec_.workers[0].model = "H100-80GB";
  }

  std::unique_ptr<InProcessCluster> Start(const std::string& card) {
    return std::make_unique<InProcessCluster>(
        std::vector<Device*>{&device_}, NewDataSetFactory(files_), kVersion,
        std::vector<WorkerCard>{{"machine/0", nullptr, "no NCCL", card, "580.65.06"}});
  }

  absl::StatusOr<ClusterProfile> MeasureCard(double device_seconds = 0.01) {
    const auto cluster = Start(kCard);
    Coordinator coordinator(cluster->clients());
    ProbeSession session(coordinator, {}, kVersion, {ExpectedDevice(cluster_spec_.workers[0])});
    CalibrationOptions options;
    options.device_seconds = device_seconds;
    return Calibrate(session, cluster_spec_, options);
  }

  testing::FakeDevice device_{{.memory_limit = kCardBytes, .protect_memory = false}};
};

TEST_F(CardCalibrationTest, MeasuresProductsOfEachTypeAndCopies) {
  const auto profile = MeasureCard(/*device_seconds=*/0.1);
  ASSERT_TRUE(profile.ok()) << profile.status();
  const DeviceProfile& device = profile->devices[0];
  EXPECT_EQ(device.source, "measured");
  EXPECT_EQ(device.card, kCard);
  EXPECT_EQ(device.driver, "580.65.06");
  // Of two programs, the second one where the first is fast: a third one takes more than a quarter
  // of the device.
  const std::vector<double> sides = {16, 32, 64, 128};
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBfloat16, DType::kFloat64}) {
    const double width = dtype == DType::kFloat64 ? 0.25 : 1;
    const RateCurve& curve = device.contraction.at(dtype);
    ASSERT_GE(curve.points.size(), 2u) << DTypeName(dtype);
    ASSERT_LE(curve.points.size(), sides.size()) << DTypeName(dtype);
    for (size_t i = 0; i < curve.points.size(); ++i) {
      EXPECT_EQ(curve.points[i].work, 2 * std::pow(width * sides[i], 3));
      EXPECT_GT(curve.points[i].per_second, 0);
    }
  }
  const size_t sizes = device.contraction.at(DType::kFloat32).points.size();
  EXPECT_EQ(device.elementwise.points.size(), sizes);
  EXPECT_EQ(device.movement.points.size(), sizes);
  EXPECT_GT(device.elementwise_flops, 0);
  EXPECT_GT(device.node_seconds, 0);
  EXPECT_GT(device.copy_bytes_per_second, 0);
  EXPECT_GT(device.host_bytes_per_second, 0);
  // What it may allocate, and CUDA's context: not the 80 GiB of the data sheet.
  EXPECT_EQ(device.memory_bytes, static_cast<int64_t>(kCardBytes) + kContextBytes);
}

// Without NCCL what two cards exchange is copied to the host and back.
TEST_F(CardCalibrationTest, ALinkThroughTheHostIsToldApart) {
  cluster_spec_ = ClusterSpec::Local(2, 1);
  for (WorkerSpec& worker : cluster_spec_.workers) worker.device = DeviceKind::kCuda;
  cluster_spec_.workers[1].device_index = 1;
  constexpr size_t kRoomForMessages = size_t{32} << 20;
  testing::FakeDevice first({.index = 0, .memory_limit = kRoomForMessages});
  testing::FakeDevice second({.index = 1, .memory_limit = kRoomForMessages});
  const InProcessCluster cluster({&first, &second}, NewDataSetFactory(files_), kVersion,
                                 {{"machine/0", nullptr, "no NCCL"}, {"machine/1", nullptr, ""}});
  Coordinator coordinator(cluster.clients());
  ProbeSession session(coordinator, {}, kVersion);
  CalibrationOptions options;
  options.device_seconds = options.link_seconds = 0.01;
  const auto profile = Calibrate(session, cluster_spec_, options);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_TRUE(profile->links.at({0, 0}).through_host);
}

// A data sheet says what nobody has measured, and nothing else.
TEST_F(CardCalibrationTest, MeasurementsGoBeforePublishedFigures) {
  const auto profile = MeasureCard();
  ASSERT_TRUE(profile.ok()) << profile.status();
  const DeviceProfile published = *PublishedDevice("H100-80GB");
  EXPECT_THAT(EstimatesOf(*ProfileOfSpec(cluster_spec_), {0}), Not(IsEmpty()));
  EXPECT_THAT(EstimatesOf(*profile, {0}), IsEmpty());
  const DeviceProfile& device = profile->devices[0];
  for (const auto& [dtype, curve] : published.contraction) {
    EXPECT_NE(device.ContractionRate(dtype).At(1e9), curve.At(1e9)) << DTypeName(dtype);
  }
  EXPECT_NE(device.host_bytes_per_second, published.host_bytes_per_second);
  EXPECT_NE(device.host_copy_seconds, published.host_copy_seconds);
  EXPECT_EQ(device.product_exposed, 0);  // a measured product has its traffic in it
  const auto costs = CostModel::Create(*profile);
  ASSERT_TRUE(costs.ok()) << costs.status();
  EXPECT_TRUE(costs->is_calibrated());
  Cost work;
  work.bytes = 1e6;
  EXPECT_NEAR(costs->WorkSeconds(work, OpFamily::kElementwise, DType::kFloat32, 0, 1),
              1e6 / device.elementwise.At(1e6), 1e-12);
}

TEST_F(CardCalibrationTest, AWorkerOfAnotherDeviceThanTheClusterSaysIsRefused) {
  cluster_spec_.workers[0].address = "10.0.0.1:4000";
  const absl::Status refused = MeasureCard().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("the job takes this worker for cuda:0, and it computes on fake:0"));
}

TEST_F(CardCalibrationTest, AJobOnAnotherCardThanWasMeasuredIsRefused) {
  ClusterProfile profile = *ProfileOfSpec(cluster_spec_);
  profile.devices[0].card = kCard;
  JobSpec spec;
  spec.cluster = cluster_spec_;
  spec.cpu_fallback = CpuFallback::kAllow;  // this program has no kernels of a GPU
  spec.costs = std::make_shared<const CostModel>(*CostModel::Create(profile));
  const auto job =
      PrepareTraining(Model(), TrainingSpec(), spec, *DataSet::Open(files_, data_spec_));
  ASSERT_TRUE(job.ok()) << job.status();
  const auto start = [&](const std::string& card) {
    const auto cluster = Start(card);
    Coordinator coordinator(cluster->clients());
    return StartJob(coordinator, *job, spec, kVersion, {});
  };
  const absl::Status refused = start(kOtherCard);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr(kCard), HasSubstr(kOtherCard), HasSubstr("calibrate it anew")));
  EXPECT_EQ(start(kCard), absl::OkStatus());
}

TEST(KeepOpsTest, OfAnotherCardNothingStays) {
  ClusterProfile earlier = *ProfileOfSpec(ClusterSpec::Local(1, 1));
  earlier.devices[0].card = kCard;
  earlier.devices[0].ops[{1, 1}] = {0.1, "old"};
  ClusterProfile profile = *ProfileOfSpec(ClusterSpec::Local(1, 1));
  profile.devices[0].card = kCard;
  EXPECT_THAT(KeepOps(earlier, profile), IsEmpty());
  EXPECT_EQ(profile.devices[0].ops.size(), 1u);
  profile.devices[0].ops.clear();
  profile.devices[0].card = kOtherCard;
  EXPECT_THAT(KeepOps(earlier, profile), ElementsAre(profile.devices[0].name));
  EXPECT_TRUE(profile.devices[0].ops.empty());
}

TEST(KeepOpsTest, EarlierOpsOfTheSameClusterStay) {
  ClusterProfile earlier = *ProfileOfSpec(ClusterSpec::Local(1, 1));
  earlier.devices[0].ops[{1, 1}] = {0.1, "old"};
  earlier.devices[0].ops[{2, 1}] = {0.2, "old"};
  ClusterProfile profile = *ProfileOfSpec(ClusterSpec::Local(1, 1));
  profile.devices[0].ops[{2, 1}] = {0.3, "new"};
  KeepOps(earlier, profile);
  EXPECT_EQ(profile.devices[0].ops.size(), 2u);
  EXPECT_EQ(profile.devices[0].ops.at({2, 1}).text, "new");
  earlier.cluster_digest = 1;
  profile.devices[0].ops.clear();
  KeepOps(earlier, profile);
  EXPECT_TRUE(profile.devices[0].ops.empty());
}

}  // namespace
}  // namespace weft
