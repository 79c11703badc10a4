// Calibration of workers in this process. What is measured differs from run to run; what is asked
// here is that everything is measured that a plan needs, and that it is put where it belongs.
#include "training/calibration/calibration.h"

#include <algorithm>
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
#include "placement/cost/op_key.h"
#include "placement/graph_views/graph_node_view.h"
#include "platform/testing/fake_file_system.h"
#include "training/calibration/solo_partition.h"
#include "training/data/data_file.h"

namespace weft {
namespace {

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
