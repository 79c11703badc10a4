// Convolutions by ops/kernels/cuda/dnn/cudnn_library.cc, on functions of our own in place of the
// library's.
#include "ops/kernels/cuda/dnn/cudnn_library.h"

#include <cudnn.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "ops/kernels/cuda/dnn/testing/fake_cudnn.h"

namespace weft::cuda {
namespace {

class CudnnLibraryTest : public ::testing::Test {
 protected:
  void SetUp() override { fake = &library_; }
  void TearDown() override { EXPECT_EQ(library_.alive, 0) << "objects that nobody destroyed"; }

  static std::unique_ptr<Dnn> Open(size_t workspace_limit = 1000) {
    CudnnOptions options;
    options.workspace_limit = workspace_limit;
    auto opened = OpenCudnn(FakeSymbol, std::move(options));
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *std::move(opened);
  }
  // A row of `large` elements and two taps.
  static ConvolutionSpec Row(ConvolutionResult result, int64_t large, int64_t pad, int64_t stride) {
    ConvolutionSpec spec;
    spec.result = result;
    spec.large = DnnTensor::Dense({1, 1, 1, large});
    spec.weights = DnnTensor::Dense({1, 1, 1, 2});
    spec.small = DnnTensor::Dense({1, 1, 1, (large + 2 * pad - 2) / stride + 1});
    spec.pads = {0, pad};
    spec.strides = {1, stride};
    spec.dilations = {1, 1};
    return spec;
  }
  // The engine that a row is computed by; -1 with the error's text.
  int EngineOf(const ConvolutionSpec& spec, std::string* error = nullptr) {
    const std::unique_ptr<Dnn> dnn = Open();
    const auto prepared = dnn->Prepare(spec);
    if (!prepared.ok()) {
      EXPECT_EQ(prepared.status().code(), absl::StatusCode::kUnimplemented) << prepared.status();
      if (error != nullptr) *error = std::string(prepared.status().message());
      return -1;
    }
    float x[8] = {}, w[8] = {}, y[8] = {};
    EXPECT_TRUE((*prepared)->Run({x, w, y, nullptr}, nullptr, {&library_}).ok());
    return library_.executed_engine;
  }

