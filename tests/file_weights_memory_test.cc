// A model whose weights are most of its memory, read from its file or from one beside it: what the
// process has at most before the first step, in the steps, and when the trained model is written,
// against the weights' size and against the requirement that was told before the first step.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/coordinator.h"
#include "distributed/in_process_cluster.h"
#include "gmock/gmock.h"
#include "graph/cluster_spec.h"
#include "gtest/gtest.h"
#include "onnx_import/exporter.h"
#include "onnx_import/importer.h"
#include "onnx_import/parameters/trainable.h"
#include "onnx_import/testing/large_model.h"
#include "ops/testing/test_tensors.h"
#include "platform/file_system.h"
#include "platform/process_memory.h"
#include "training/data/data_file.h"
#include "training/data/data_set.h"
#include "training/job/job.h"
#include "training/job/resume.h"
#include "training/job/trainer.h"

namespace weft::testing {
namespace {

// Two matrices: a window of one is little, a copy of one is half of all weights.
constexpr int64_t kSize = 4096;
constexpr int kLayers = 2;
constexpr int64_t kWeightBytes = 4 * kSize * kSize * kLayers;  // 128 MiB
constexpr int64_t kSamples = 8;
constexpr double kMebibyte = 1 << 20;
// Beside the weights: code that runs for the first time, graphs, prepared kernels, data, a window.
constexpr int64_t kStartBytes = int64_t{32} << 20;

int64_t PeakBytes() { return MeasureProcessMemory(RealFileSystem()).peak_bytes; }

// The mean cross entropy of what the model makes of x before it has trained: 2^kLayers x.
double FirstLoss(const Tensor& x, const Tensor& labels) {
  double sum = 0;
  for (int64_t n = 0; n < kSamples; ++n) {
    const auto row = x.data<float>().subspan(static_cast<size_t>(n * kSize), kSize);
    double exponentials = 0;
    for (const float value : row) exponentials += std::exp(std::ldexp(value, kLayers));
    const int64_t label = labels.data<int64_t>()[static_cast<size_t>(n)];
    sum += std::log(exponentials) - std::ldexp(row[static_cast<size_t>(label)], kLayers);
  }
  return sum / kSamples;
}

class FileWeights : public ::testing::TestWithParam<WeightPlace> {
 protected:
  void SetUp() override {
    KeepHeapSmall();
    if (MeasureProcessMemory(RealFileSystem()).of_control_group) {
      GTEST_SKIP() << "alone in a control group, whose peak cannot begin anew for each part";
    }
    folder_ = absl::StrCat(::testing::TempDir(), "/file_weights_", static_cast<int>(GetParam()));
    std::filesystem::create_directories(folder_);
    ASSERT_TRUE(WriteLargeModel(folder_, kSize, kLayers, GetParam())) << folder_;
    x_ = RandomTensor({kSamples, kSize}, 7, -0.5, 0.5);
    std::vector<int64_t> labels;
    for (int64_t n = 0; n < kSamples; ++n) labels.push_back(n * 311 % kSize);
    labels_ = Tensor::Of<int64_t>(Shape{kSamples}, labels);
    for (const auto& [name, tensor] : {std::pair("x", &x_), std::pair("labels", &labels_)}) {
      const std::string path = absl::StrCat(folder_, "/", name, ".npy");
      ASSERT_TRUE(RealFileSystem().WriteFileAtomically(path, ToNpy(*tensor).value()).ok());
    }
    ReleaseFreeMemory();
    ForgetPeakMemory();
    base_ = MeasureProcessMemory(RealFileSystem()).bytes;
    if (PeakBytes() > base_ + kMebibyte) GTEST_SKIP() << "this system keeps the peak of before";
  }
  void TearDown() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  // Model, plan and partitions. What the graphs refer to are the weights where they lie.
  void Prepare() {
    auto model = ImportModelFile(RealFileSystem(), folder_ + "/model.onnx");
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    ASSERT_TRUE(MarkTrainable(model_.graph, {}).ok());
    TrainingSpec training;
    training.loss = ParseLoss("softmax_cross_entropy").value();
    training.optimizer.learning_rate = 1e-3;
    DataSpec data;
    data.files = {{"x", folder_ + "/x.npy", 0}, {"labels", folder_ + "/labels.npy", 0}};
    data.batch = kSamples;
    auto opened = DataSet::Open(RealFileSystem(), data);
    ASSERT_TRUE(opened.ok()) << opened.status();
    spec_.cluster = ClusterSpec::Local(1, 1);
    auto job = PrepareTraining(model_.graph, training, spec_, *std::move(opened));
    ASSERT_TRUE(job.ok()) << job.status();
    job_ = *std::move(job);
    weights_checksum_ = WeightsChecksum(job_.graph);  // as a job with checkpoints computes it
  }

