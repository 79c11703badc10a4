#include "onnx_import/exporter.h"

#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/testing/test_models.h"
#include "platform/testing/fake_file_system.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kTwoWeights[] =
    "agraph (float[2] x) => (float[2] y) <float[2] a = {1, 2}, float[2] b = {3, 4}> {"
    "  c = Constant <value = float[2] {5, 6}> ()"
    "  d = Constant <value_floats = [7.0, 8.0]> ()"
    "  y = test.Twist (x, a, b, c, d) }";

onnx::ModelProto TwoWeights() {
  onnx::ModelProto model = ModelOf(17, kTwoWeights);
  // What this schema does not know must survive.
  model.GetReflection()->MutableUnknownFields(&model)->AddLengthDelimited(999, "future");
  return model;
}

Tensor Floats(std::vector<float> values) {
  return Tensor::Of<float>(Shape{static_cast<int64_t>(values.size())}, values);
}

onnx::ModelProto Exported(const onnx::ModelProto& model,
                          const std::map<std::string, Tensor>& trained,
                          const ImportOptions& options = {}) {
  const auto imported = Import(model, options);
  EXPECT_TRUE(imported.ok()) << imported.status();
  const auto exported = ExportTrained(*imported, trained);
  EXPECT_TRUE(exported.ok()) << exported.status();
  onnx::ModelProto proto;
  EXPECT_TRUE(proto.ParseFromString(exported->bytes));
  return proto;
}

TEST(ExportTrained, ReplacesOnlyTheNamedPayloads) {
  onnx::ModelProto expected = TwoWeights();
  const onnx::ModelProto exported = Exported(
      TwoWeights(), {{"b", Floats({-1, -2})}, {"c", Floats({-3, -4})}, {"d", Floats({-5, -6})}});
  onnx::GraphProto& graph = *expected.mutable_graph();
  graph.mutable_initializer(1)->set_float_data(0, -1);
  graph.mutable_initializer(1)->set_float_data(1, -2);
  graph.mutable_node(0)->mutable_attribute(0)->mutable_t()->set_float_data(0, -3);
  graph.mutable_node(0)->mutable_attribute(0)->mutable_t()->set_float_data(1, -4);
  graph.mutable_node(1)->mutable_attribute(0)->set_floats(0, -5);
  graph.mutable_node(1)->mutable_attribute(0)->set_floats(1, -6);
  EXPECT_EQ(exported.SerializeAsString(), expected.SerializeAsString());
}

TEST(ExportTrained, WorksForModelsImportedToRun) {
  const onnx::ModelProto exported =
      Exported(TwoWeights(), {{"a", Floats({9, 9})}}, {.parameters_as_variables = false});
  EXPECT_THAT(exported.graph().initializer(0).float_data(), ElementsAre(9, 9));
}

TEST(ExportTrained, KeepsRawDataRawAndHalfFloatsTyped) {
  onnx::ModelProto model = TwoWeights();
  onnx::TensorProto& raw = *model.mutable_graph()->mutable_initializer(0);
  raw.clear_float_data();
  raw.set_raw_data(std::string(8, '\0'));
  onnx::TensorProto& half = *model.mutable_graph()->mutable_initializer(1);
  half.clear_float_data();
  half.set_data_type(static_cast<int>(DType::kFloat16));
  half.add_int32_data(0);
  half.add_int32_data(0);
  const std::vector<Float16> ones = {{0x3c00}, {0xbc00}};
  const onnx::ModelProto exported =
      Exported(model, {{"a", Floats({1, 2})}, {"b", Tensor::Of<Float16>(Shape{2}, ones)}});
  EXPECT_EQ(exported.graph().initializer(0).raw_data(), std::string("\0\0\x80\x3f\0\0\0\x40", 8));
  EXPECT_THAT(exported.graph().initializer(1).int32_data(), ElementsAre(0x3c00, 0xbc00));
}

TEST(ExportTrained, RefusesUnknownNames) {
  const auto model = Import(TwoWeights());
  EXPECT_EQ(ExportTrained(*model, {{"q", Floats({1})}}).status().message(),
            "model 'test.onnx' has no float tensor 'q' to replace");
}

