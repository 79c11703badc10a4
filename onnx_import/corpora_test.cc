// Every model of the corpora imports; those that must not are listed with the reason.
#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/message.h"
#include "gtest/gtest.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/exporter.h"
#include "onnx_import/importer.h"
#include "onnx_import/parameters/trainable.h"
#include "onnx_import/tensor_proto.h"
#include "onnx_import/testing/test_models.h"
#include "platform/file_system.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> ModelsBelow(const std::string& folder) {
  std::vector<std::string> paths;
  if (!std::filesystem::exists(folder)) return paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".onnx") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

class Corpora : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = CorporaFolder();
    if (folder_.empty()) GTEST_SKIP() << "WEFT_CORPORA is not set: no corpora to read";
  }
  std::string folder_;
};

TEST_F(Corpora, RealModelsImport) {
  std::vector<std::string> paths = ModelsBelow(folder_ + "/models");
  const std::vector<std::string> training = ModelsBelow(folder_ + "/training-models");
  paths.insert(paths.end(), training.begin(), training.end());
  ASSERT_GE(paths.size(), 10u);
  for (const std::string& path : paths) {
    const auto model = ImportModelFile(RealFileSystem(), path);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_GT(model->graph.num_nodes(), 0) << path;
    // silero_vad keeps its weights in the branches of an If.
    if (path.find("silero_vad") != path.npos) continue;
    EXPECT_FALSE(model->parameters.empty()) << path;
  }
}

TEST_F(Corpora, ExportWithoutTrainedTensorsGivesTheFileBack) {
  int same = 0;
  for (const std::string& path : ModelsBelow(folder_)) {
    const auto model = ImportModelFile(RealFileSystem(), path, {.infer_shapes = false});
    if (!model.ok()) continue;
    const auto exported = ExportTrained(*model, {});
    ASSERT_TRUE(exported.ok()) << path << ": " << exported.status();
    if (!exported->note.empty()) continue;  // external data has moved into the file
    EXPECT_TRUE(exported->bytes == model->file.bytes()) << path;
    ++same;
  }
  EXPECT_GT(same, 2200);
}

// Doubles every parameter, exports, imports: doubled they come back.
TEST_F(Corpora, TrainedTensorsComeBack) {
  std::vector<std::string> paths = ModelsBelow(folder_ + "/models");
  const std::vector<std::string> training = ModelsBelow(folder_ + "/training-models");
  paths.insert(paths.end(), training.begin(), training.end());
  for (const std::string& path : paths) {
    SCOPED_TRACE(path);
    const auto model = ImportModelFile(RealFileSystem(), path);
    ASSERT_TRUE(model.ok()) << model.status();
    std::map<std::string, Tensor> trained;
    for (const ImportedParameter& parameter : model->parameters) {
      if (parameter.dtype != DType::kFloat32) continue;
      const Variable* variable = model->graph.FindVariable(parameter.name);
      ASSERT_NE(variable, nullptr) << parameter.name;
      Tensor doubled = *variable->initial.Clone();
      for (float& element : doubled.mutable_data<float>()) element *= 2;
      trained[parameter.name] = doubled;
    }
    const auto exported = ExportTrained(*model, trained);
    ASSERT_TRUE(exported.ok()) << exported.status();
    const auto file = ModelFile::Parse(exported->bytes, path);
    ASSERT_TRUE(file.ok()) << file.status();
    const auto back = ImportModel(*file);
    ASSERT_TRUE(back.ok()) << back.status();
    for (const auto& [name, tensor] : trained) {
      EXPECT_TRUE(BitwiseEqual(back->graph.FindVariable(name)->initial, tensor)) << name;
    }
    const bool had_external = !exported->note.empty();
    EXPECT_EQ(had_external, path.find("resnet18") != path.npos);
    if (had_external) continue;
    EXPECT_EQ(exported->bytes.size(), model->file.bytes().size());
  }
}

// Fields of another schema than ours, in every message of the model.
void AddUnknownFields(google::protobuf::Message& message) {
  const auto& reflection = *message.GetReflection();
  reflection.MutableUnknownFields(&message)->AddLengthDelimited(999, "of the future");
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    if (field->message_type() == nullptr) continue;
    if (!field->is_repeated()) {
      AddUnknownFields(*reflection.MutableMessage(&message, field));
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      AddUnknownFields(*reflection.MutableRepeatedMessage(&message, field, i));
    }
  }
}

// What exporters and their users put beside the graph.
void Annotate(onnx::ModelProto& model) {
  AddUnknownFields(model);
  model.set_doc_string("a model with a story");
  model.set_domain("test.domain");
  model.set_model_version(42);
  onnx::StringStringEntryProto& entry = *model.add_metadata_props();
  entry.set_key("author");
  entry.set_value("somebody");
  model.mutable_graph()->set_doc_string("of the graph");
  for (onnx::NodeProto& node : *model.mutable_graph()->mutable_node()) {
    node.set_doc_string("of a node");
  }
}