  FakeDnn library_;
};

// [1, 2, 3] with a zero on each side, times [10, 1]: 0*10+1, 1*10+2, 2*10+3, 3*10+0.
TEST_F(CudnnLibraryTest, ComputesTheSmallImage) {
  const std::unique_ptr<Dnn> dnn = Open();
  const auto prepared = dnn->Prepare(Row(ConvolutionResult::kSmallImage, 3, 1, 1));
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  float x[] = {1, 2, 3}, w[] = {10, 1}, y[] = {7, 7, 7, 7};
  ASSERT_TRUE((*prepared)->Run({x, w, y, nullptr}, nullptr, {&library_}).ok());
  EXPECT_EQ((std::vector<float>(y, y + 4)), (std::vector<float>{1, 12, 23, 30}));
  EXPECT_EQ(library_.stream, reinterpret_cast<cudaStream_t>(&library_));
}

// Element 0 is tap 0 of y[0]; element 1 tap 1 of y[0]; and so on: stride 2 without overlap.
TEST_F(CudnnLibraryTest, ComputesTheLargeImage) {
  const std::unique_ptr<Dnn> dnn = Open();
  const auto prepared = dnn->Prepare(Row(ConvolutionResult::kLargeImage, 4, 0, 2));
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  float x[] = {7, 7, 7, 7}, w[] = {10, 1}, y[] = {2, 3};
  ASSERT_TRUE((*prepared)->Run({x, w, y, nullptr}, nullptr, {&library_}).ok());
  EXPECT_EQ((std::vector<float>(x, x + 4)), (std::vector<float>{20, 2, 30, 3}));
}

// dW[0] = 1*5 + 2*7, dW[1] = 2*5 + 3*7.
TEST_F(CudnnLibraryTest, ComputesTheWeights) {
  const std::unique_ptr<Dnn> dnn = Open();
  const auto prepared = dnn->Prepare(Row(ConvolutionResult::kWeights, 3, 0, 1));
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  float x[] = {1, 2, 3}, w[] = {9, 9}, y[] = {5, 7};
  ASSERT_TRUE((*prepared)->Run({x, w, y, nullptr}, nullptr, {&library_}).ok());
  EXPECT_EQ((std::vector<float>(w, w + 2)), (std::vector<float>{19, 31}));
}

TEST_F(CudnnLibraryTest, AddsABiasOrToTheResult) {
  const std::unique_ptr<Dnn> dnn = Open();
  ConvolutionSpec spec = Row(ConvolutionResult::kSmallImage, 3, 0, 1);
  spec.has_bias = true;
  const auto with_bias = dnn->Prepare(spec);
  ASSERT_TRUE(with_bias.ok()) << with_bias.status();
  float x[] = {1, 2, 3}, w[] = {10, 1}, y[] = {7, 8}, bias[] = {0.5};
  ASSERT_TRUE((*with_bias)->Run({x, w, y, bias}, nullptr, {&library_}).ok());
  EXPECT_EQ((std::vector<float>(y, y + 2)), (std::vector<float>{12.5, 23.5}));
  spec.has_bias = false;
  spec.adds = true;
  const auto adding = dnn->Prepare(spec);
  ASSERT_TRUE(adding.ok()) << adding.status();
  ASSERT_TRUE((*adding)->Run({x, w, y, nullptr}, nullptr, {&library_}).ok());
  EXPECT_EQ((std::vector<float>(y, y + 2)), (std::vector<float>{24.5, 46.5}));
  spec.result = ConvolutionResult::kLargeImage;
  spec.adds = false;
  spec.has_bias = true;
  const auto large = dnn->Prepare(spec);
  ASSERT_TRUE(large.ok()) << large.status();
  float dy[] = {1, 2};
  ASSERT_TRUE((*large)->Run({x, w, dy, bias}, nullptr, {&library_}).ok());
  EXPECT_EQ((std::vector<float>(x, x + 3)), (std::vector<float>{10.5, 21.5, 2.5}));
}

TEST_F(CudnnLibraryTest, PassesOverEnginesThatGiveOtherBits) {
  library_.engines = {{{CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}},
                      {{CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP, CUDNN_NUMERICAL_NOTE_WINOGRAD}},
                      {{CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}},
                      {{CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}}};
  library_.proposals[CUDNN_HEUR_MODE_A] = {0, 1, 2, 3};
  EXPECT_EQ(EngineOf(Row(ConvolutionResult::kWeights, 3, 0, 1)), 3);
}

TEST_F(CudnnLibraryTest, TakesTensorCoresOfFloat32OnlyForTf32) {
  library_.engines = {
      {{CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}}, {}};
  library_.proposals[CUDNN_HEUR_MODE_A] = {0, 1};
  ConvolutionSpec spec = Row(ConvolutionResult::kSmallImage, 3, 0, 1);
  EXPECT_EQ(EngineOf(spec), 1);
  spec.tf32 = true;
  EXPECT_EQ(EngineOf(spec), 0);
}

TEST_F(CudnnLibraryTest, TakesTensorCoresOf16Bits) {
  library_.engines = {{{CUDNN_NUMERICAL_NOTE_TENSOR_CORE}}};
  ConvolutionSpec spec = Row(ConvolutionResult::kSmallImage, 3, 0, 1);
  spec.dtype = DType::kBfloat16;
  const std::unique_ptr<Dnn> dnn = Open();
  const auto prepared = dnn->Prepare(spec);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  const auto operations = asked_graph->All<cudnnBackendDescriptor_t>(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  const FakeDescriptor& x = Of(operations.at(0)).Part(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X);
  EXPECT_EQ(x.One<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE), CUDNN_DATA_BFLOAT16);
  EXPECT_EQ(Of(operations.at(0))
                .Part(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC)
                .One<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE),
            CUDNN_DATA_FLOAT);
}

TEST_F(CudnnLibraryTest, PassesOverPlansThatFailOrWantTooMuch) {
  library_.engines = {{{}, 0, false}, {{}, 1001}, {{}, 1000}};
  library_.proposals = {{CUDNN_HEUR_MODE_A, {0, 1}}, {CUDNN_HEUR_MODE_FALLBACK, {2}}};
  EXPECT_EQ(EngineOf(Row(ConvolutionResult::kSmallImage, 3, 0, 1)), 2);
  const std::unique_ptr<Dnn> dnn = Open();
  EXPECT_EQ((*dnn->Prepare(Row(ConvolutionResult::kSmallImage, 3, 0, 1)))->workspace_bytes(), 1000);
}

TEST_F(CudnnLibraryTest, SaysWhyThereIsNoPlan) {
  library_.engines = {{{}, 0, false}};
  std::string error;
  EXPECT_EQ(EngineOf(Row(ConvolutionResult::kSmallImage, 3, 0, 1), &error), -1);
  EXPECT_TRUE(absl::StrContains(error, "cuDNN has no plan for float32 Conv [1,1,1,3]")) << error;
  EXPECT_TRUE(absl::StrContains(error, "cuDNN fails to finalize a plan: a status (3000), why"))
      << error;
  library_.graph_status = CUDNN_STATUS_NOT_SUPPORTED;
  EXPECT_EQ(EngineOf(Row(ConvolutionResult::kSmallImage, 3, 0, 1)), -1);
}

TEST_F(CudnnLibraryTest, DescribesAddressesOncePerPlace) {
  library_.engines = {{{}, 512}};
  const std::unique_ptr<Dnn> dnn = Open();
  const auto prepared = dnn->Prepare(Row(ConvolutionResult::kSmallImage, 3, 0, 1));
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  float x[] = {1, 2, 3}, w[] = {10, 1}, y[2], other[2];
  alignas(256) char workspace[512];
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE((*prepared)->Run({x, w, y, nullptr}, workspace, {&library_}).ok());
  }
  EXPECT_EQ(library_.packs, 1);
  EXPECT_EQ(library_.workspace, workspace);
  ASSERT_TRUE((*prepared)->Run({x, w, other, nullptr}, workspace, {&library_}).ok());
  EXPECT_EQ(library_.packs, 2);
  EXPECT_EQ(other[1], 23);
}

