// The expansions of com.microsoft's ops against plain computations.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "graph/graph.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/testing/expanded_op.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

using Row = std::vector<double>;

::testing::AssertionResult Gives(const OpCase& op_case, int output, const Row& expected) {
  const auto outputs = RunExpanded(op_case);
  if (!outputs.ok()) return ::testing::AssertionFailure() << outputs.status();
  const std::vector<float> floats(expected.begin(), expected.end());
  const Tensor& actual = (*outputs)[output];
  if (actual.num_elements() != static_cast<int64_t>(floats.size())) {
    return ::testing::AssertionFailure() << "shape " << actual.shape().ToString();
  }
  return TensorsNear(actual, Tensor::Of<float>(actual.shape(), floats), {.of_magnitude = 1e-5});
}

double At(const Tensor& tensor, int64_t i) { return tensor.data<float>()[i]; }

double Gelu(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }

TEST(Microsoft, ActivationsWithBias) {
  const Tensor x = RandomTensor({2, 3}, 1);
  const Tensor bias = RandomTensor({3}, 2);
  Row bias_gelu, fast_gelu, quick_gelu;
  for (int64_t i = 0; i < 6; ++i) {
    const double sum = At(x, i) + At(bias, i % 3);
    bias_gelu.push_back(Gelu(sum));
    const double inner = std::sqrt(2 / M_PI) * (sum + 0.044715 * sum * sum * sum);
    fast_gelu.push_back(0.5 * sum * (1 + std::tanh(inner)));
    quick_gelu.push_back(At(x, i) / (1 + std::exp(-2 * At(x, i))));
  }
  const std::string domain = "com.microsoft";
  EXPECT_TRUE(Gives({.domain = domain, .op = "BiasGelu", .inputs = {x, bias}}, 0, bias_gelu));
  EXPECT_TRUE(Gives({.domain = domain, .op = "FastGelu", .inputs = {x, bias}}, 0, fast_gelu));
  EXPECT_TRUE(
      Gives({.domain = domain, .op = "QuickGelu", .attributes = {{"alpha", 2.0f}}, .inputs = {x}},
            0, quick_gelu));
}

TEST(Microsoft, FusedMatMulTransposesAndScales) {
  const Tensor a = RandomTensor({2, 3, 4}, 1);  // op(A): [2, 4, 3]
  const Tensor b = RandomTensor({5, 3}, 2);     // op(B): [3, 5]
  Row expected;
  for (int64_t n = 0; n < 2; ++n) {
    for (int64_t i = 0; i < 4; ++i) {
      for (int64_t j = 0; j < 5; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < 3; ++k) sum += At(a, (n * 3 + k) * 4 + i) * At(b, j * 3 + k);
        expected.push_back(0.5 * sum);
      }
    }
  }
  EXPECT_TRUE(
      Gives({.domain = "com.microsoft",
             .op = "FusedMatMul",
             .attributes = {{"alpha", 0.5f}, {"transA", int64_t{1}}, {"transB", int64_t{1}}},
             .inputs = {a, b}},
            0, expected));
}

TEST(Microsoft, FusedGemmHasAnActivation) {
  const Tensor a = RandomTensor({2, 3}, 1);
  const Tensor b = RandomTensor({3, 2}, 2);
  Row expected;
  for (int64_t i = 0; i < 4; ++i) {
    double sum = 0;
    for (int64_t k = 0; k < 3; ++k) sum += At(a, i / 2 * 3 + k) * At(b, k * 2 + i % 2);
    expected.push_back(std::max(sum, 0.0));
  }
  EXPECT_TRUE(Gives({.domain = "com.microsoft",
                     .op = "FusedGemm",
                     .attributes = {{"activation", std::string("Relu")}},
                     .inputs = {a, b}},
                    0, expected));
}

