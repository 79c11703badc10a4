// A number that the loss never sees becomes infinite: the run ends soon, and not at its end.
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "distributed/testing/device_cluster.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "platform/testing/fake_file_system.h"
#include "training/data/data_file.h"
#include "training/job/trainer.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kSamples = 4;
constexpr int64_t kWidth = 2;
constexpr char kVersion[] = "test";

// y [N,2] = x [N,2] + the first row of table [2,2]. That row is 0 and stays 0 on zeros; the second
// one is never used.
Graph Model() {
  Graph graph;
  const auto type = [](std::vector<Dim> dims) {
    return ValueType{ValueKind::kTensor, DType::kFloat32, SymbolicShape(std::move(dims))};
  };
  const ValueId x = graph.AddInput("x", type({Dim::Symbol("N"), kWidth}));
  const ValueId table = graph.AddVariable("table", type({2, kWidth}),
                                          Tensor::Of<float>({2, kWidth}, {0, 0, 1, 1}), true);
  GraphBuilder builder(graph);
  const ValueId row =
      builder.Op("Slice", {table, builder.Ints({0}), builder.Ints({1}), builder.Ints({0})});
  const ValueId y = builder.Op("Add", {x, row});
  builder.Name(y, "y");
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  graph.AddOutput(y);
  return graph;
}

// So many workers, each on a device of tensor/testing/test_device.h.
class UnseenOverflowTest : public ::testing::TestWithParam<std::pair<int, int>> {
 protected:
  UnseenOverflowTest() {
    for (const std::string input : {"x", "labels"}) {
      const std::string path = "/" + input + ".npy";
      const Tensor zeros = Tensor::Zeros(DType::kFloat32, Shape({kSamples, kWidth})).value();
      EXPECT_TRUE(files_.WriteFileAtomically(path, *ToNpy(zeros)).ok());
      data_spec_.files.push_back({input, path, 0});
    }
    data_spec_.batch = kSamples;
  }

  testing::FakeFileSystem files_;
  DataSpec data_spec_;
};

// Each update takes 11 times itself from an element: the row is infinite after 39 steps. The job
// has no checkpoints, and five million steps to go.
TEST_P(UnseenOverflowTest, EndsALongRunEarlyWithVariableStepAndRank) {
  constexpr int64_t kSteps = 5'000'000;
  JobSpec spec;
  const auto [workers, order] = GetParam();
  spec.cluster = ClusterSpec::Local(workers, 1);
  TrainingSpec training;
  training.loss.kind = "mse";
  training.optimizer.kind = "sgd";
  training.optimizer.learning_rate = 11;
  training.optimizer.weight_decay = 1;
  auto data = DataSet::Open(files_, data_spec_);
  ASSERT_TRUE(data.ok()) << data.status();
  const absl::StatusOr<PreparedJob> job = PrepareTraining(Model(), training, spec, *data);
  ASSERT_TRUE(job.ok()) << job.status();
  const testing::DeviceCluster cluster(order, workers, NewDataSetFactory(files_), kVersion);
  Coordinator coordinator(cluster.clients());
  const absl::Status started = StartJob(coordinator, *job, spec, kVersion, {});
  ASSERT_TRUE(started.ok()) << started;

  int64_t steps = 0;
  bool finite = true;
  const absl::StatusOr<TrainResult> result =
      Train(coordinator, *job, {.steps = kSteps, .stop = [] { return false; }},
            [&](const TrainProgress& progress) {
              ++steps;
              finite = finite && std::isfinite(progress.loss);
            });
  EXPECT_EQ(result.status().code(), absl::StatusCode::kOutOfRange) << result.status();
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(HasSubstr("worker:0"), HasSubstr("after step "),
                    HasSubstr("variable 'table' has become "), HasSubstr("(element 2)"),
                    HasSubstr("though the loss was finite")));
  EXPECT_TRUE(finite) << "the loss has seen it: this test tells nothing";
  EXPECT_GE(steps, 39);
  EXPECT_LT(steps, kSteps);
}

INSTANTIATE_TEST_SUITE_P(Workers, UnseenOverflowTest,
                         ::testing::Values(std::pair(1, testing::kOnCpu),
                                           std::pair(2, testing::kOnCpu),
                                           std::pair(1, testing::kLazyOrder), std::pair(2, 1)),
                         [](const auto& info) {
                           return absl::StrCat("Of", info.param.first,
                                               testing::TestDeviceName(info.param.second));
                         });

}  // namespace
}  // namespace weft
