#include "onnx_import/edit/quantized_form.h"

#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx_import/codec/tensor_codec.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/exporter.h"
#include "onnx_import/importer.h"
#include "onnx_import/testing/test_models.h"
#include "platform/testing/fake_file_system.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// x [N,2] times w [2,3], Relu, times v [3,2] transposed; x is read by another product too.
onnx::ModelProto TwoProducts(int opset, const std::string& inputs = "float[N, 2] x") {
  return ModelOf(opset, "agraph (" + inputs +
                            ") => (float[N, 2] y, float[N, 3] z)"
                            " <float[2, 3] w = {1, 2, 3, 4, 5, 6},"
                            "  float[3, 2] v = {1, -2, 3, -4, 5, -6}> {"
                            "  h = MatMul (x, w)"
                            "  r = Relu (h)"
                            "  y = Gemm (r, v)"
                            "  z = MatMul (x, w) }");
}

QuantizedForm SomeForm() {
  QuantizedForm form;
  form.weights.push_back({"w", Tensor::Of<int8_t>({2, 3}, {10, 20, 30, 40, 50, 60}),
                          Tensor::Of<float>({3}, {0.1f, 0.2f, 0.3f}),
                          Tensor::Of<int8_t>({3}, {0, 0, 0}), 1, 0});
  form.inputs.push_back(
      {"x", Tensor::Scalar<float>(0.5f), Tensor::Scalar<uint8_t>(7), DType::kUint8, {"z", "h"}});
  return form;
}

onnx::ModelProto Quantized(const onnx::ModelProto& model, const QuantizedForm& form) {
  const auto bytes = WriteQuantized(model.SerializeAsString(), form);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  onnx::ModelProto written;
  EXPECT_TRUE(written.ParseFromString(bytes.value_or("")));
  const auto imported = Import(written);
  EXPECT_TRUE(imported.ok()) << imported.status();
  return written;
}

std::vector<std::string> Operators(const onnx::ModelProto& model) {
  std::vector<std::string> names;
  for (const auto& node : model.graph().node()) names.push_back(node.op_type());
  return names;
}

std::vector<std::string> Initializers(const onnx::ModelProto& model) {
  std::vector<std::string> names;
  for (const auto& tensor : model.graph().initializer()) names.push_back(tensor.name());
  return names;
}

int64_t OpsetOf(const onnx::ModelProto& model) { return model.opset_import(0).version(); }

absl::Status RefusalOf(const onnx::ModelProto& model, const QuantizedForm& form) {
  return WriteQuantized(model.SerializeAsString(), form).status();
}

TEST(WriteQuantized, WeightsAreCodesAndInputsAreRounded) {
  const onnx::ModelProto written = Quantized(TwoProducts(17), SomeForm());
  EXPECT_EQ(OpsetOf(written), 17);
  EXPECT_THAT(Operators(written),
              ElementsAre("DequantizeLinear", "QuantizeLinear", "DequantizeLinear", "MatMul",
                          "Relu", "Gemm", "MatMul"));
  EXPECT_THAT(Initializers(written),
              UnorderedElementsAre("v", "w_quantized", "w_scale", "w_zero_point", "x_scale",
                                   "x_zero_point"));
  const onnx::NodeProto& weight = written.graph().node(0);
  EXPECT_THAT(weight.input(), ElementsAre("w_quantized", "w_scale", "w_zero_point"));
  EXPECT_THAT(weight.output(), ElementsAre("w"));
  ASSERT_EQ(weight.attribute_size(), 1);
  EXPECT_EQ(weight.attribute(0).name(), "axis");
  EXPECT_EQ(weight.attribute(0).i(), 1);
  EXPECT_THAT(written.graph().node(1).input(), ElementsAre("x", "x_scale", "x_zero_point"));
  EXPECT_THAT(written.graph().node(2).input(),
              ElementsAre("x_quantized", "x_scale", "x_zero_point"));
  EXPECT_THAT(written.graph().node(3).input(), ElementsAre("x_dequantized", "w"));
  EXPECT_THAT(written.graph().node(5).input(), ElementsAre("r", "v"));
  EXPECT_THAT(written.graph().node(6).input(), ElementsAre("x_dequantized", "w"));
}