TEST(Microsoft, SkipNormalizations) {
  const Tensor x = RandomTensor({2, 4}, 1), skip = RandomTensor({2, 4}, 2);
  const Tensor gamma = RandomTensor({4}, 3), beta = RandomTensor({4}, 4);
  Row sums, layer, simplified;
  for (int64_t r = 0; r < 2; ++r) {
    double mean = 0, square = 0;
    for (int64_t i = 0; i < 4; ++i) {
      sums.push_back(At(x, r * 4 + i) + At(skip, r * 4 + i));
      mean += sums.back() / 4;
      square += sums.back() * sums.back() / 4;
    }
    for (int64_t i = 0; i < 4; ++i) {
      const double sum = sums[r * 4 + i];
      layer.push_back((sum - mean) / std::sqrt(square - mean * mean + 1e-5) * At(gamma, i) +
                      At(beta, i));
      simplified.push_back(sum / std::sqrt(square + 1e-5) * At(gamma, i));
    }
  }
  const Attributes epsilon = {{"epsilon", 1e-5f}};
  const std::vector<bool> outputs = {true, false, false, true};
  const OpCase with_mean{.domain = "com.microsoft",
                         .op = "SkipLayerNormalization",
                         .attributes = epsilon,
                         .inputs = {x, skip, gamma, beta},
                         .outputs = outputs};
  EXPECT_TRUE(Gives(with_mean, 0, layer));
  EXPECT_TRUE(Gives(with_mean, 1, sums));
  const OpCase without{.domain = "com.microsoft",
                       .op = "SkipSimplifiedLayerNormalization",
                       .attributes = epsilon,
                       .inputs = {x, skip, gamma},
                       .outputs = outputs};
  EXPECT_TRUE(Gives(without, 0, simplified));
}

// Attention of packed rows [length, heads * size] of one sample; `allowed(query, key)`.
template <typename Allowed>
Row Attended(const Row& q, const Row& k, const Row& v, int64_t heads, int64_t size,
             Allowed allowed) {
  const int64_t hidden = heads * size;
  const int64_t queries = static_cast<int64_t>(q.size()) / hidden;
  const int64_t keys = static_cast<int64_t>(k.size()) / hidden;
  Row y(q.size(), 0);
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < queries; ++i) {
      Row weights;
      double total = 0;
      for (int64_t j = 0; j < keys; ++j) {
        double score = 0;
        for (int64_t e = 0; e < size; ++e) {
          score += q[i * hidden + h * size + e] * k[j * hidden + h * size + e];
        }
        weights.push_back(allowed(i, j) ? std::exp(score / std::sqrt(double(size))) : 0);
        total += weights.back();
      }
      for (int64_t j = 0; j < keys; ++j) {
        for (int64_t e = 0; e < size; ++e) {
          y[i * hidden + h * size + e] += weights[j] / total * v[j * hidden + h * size + e];
        }
      }
    }
  }
  return y;
}

Row RowOf(const Tensor& tensor) { return *ToDoubles(tensor); }

TEST(Microsoft, AttentionMakesItsOwnOperands) {
  const Tensor x = RandomTensor({1, 3, 4}, 1);
  const Tensor weights = RandomTensor({4, 12}, 2);
  const Tensor bias = RandomTensor({12}, 3);
  Row parts[3];
  for (int64_t p = 0; p < 3; ++p) {
    for (int64_t i = 0; i < 12; ++i) {
      const int64_t column = p * 4 + i % 4;
      double sum = At(bias, column);
      for (int64_t k = 0; k < 4; ++k) sum += At(x, i / 4 * 4 + k) * At(weights, k * 12 + column);
      parts[p].push_back(sum);
    }
  }
  OpCase op_case{.domain = "com.microsoft",
                 .op = "Attention",
                 .attributes = {{"num_heads", int64_t{2}}},
                 .inputs = {x, weights, bias}};
  const auto attended = [&](auto allowed) {
    return Attended(parts[0], parts[1], parts[2], 2, 2, allowed);
  };
  EXPECT_TRUE(Gives(op_case, 0, attended([](int64_t, int64_t) { return true; })));
  op_case.inputs.push_back(Tensor::Of<int32_t>({1, 3}, std::vector<int32_t>{1, 0, 1}));
  EXPECT_TRUE(Gives(op_case, 0, attended([](int64_t, int64_t j) { return j != 1; })));
  op_case.inputs[3] = Tensor::Of<int32_t>({1}, std::vector<int32_t>{2});
  EXPECT_TRUE(Gives(op_case, 0, attended([](int64_t, int64_t j) { return j < 2; })));
  op_case.inputs.pop_back();
  op_case.attributes.Set("unidirectional", int64_t{1});
  EXPECT_TRUE(Gives(op_case, 0, attended([](int64_t i, int64_t j) { return j <= i; })));
}

