// The training models and the real ones give the outputs that other engines gave, and a batch gives
// what its samples give alone.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "executor/program/forward_runner.h"
#include "gtest/gtest.h"
#include "onnx_import/importer.h"
#include "onnx_import/tensor_proto.h"
#include "platform/file_system.h"
#include "tests/corpora.h"

namespace weft::testing {
namespace {

// |actual - reference| <= 1e-4 x max |reference| + `absolute`, per output.
constexpr double kAbsolute = 1e-5;
// Of a model that computes in steps of 1/256.
constexpr double kOneStep = 0.004;

void ExpectClose(const Tensor& actual, const Tensor& reference, const std::string& what,
                 double absolute = kAbsolute) {
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
  EXPECT_LE(gap, 1e-4 * largest + absolute) << what << ": largest reference value " << largest;
}

Tensor ReadTensor(const std::string& path) {
  const auto read = ReadValueFile(RealFileSystem(), path, ValueKind::kTensor);
  EXPECT_TRUE(read.ok()) << read.status();
  return read.ok() ? read->value.tensor() : Tensor();
}

class ForwardModels : public ::testing::TestWithParam<std::string> {};

Graph ReadModel(const std::string& path) {
  ImportOptions options;
  options.parameters_as_variables = false;
  auto model = ImportModelFile(RealFileSystem(), path, options);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? std::move(model->graph) : Graph();
}

// input_0.pb, ... of the folder `data`.
std::map<std::string, Value> ReadInputs(const Graph& graph, const std::string& data) {
  std::map<std::string, Value> inputs;
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    inputs[graph.value(graph.inputs()[i]).name] =
        ReadTensor(data + "input_" + std::to_string(i) + ".pb");
  }
  return inputs;
}

// Runs the model on the tensors of the folder `data` and compares its outputs.
void RunOn(const std::string& path, const std::string& data, double absolute = kAbsolute) {
  const Graph graph = ReadModel(path);
  const std::map<std::string, Value> inputs = ReadInputs(graph, data);
  ForwardRunner runner(graph.Clone(), {});
  const auto outputs = runner.Run(inputs);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const std::string name = graph.value(graph.outputs()[i]).name;
    ExpectClose(outputs->at(name).tensor(),
                ReadTensor(data + "output_" + std::to_string(i) + ".pb"), name, absolute);
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
    RunOn(folder + "/model.onnx", data, GetParam() == "micro_kws_qdq" ? kOneStep : kAbsolute);
  }
  EXPECT_GT(sets, 0) << folder << " has no data";
}

INSTANTIATE_TEST_SUITE_P(All, RealModels,
                         ::testing::Values("cct2_op20", "micro_kws_qdq", "mnist8", "ppocr_cls",
                                           "ppocrv4_det", "silero_vad_v6", "yolox_nano"),
                         [](const auto& info) { return info.param; });

// A model whose batch size its file leaves open.
struct BatchModel {
  std::string model;  // beneath $WEFT_CORPORA
  std::string data;   // likewise: a set of inputs
  // Where the samples are counted in inputs and outputs, where that is not axis 0; -1: nowhere.
  std::map<std::string, int> axes = {};
  double absolute = kAbsolute;

  int AxisOf(const std::string& name) const {
    const auto found = axes.find(name);
    return found == axes.end() ? 0 : found->second;
  }
};

// Bytes of an element and all axes behind `axis`, and the elements before it.
struct AxisBytes {
  int64_t outer = 1;
  size_t inner = 1;
  AxisBytes(const Tensor& tensor, int axis)
      : outer(tensor.shape().ProductOf(0, axis)),
        inner(static_cast<size_t>(DTypeBytes(
            tensor.dtype(), tensor.shape().ProductOf(axis + 1, tensor.shape().rank())))) {}
};

Shape WithDim(const Shape& shape, int axis, int64_t size) {
  std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
  dims[static_cast<size_t>(axis)] = size;
  return Shape(dims);
}

// Sample `index` of a tensor, as a batch of one.
Tensor Sample(const Tensor& tensor, int axis, int64_t index) {
  const AxisBytes bytes(tensor, axis);
  const int64_t size = tensor.shape().dim(axis);
  Tensor sample = Tensor::Allocate(tensor.dtype(), WithDim(tensor.shape(), axis, 1)).value();
  const char* from = static_cast<const char*>(tensor.raw_data());
  char* to = static_cast<char*>(sample.raw_data());
  for (int64_t i = 0; i < bytes.outer; ++i) {
    std::memcpy(to + i * bytes.inner, from + (i * size + index) * bytes.inner, bytes.inner);
  }
  return sample;
}