TEST(WriteQuantized, CodesOfFourBitsNeedALaterOperatorSet) {
  QuantizedForm form;
  form.opset = 21;
  const Tensor codes =
      CastTensor(Tensor::Of<int8_t>({3, 2}, {-7, 1, 2, 3, 4, 7}), DType::kInt4).value();
  form.weights.push_back({"v", codes, Tensor::Of<float>({2, 2}, {1, 2, 3, 4}), Tensor(), 0, 2});
  onnx::ModelProto model = TwoProducts(13);
  auto& entry = *model.add_metadata_props();
  entry.set_key("author");
  entry.set_value("somebody");
  model.set_producer_name("theirs");
  // Forms that have changed since.
  auto& sum = *model.mutable_graph()->add_node();
  sum.set_op_type("ReduceMean");
  sum.add_input("y");
  sum.add_output("mean");
  auto& axes = *sum.add_attribute();
  axes.set_name("axes");
  axes.set_type(onnx::AttributeProto::INTS);
  axes.add_ints(1);
  const onnx::ModelProto written = Quantized(model, form);
  EXPECT_EQ(OpsetOf(written), 21);
  EXPECT_EQ(written.ir_version(), 10);
  EXPECT_EQ(written.producer_name(), "theirs");
  ASSERT_EQ(written.metadata_props_size(), 1);
  EXPECT_EQ(written.metadata_props(0).value(), "somebody");
  const onnx::NodeProto& weight = written.graph().node(0);
  EXPECT_THAT(weight.input(), ElementsAre("v_quantized", "v_scale"));
  std::map<std::string, int64_t> attributes;
  for (const auto& attribute : weight.attribute()) attributes[attribute.name()] = attribute.i();
  EXPECT_EQ(attributes, (std::map<std::string, int64_t>{{"axis", 0}, {"block_size", 2}}));
  for (const auto& node : written.graph().node()) {
    if (node.op_type() != "ReduceMean") continue;
    EXPECT_EQ(node.input_size(), 2);
  }
  EXPECT_THAT(Operators(written), ::testing::Contains("ReduceMean"));
  for (const auto& tensor : written.graph().initializer()) {
    if (tensor.name() == "v_quantized") {
      EXPECT_EQ(tensor.data_type(), static_cast<int>(DType::kInt4));
      EXPECT_EQ(tensor.raw_data().size(), 3u);
    }
  }
}

TEST(WriteQuantized, WithoutAZeroPointAnAttributeSaysTheType) {
  QuantizedForm form;
  form.opset = 21;
  form.inputs.push_back({"r", Tensor::Scalar<float>(0.5f), Tensor(), DType::kFloat8E4M3Fn, {"y"}});
  const onnx::ModelProto written = Quantized(TwoProducts(21), form);
  EXPECT_THAT(Operators(written), ElementsAre("MatMul", "Relu", "QuantizeLinear",
                                              "DequantizeLinear", "Gemm", "MatMul"));
  const onnx::NodeProto& quantize = written.graph().node(2);
  EXPECT_THAT(quantize.input(), ElementsAre("r", "r_scale"));
  ASSERT_EQ(quantize.attribute_size(), 1);
  EXPECT_EQ(quantize.attribute(0).name(), "output_dtype");
  EXPECT_EQ(quantize.attribute(0).i(), static_cast<int64_t>(DType::kFloat8E4M3Fn));
  EXPECT_THAT(written.graph().node(3).input(), ElementsAre("r_quantized", "r_scale"));
  EXPECT_EQ(written.graph().node(3).attribute_size(), 0);
}

TEST(WriteQuantized, TakenNamesGetANumber) {
  onnx::ModelProto model = TwoProducts(17, "float[N, 2] x, float[N] w_scale, float[N] x_quantized");
  const onnx::ModelProto written = Quantized(model, SomeForm());
  EXPECT_THAT(written.graph().node(0).input(),
              ElementsAre("w_quantized", "w_scale_1", "w_zero_point"));
  EXPECT_THAT(written.graph().node(1).output(), ElementsAre("x_quantized_1"));
}

// A value of the graph around a body may not have the name of one in it.
TEST(WriteQuantized, NamesInBodiesAreTakenToo) {
  onnx::ModelProto model = TwoProducts(17, "float[N, 2] x, bool c");
  onnx::NodeProto& branch = *model.mutable_graph()->add_node();
  branch.set_op_type("If");
  branch.add_input("c");
  branch.add_output("chosen");
  for (const char* name : {"then_branch", "else_branch"}) {
    onnx::AttributeProto& attribute = *branch.add_attribute();
    attribute.set_name(name);
    attribute.set_type(onnx::AttributeProto::GRAPH);
    attribute.mutable_g()->set_name(name);
    onnx::NodeProto& node = *attribute.mutable_g()->add_node();
    node.set_op_type("Relu");
    node.add_input("y");
    node.add_output(name == std::string("then_branch") ? "w_scale" : "x_quantized");
    attribute.mutable_g()->add_output()->set_name(node.output(0));
  }
  const onnx::ModelProto written = Quantized(model, SomeForm());
  EXPECT_THAT(written.graph().node(0).input(),
              ElementsAre("w_quantized", "w_scale_1", "w_zero_point"));
  EXPECT_THAT(written.graph().node(1).output(), ElementsAre("x_quantized_1"));
}