// The model without the elements of its tensors.
std::string WithoutPayloads(const std::string& bytes) {
  onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(bytes));
  const auto strip = [](onnx::TensorProto& tensor) {
    tensor.clear_raw_data();
    tensor.clear_float_data();
  };
  for (onnx::TensorProto& tensor : *model.mutable_graph()->mutable_initializer()) strip(tensor);
  for (onnx::NodeProto& node : *model.mutable_graph()->mutable_node()) {
    if (node.op_type() != "Constant") continue;
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_t()) strip(*attribute.mutable_t());
    }
  }
  return model.SerializeAsString();
}

TEST_F(Corpora, TrainingChangesPayloadsAlone) {
  const std::vector<std::string> paths = ModelsBelow(folder_ + "/models");
  ASSERT_EQ(paths.size(), 7u);
  for (const std::string& path : paths) {
    SCOPED_TRACE(path);
    onnx::ModelProto proto;
    ASSERT_TRUE(proto.ParseFromString(*RealFileSystem().ReadFile(path)));
    Annotate(proto);
    const auto file = ModelFile::Parse(proto.SerializeAsString(), path);
    ASSERT_TRUE(file.ok()) << file.status();
    const auto model = ImportModel(*file);
    ASSERT_TRUE(model.ok()) << model.status();
    std::map<std::string, Tensor> trained;
    for (const ImportedParameter& parameter : model->parameters) {
      trained[parameter.name] = Tensor::Zeros(parameter.dtype, parameter.shape).value();
    }
    const auto exported = ExportTrained(*model, trained);
    ASSERT_TRUE(exported.ok()) << exported.status();
    EXPECT_TRUE(WithoutPayloads(exported->bytes) ==
                WithoutPayloads(std::string(model->file.bytes())));
    EXPECT_EQ(exported->bytes == model->file.bytes(), trained.empty());
  }
}

// Every input_K.pb of the conformance cases is a value of the kind that graph input K says.
TEST_F(Corpora, ValueFilesRead) {
  int read = 0;
  for (const std::string& path : ModelsBelow(folder_ + "/onnx-conformance")) {
    const auto model = ImportModelFile(RealFileSystem(), path, {.infer_shapes = false});
    if (!model.ok()) continue;
    const std::filesystem::path data =
        std::filesystem::path(path).parent_path() / "test_data_set_0";
    const std::vector<ValueId>& inputs = model->graph.inputs();
    for (size_t i = 0; i < inputs.size(); ++i) {
      const std::string file = (data / ("input_" + std::to_string(i) + ".pb")).string();
      if (!std::filesystem::exists(file)) continue;
      const ValueType& type = model->graph.value(inputs[i]).type;
      const auto value = ReadValueFile(RealFileSystem(), file, type);
      ASSERT_TRUE(value.ok()) << value.status();
      ++read;
      if (type.kind != ValueKind::kTensor) continue;
      EXPECT_EQ(value->value.tensor().dtype(), type.dtype) << file;
      const std::string bytes = SerializeValue("", value->value);
      EXPECT_TRUE(BitwiseEqual(ParseValue(bytes, type.kind)->value.tensor(), value->value.tensor()))
          << file;
    }
  }
  EXPECT_GT(read, 3000);
}

// The parameter counts that the corpora's README states.
TEST_F(Corpora, TrainsWhatTheModelsWereMadeToTrain) {
  const std::map<std::string, int64_t> expected = {
      {"mlp_mnist", 235'146},      {"lenet_mnist", 61'706},        {"lstm_mnist", 24'714},
      {"gpt_char", 818'048},       {"gpt_char_loss", 818'048},     {"resnet18", 11'173'962},
      {"mlp_mnist_loss", 235'146}, {"resnet18_train", 11'173'962}, {"lenet_mnist_loss", 61'706}};
  for (const auto& [name, parameters] : expected) {
    auto model = ImportModelFile(RealFileSystem(), folder_ + "/training-models/" + name + ".onnx");
    ASSERT_TRUE(model.ok()) << model.status();
    ASSERT_TRUE(MarkTrainable(*model).ok());
    int64_t trained = 0;
    for (const Variable& variable : model->graph.variables()) {
      if (variable.trainable) trained += variable.initial.num_elements();
    }
    EXPECT_EQ(trained, parameters) << name;
  }
}

TEST_F(Corpora, ConformanceModelsImportOrSayWhyNot) {
  const std::vector<std::string> paths = ModelsBelow(folder_ + "/onnx-conformance");
  ASSERT_GE(paths.size(), 2000u);
  int refused = 0;
  for (const std::string& path : paths) {
    const auto model = ImportModelFile(RealFileSystem(), path);
    if (model.ok()) continue;
    // Some operators on strings have no kernel by design.
    EXPECT_THAT(std::string(model.status().message()), HasSubstr("is string, expected one of"));
    ++refused;
  }
  EXPECT_LE(refused, 4);
}

}  // namespace
}  // namespace weft::testing