TEST_F(CudnnLibraryTest, SaysWhatTheLibraryRefuses) {
  library_.create_status = CUDNN_STATUS_NOT_INITIALIZED;
  const auto opened = OpenCudnn(FakeSymbol);
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(absl::StrContains(opened.status().message(), "cuDNN fails to start: a status"));
  library_.create_status = CUDNN_STATUS_SUCCESS;
  const auto lacking = OpenCudnn([](const char* name) -> absl::StatusOr<void*> {
    if (std::string(name) == "cudnnBackendExecute")
      return absl::FailedPreconditionError("lacks it");
    return FakeSymbol(name);
  });
  EXPECT_EQ(lacking.status().message(), "lacks it");
  const std::unique_ptr<Dnn> dnn = Open();
  const auto prepared = dnn->Prepare(Row(ConvolutionResult::kSmallImage, 3, 0, 1));
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  library_.execute_status = CUDNN_STATUS_NOT_SUPPORTED;
  float x[3] = {}, w[2] = {}, y[2] = {};
  const absl::Status run = (*prepared)->Run({x, w, y, nullptr}, nullptr, {&library_});
  EXPECT_EQ(run.code(), absl::StatusCode::kInternal) << "a step cannot go another way";
  EXPECT_TRUE(absl::StrContains(run.message(), "cuDNN fails to compute float32 Conv")) << run;
}

}  // namespace
}  // namespace weft::cuda
