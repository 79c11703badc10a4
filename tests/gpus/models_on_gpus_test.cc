// Each operator of the models that Weft is tried on, forward, backward and updates, has a kernel
// for GPUs: nothing of them falls back to the host.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/graph.h"
#include "graph/inference.h"
#include "gtest/gtest.h"
#include "onnx_import/importer.h"
#include "onnx_import/parameters/trainable.h"
#include "ops/kernel.h"
#include "ops/node_runner.h"
#include "platform/file_system.h"
#include "tests/corpora.h"
#include "tests/testing/equivalence_models.h"
#include "tools/models/conformance_suite.h"
#include "tools/models/example_gpt.h"
#include "tools/models/example_models.h"
#include "training/graph/optimizer.h"
#include "training/graph/training_graph.h"
#include "training/job/cpu_fallback.h"
#include "training/job/job.h"

namespace weft::testing {
namespace {

constexpr int64_t kSamples = 4;

std::string TextOf(const std::vector<HostOperator>& ops) {
  return absl::StrJoin(ops, ", ", [](std::string* text, const HostOperator& op) {
    absl::StrAppend(text, op.op, " (node '", op.node, "')");
  });
}

// "" where kernels for GPUs run all nodes of the graph.
std::string HostOperatorsOf(const Graph& graph, int64_t samples = kSamples) {
  const auto ops = OperatorsWithoutCudaKernel(graph, samples, KernelRegistry::Global());
  return ops.ok() ? TextOf(*ops) : std::string(ops.status().message());
}

// Its step in each precision and by each optimizer. Sizes that it leaves open are 5.
void ExpectStepsOnGpus(const Graph& model) {
  for (const Precision precision : {Precision::kFloat32, Precision::kBfloat16}) {
    for (const std::string& optimizer : OptimizerKinds()) {
      TrainingSpec spec;
      spec.optimizer.kind = optimizer;
      spec.precision = precision;
      spec.clip_norm = 1;
      spec.average_decay = 0.9;
      Graph bound = model.Clone();
      std::vector<std::string> assumed;
      const absl::Status sized = BindInputs(bound, InputSizes{{}, 5}, &assumed);
      ASSERT_TRUE(sized.ok()) << sized;
      const auto step = BuildTrainingGraph(bound, spec);
      ASSERT_TRUE(step.ok()) << step.status();
      EXPECT_EQ(HostOperatorsOf(*step), "") << PrecisionName(precision) << " " << optimizer;
    }
  }
}

class ModelsOnGpusTest : public ::testing::TestWithParam<std::string> {};

using SmallModels = ModelsOnGpusTest;
INSTANTIATE_TEST_SUITE_P(All, SmallModels,
                         ::testing::Values("mlp", "lenet", "gpt", "encoder", "lstm"),
                         [](const auto& info) { return info.param; });
TEST_P(SmallModels, TrainWithoutTheHost) {
  const auto model = BuildEquivalenceModel(GetParam(), kSamples);
  ASSERT_TRUE(model.ok()) << model.status();
  ExpectStepsOnGpus(model->graph);
}

// But for "swiglu", whose operator is of a library.
using ExampleModels = ModelsOnGpusTest;
INSTANTIATE_TEST_SUITE_P(All, ExampleModels, ::testing::Values("mlp", "lenet"),
                         [](const auto& info) { return info.param; });
TEST_P(ExampleModels, TrainWithoutTheHost) {
  const auto graph = BuildExampleModel(GetParam(), 1);
  ASSERT_TRUE(graph.ok()) << graph.status();
  ExpectStepsOnGpus(*graph);
}

TEST(ExampleGptOnGpus, TrainsWithoutTheHost) {
  auto graph = BuildExampleGpt({.layers = 1, .width = 16, .heads = 2, .sequence = 4});
  ASSERT_TRUE(graph.ok()) << graph.status();
  for (Variable& variable : graph->mutable_variables()) variable.trainable = true;
  ExpectStepsOnGpus(*graph);
}

// ---- Files of the corpora.

absl::StatusOr<ImportedModel> CorpusModel(const std::string& path,
                                          const ImportOptions& options = {}) {
  return ImportModelFile(RealFileSystem(), *CorporaFolder() + path, options);
}

using TrainingModels = ModelsOnGpusTest;
INSTANTIATE_TEST_SUITE_P(All, TrainingModels,
                         ::testing::Values("mlp_mnist", "lenet_mnist", "gpt_char", "lstm_mnist",
                                           "resnet18_train"),
                         [](const auto& info) { return info.param; });
TEST_P(TrainingModels, TrainWithoutTheHost) {
  if (!CorporaFolder()) GTEST_SKIP() << "WEFT_CORPORA is not set: no models";
  auto model = CorpusModel(absl::StrCat("/training-models/", GetParam(), ".onnx"));
  ASSERT_TRUE(model.ok()) << model.status();
  const auto marked = MarkTrainable(*model, TrainableOptions());
  ASSERT_TRUE(marked.ok()) << marked.status();
  ExpectStepsOnGpus(model->graph);
}

// But for "silero_vad_v6", whose inputs do not all count samples in axis 0.
using ForwardModels = ModelsOnGpusTest;
INSTANTIATE_TEST_SUITE_P(All, ForwardModels,
                         ::testing::Values("cct2_op20", "micro_kws_qdq", "mnist8", "ppocr_cls",
                                           "ppocrv4_det", "yolox_nano"),
                         [](const auto& info) { return info.param; });
TEST_P(ForwardModels, RunWithoutTheHost) {
  if (!CorporaFolder()) GTEST_SKIP() << "WEFT_CORPORA is not set: no models";
  const std::string folder = absl::StrCat("/models/", GetParam());
  ImportOptions options;
  options.parameters_as_variables = false;  // some decide shapes
  const auto model = CorpusModel(absl::StrCat(folder, "/model.onnx"), options);
  ASSERT_TRUE(model.ok()) << model.status();
  // Sizes that the file leaves open are those of its reference inputs.
  const auto inputs = ReadCaseInputs(RealFileSystem(), model->graph,
                                     absl::StrCat(*CorporaFolder(), folder, "/test_data_set_0"));
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  Specialization specialization;
  specialization.allow_unknown_shapes = true;
  for (const auto& [name, value] : *inputs) {
    specialization.input_shapes[name] = value.tensor().shape();
  }
  const auto sized = Specialize(model->graph, specialization, CpuNodeEvaluator());
  ASSERT_TRUE(sized.ok()) << sized.status();
  const int64_t samples = sized->value(sized->inputs()[0]).type.shape.dim(0).size();
  EXPECT_EQ(HostOperatorsOf(*sized, samples), "");
}

}  // namespace
}  // namespace weft::testing
