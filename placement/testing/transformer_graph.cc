#include "placement/testing/transformer_graph.h"

#include <string>
#include <utility>
#include <vector>

#include "graph/graph_builder.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int64_t>;

class TransformerBuilder {
 public:
  explicit TransformerBuilder(int blocks) {
    const Shape shape{8, kTokens, kWidth};
    ValueId x = graph_.AddInput("x", {ValueKind::kTensor, DType::kFloat32, shape});
    for (int i = 0; i < blocks; ++i) x = Block(x, "block" + std::to_string(i));
    builder_.set_name_prefix("");
    graph_.AddOutput(Normalize(x, "last"));
    EXPECT_TRUE(builder_.status().ok()) << builder_.status();
  }
  Graph Take() { return std::move(graph_); }

 private:
  static constexpr int64_t kTokens = 128;
  static constexpr int64_t kWidth = 8192;
  static constexpr int64_t kHeads = 64;

  ValueId Op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return builder_.Op(op, std::move(inputs), std::move(attributes));
  }
  ValueId Weight(const std::string& name, const Shape& shape) {
    return graph_.AddVariable(name, {ValueKind::kTensor, DType::kFloat32, shape}, Tensor(), true);
  }
  ValueId Linear(ValueId x, const std::string& name, int64_t from, int64_t to) {
    return Op("Add", {Op("MatMul", {x, Weight(name + ".weight", {from, to})}),
                      Weight(name + ".bias", {to})});
  }
  ValueId Normalize(ValueId x, const std::string& name) {
    return Op("LayerNormalization",
              {x, Weight(name + ".scale", {kWidth}), Weight(name + ".shift", {kWidth})},
              {{"axis", int64_t{-1}}});
  }
  ValueId SplitHeads(ValueId x, const Ints& order) {
    const ValueId sizes = builder_.Ints({0, 0, kHeads, kWidth / kHeads});
    return Op("Transpose", {Op("Reshape", {x, sizes})}, {{"perm", order}});
  }
  ValueId Attention(ValueId x, const std::string& name) {
    const std::vector<ValueId> parts = builder_.Ops(
        "", "Split",
        {Linear(x, name + ".qkv", kWidth, 3 * kWidth), builder_.Ints({kWidth, kWidth, kWidth})},
        {{"axis", int64_t{2}}}, {true, true, true});
    if (parts.size() != 3) return kNoValue;
    const ValueId scores =
        Op("MatMul", {SplitHeads(parts[0], {0, 2, 1, 3}), SplitHeads(parts[1], {0, 2, 3, 1})});
    const ValueId weights = Op("Softmax", {scores}, {{"axis", int64_t{-1}}});
    const ValueId mixed =
        Op("Transpose", {Op("MatMul", {weights, SplitHeads(parts[2], {0, 2, 1, 3})})},
           {{"perm", Ints{0, 2, 1, 3}}});
    return Linear(Op("Reshape", {mixed, builder_.Ints({0, 0, kWidth})}), name + ".out", kWidth,
                  kWidth);
  }
  ValueId Block(ValueId x, const std::string& name) {
    builder_.set_name_prefix(name + "/");
    x = Op("Add", {x, Attention(Normalize(x, name + ".norm1"), name)});
    const ValueId up = Linear(Normalize(x, name + ".norm2"), name + ".up", kWidth, 4 * kWidth);
    return Op("Add", {x, Linear(Op("Tanh", {up}), name + ".down", 4 * kWidth, kWidth)});
  }

  Graph graph_;
  GraphBuilder builder_{graph_};
};

}  // namespace

Graph TransformerGraph(int blocks) { return TransformerBuilder(blocks).Take(); }

}  // namespace weft::testing
