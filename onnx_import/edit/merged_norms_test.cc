#include "onnx_import/edit/merged_norms.h"

#include <iterator>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/edit/ties.h"
#include "onnx_import/testing/settled_model.h"
#include "onnx_import/testing/test_models.h"

namespace weft::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

const char* const kNorms[] = {"l.0.norm1.weight", "l.0.norm1.bias", "l.0.norm2.weight",
                              "l.0.norm2.bias"};

// A layer whose two normalizations of x are one node. `scale`: of its second element.
onnx::ModelProto MergedNorms(const std::vector<std::string>& parameters, float scale = 1) {
  onnx::ModelProto model = ModelOf(17,
                                   "agraph (float[N, 2] x) => (float[N, 2] y)"
                                   " <float[2, 2] w = {1, 2, 3, 4}, float[2, 2] v = {5, 6, 7, 8}> {"
                                   "  n = LayerNormalization (x, s, b)  u = MatMul (n, v)"
                                   "  a = MatMul (n, w)  y = Add (a, u) }");
  onnx::GraphProto& graph = *model.mutable_graph();
  *graph.add_initializer() = FloatTensor("s", {2}, 1, scale - 1);
  *graph.add_initializer() = FloatTensor("b", {2}, 0, 0);
  const char* const modules[] = {"l.0.norm1", "l.0.mlp.up", "l.0.attn.q", "l.0"};
  for (int i = 0; i < 4; ++i) SetModule(model, i, modules[i]);
  const char* const names[][2] = {{"s", "l.0.norm1.weight"},
                                  {"b", "l.0.norm1.bias"},
                                  {"w", "l.0.attn.q.weight"},
                                  {"v", "l.0.mlp.up.weight"}};
  for (const auto& name : names) Rename(graph, name[0], name[1]);
  SetSignature(model, parameters);
  return model;
}

std::vector<std::string> AllNames() {
  std::vector<std::string> names(std::begin(kNorms), std::end(kNorms));
  names.insert(names.end(), {"l.0.attn.q.weight", "l.0.mlp.up.weight"});
  return names;
}

TEST(SplitNorms, EachNormalizationHasItsNodeAndItsParameters) {
  const Settled settled(MergedNorms(AllNames()));
  ASSERT_TRUE(settled.status().ok()) << settled.status();
  EXPECT_THAT(settled.Untied(), UnorderedElementsAre("l.0.norm2.weight", "l.0.norm2.bias"));
  EXPECT_THAT(settled.Operators(),
              ElementsAre("LayerNormalization", "LayerNormalization", "MatMul", "MatMul", "Add"));
  EXPECT_THAT(settled.node(0).input(), ElementsAre("x", "l.0.norm1.weight", "l.0.norm1.bias"));
  EXPECT_THAT(settled.node(1).input(), ElementsAre("x", "l.0.norm2.weight", "l.0.norm2.bias"));
  // The first of the signature's norms goes to the first of its children, attn.
  EXPECT_EQ(settled.node(2).input(0), settled.node(1).output(0));
  EXPECT_EQ(settled.node(3).input(0), settled.node(0).output(0));
  EXPECT_THAT(settled.Initializers(), Contains("l.0.norm2.bias"));
  EXPECT_EQ(Settled(settled.proto()).proto().SerializeAsString(),
            settled.proto().SerializeAsString())
      << "an edited file is edited no further";
}

TEST(SplitNorms, OneNormalizationThatTwoPartsReadStaysOne) {
  EXPECT_THAT(Settled(MergedNorms({"l.0.norm1.weight", "l.0.norm1.bias", "l.0.attn.q.weight",
                                   "l.0.mlp.up.weight"}))
                  .Untied(),
              IsEmpty());
}

TEST(SplitNorms, NothingIsSplitWhereItsReadersDoNotTellHow) {
  onnx::ModelProto model = MergedNorms(AllNames());
  model.mutable_graph()->mutable_node(1)->clear_metadata_props();
  SetModule(model, 1, "l.0.attn.k");
  EXPECT_THAT(Settled(model).Untied(), IsEmpty()) << "one part reads it";
  model.mutable_graph()->mutable_node(1)->clear_metadata_props();
  EXPECT_THAT(Settled(model).Untied(), IsEmpty()) << "nothing is known of a reader";
}

TEST(SplitNorms, NothingIsSplitThatHasBeenTrainedOrWasNotAsked) {
  EXPECT_THAT(Settled(MergedNorms(AllNames(), 2)).Untied(), IsEmpty()) << "its elements differ";
  EXPECT_THAT(Settled(MergedNorms(AllNames()), {.untie = {"none"}}).Untied(), IsEmpty());
}

}  // namespace
}  // namespace weft::testing
