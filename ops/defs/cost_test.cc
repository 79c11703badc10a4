// The FLOPs that schemas give, against loops that count every multiplication and addition.
#include <cstdint>
#include <string>
#include <vector>

#include "graph/op_schema.h"
#include "gtest/gtest.h"
#include "ops/concrete_node.h"
#include "ops/testing/op_case.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int64_t>;

constexpr double kPerProductTerm = 2;  // a multiplication and an addition

// What the schema says of the case; -1 where it says nothing.
double Flops(const OpCase& op_case) {
  const SingleNodeGraph single = MakeSingleNodeGraph(op_case);
  const Node& node = single.graph->node(single.node);
  const auto concrete = ConcreteNode::Create(node, op_case.inputs);
  EXPECT_TRUE(concrete.ok()) << concrete.status();
  if (!concrete.ok() || !node.schema->cost()) return -1;
  return node.schema->cost()(*concrete).flops;
}

Tensor Zeros(const Shape& shape) { return Tensor::Zeros(DType::kFloat32, shape).value(); }

struct Window {
  int64_t in, out, kernel;  // channels in and out, and the window's side
  int64_t groups = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t pad = 0;
};

// Every output element of a square image, every input channel of its group, every tap: also those
// that fall on padding, which engines multiply too.
double CountConv(int64_t batch, int64_t side, const Window& window) {
  const int64_t reach = window.dilation * (window.kernel - 1) + 1;
  double count = 0;
  for (int64_t image = 0; image < batch; ++image) {
    for (int64_t channel = 0; channel < window.out; ++channel) {
      for (int64_t y = -window.pad; y + reach <= side + window.pad; y += window.stride) {
        for (int64_t x = -window.pad; x + reach <= side + window.pad; x += window.stride) {
          for (int64_t source = 0; source < window.in / window.groups; ++source) {
            count += kPerProductTerm * static_cast<double>(window.kernel * window.kernel);
          }
        }
      }
    }
  }
  return count;
}

double ConvFlops(int64_t batch, int64_t side, const Window& window) {
  return Flops(
      {.op = "Conv",
       .attributes = {{"group", window.groups},
                      {"strides", Ints{window.stride, window.stride}},
                      {"dilations", Ints{window.dilation, window.dilation}},
                      {"pads", Ints(4, window.pad)}},
       .inputs = {Zeros({batch, window.in, side, side}),
                  Zeros({window.out, window.in / window.groups, window.kernel, window.kernel})}});
}

TEST(Cost, ConvCountsTapsOfItsGroup) {
  const std::vector<Window> windows = {
      {.in = 3, .out = 8, .kernel = 3},
      {.in = 3, .out = 8, .kernel = 3, .pad = 1},
      {.in = 8, .out = 12, .kernel = 3, .groups = 4},
      {.in = 8, .out = 8, .kernel = 3, .groups = 8, .pad = 1},
      {.in = 4, .out = 6, .kernel = 3, .groups = 2, .stride = 2, .dilation = 2, .pad = 2},
      {.in = 4, .out = 2, .kernel = 1, .stride = 3},
  };
  for (const Window& window : windows) {
    EXPECT_EQ(ConvFlops(2, 11, window), CountConv(2, 11, window))
        << window.groups << " groups, dilation " << window.dilation;
  }
  // By hand: 2 x 8 x 9 x 9 elements of 3 x 3 x 3 terms.
  EXPECT_EQ(ConvFlops(2, 11, windows[0]), 2.0 * 2 * 8 * 9 * 9 * 27);
}

TEST(Cost, ConvTransposeCountsTapsOfItsInput) {
  const OpCase transposed{.op = "ConvTranspose",
                          .attributes = {{"strides", Ints{2, 2}}},
                          .inputs = {Zeros({2, 3, 5, 5}), Zeros({3, 4, 3, 3})}};
  EXPECT_EQ(Flops(transposed), 2.0 * 2 * 3 * 5 * 5 * 4 * 3 * 3);
}

TEST(Cost, MatMulCountsTermsOfEveryBatch) {
  EXPECT_EQ(Flops({.op = "MatMul", .inputs = {Zeros({5, 7}), Zeros({7, 3})}}), 2.0 * 5 * 7 * 3);
  EXPECT_EQ(Flops({.op = "MatMul", .inputs = {Zeros({4, 2, 5, 7}), Zeros({4, 2, 7, 3})}}),
            2.0 * 4 * 2 * 5 * 7 * 3);
  // Both sides broadcast: 4 x 2 products.
  EXPECT_EQ(Flops({.op = "MatMul", .inputs = {Zeros({4, 1, 5, 7}), Zeros({2, 7, 3})}}),
            2.0 * 4 * 2 * 5 * 7 * 3);
  EXPECT_EQ(Flops({.op = "MatMul", .inputs = {Zeros({7}), Zeros({4, 7, 3})}}), 2.0 * 4 * 7 * 3);
  EXPECT_EQ(Flops({.op = "MatMul", .inputs = {Zeros({7}), Zeros({7})}}), 2.0 * 7);
}