TEST(WriteQuantized, WeightsMayBeConstantNodesOrInputsToo) {
  onnx::ModelProto model = ModelOf(17,
                                   "agraph (float[N, 2] x) => (float[N, 3] y) {"
                                   "  w = Constant <value = float[2, 3] {1, 2, 3, 4, 5, 6}> ()"
                                   "  y = MatMul (x, w) }");
  QuantizedForm form = SomeForm();
  form.inputs.clear();
  EXPECT_THAT(Operators(Quantized(model, form)), ElementsAre("DequantizeLinear", "MatMul"));

  model = TwoProducts(17, "float[N, 2] x, float[2, 3] w");
  EXPECT_EQ(Quantized(model, form).graph().input_size(), 1);
}

TEST(WriteQuantized, RefusesWhatIsNotThere) {
  QuantizedForm form = SomeForm();
  form.weights[0].name = "u";
  EXPECT_THAT(RefusalOf(TwoProducts(17), form).message(), HasSubstr("has no weight 'u'"));
  form = SomeForm();
  form.inputs[0].readers = {"y"};
  EXPECT_THAT(RefusalOf(TwoProducts(17), form).message(),
              HasSubstr("has no product 'y' that reads 'x' first"));
  EXPECT_EQ(WriteQuantized("no model", form).status().code(), absl::StatusCode::kInvalidArgument);
}

// w of TwoProducts lies beside the file, which borrows `files`.
absl::StatusOr<ModelFile> WithDataBeside(FakeFileSystem& files, int opset) {
  onnx::ModelProto model = TwoProducts(opset);
  onnx::TensorProto& tensor = *model.mutable_graph()->mutable_initializer(0);
  tensor.clear_float_data();
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  onnx::StringStringEntryProto& entry = *tensor.add_external_data();
  entry.set_key("location");
  entry.set_value("w.bin");
  EXPECT_TRUE(files.WriteFileAtomically("/m.onnx", model.SerializeAsString()).ok());
  EXPECT_TRUE(files.WriteFileAtomically("/w.bin", std::string(24, '\0')).ok());
  return ModelFile::Load(files, "/m.onnx");
}

// A file of 2 GiB, as far as the export can tell.
TEST(CheckQuantizedFormTest, RefusesBeforeTheTrainingWhatTheWriterRefuses) {
  const ExportOptions small = {.max_file_bytes = 10};
  FakeFileSystem files;
  const auto earlier = WithDataBeside(files, 17), later = WithDataBeside(files, 21);
  ASSERT_TRUE(earlier.ok()) << earlier.status();
  ASSERT_TRUE(later.ok()) << later.status();
  const absl::Status refused = CheckQuantizedForm(*earlier, 21, 100, small);
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("of an operator set before 21 and has data in files beside it; convert"));
  // int8 needs 13 alone; and a smaller model becomes one file.
  EXPECT_TRUE(CheckQuantizedForm(*earlier, 13, 100, small).ok());
  EXPECT_TRUE(CheckQuantizedForm(*earlier, 21, 100).ok());
  EXPECT_TRUE(CheckQuantizedForm(*later, 21, 100, small).ok());
  const absl::Status large = CheckQuantizedForm(*later, 21, int64_t{1} << 31, small);
  EXPECT_EQ(large.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(large.message()), HasSubstr("takes more than 2 GiB"));
  EXPECT_TRUE(CheckQuantizedForm(*later, 21, int64_t{1} << 31).ok());

  // The writer says the same of what is exported so.
  const auto model = ImportModel(*earlier);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto exported = ExportTrained(*model, {}, small);
  ASSERT_TRUE(exported.ok()) << exported.status();
  QuantizedForm form = SomeForm();
  form.opset = 21;
  EXPECT_EQ(WriteQuantized(exported->bytes, form).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST(MainGraphProductsTest, AreNamedByTheirOutputs) {
  const auto file = ModelFile::Parse(TwoProducts(17).SerializeAsString(), "test.onnx");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(MainGraphProducts(*file), ElementsAre("h", "y", "z"));
}

}  // namespace
}  // namespace weft::testing