// Their sum is where the product of the packed weights is cut.
TEST(Microsoft, AttentionRefusesHiddenSizesThatNoTensorHas) {
  Graph graph;
  GraphBuilder builder(graph);
  const ValueType type = {ValueKind::kTensor, DType::kFloat32, SymbolicShape()};
  builder.Ops("com.microsoft", "Attention", {graph.AddInput("x", type), graph.AddInput("w", type)},
              {{"num_heads", int64_t{1}},
               {"qkv_hidden_sizes", std::vector<int64_t>{INT64_MAX, INT64_MAX, 1}}},
              {true});
  EXPECT_THAT(std::string(builder.status().message()),
              ::testing::HasSubstr("qkv_hidden_sizes has 9223372036854775807"));
}

TEST(Microsoft, MultiHeadAttentionAddsBiasesAndMasksKeys) {
  const Tensor q = RandomTensor({1, 2, 4}, 1), k = RandomTensor({1, 3, 4}, 2);
  const Tensor v = RandomTensor({1, 3, 4}, 3), bias = RandomTensor({12}, 4);
  const auto biased = [&](const Tensor& tensor, int64_t part) {
    Row row = RowOf(tensor);
    for (size_t i = 0; i < row.size(); ++i)
      row[i] += At(bias, part * 4 + static_cast<int64_t>(i % 4));
    return row;
  };
  const OpCase op_case{
      .domain = "com.microsoft",
      .op = "MultiHeadAttention",
      .attributes = {{"num_heads", int64_t{2}}},
      .inputs = {q, k, v, bias, Tensor::Of<int32_t>({1, 3}, std::vector<int32_t>{1, 1, 0})}};
  EXPECT_TRUE(Gives(op_case, 0,
                    Attended(biased(q, 0), biased(k, 1), biased(v, 2), 2, 2,
                             [](int64_t, int64_t j) { return j < 2; })));
}

TEST(Microsoft, RotaryEmbeddingCountsFromAnOffset) {
  const Tensor x = RandomTensor({1, 2, 4}, 1), cos = RandomTensor({5, 2}, 2);
  const Tensor sin = RandomTensor({5, 2}, 3);
  Row expected(8);
  for (int64_t s = 0; s < 2; ++s) {
    for (int64_t i = 0; i < 2; ++i) {
      const double a = At(x, s * 4 + i), b = At(x, s * 4 + i + 2);
      const double c = At(cos, (s + 3) * 2 + i), d = At(sin, (s + 3) * 2 + i);
      expected[s * 4 + i] = a * c - b * d;
      expected[s * 4 + i + 2] = a * d + b * c;
    }
  }
  EXPECT_TRUE(Gives(
      {.domain = "com.microsoft", .op = "RotaryEmbedding", .inputs = {x, Int64s({3}), cos, sin}}, 0,
      expected));
}

TEST(Microsoft, EmbedLayerNormalizationAddsThreeTables) {
  const Tensor ids = Tensor::Of<int32_t>({1, 2}, std::vector<int32_t>{2, 0});
  const Tensor segments = Tensor::Of<int32_t>({1, 2}, std::vector<int32_t>{1, 1});
  const Tensor words = RandomTensor({3, 2}, 1), positions = RandomTensor({4, 2}, 2);
  const Tensor kinds = RandomTensor({2, 2}, 3);
  const OpCase op_case{.domain = "com.microsoft",
                       .op = "EmbedLayerNormalization",
                       .inputs = {ids, segments, words, positions, kinds, RandomTensor({2}, 4),
                                  RandomTensor({2}, 5)},
                       .outputs = {true, false, true}};
  Row sums;
  for (int64_t s = 0; s < 2; ++s) {
    for (int64_t e = 0; e < 2; ++e) {
      const int64_t word = s == 0 ? 2 : 0;
      sums.push_back(At(words, word * 2 + e) + At(positions, s * 2 + e) + At(kinds, 2 + e));
    }
  }
  EXPECT_TRUE(Gives(op_case, 1, sums));
}