Tensor Batch(const std::vector<Tensor>& samples, int axis) {
  const AxisBytes bytes(samples[0], axis);
  const size_t count = samples.size();
  Tensor batch = Tensor::Allocate(samples[0].dtype(),
                                  WithDim(samples[0].shape(), axis, static_cast<int64_t>(count)))
                     .value();
  char* to = static_cast<char*>(batch.raw_data());
  for (size_t k = 0; k < count; ++k) {
    const char* from = static_cast<const char*>(samples[k].raw_data());
    for (int64_t i = 0; i < bytes.outer; ++i) {
      std::memcpy(to + (i * count + k) * bytes.inner, from + i * bytes.inner, bytes.inner);
    }
  }
  return batch;
}

// A sample like `sample`, another for each k: fainter, or of other whole numbers up to 64.
Tensor Varied(const Tensor& sample, int k) {
  Tensor varied = sample.Clone().value();
  if (varied.dtype() == DType::kFloat32) {
    for (float& value : varied.mutable_data<float>()) value *= 1.0f - 0.2f * static_cast<float>(k);
  } else {
    for (int64_t& value : varied.mutable_data<int64_t>()) value = (value + 7 * k) % 65;
  }
  return varied;
}

class BatchModels : public ::testing::TestWithParam<BatchModel> {};

TEST_P(BatchModels, GiveEachSampleWhatItGivesAlone) {
  if (!CorporaFolder()) GTEST_SKIP() << "WEFT_CORPORA is not set: no models to run";
  constexpr int kSamples = 3;
  const BatchModel& one = GetParam();
  const Graph graph = ReadModel(*CorporaFolder() + one.model);
  const std::map<std::string, Value> given = ReadInputs(graph, *CorporaFolder() + one.data);
  ForwardRunner runner(graph.Clone(), {});  // of all batch sizes
  std::vector<std::map<std::string, Value>> inputs(kSamples, given);
  std::map<std::string, Value> batch = given;
  for (const auto& [name, value] : given) {
    const int axis = one.AxisOf(name);
    if (axis < 0) continue;
    std::vector<Tensor> samples;
    for (int k = 0; k < kSamples; ++k) {
      samples.push_back(Varied(Sample(value.tensor(), axis, 0), k));
      inputs[static_cast<size_t>(k)][name] = samples.back();
    }
    batch[name] = Batch(samples, axis);
  }
  const auto together = runner.Run(batch);
  ASSERT_TRUE(together.ok()) << together.status();
  for (int k = 0; k < kSamples; ++k) {
    const auto alone = runner.Run(inputs[static_cast<size_t>(k)]);
    ASSERT_TRUE(alone.ok()) << alone.status();
    for (const auto& [name, value] : *alone) {
      const Tensor sample = Sample(together->at(name).tensor(), one.AxisOf(name), k);
      ExpectClose(sample, value.tensor(), name + " of sample " + std::to_string(k), one.absolute);
    }
  }
}

BatchModel RealModel(const std::string& name, std::map<std::string, int> axes = {},
                     double absolute = kAbsolute) {
  return {"/models/" + name + "/model.onnx", "/models/" + name + "/test_data_set_0/",
          std::move(axes), absolute};
}

BatchModel TrainingModel(const std::string& name) {
  return {"/training-models/" + name + ".onnx",
          "/training-models/forward/" + name + "/test_data_set_0/"};
}

INSTANTIATE_TEST_SUITE_P(All, BatchModels,
                         ::testing::Values(RealModel("micro_kws_qdq", {}, kOneStep),
                                           RealModel("ppocr_cls"), RealModel("ppocrv4_det"),
                                           RealModel("silero_vad_v6",
                                                     {{"state", 1}, {"stateN", 1}, {"sr", -1}}),
                                           TrainingModel("gpt_char"), TrainingModel("lenet_mnist"),
                                           TrainingModel("lstm_mnist"), TrainingModel("mlp_mnist"),
                                           TrainingModel("resnet18")),
                         [](const auto& info) {
                           const std::string& model = info.param.model;
                           const size_t begin = model.find('/', 1) + 1;
                           return model.substr(begin, model.find_first_of("/.", begin) - begin);
                         });

}  // namespace
}  // namespace weft::testing
