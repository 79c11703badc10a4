// Attention in blocks against plain loops in double (ops/kernels/reference), with its options in
// every combination, at sizes around those of blocks and vectors.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ops/concrete_node.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

const Tolerance kTolerance = {.of_magnitude = 5e-6};

struct Sizes {
  int64_t batch, q_heads, kv_heads, queries, keys, key_size, value_size;
};

enum class MaskKind { kNone, kBias, kChoice, kOfKeys, kShort, kHalf };

struct Options {
  bool packed = false;
  bool causal = false;
  bool windows = false;
  bool capped = false;
  int64_t past = 0;
  bool lengths = false;
  MaskKind mask = MaskKind::kNone;
};

std::string Describe(const Options& o) {
  return absl::StrCat("packed ", o.packed, " causal ", o.causal, " windows ", o.windows, " capped ",
                      o.capped, " past ", o.past, " lengths ", o.lengths, " mask ",
                      static_cast<int>(o.mask));
}

Tensor MaskOf(MaskKind kind, const Sizes& s, int64_t keys) {
  switch (kind) {
    case MaskKind::kBias:
      return RandomTensor({s.q_heads, s.queries, keys}, 11, -2, 2);
    case MaskKind::kChoice:
      return RandomTensor({s.batch, 1, s.queries, keys}, 12, 0, 2, DType::kBool);
    case MaskKind::kOfKeys:
      return RandomTensor({s.batch, 1, 1, keys}, 13, 0, 2, DType::kBool);
    case MaskKind::kShort:
      return RandomTensor({s.queries, std::max<int64_t>(keys - 1, 1)}, 14, -2, 2);
    case MaskKind::kHalf:
      return RandomTensor({1, s.q_heads, s.queries, keys}, 15, -2, 2, DType::kFloat16);
    case MaskKind::kNone:
      break;
  }
  return Tensor();
}

OpCase CaseOf(const Sizes& s, const Options& o) {
  OpCase made;
  made.op = "Attention";
  made.attributes = {{"is_causal", int64_t{o.causal}}};
  const auto shape = [&](int64_t heads, int64_t length, int64_t size) {
    return o.packed ? Shape{s.batch, length, heads * size} : Shape{s.batch, heads, length, size};
  };
  made.inputs = {RandomTensor(shape(s.q_heads, s.queries, s.key_size), 1, -2, 2),
                 RandomTensor(shape(s.kv_heads, s.keys, s.key_size), 2, -2, 2),
                 RandomTensor(shape(s.kv_heads, s.keys, s.value_size), 3, -2, 2)};
  made.inputs.resize(7);
  if (o.packed) {
    made.attributes.Set("q_num_heads", s.q_heads);
    made.attributes.Set("kv_num_heads", s.kv_heads);
  }
  if (o.windows) {
    made.attributes.Set("left_window_size", int64_t{9});
    made.attributes.Set("right_window_size", int64_t{3});
  }
  if (o.capped) {
    made.attributes.Set("softcap", 1.5f);
    made.attributes.Set("scale", 0.3f);
  }
  made.inputs[3] = MaskOf(o.mask, s, s.keys + o.past);
  if (o.past > 0) {
    made.inputs[4] = RandomTensor({s.batch, s.kv_heads, o.past, s.key_size}, 5, -2, 2);
    made.inputs[5] = RandomTensor({s.batch, s.kv_heads, o.past, s.value_size}, 6, -2, 2);
    made.outputs = {true, o.packed, !o.causal};
  } else if (o.lengths) {
    std::vector<int64_t> lengths;
    for (int64_t b = 0; b < s.batch; ++b) lengths.push_back(std::max<int64_t>(s.keys - 3 * b, 0));
    made.inputs[6] = Int64s(lengths);
  }
  while (!made.inputs.back().valid()) made.inputs.pop_back();
  return made;
}

TEST(BlockedAttention, AgreesWithTheReferenceForEveryOption) {
  const Sizes sizes[] = {{2, 4, 2, 5, 7, 3, 5}, {1, 2, 1, 37, 70, 17, 6}};
  for (const Sizes& s : sizes) {
    for (int bits = 0; bits < 32; ++bits) {
      for (const MaskKind mask : {MaskKind::kNone, MaskKind::kBias, MaskKind::kChoice,
                                  MaskKind::kOfKeys, MaskKind::kShort, MaskKind::kHalf}) {
        Options o;
        o.packed = (bits & 1) != 0;
        o.causal = (bits & 2) != 0;
        o.windows = (bits & 4) != 0;
        o.capped = (bits & 8) != 0;
        o.lengths = (bits & 16) != 0;
        o.past = o.lengths ? 0 : bits % 3;
        o.mask = mask;
        EXPECT_TRUE(CheckKernelAgainstReference(CaseOf(s, o), kTolerance)) << Describe(o);
      }
    }
  }
}

