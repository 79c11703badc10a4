// The gradient of attention by ops/kernels/cuda/dnn/cudnn_attention_gradient.cc, on functions of
// our own in place of the library's, which compute what its graph means.
#include <cudnn.h>

#include <cmath>
#include <cstdint>
#include <functional>
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

constexpr int64_t kRowCount = 3, kKeyCount = 5, kHeadSize = 8, kSampleCount = 2;

// An operand in bfloat16, and the same numbers in double.
struct Numbers {
  explicit Numbers(const DnnTensor& of, int seed = 0)
      : layout(of), small(static_cast<size_t>(of.num_elements())), wide(small.size()) {
    for (size_t i = 0; i < small.size(); ++i) {
      const auto spread = static_cast<int>((i * 37 + static_cast<size_t>(seed) * 11) % 29);
      small[i] = ToBfloat16(static_cast<float>(seed == 0 ? 0 : spread - 14) / 8);
      wide[i] = ToFloat(small[i]);
    }
  }
  double At(int64_t b, int64_t h, int64_t row, int64_t element) const {
    const auto& s = layout.strides;
    return wide[static_cast<size_t>(b * s[0] + h * s[1] + row * s[2] + element * s[3])];
  }

  DnnTensor layout;
  std::vector<Bfloat16> small;
  std::vector<double> wide;
};

class CudnnAttentionGradientTest : public ::testing::Test {
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
  // Packed: rows hold all heads.
  static DnnTensor Packed(int64_t heads, int64_t rows) {
    return {{kSampleCount, heads, rows, kHeadSize},
            {rows * heads * kHeadSize, kHeadSize, heads * kHeadSize, 1}};
  }
  static AttentionSpec Spec(int64_t heads, int64_t shared, bool causal, bool packed) {
    AttentionSpec spec;
    spec.query = spec.result = packed
                                   ? Packed(heads, kRowCount)
                                   : DnnTensor::Dense({kSampleCount, heads, kRowCount, kHeadSize});
    spec.key = spec.value = packed ? Packed(shared, kKeyCount)
                                   : DnnTensor::Dense({kSampleCount, shared, kKeyCount, kHeadSize});
    spec.scale = 0.5;
    spec.causal = causal;
    return spec;
  }

  // The sum of slopes times the results of the definition, in double.
  static double Loss(const AttentionSpec& spec, const Numbers& q, const Numbers& k,
                     const Numbers& v, const Numbers& slopes) {
    const int64_t heads = spec.query.dims[1], group = heads / spec.key.dims[1];
    double loss = 0;
    for (int64_t b = 0; b < kSampleCount; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t row = 0; row < kRowCount; ++row) {
          double powers = 0, weighted = 0;
          for (int64_t j = 0; j < (spec.causal ? row + 1 : kKeyCount); ++j) {
            double score = 0, along = 0;
            for (int64_t e = 0; e < kHeadSize; ++e) {
              score += q.At(b, h, row, e) * k.At(b, h / group, j, e);
              along += slopes.At(b, h, row, e) * v.At(b, h / group, j, e);
            }
            const double power = std::exp(spec.scale * score);
            powers += power;
            weighted += power * along;
          }
          loss += weighted / powers;
        }
    return loss;
  }
  // Of bfloat16 results: each is rounded, and so are probabilities and slopes of scores before.
  static void ExpectDerivative(const Numbers& gradient, Numbers& of,
                               const std::function<double()>& loss, const char* name) {
    constexpr double kStep = 1e-4;
    for (size_t i = 0; i < of.wide.size(); ++i) {
      const double kept = of.wide[i];
      of.wide[i] = kept + kStep;
      const double above = loss();
      of.wide[i] = kept - kStep;
      const double below = loss();
      of.wide[i] = kept;
      EXPECT_NEAR(ToFloat(gradient.small[i]), (above - below) / (2 * kStep), 0.03)
          << name << " " << i;
    }
  }
  void ExpectGradients(const AttentionSpec& spec) {
    Numbers q(spec.query, 1), k(spec.key, 2), v(spec.value, 3), dy(spec.result, 4);
    Numbers y(spec.result), dq(spec.query), dk(spec.key), dv(spec.value);
    std::vector<float> log_sums(static_cast<size_t>(spec.query.num_elements() / kHeadSize));
    alignas(256) char workspace[1024];
    const std::unique_ptr<Dnn> dnn = Open();
    {
      const auto forward = dnn->PrepareAttention(spec);
      ASSERT_TRUE(forward.ok()) << forward.status();
      ASSERT_LE((*forward)->workspace_bytes(), sizeof(workspace));
      ASSERT_TRUE((*forward)
                      ->Run({q.small.data(), k.small.data(), v.small.data(), y.small.data(),
                             log_sums.data()},
                            workspace, {&library_})
                      .ok());
    }
    const auto backward = dnn->PrepareAttentionGradient(spec);
    ASSERT_TRUE(backward.ok()) << backward.status();
    ASSERT_LE((*backward)->workspace_bytes(), sizeof(workspace));
    AttentionGradientOperands operands;
    operands.query = q.small.data();
    operands.key = k.small.data();
    operands.value = v.small.data();
    operands.result = y.small.data();
    operands.log_sums = log_sums.data();
    operands.dresult = dy.small.data();
    operands.dquery = dq.small.data();
    operands.dkey = dk.small.data();
    operands.dvalue = dv.small.data();
    ASSERT_TRUE((*backward)->Run(operands, workspace, {&library_}).ok());
    const auto loss = [&] { return Loss(spec, q, k, v, dy); };
    ExpectDerivative(dq, q, loss, "query");
    ExpectDerivative(dk, k, loss, "key");
    ExpectDerivative(dv, v, loss, "value");
  }