TEST(Cost, GemmCountsTheSameHoweverItsOperandsLie) {
  for (const int64_t trans_a : {0, 1}) {
    for (const int64_t trans_b : {0, 1}) {
      const OpCase gemm{.op = "Gemm",
                        .attributes = {{"transA", trans_a}, {"transB", trans_b}},
                        .inputs = {Zeros(trans_a ? Shape{7, 5} : Shape{5, 7}),
                                   Zeros(trans_b ? Shape{3, 7} : Shape{7, 3}), Zeros({3})}};
      EXPECT_EQ(Flops(gemm), 2.0 * 5 * 7 * 3) << trans_a << trans_b;
    }
  }
}

// Q K' and then the product with V, for every head of the queries.
double CountAttention(int64_t batch, int64_t heads, int64_t queries, int64_t keys, int64_t size,
                      int64_t value_size) {
  double count = 0;
  for (int64_t score = 0; score < batch * heads * queries * keys; ++score) {
    count += kPerProductTerm * static_cast<double>(size + value_size);
  }
  return count;
}

TEST(Cost, AttentionCountsBothProducts) {
  EXPECT_EQ(Flops({.op = "Attention",
                   .inputs = {Zeros({2, 4, 5, 8}), Zeros({2, 4, 6, 8}), Zeros({2, 4, 6, 10})}}),
            CountAttention(2, 4, 5, 6, 8, 10));
  // Grouped queries: two heads of keys serve four of queries.
  EXPECT_EQ(Flops({.op = "Attention",
                   .inputs = {Zeros({2, 4, 5, 8}), Zeros({2, 2, 6, 8}), Zeros({2, 2, 6, 8})}}),
            CountAttention(2, 4, 5, 6, 8, 8));
  // Heads side by side in the last axis.
  EXPECT_EQ(Flops({.op = "Attention",
                   .attributes = {{"q_num_heads", int64_t{4}}, {"kv_num_heads", int64_t{2}}},
                   .inputs = {Zeros({2, 5, 32}), Zeros({2, 6, 16}), Zeros({2, 6, 16})}}),
            CountAttention(2, 4, 5, 6, 8, 8));
  // Keys and values of before count too: seven keys to look at.
  EXPECT_EQ(Flops({.op = "Attention",
                   .inputs = {Zeros({2, 4, 1, 8}), Zeros({2, 4, 1, 8}), Zeros({2, 4, 1, 8}),
                              Tensor(), Zeros({2, 4, 6, 8}), Zeros({2, 4, 6, 8})},
                   .outputs = {true, true, true}}),
            CountAttention(2, 4, 1, 7, 8, 8));
}

// Per step, sample, direction, gate and hidden unit: the terms of W x and of R h, and four more for
// adding biases and products and for the activation.
double CountRecurrent(int64_t steps, int64_t batch, int64_t directions, int64_t gates,
                      int64_t input, int64_t hidden) {
  double count = 0;
  for (int64_t unit = 0; unit < steps * batch * directions * gates * hidden; ++unit) {
    count += kPerProductTerm * static_cast<double>(input + hidden) + 4;
  }
  return count;
}

double RecurrentFlops(const std::string& op, int64_t gates, bool bidirectional,
                      bool batch_first = false) {
  const int64_t directions = bidirectional ? 2 : 1;
  return Flops(
      {.op = op,
       .attributes = {{"direction", std::string(bidirectional ? "bidirectional" : "forward")},
                      {"hidden_size", int64_t{5}},
                      {"layout", int64_t{batch_first}}},
       .inputs = {Zeros(batch_first ? Shape{4, 3, 7} : Shape{3, 4, 7}),
                  Zeros({directions, gates * 5, 7}), Zeros({directions, gates * 5, 5})}});
}

TEST(Cost, RecurrentOpsCountEveryDirectionAndGate) {
  for (const bool bidirectional : {false, true}) {
    const int64_t directions = bidirectional ? 2 : 1;
    EXPECT_EQ(RecurrentFlops("LSTM", 4, bidirectional), CountRecurrent(3, 4, directions, 4, 7, 5));
    EXPECT_EQ(RecurrentFlops("GRU", 3, bidirectional), CountRecurrent(3, 4, directions, 3, 7, 5));
    EXPECT_EQ(RecurrentFlops("RNN", 1, bidirectional), CountRecurrent(3, 4, directions, 1, 7, 5));
  }
  EXPECT_EQ(RecurrentFlops("LSTM", 4, true, /*batch_first=*/true),
            CountRecurrent(3, 4, 2, 4, 7, 5));
}

}  // namespace
}  // namespace weft::testing
