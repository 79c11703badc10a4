// The training models give the outputs that other engines gave.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "executor/forward_runner.h"
#include "gtest/gtest.h"
#include "onnx_import/importer.h"
#include "onnx_import/tensor_proto.h"
#include "platform/file_system.h"
#include "tests/corpora.h"

namespace weft::testing {
namespace {

// |actual - reference| <= 1e-4 x max |reference| + 1e-5, per output.
void ExpectClose(const Tensor& actual, const Tensor& reference, const std::string& what) {
  ASSERT_EQ(actual.dtype(), reference.dtype()) << what;
  ASSERT_EQ(actual.shape(), reference.shape()) << what;
  const std::vector<double> left = ToDoubles(actual).value();
  const std::vector<double> right = ToDoubles(reference).value();
  double largest = 0;
  double gap = 0;
  for (size_t i = 0; i < left.size(); ++i) {
    largest = std::max(largest, std::abs(right[i]));
    const double difference = std::abs(left[i] - right[i]);
    gap = std::isnan(difference) ? HUGE_VAL : std::max(gap, difference);
  }
  EXPECT_LE(gap, 1e-4 * largest + 1e-5) << what << ": largest reference value " << largest;
}

Tensor ReadTensor(const std::string& path) {
  const auto read = ReadValueFile(RealFileSystem(), path, ValueKind::kTensor);
  EXPECT_TRUE(read.ok()) << read.status();
  return read.ok() ? read->value.tensor() : Tensor();
}

class ForwardModels : public ::testing::TestWithParam<std::string> {};

// Runs the model on the tensors of the folder `data` and compares its outputs.
void RunOn(const std::string& path, const std::string& data) {
  ImportOptions options;
  options.parameters_as_variables = false;
  auto model = ImportModelFile(RealFileSystem(), path, options);
  ASSERT_TRUE(model.ok()) << model.status();
  const Graph graph = model->graph.Clone();
  std::map<std::string, Value> inputs;
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    inputs[graph.value(graph.inputs()[i]).name] =
        ReadTensor(data + "input_" + std::to_string(i) + ".pb");
  }
  ForwardRunner runner(std::move(model->graph), {});
  const auto outputs = runner.Run(inputs);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const std::string name = graph.value(graph.outputs()[i]).name;
    ExpectClose(outputs->at(name).tensor(),
                ReadTensor(data + "output_" + std::to_string(i) + ".pb"), name);
  }
}

TEST_P(ForwardModels, AgreeWithTheReferenceOutputs) {
  if (!CorporaFolder()) GTEST_SKIP() << "WEFT_CORPORA is not set: no models to run";
  const std::string models = *CorporaFolder() + "/training-models/";
  RunOn(models + GetParam() + ".onnx", models + "forward/" + GetParam() + "/test_data_set_0/");
}

INSTANTIATE_TEST_SUITE_P(All, ForwardModels,
                         ::testing::Values("gpt_char", "gpt_char_loss", "lenet_mnist",
                                           "lenet_mnist_loss", "lstm_mnist", "lstm_mnist_loss",
                                           "mlp_mnist", "mlp_mnist_loss", "resnet18",
                                           "resnet18_train"),
                         [](const auto& info) { return info.param; });

// Real models, with as many sets of data as each has.
class RealModels : public ::testing::TestWithParam<std::string> {};

TEST_P(RealModels, AgreeWithTheReferenceOutputs) {
  if (!CorporaFolder()) GTEST_SKIP() << "WEFT_CORPORA is not set: no models to run";
  const std::string folder = *CorporaFolder() + "/models/" + GetParam();
  int sets = 0;
  for (;; ++sets) {
    const std::string data = folder + "/test_data_set_" + std::to_string(sets) + "/";
    if (!RealFileSystem().Exists(data + "input_0.pb")) break;
    RunOn(folder + "/model.onnx", data);
  }
  EXPECT_GT(sets, 0) << folder << " has no data";
}

INSTANTIATE_TEST_SUITE_P(Images, RealModels,
                         ::testing::Values("cct2_op20", "mnist8", "ppocr_cls", "ppocrv4_det",
                                           "yolox_nano"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace weft::testing