TEST(ExportTrained, RefusesOtherShapes) {
  const auto model = Import(TwoWeights());
  EXPECT_THAT(ExportTrained(*model, {{"a", Floats({1})}}).status().message(),
              HasSubstr("tensor 'a' is float32[2], which cannot be replaced by float32[1]"));
}

// A model with its weights in "w.bin": 4 bytes that belong to nobody, then `a`, then `b`.
class ExternalExport : public ::testing::Test {
 protected:
  void SetUp() override {
    onnx::ModelProto model = TwoWeights();
    for (int i = 0; i < 2; ++i) {
      onnx::TensorProto& tensor = *model.mutable_graph()->mutable_initializer(i);
      tensor.clear_float_data();
      tensor.set_data_location(onnx::TensorProto::EXTERNAL);
      AddEntry(tensor, "location", "w.bin");
      AddEntry(tensor, "offset", std::to_string(4 + 8 * i));
      AddEntry(tensor, "length", "8");
    }
    ASSERT_TRUE(files_.CreateDirectories("/in").ok());
    ASSERT_TRUE(files_.WriteFileAtomically("/in/m.onnx", model.SerializeAsString()).ok());
    const std::vector<float> weights = {0, 1, 2, 3, 4};
    const std::string bytes(reinterpret_cast<const char*>(weights.data()), 20);
    ASSERT_TRUE(files_.WriteFileAtomically("/in/w.bin", bytes).ok());
  }

  static void AddEntry(onnx::TensorProto& tensor, const char* key, const std::string& value) {
    onnx::StringStringEntryProto& entry = *tensor.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  }

  FakeFileSystem files_;
};

TEST_F(ExternalExport, BecomesOneFile) {
  const auto model = ImportModelFile(files_, "/in/m.onnx");
  ASSERT_TRUE(model.ok()) << model.status();
  const auto note = SaveTrained(files_, "/in/out.onnx", *model, {{"b", Floats({7, 8})}});
  ASSERT_TRUE(note.ok()) << note.status();
  EXPECT_EQ(*note, "external data of 2 tensors is now in the file itself");
  EXPECT_THAT(*files_.ListDirectory("/in"), ElementsAre("m.onnx", "out.onnx", "w.bin"));
  const auto back = ImportModelFile(files_, "/in/out.onnx");
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_THAT(back->graph.FindVariable("a")->initial.data<float>(), ElementsAre(1, 2));
  EXPECT_THAT(back->graph.FindVariable("b")->initial.data<float>(), ElementsAre(7, 8));
}

// Protobuf reads the low 32 bits of a number that is written with more.
TEST_F(ExternalExport, KnowsALocationThatIsWrittenInManyBytes) {
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(*files_.ReadFile("/in/m.onnx")));
  for (int i = 0; i < 2; ++i) {
    onnx::TensorProto& tensor = *model.mutable_graph()->mutable_initializer(i);
    tensor.clear_data_location();
    tensor.GetReflection()->MutableUnknownFields(&tensor)->AddVarint(
        onnx::TensorProto::kDataLocationFieldNumber, (uint64_t{1} << 32) + 1);
  }
  ASSERT_TRUE(files_.WriteFileAtomically("/in/m.onnx", model.SerializeAsString()).ok());
  const auto imported = ImportModelFile(files_, "/in/m.onnx");
  ASSERT_TRUE(imported.ok()) << imported.status();
  ASSERT_TRUE(SaveTrained(files_, "/out.onnx", *imported, {{"b", Floats({7, 8})}}).ok());
  const auto back = ImportModelFile(files_, "/out.onnx");
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_THAT(back->graph.FindVariable("a")->initial.data<float>(), ElementsAre(1, 2));
  EXPECT_THAT(back->graph.FindVariable("b")->initial.data<float>(), ElementsAre(7, 8));
}

TEST_F(ExternalExport, StaysExternalWhenTooLargeForOneFile) {
  const auto model = ImportModelFile(files_, "/in/m.onnx");
  ASSERT_TRUE(model.ok()) << model.status();
  const auto exported = ExportTrained(*model, {{"a", Floats({7, 8})}},
                                      {.max_file_bytes = 10, .external_name = "new.data"});
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(exported->note, "external data of 2 tensors is now in 'new.data'");
  ASSERT_EQ(exported->external.size(), 2u);
  EXPECT_EQ(exported->external[1].offset, 4096);
  EXPECT_THAT(exported->external[0].tensor.data<float>(), ElementsAre(7, 8));
  EXPECT_THAT(exported->external[1].tensor.data<float>(), ElementsAre(3, 4));
  onnx::ModelProto proto;
  ASSERT_TRUE(proto.ParseFromString(exported->bytes));
  EXPECT_EQ(proto.graph().initializer(1).external_data(0).value(), "new.data");
  EXPECT_EQ(proto.graph().initializer(1).external_data(1).value(), "4096");
  EXPECT_THAT(proto.graph().initializer(1).raw_data(), IsEmpty());
}

