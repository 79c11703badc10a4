// Normalizations by ops/kernels/cuda/dnn/cudnn_normalization.cc, on functions of our own in place
// of the library's, which compute what its graph means.
#include <cudnn.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "ops/kernels/cuda/dnn/cudnn_library.h"
#include "ops/kernels/cuda/dnn/testing/fake_cudnn.h"
#include "tensor/dtype.h"

namespace weft::cuda {
namespace {

constexpr NormalizationKind kKinds[] = {NormalizationKind::kBatch, NormalizationKind::kLayer,
                                        NormalizationKind::kRms};

// Numbers of float32 or bfloat16, where an operand has to lie.
class Values {
 public:
  Values(DType dtype, int64_t count, int seed) : dtype_(dtype), count_(count) {
    memory_.resize(static_cast<size_t>(count) * 4 + 16);
    for (int64_t i = 0; i < count; ++i) {
      Set(i, static_cast<double>((i * 37 + seed * 11) % 29 - 14) / 8);
    }
  }
  Values(const Values& other) : Values(other.dtype_, other.count_, 0) {
    for (int64_t i = 0; i < count_; ++i) Set(i, other.Get(i));
  }
  Values& operator=(const Values&) = delete;

  char* data() {
    const auto over = reinterpret_cast<uintptr_t>(memory_.data()) % 16;
    return memory_.data() + (over == 0 ? 0 : 16 - over);
  }
  const char* data() const { return const_cast<Values*>(this)->data(); }
  double Get(int64_t i) const {
    if (dtype_ == DType::kFloat32) return reinterpret_cast<const float*>(data())[i];
    return ToFloat(reinterpret_cast<const Bfloat16*>(data())[i]);
  }
  void Set(int64_t i, double value) {
    if (dtype_ == DType::kFloat32) {
      reinterpret_cast<float*>(data())[i] = static_cast<float>(value);
    } else {
      reinterpret_cast<Bfloat16*>(data())[i] = ToBfloat16(static_cast<float>(value));
    }
  }
  float* floats() { return reinterpret_cast<float*>(data()); }

 private:
  const DType dtype_;
  const int64_t count_;
  std::vector<char> memory_;
};

class CudnnNormalizationTest : public ::testing::Test {
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
  static NormalizationSpec Spec(NormalizationKind kind, DType dtype, bool is_gradient) {
    NormalizationSpec spec;
    spec.kind = kind;
    spec.dtype = dtype;
    spec.is_gradient = is_gradient;
    const bool is_batch = kind == NormalizationKind::kBatch;
    spec.parameter_dtype = is_batch ? DType::kFloat32 : dtype;
    spec.x = is_batch ? DnnTensor::Dense({2, 3, 2, 5}) : DnnTensor::Rows(4, 6);
    spec.epsilon = 0.25;
    return spec;
  }
  // Of element `i`: its scale, and its mean.
  static int64_t ScaleOf(const NormalizationSpec& spec, int64_t i) {
    return spec.kind == NormalizationKind::kBatch ? i / 10 % 3 : i % 6;
  }
  static int64_t GroupOf(const NormalizationSpec& spec, int64_t i) {
    return spec.kind == NormalizationKind::kBatch ? i / 10 % 3 : i / 6;
  }

  // Mean, inverse and y by the definition, in double.
  struct Normal {
    std::vector<double> mean, inverse, y;
  };
  static Normal Expected(const NormalizationSpec& spec, const Values& x, const Values& scale,
                         const Values& bias) {
    const int64_t count = spec.x.num_elements();
    const auto groups = static_cast<size_t>(spec.statistics().num_elements());
    const double each = static_cast<double>(count) / static_cast<double>(groups);
    Normal normal{std::vector<double>(groups), std::vector<double>(groups), {}};
    if (spec.has_mean()) {
      for (int64_t i = 0; i < count; ++i) normal.mean[GroupOf(spec, i)] += x.Get(i) / each;
    }
    std::vector<double> variances(groups);
    for (int64_t i = 0; i < count; ++i) {
      variances[GroupOf(spec, i)] += std::pow(x.Get(i) - normal.mean[GroupOf(spec, i)], 2) / each;
    }
    for (size_t g = 0; g < groups; ++g) {
      normal.inverse[g] = 1 / std::sqrt(variances[g] + spec.epsilon);
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t g = GroupOf(spec, i);
      const double n = (x.Get(i) - normal.mean[g]) * normal.inverse[g];
      const double shift = spec.has_mean() ? bias.Get(ScaleOf(spec, i)) : 0;
      normal.y.push_back(n * scale.Get(ScaleOf(spec, i)) + shift);
    }
    return normal;
  }

