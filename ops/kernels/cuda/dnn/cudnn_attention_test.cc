// Attention by ops/kernels/cuda/dnn/cudnn_attention.cc, on functions of our own in place of the
// library's, which compute what its graph means.
#include <cudnn.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "ops/kernels/cuda/dnn/cudnn_library.h"
#include "ops/kernels/cuda/dnn/testing/fake_cudnn.h"
#include "tensor/dtype.h"

namespace weft::cuda {
namespace {

// Two samples, four heads that share two of keys, packed: rows hold all heads.
class CudnnAttentionTest : public ::testing::Test {
 protected:
  void SetUp() override { fake = &library_; }
  void TearDown() override { EXPECT_EQ(library_.alive, 0) << "objects that nobody destroyed"; }

  static std::unique_ptr<Dnn> Open() {
    CudnnOptions options;
    options.workspace_limit = 1000;
    auto opened = OpenCudnn(FakeSymbol, std::move(options));
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *std::move(opened);
  }
  static constexpr int64_t kSamples = 2, kHeads = 4, kShared = 2, kRows = 3, kKeys = 5, kSize = 8;
  // 24 rows in float32, and what aligns the plan's own.
  static constexpr size_t kStatisticsBytes = 256;

  static DnnTensor PackedHeads(int64_t heads, int64_t rows) {
    return {{kSamples, heads, rows, kSize}, {rows * heads * kSize, kSize, heads * kSize, 1}};
  }
  static AttentionSpec Spec(bool causal) {
    AttentionSpec spec;
    spec.query = spec.result = PackedHeads(kHeads, kRows);
    spec.key = spec.value = PackedHeads(kShared, kKeys);
    spec.scale = 0.5;
    spec.causal = causal;
    return spec;
  }
  static std::vector<Bfloat16> Numbers(const DnnTensor& tensor, int seed) {
    std::vector<Bfloat16> numbers;
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      numbers.push_back(ToBfloat16(static_cast<float>((i * 37 + seed * 11) % 29 - 14) / 8));
    }
    return numbers;
  }
  // The definition, in double.
  static double Expected(const AttentionSpec& spec, const std::vector<Bfloat16>& q,
                         const std::vector<Bfloat16>& k, const std::vector<Bfloat16>& v, int64_t b,
                         int64_t h, int64_t row, int64_t element) {
    const auto at = [&](const std::vector<Bfloat16>& data, const DnnTensor& t, int64_t head,
                        int64_t r, int64_t e) {
      return static_cast<double>(ToFloat(
          data[b * t.strides[0] + head * t.strides[1] + r * t.strides[2] + e * t.strides[3]]));
    };
    double sum = 0, weighted = 0;
    for (int64_t j = 0; j < (spec.causal ? row + 1 : kKeys); ++j) {
      double score = 0;
      for (int64_t e = 0; e < kSize; ++e) {
        score += at(q, spec.query, h, row, e) * at(k, spec.key, h / 2, j, e);
      }
      const double power = std::exp(spec.scale * score);
      sum += power;
      weighted += power * at(v, spec.value, h / 2, j, element);
    }
    return weighted / sum;
  }
  void ExpectAttention(const AttentionSpec& spec) {
    const std::unique_ptr<Dnn> dnn = Open();
    const auto prepared = dnn->PrepareAttention(spec);
    ASSERT_TRUE(prepared.ok()) << prepared.status();
    const auto q = Numbers(spec.query, 1), k = Numbers(spec.key, 2), v = Numbers(spec.value, 3);
    std::vector<Bfloat16> y(static_cast<size_t>(spec.result.num_elements()));
    alignas(256) char workspace[kStatisticsBytes];
    ASSERT_EQ((*prepared)->workspace_bytes(), sizeof(workspace));
    ASSERT_TRUE(
        (*prepared)->Run({q.data(), k.data(), v.data(), y.data()}, workspace, {&library_}).ok());
    EXPECT_EQ(library_.workspace, nullptr) << "the plan wants none";
    for (int64_t b = 0; b < kSamples; ++b)
      for (int64_t h = 0; h < kHeads; ++h)
        for (int64_t r = 0; r < kRows; ++r)
          for (int64_t e = 0; e < kSize; ++e) {
            const auto& strides = spec.result.strides;
            const float actual = ToFloat(y[b * strides[0] + h * strides[1] + r * strides[2] + e]);
            EXPECT_NEAR(actual, Expected(spec, q, k, v, b, h, r, e), 0.03) << h << " " << r;
          }
  }

  FakeDnn library_;
};

TEST_F(CudnnAttentionTest, IsTheSoftmaxOfScaledProducts) { ExpectAttention(Spec(false)); }

TEST_F(CudnnAttentionTest, OfCausalRowsSeesNoLaterKeys) {
  ExpectAttention(Spec(true));
  EXPECT_EQ(library_.never, -std::numeric_limits<float>::infinity());
  library_.version = 90900;
  ExpectAttention(Spec(true));
  EXPECT_EQ(library_.never, std::numeric_limits<float>::lowest());
}

TEST_F(CudnnAttentionTest, PassesOverEnginesThatGiveOtherBits) {
  library_.engines = {{{CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}},
                      {{CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, 1001},
                      {{CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, 1000}};
  library_.proposals[CUDNN_HEUR_MODE_A] = {0, 1, 2};
  const std::unique_ptr<Dnn> dnn = Open();
  const auto prepared = dnn->PrepareAttention(Spec(true));
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ((*prepared)->workspace_bytes(), kStatisticsBytes + 1000);
}

TEST_F(CudnnAttentionTest, SaysWhyThereIsNoPlan) {
  library_.engines = {{{}, 0, false}};
  const std::unique_ptr<Dnn> dnn = Open();
  const auto prepared = dnn->PrepareAttention(Spec(true));
  EXPECT_EQ(prepared.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(absl::StrContains(prepared.status().message(),
                                "no plan for bfloat16 attention of [2,4,3,8] to [2,2,5,8], causal"))
      << prepared.status();
}

}  // namespace
}  // namespace weft::cuda