constexpr int64_t kMany = 20'000;  // 80 kB of floats: so much raw data is not parsed

std::vector<float> ManyFrom(float first) {
  std::vector<float> values;
  for (int64_t i = 0; i < kMany; ++i) values.push_back(first + static_cast<float>(i));
  return values;
}

std::string RawData(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

void SetMany(float first, onnx::TensorProto& tensor) {
  tensor.clear_float_data();
  tensor.set_dims(0, kMany);
  tensor.set_raw_data(RawData(ManyFrom(first)));
}

// The models of TwoWeights with many elements in the initializer `a` and the Constant node `c`.
onnx::ModelProto ManyWeights(float first_of_a) {
  onnx::ModelProto model = TwoWeights();
  SetMany(first_of_a, *model.mutable_graph()->mutable_initializer(0));
  SetMany(7, *model.mutable_graph()->mutable_node(0)->mutable_attribute(0)->mutable_t());
  return model;
}

TEST(LeftPayloads, AreReadAndWrittenLikeParsedOnes) {
  FakeFileSystem files;
  ASSERT_TRUE(files.WriteFileAtomically("/m.onnx", ManyWeights(1).SerializeAsString()).ok());
  const auto model = ImportModelFile(files, "/m.onnx");
  ASSERT_TRUE(model.ok()) << model.status();
  const onnx::GraphProto& graph = model->file.proto()->graph();
  EXPECT_FALSE(graph.initializer(0).has_raw_data());
  EXPECT_EQ(graph.initializer(0).file_bytes(), 4u * kMany);
  EXPECT_FALSE(graph.node(0).attribute(0).t().has_raw_data());
  const auto read = [&model](const char* name) {
    return *ToDoubles(model->graph.FindVariable(name)->initial);
  };
  EXPECT_EQ(read("a").front(), 1);
  EXPECT_EQ(read("a").back(), kMany);
  EXPECT_EQ(read("c").front(), 7);
  EXPECT_EQ(read("c").back(), 6 + kMany);
  EXPECT_EQ(read("b"), (std::vector<double>{3, 4}));

  const std::map<std::string, Tensor> trained = {{"a", Floats(ManyFrom(50))},
                                                 {"b", Floats({0, 1})}};
  onnx::ModelProto expected = ManyWeights(50);
  expected.mutable_graph()->mutable_initializer(1)->set_float_data(0, 0);
  expected.mutable_graph()->mutable_initializer(1)->set_float_data(1, 1);
  const auto exported = ExportTrained(*model, trained);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(exported->bytes, expected.SerializeAsString());
  const auto note = SaveTrained(files, "/out.onnx", *model, trained);
  ASSERT_TRUE(note.ok()) << note.status();
  EXPECT_EQ(*files.ReadFile("/out.onnx"), exported->bytes);
}

// Such a tensor had its payload somewhere in the file, and its update was written past a field
// without elements.
TEST(LeftPayloads, AFileThatSaysItselfWhereTheyAreIsRefused) {
  onnx::ModelProto model = TwoWeights();
  onnx::TensorProto& tensor = *model.mutable_graph()->mutable_initializer(0);
  tensor.clear_float_data();
  tensor.set_file_offset(0);
  tensor.set_file_bytes(8);
  EXPECT_THAT(ImportError(model), HasSubstr("field 100001 is no field of ONNX"));
  FakeFileSystem files;
  ASSERT_TRUE(files.WriteFileAtomically("/m.onnx", model.SerializeAsString()).ok());
  const auto imported = ImportModelFile(files, "/m.onnx");
  EXPECT_THAT(std::string(imported.status().message()),
              HasSubstr("in a TensorProto: field 100001 is no field of ONNX"));
}

}  // namespace
}  // namespace weft::testing
