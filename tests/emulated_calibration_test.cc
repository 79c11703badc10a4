// Calibration of an emulated GPU: its products, copies and nodes are measured by launches, and the
// emulator has nothing to report of them.
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "distributed/coordinator.h"
#include "distributed/in_process_cluster.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "graph/node_class.h"
#include "gtest/gtest.h"
#include "ops/kernels/cuda/linear/testing/recording_blas_lt.h"
#include "ops/testing/emulator/emulated_device.h"
#include "ops/testing/test_tensors.h"
#include "placement/cost/cost_model.h"
#include "placement/graph_views/graph_node_view.h"
#include "platform/testing/fake_file_system.h"
#include "training/calibration/calibration.h"
#include "training/data/data_file.h"
#include "training/job/job.h"

namespace weft::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::IsSupersetOf;

constexpr char kCalibratedVersion[] = "test";
constexpr int64_t kCalibrationSamples = 8;

// scores [N,3] = tanh(x [N,4] w [4,3]).
Graph SmallModel() {
  Graph graph;
  const ValueId x = graph.AddInput(
      "x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape({Dim::Symbol("N"), 4})});
  const ValueId w = graph.AddVariable("w", {ValueKind::kTensor, DType::kFloat32, Shape{4, 3}},
                                      RandomTensor({4, 3}, 1), true);
  GraphBuilder builder(graph);
  graph.AddOutput(builder.Op("Tanh", {builder.Op("MatMul", {x, w})}));
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  return graph;
}

TEST(EmulatedCalibrationTest, MeasuresACardAndTheNodesOfAJobOnIt) {
  FakeFileSystem files;
  DataSpec data;
  data.batch = 4;
  const auto write = [&](const std::string& input, const Tensor& tensor) {
    const std::string path = "/" + input + ".npy";
    EXPECT_TRUE(files.WriteFileAtomically(path, *ToNpy(tensor)).ok());
    data.files.push_back({input, path, 0});
  };
  write("x", RandomTensor({kCalibrationSamples, 4}, 3));
  write("labels",
        Tensor::Of<int64_t>({kCalibrationSamples}, std::vector<int64_t>(kCalibrationSamples, 1)));
  JobSpec spec;
  spec.cluster = ClusterSpec::Local(1, 1);
  spec.cluster.workers[0].device = DeviceKind::kCuda;
  const auto job = PrepareTraining(SmallModel(), TrainingSpec(), spec, *DataSet::Open(files, data));
  ASSERT_TRUE(job.ok()) << job.status();

  EmulatedDevice device({.memory_limit = size_t{16} << 20});
  RecordingBlasLt::Get().TakeCalls();
  absl::StatusOr<ClusterProfile> profile;
  {
    InProcessCluster cluster({&device}, NewDataSetFactory(files), kCalibratedVersion,
                             {{"machine/0", nullptr, "no NCCL", "an emulated card", "none"}});
    Coordinator coordinator(cluster.clients());
    ProbeSession session(coordinator, {}, kCalibratedVersion);
    CalibrationOptions options;
    options.jobs = {&*job};
    options.device_seconds = options.link_seconds = options.job_seconds = 0.01;
    profile = Calibrate(session, spec.cluster, options);
  }
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_THAT(device.reports(), IsEmpty());
  EXPECT_TRUE(device.Verify().ok()) << device.Verify();
  std::set<DType> multiplied;
  for (const auto& call : RecordingBlasLt::Get().TakeCalls()) {
    multiplied.insert(call.spec.dtype);
  }
  EXPECT_THAT(multiplied,
              IsSupersetOf({DType::kFloat32, DType::kFloat16, DType::kBfloat16, DType::kFloat64}));

  const DeviceProfile& measured = profile->devices[0];
  EXPECT_EQ(measured.card, "an emulated card");
  EXPECT_EQ(measured.contraction.size(), 4u);
  EXPECT_GE(measured.elementwise.points.size(), 2u);
  EXPECT_GT(measured.node_seconds, 0);
  EXPECT_GT(measured.host_bytes_per_second, 0);
  EXPECT_GT(measured.copy_bytes_per_second, 0);
  const auto costs = CostModel::Create(*profile);
  ASSERT_TRUE(costs.ok()) << costs.status();
  int nodes = 0;
  const Partition& partition = job->programs.front().partitions[0];
  for (const Graph* graph : {&partition.micro.front(), &partition.end}) {
    for (const NodeId id : graph->node_ids()) {
      const Node& node = graph->node(id);
      if (IsCommunication(node) || IsBoundary(node) || !node.schema->aliases().empty()) continue;
      const auto view = GraphNodeView::Create(*graph, node);
      ASSERT_TRUE(view.ok()) << view.status();
      EXPECT_TRUE(costs->IsMeasured(*view, 0, 1)) << node.name << ", " << node.op;
      ++nodes;
    }
  }
  EXPECT_GT(nodes, 4);
}

}  // namespace
}  // namespace weft::testing