  std::string folder_;
  Tensor x_;
  Tensor labels_;
  int64_t base_ = 0;  // bytes of this process before the model is read
  ImportedModel model_;
  JobSpec spec_;
  PreparedJob job_;
  uint64_t weights_checksum_ = 0;
};

TEST_P(FileWeights, AreInMemoryOnceBeforeTheFirstStep) {
  ASSERT_NO_FATAL_FAILURE(Prepare());
  const int64_t prepared = PeakBytes() - base_;
  std::printf("prepared %.1f MiB above the start\n", static_cast<double>(prepared) / kMebibyte);
  EXPECT_LE(prepared, kStartBytes);
  EXPECT_NE(weights_checksum_, 0u);
  InProcessCluster cluster(1, NewDataSetFactory(RealFileSystem()), "test");
  Coordinator coordinator(cluster.clients());
  const absl::Status started = StartJob(coordinator, job_, spec_, "test", {});
  ASSERT_TRUE(started.ok()) << started;
  const auto peak = static_cast<double>(PeakBytes() - base_);
  std::printf("started %.1f MiB above the start, weights %.1f MiB\n", peak / kMebibyte,
              kWeightBytes / kMebibyte);
  EXPECT_LE(peak, 1.2 * kWeightBytes + kStartBytes);
  EXPECT_GE(peak, kWeightBytes);  // the variables; less would mean that the measure is wrong
}

TEST_P(FileWeights, TrainAndAreWrittenWithinTheRequirement) {
  ASSERT_NO_FATAL_FAILURE(Prepare());
  InProcessCluster cluster(1, NewDataSetFactory(RealFileSystem()), "test");
  Coordinator coordinator(cluster.clients());
  const absl::Status started = StartJob(coordinator, job_, spec_, "test", {});
  ASSERT_TRUE(started.ok()) << started;
  std::vector<double> losses;
  TrainOptions options;
  options.steps = 3;
  const auto result = Train(coordinator, job_, options,
                            [&losses](const TrainProgress& done) { losses.push_back(done.loss); });
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(losses.size(), 3u);
  EXPECT_NEAR(losses[0], FirstLoss(x_, labels_), 1e-5 * losses[0]);
  EXPECT_LT(losses[2], losses[0]);

  const MemoryRequirement requirement = coordinator.memory().front().requirement;
  const auto predicted = static_cast<double>(requirement.total());
  const auto steps = static_cast<double>(result->memory.front().peak_bytes);
  std::printf("steps: peak %.1f MiB, %.1f %% of %s\n", steps / kMebibyte, 100 * steps / predicted,
              DescribeMemory(requirement).c_str());
  EXPECT_LE(steps, predicted);
  EXPECT_GE(steps, 0.85 * predicted);

  const std::string out = folder_ + "/out.onnx";
  const auto note = SaveTrained(RealFileSystem(), out, model_, result->parameters);
  ASSERT_TRUE(note.ok()) << note.status();
  const auto end = static_cast<double>(PeakBytes());
  std::printf("written: peak %.1f %% of it\n", 100 * end / predicted);
  EXPECT_LE(end, predicted);
  const auto back = ImportModelFile(RealFileSystem(), out);
  ASSERT_TRUE(back.ok()) << back.status();
  for (const auto& [name, value] : result->parameters) {
    EXPECT_TRUE(BitwiseEqual(back->graph.FindVariable(name)->initial, value)) << name;
    EXPECT_FALSE(BitwiseEqual(model_.graph.FindVariable(name)->initial, value)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Places, FileWeights,
                         ::testing::Values(WeightPlace::kBesideTheModel, WeightPlace::kInTheModel),
                         [](const ::testing::TestParamInfo<WeightPlace>& place) {
                           return place.param == WeightPlace::kInTheModel ? "InTheModel"
                                                                          : "BesideTheModel";
                         });

}  // namespace
}  // namespace weft::testing