TEST(Microsoft, MatMulOfBlocksOfFourBits) {
  // Two rows of 24 columns: blocks of 16, the second one half used.
  const int64_t rows = 2, columns = 24, size = 16;
  const Tensor a = RandomTensor({3, columns}, 1), scales = RandomTensor({rows * 2}, 2);
  const Tensor packed = RandomTensor({rows, 2, size / 2}, 3, 0, 256, DType::kUint8);
  const Tensor zeros = Tensor::Of<uint8_t>({rows}, std::vector<uint8_t>{0x37, 0xa5});
  const auto nibble = [](uint8_t byte, int64_t i) { return i % 2 == 0 ? byte & 15 : byte >> 4; };
  Row expected;
  for (int64_t i = 0; i < 3 * rows; ++i) {
    const int64_t n = i % rows;
    double sum = 0;
    for (int64_t k = 0; k < columns; ++k) {
      const int64_t block = n * 2 + k / size;
      const int q = nibble(packed.data<uint8_t>()[block * size / 2 + k % size / 2], k);
      const int zero = nibble(zeros.data<uint8_t>()[n], k / size);
      sum += At(a, i / rows * columns + k) * (q - zero) * At(scales, block);
    }
    expected.push_back(sum);
  }
  EXPECT_TRUE(Gives(
      {.domain = "com.microsoft",
       .op = "MatMulNBits",
       .attributes = {{"N", rows}, {"K", columns}, {"bits", int64_t{4}}, {"block_size", size}},
       .inputs = {a, packed, scales, zeros}},
      0, expected));
}

TEST(Microsoft, MatMulOfBlocksWhoseColumnsWereSorted) {
  const int64_t rows = 2, columns = 24, size = 16;
  const Tensor a = RandomTensor({3, columns}, 1), scales = RandomTensor({rows * 2}, 2);
  const Tensor bytes = RandomTensor({rows, 2, size}, 3, 0, 256, DType::kUint8);
  const Tensor zeros = Tensor::Of<uint8_t>({rows * 2}, std::vector<uint8_t>{3, 7, 130, 255});
  std::vector<int32_t> groups;
  for (int32_t k = 0; k < columns; ++k) groups.push_back(k * 5 % 3 % 2);
  Row expected;
  for (int64_t i = 0; i < 3 * rows; ++i) {
    const int64_t n = i % rows;
    double sum = 0;
    for (int64_t k = 0; k < columns; ++k) {
      const int64_t group = n * 2 + groups[static_cast<size_t>(k)];
      const int q = bytes.data<uint8_t>()[n * 2 * size + k];
      sum += At(a, i / rows * columns + k) * (q - zeros.data<uint8_t>()[group]) * At(scales, group);
    }
    expected.push_back(sum);
  }
  OpCase product{
      .domain = "com.microsoft",
      .op = "MatMulNBits",
      .attributes = {{"N", rows}, {"K", columns}, {"bits", int64_t{8}}, {"block_size", size}},
      .inputs = {a, bytes, scales, zeros, Tensor::Of<int32_t>({columns}, groups)}};
  EXPECT_TRUE(Gives(product, 0, expected));
}

// Operand A of FusedMatMul with transBatchA: its rows are axis 0, its batches the axes between.
TEST(Microsoft, FusedMatMulOfRowsInFrontOfBatches) {
  const Tensor a = RandomTensor({5, 2, 3, 4}, 1), b = RandomTensor({2, 3, 4, 6}, 2);
  Row expected;
  for (int64_t batch = 0; batch < 6; ++batch) {
    for (int64_t m = 0; m < 5; ++m) {
      for (int64_t n = 0; n < 6; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < 4; ++k) {
          sum += At(a, (m * 6 + batch) * 4 + k) * At(b, (batch * 4 + k) * 6 + n);
        }
        expected.push_back(sum);
      }
    }
  }
  EXPECT_TRUE(Gives({.domain = "com.microsoft",
                     .op = "FusedMatMul",
                     .attributes = {{"transBatchA", int64_t{1}}},
                     .inputs = {a, b}},
                    0, expected));
}

// Both of B's flags: [N, batches..., K].
TEST(Microsoft, FusedMatMulOfColumnsInFrontOfBatches) {
  const Tensor a = RandomTensor({2, 5, 4}, 1), b = RandomTensor({6, 2, 4}, 2);
  Row expected;
  for (int64_t batch = 0; batch < 2; ++batch) {
    for (int64_t m = 0; m < 5; ++m) {
      for (int64_t n = 0; n < 6; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < 4; ++k) {
          sum += At(a, (batch * 5 + m) * 4 + k) * At(b, (n * 2 + batch) * 4 + k);
        }
        expected.push_back(sum);
      }
    }
  }
  EXPECT_TRUE(Gives({.domain = "com.microsoft",
                     .op = "FusedMatMul",
                     .attributes = {{"transB", int64_t{1}}, {"transBatchB", int64_t{1}}},
                     .inputs = {a, b}},
                    0, expected));
}

}  // namespace
}  // namespace weft::testing