  FakeDnn library_;
};

TEST_F(CudnnNormalizationTest, ComputesResultsAndStatistics) {
  for (const NormalizationKind kind : kKinds) {
    for (const DType dtype : {DType::kFloat32, DType::kBfloat16}) {
      const NormalizationSpec spec = Spec(kind, dtype, false);
      const int64_t count = spec.x.num_elements(), scales = spec.x.dims[1];
      Values x(dtype, count, 1), scale(spec.parameter_dtype, scales, 2),
          bias(spec.parameter_dtype, scales, 3), y(dtype, count, 0);
      Values mean(DType::kFloat32, 6, 0), inverse(DType::kFloat32, 6, 0);
      const std::unique_ptr<Dnn> dnn = Open();
      const auto prepared = dnn->PrepareNormalization(spec);
      ASSERT_TRUE(prepared.ok()) << prepared.status();
      NormalizationOperands operands;
      operands.x = x.data();
      operands.scale = scale.data();
      if (spec.has_mean()) {
        operands.bias = bias.data();
        operands.mean = mean.floats();
      }
      operands.inverse = inverse.floats();
      operands.result = y.data();
      ASSERT_TRUE((*prepared)->Run(operands, nullptr, {&library_}).ok());
      EXPECT_EQ(library_.stream, reinterpret_cast<cudaStream_t>(&library_));
      const Normal expected = Expected(spec, x, scale, bias);
      for (size_t g = 0; g < expected.mean.size(); ++g) {
        if (spec.has_mean()) {
          EXPECT_NEAR(mean.Get(static_cast<int64_t>(g)), expected.mean[g], 1e-6);
        }
        EXPECT_NEAR(inverse.Get(static_cast<int64_t>(g)), expected.inverse[g], 1e-6);
      }
      for (int64_t i = 0; i < count; ++i) {
        EXPECT_NEAR(y.Get(i), expected.y[i], dtype == DType::kFloat32 ? 1e-5 : 0.03)
            << spec.ToString() << " " << i;
      }
    }
  }
}

// With L = sum(dy y): derivatives of L by differences of the definition.
TEST_F(CudnnNormalizationTest, GradientsAreDerivativesOfResults) {
  for (const NormalizationKind kind : kKinds) {
    const NormalizationSpec spec = Spec(kind, DType::kFloat32, true);
    const int64_t count = spec.x.num_elements(), scales = spec.x.dims[1];
    Values x(DType::kFloat32, count, 1), scale(DType::kFloat32, scales, 2),
        bias(DType::kFloat32, scales, 3), dy(DType::kFloat32, count, 4),
        dx(DType::kFloat32, count, 0);
    Values dscale(DType::kFloat32, scales, 0), dbias(DType::kFloat32, scales, 0),
        mean(DType::kFloat32, 6, 0), inverse(DType::kFloat32, 6, 0);
    const Normal normal = Expected(spec, x, scale, bias);
    for (size_t g = 0; g < normal.mean.size(); ++g) {
      mean.Set(static_cast<int64_t>(g), normal.mean[g]);
      inverse.Set(static_cast<int64_t>(g), normal.inverse[g]);
    }
    const std::unique_ptr<Dnn> dnn = Open();
    const auto prepared = dnn->PrepareNormalization(spec);
    ASSERT_TRUE(prepared.ok()) << prepared.status();
    NormalizationOperands operands;
    operands.x = x.data();
    operands.scale = scale.data();
    operands.dy = dy.data();
    operands.inverse = inverse.floats();
    operands.result = dx.data();
    operands.dscale = dscale.data();
    if (spec.has_mean()) {
      operands.mean = mean.floats();
      operands.dbias = dbias.data();
    }
    ASSERT_TRUE((*prepared)->Run(operands, nullptr, {&library_}).ok());

    const auto loss = [&] {
      const Normal now = Expected(spec, x, scale, bias);
      double sum = 0;
      for (int64_t i = 0; i < count; ++i) sum += dy.Get(i) * now.y[i];
      return sum;
    };
    // Steps that float32 has.
    const auto slope = [&](Values& of, int64_t i) {
      constexpr double kStep = 1.0 / 1024;
      const double kept = of.Get(i);
      of.Set(i, kept + kStep);
      const double above = loss();
      of.Set(i, kept - kStep);
      const double below = loss();
      of.Set(i, kept);
      return (above - below) / (2 * kStep);
    };
    for (int64_t i = 0; i < count; ++i) {
      EXPECT_NEAR(dx.Get(i), slope(x, i), 1e-4) << spec.ToString() << " " << i;
    }
    for (int64_t i = 0; i < scales; ++i) {
      EXPECT_NEAR(dscale.Get(i), slope(scale, i), 1e-4) << spec.ToString() << " " << i;
      if (spec.has_mean()) {
        EXPECT_NEAR(dbias.Get(i), slope(bias, i), 1e-4) << spec.ToString() << " " << i;
      }
    }
  }
}

TEST_F(CudnnNormalizationTest, ReadsStatisticsThatAreGiven) {
  const NormalizationSpec spec = Spec(NormalizationKind::kLayer, DType::kFloat32, true);
  Values x(DType::kFloat32, 24, 1), scale(DType::kFloat32, 6, 2), dy(DType::kFloat32, 24, 4),
      dx(DType::kFloat32, 24, 0), dscale(DType::kFloat32, 6, 0), dbias(DType::kFloat32, 6, 0),
      mean(DType::kFloat32, 4, 5), inverse(DType::kFloat32, 4, 6);
  const std::unique_ptr<Dnn> dnn = Open();
  const auto prepared = dnn->PrepareNormalization(spec);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  NormalizationOperands operands;
  operands.x = x.data();
  operands.scale = scale.data();
  operands.dy = dy.data();
  operands.mean = mean.floats();
  operands.inverse = inverse.floats();
  operands.result = dx.data();
  operands.dscale = dscale.data();
  operands.dbias = dbias.data();
  ASSERT_TRUE((*prepared)->Run(operands, nullptr, {&library_}).ok());
  for (int64_t c = 0; c < 6; ++c) {
    double sum = 0;
    for (int64_t r = 0; r < 4; ++r) {
      sum += dy.Get(r * 6 + c) * (x.Get(r * 6 + c) - mean.Get(r)) * inverse.Get(r);
    }
    EXPECT_NEAR(dscale.Get(c), sum, 1e-5) << c;
  }
}

TEST_F(CudnnNormalizationTest, PassesOverEnginesThatGiveOtherBits) {
  library_.engines = {{{CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}},
                      {{}, 1001},
                      {{CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}},
                      {{}, 1000}};
  library_.proposals[CUDNN_HEUR_MODE_A] = {0, 1, 2, 3};
  for (const NormalizationKind kind : kKinds) {
    for (const bool is_gradient : {false, true}) {
      const std::unique_ptr<Dnn> dnn = Open();
      const auto prepared = dnn->PrepareNormalization(Spec(kind, DType::kBfloat16, is_gradient));
      ASSERT_TRUE(prepared.ok()) << prepared.status();
      EXPECT_EQ((*prepared)->workspace_bytes(), 1000);
    }
  }
}

TEST_F(CudnnNormalizationTest, SaysWhyThereIsNoPlan) {
  library_.engines = {{{}, 0, false}};
  const std::unique_ptr<Dnn> dnn = Open();
  const auto prepared =
      dnn->PrepareNormalization(Spec(NormalizationKind::kRms, DType::kBfloat16, true));
  EXPECT_EQ(prepared.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(absl::StrContains(prepared.status().message(),
                                "no plan for bfloat16 gradient of RMS normalization of [4,6,1,1]"))
      << prepared.status();
}

}  // namespace
}  // namespace weft::cuda