TEST(BlockedAttention, AgreesWithTheReferenceAroundBlocksAndVectors) {
  for (const int64_t length : {1, 15, 16, 17, 31, 33, 63, 64, 65, 130, 197}) {
    for (const int64_t size : {1, 4, 8, 33, 64}) {
      const Sizes s{1, 1, 1, length, length, size, size};
      for (const bool causal : {false, true}) {
        Options o;
        o.causal = causal;
        EXPECT_TRUE(CheckKernelAgainstReference(CaseOf(s, o), kTolerance)) << length << " " << size;
      }
    }
  }
}

// Scores far from zero, of either sign, and rows whose largest score comes last.
TEST(BlockedAttention, LargeScoresNeitherOverflowNorVanish) {
  Options o;
  OpCase large = CaseOf({1, 1, 1, 40, 150, 8, 8}, o);
  large.attributes.Set("scale", 40.0f);
  EXPECT_TRUE(CheckKernelAgainstReference(large, {.of_magnitude = 1e-4}));
}

std::vector<float> ValuesOf(const Tensor& tensor) {
  return {tensor.data<float>().begin(), tensor.data<float>().end()};
}

TEST(BlockedAttention, ThreadsDoNotChangeBits) {
  Options o;
  o.mask = MaskKind::kBias;
  o.causal = true;
  EXPECT_TRUE(SameBitsOnTwoThreads(CaseOf({3, 4, 2, 150, 150, 20, 12}, o)));
}

// As micro-batches of any size have it.
TEST(BlockedAttention, ASampleHasTheSameBitsInAnyBatch) {
  for (const bool packed : {false, true}) {
    Options o;
    o.packed = packed;
    o.causal = true;
    const Sizes s{3, 4, 2, 70, 90, 20, 12};
    const OpCase whole = CaseOf(s, o);
    const auto all = RunOp(whole);
    ASSERT_TRUE(all.ok()) << all.status();
    const std::vector<float> y = ValuesOf((*all)[0]);
    const size_t share = y.size() / 3;
    for (int64_t b = 0; b < 3; ++b) {
      OpCase one = whole;
      for (Tensor& input : one.inputs) {
        std::vector<float> values = ValuesOf(input);
        const int64_t part = static_cast<int64_t>(values.size()) / 3;
        std::vector<int64_t> dims(input.shape().dims().begin(), input.shape().dims().end());
        dims[0] = 1;
        input = Tensor::Of<float>(Shape(dims), std::vector<float>(values.begin() + b * part,
                                                                  values.begin() + (b + 1) * part));
      }
      const auto alone = RunOp(one);
      ASSERT_TRUE(alone.ok()) << alone.status();
      EXPECT_EQ(
          std::memcmp(ValuesOf((*alone)[0]).data(), y.data() + b * share, share * sizeof(float)),
          0);
    }
  }
}

size_t WorkspaceOf(const OpCase& op_case) {
  const SingleNodeGraph single = MakeSingleNodeGraph(op_case);
  const auto node = ConcreteNode::Create(single.graph->node(single.node), op_case.inputs, {});
  EXPECT_TRUE(node.ok()) << node.status();
  const auto kernel = node->Prepare();
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  return (*kernel)->workspace_bytes();
}

TEST(BlockedAttention, TheWorkspaceDoesNotGrowWithScores) {
  Options o;
  o.causal = true;
  o.packed = true;
  o.mask = MaskKind::kChoice;
  const size_t few = WorkspaceOf(CaseOf({1, 2, 2, 100, 100, 16, 16}, o));
  EXPECT_EQ(WorkspaceOf(CaseOf({1, 2, 2, 1000, 1000, 16, 16}, o)), few);
  // Keys and values with their past are put together.
  Options past;
  past.past = 24;
  const size_t short_past = WorkspaceOf(CaseOf({1, 1, 1, 1000, 1000, 16, 16}, past));
  const size_t long_past = WorkspaceOf(CaseOf({1, 1, 1, 2024, 2024, 16, 16}, past));
  EXPECT_LE(long_past, 2 * short_past);
}

}  // namespace
}  // namespace weft::testing
