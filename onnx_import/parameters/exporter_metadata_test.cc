#include "onnx_import/parameters/exporter_metadata.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/testing/test_models.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

void AddEntry(google::protobuf::RepeatedPtrField<onnx::StringStringEntryProto>* properties,
              const std::string& key, const std::string& value) {
  onnx::StringStringEntryProto* const entry = properties->Add();
  entry->set_key(key);
  entry->set_value(value);
}

TEST(ParseGraphSignature, ReadsLines) {
  EXPECT_THAT(ParseGraphSignature("\n# inputs\np_fc_weight: PARAMETER target='fc.weight'\n"
                                  "b_mean: BUFFER target='bn.mean' persistent=True\n"
                                  "c_t: CONSTANT_TENSOR target='t'\nx: USER_INPUT\n\n# outputs\n"
                                  "add: BUFFER_MUTATION target='bn.count'\ny: USER_OUTPUT\n"),
              UnorderedElementsAre(
                  Pair("p_fc_weight", ExportedKind::kParameter),
                  Pair("fc.weight", ExportedKind::kParameter),
                  Pair("b_mean", ExportedKind::kBuffer), Pair("bn.mean", ExportedKind::kBuffer),
                  Pair("c_t", ExportedKind::kConstant), Pair("t", ExportedKind::kConstant)));
}

TEST(ParseGraphSignature, ReadsRepresentations) {
  EXPECT_THAT(
      ParseGraphSignature(
          "ExportGraphSignature(input_specs=[InputSpec(kind=<InputKind.PARAMETER: 2>, "
          "arg=TensorArgument(name='p_w'), target='a.w', persistent=None), InputSpec(kind="
          "<InputKind.BUFFER: 3>, arg=TensorArgument(name='b_m'), target='a.m', persistent=False), "
          "InputSpec(kind=<InputKind.USER_INPUT: 1>, arg=TensorArgument(name='x'), target=None)], "
          "output_specs=[OutputSpec(kind=<OutputKind.USER_OUTPUT: 1>)])"),
      UnorderedElementsAre(Pair("p_w", ExportedKind::kParameter),
                           Pair("a.w", ExportedKind::kParameter),
                           Pair("b_m", ExportedKind::kBuffer), Pair("a.m", ExportedKind::kBuffer)));
}

TEST(ParseGraphSignature, TakesAnyText) {
  for (const std::string text :
       {"", ":", ": PARAMETER", "x: PARAMETER target='", "InputSpec(kind=<InputKind.",
        "InputSpec(kind=<InputKind.PARAMETER: 2>, arg=TensorArgument(name='", "\n\n\n",
        "\xff: \xff"}) {
    const auto kinds = ParseGraphSignature(text);
    EXPECT_LE(kinds.size(), 1u) << text;
  }
  EXPECT_THAT(ParseGraphSignature(absl::StrCat(std::string(5000, 'n'), ": PARAMETER")), IsEmpty());
}

TEST(ReadExporterMetadata, ReadsGraphValuesAndNodes) {
  onnx::ModelProto model =
      ModelOf(17,
              "agraph (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[2] b = {1, 2}> {"
              "  h = Mul (x, w)  y = Add (h, b) }");
  onnx::GraphProto* const graph = model.mutable_graph();
  AddEntry(graph->mutable_metadata_props(), "pkg.torch.export.ExportedProgram.graph_signature",
           "p_w: PARAMETER target='w'\np_gone: PARAMETER target='m.gone'\n");
  AddEntry(graph->mutable_initializer(1)->mutable_metadata_props(),
           "pkg.torch.export.graph_signature.InputSpec.kind", "BUFFER");
  AddEntry(graph->mutable_node(1)->mutable_metadata_props(), "pkg.torch.onnx.name_scopes",
           "['', 'm', 'add']");
  const auto file = ModelFile::Parse(model.SerializeAsString(), "test.onnx");
  ASSERT_TRUE(file.ok()) << file.status();
  const ExporterMetadata metadata = ReadExporterMetadata(*file);
  EXPECT_EQ(metadata.KindOf("w"), ExportedKind::kParameter);
  EXPECT_EQ(metadata.KindOf("b"), ExportedKind::kBuffer);
  EXPECT_EQ(metadata.KindOf("x"), std::nullopt);
  EXPECT_THAT(metadata.lost_parameters, ElementsAre("m.gone"));
  EXPECT_THAT(metadata.module_of_node, ElementsAre(Pair("Add_1", "m")));
}

}  // namespace
}  // namespace weft::testing