  FakeDnn library_;
};

TEST_F(CudnnAttentionGradientTest, IsTheDerivativeOfAttention) {
  for (const bool causal : {false, true}) {
    for (const bool packed : {false, true}) {
      ExpectGradients(Spec(2, 2, causal, packed));
    }
  }
}

TEST_F(CudnnAttentionGradientTest, SumsOverHeadsThatShareKeys) {
  for (const bool causal : {false, true}) {
    for (const bool packed : {false, true}) {
      ExpectGradients(Spec(4, 2, causal, packed));
    }
  }
  ExpectGradients(Spec(3, 1, true, true));
}

TEST_F(CudnnAttentionGradientTest, GivesLogarithmsOfSums) {
  const AttentionSpec spec = Spec(2, 2, true, true);
  Numbers q(spec.query, 1), k(spec.key, 2), v(spec.value, 3), y(spec.result);
  std::vector<float> log_sums(static_cast<size_t>(spec.query.num_elements() / kHeadSize));
  alignas(256) char workspace[1024];
  const std::unique_ptr<Dnn> dnn = Open();
  const auto forward = dnn->PrepareAttention(spec);
  ASSERT_TRUE(forward.ok()) << forward.status();
  ASSERT_TRUE(
      (*forward)
          ->Run({q.small.data(), k.small.data(), v.small.data(), y.small.data(), log_sums.data()},
                workspace, {&library_})
          .ok());
  // Of sample 1, head 1, row 2.
  double powers = 0;
  for (int64_t j = 0; j < 3; ++j) {
    double score = 0;
    for (int64_t e = 0; e < kHeadSize; ++e) score += q.At(1, 1, 2, e) * k.At(1, 1, j, e);
    powers += std::exp(0.5 * score);
  }
  EXPECT_NEAR(log_sums[(1 * 2 + 1) * kRowCount + 2], std::log(powers), 1e-5);
}

TEST_F(CudnnAttentionGradientTest, PassesOverEnginesThatGiveOtherBits) {
  library_.engines = {{{CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}}, {{}, 1001}, {{}, 1000}};
  library_.proposals[CUDNN_HEUR_MODE_A] = {0, 1, 2};
  const std::unique_ptr<Dnn> dnn = Open();
  const auto prepared = dnn->PrepareAttentionGradient(Spec(2, 2, true, true));
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ((*prepared)->workspace_bytes(), 256 + 1000) << "the sums of rows lie in front";
}

TEST_F(CudnnAttentionGradientTest, IsNotAskedForWhereTheLibraryIsWrong) {
  const std::unique_ptr<Dnn> dnn = Open();
  AttentionSpec spec = Spec(2, 2, true, false);
  library_.version = 91501;
  const auto prepared = dnn->PrepareAttentionGradient(spec);
  EXPECT_EQ(prepared.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(absl::StrContains(prepared.status().message(), "multiples of 128 keys"))
      << prepared.status();
  spec.key = spec.value = DnnTensor::Dense({kSampleCount, 2, 256, kHeadSize});
  EXPECT_TRUE(dnn->PrepareAttentionGradient(spec).ok());
}

TEST_F(CudnnAttentionGradientTest, SaysWhyThereIsNoPlan) {
  library_.engines = {{{}, 0, false}};
  const std::unique_ptr<Dnn> dnn = Open();
  const auto prepared = dnn->PrepareAttentionGradient(Spec(4, 2, true, false));
  EXPECT_EQ(prepared.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(absl::StrContains(prepared.status().message(),
                                "no plan for the gradient of bfloat16 attention of [2,4,3,8]"))
      << prepared.status();
}

}  // namespace
}  // namespace weft::cuda
