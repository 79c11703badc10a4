// Convolutions and their gradients on the emulated GPU.
#include <string>
#include <utility>
#include <vector>

#include "graph/attribute.h"
#include "gtest/gtest.h"
#include "ops/kernels/cuda/conv/conv_plan.h"
#include "ops/kernels/cuda/conv/conv_product.h"
#include "ops/kernels/cuda/linear/testing/recording_blas_lt.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"
#include "ops/window.h"

namespace weft::testing {
namespace {

const std::string kWeft("ai.weft");
using Ints = std::vector<int64_t>;
const std::vector<DType> kTypes = {DType::kFloat32, DType::kFloat64, DType::kFloat16,
                                   DType::kBfloat16};

Tolerance ToleranceOf(DType dtype) {
  if (dtype == DType::kBfloat16) return {.of_magnitude = 1e-2};
  if (dtype == DType::kFloat16) return {.of_magnitude = 1e-3};
  return {};
}

OpCase ConvCase(Shape x, Shape w, Attributes attributes = {}, bool bias = false,
                DType dtype = DType::kFloat32) {
  OpCase conv{.op = "Conv",
              .attributes = std::move(attributes),
              .inputs = {RandomTensor(x, 1, -1, 1, dtype), RandomTensor(w, 2, -1, 1, dtype)}};
  if (bias) conv.inputs.push_back(RandomTensor({w.dim(0)}, 3, -1, 1, dtype));
  return conv;
}

Shape OutputOf(const OpCase& conv) {
  const auto y = RunOp(conv, Kernels::kReference);
  EXPECT_TRUE(y.ok()) << y.status();
  return y.ok() ? (*y)[0].shape() : Shape();
}

// The gradients of a Conv case: dX, and dW with dB.
OpCase InputGradientOf(const OpCase& conv, DType dtype = DType::kFloat32) {
  const Shape& x = conv.inputs[0].shape();
  const Shape& w = conv.inputs[1].shape();
  OpCase gradient;
  gradient.domain = kWeft;
  gradient.op = "ConvGradInput";
  gradient.attributes = conv.attributes;
  gradient.attributes.Set("kernel_shape", Ints(w.dims().begin() + 2, w.dims().end()));
  gradient.inputs = {RandomTensor(OutputOf(conv), 4, -1, 1, dtype), conv.inputs[1],
                     Int64s(Ints(x.dims().begin(), x.dims().end()))};
  return gradient;
}
OpCase WeightGradientOf(const OpCase& conv, DType dtype = DType::kFloat32) {
  const Shape& w = conv.inputs[1].shape();
  OpCase gradient;
  gradient.domain = kWeft;
  gradient.op = "ConvGradWeights";
  gradient.attributes = conv.attributes;
  gradient.attributes.Set("kernel_shape", Ints(w.dims().begin() + 2, w.dims().end()));
  gradient.inputs = {conv.inputs[0], RandomTensor(OutputOf(conv), 4, -1, 1, dtype)};
  gradient.outputs = {true, conv.inputs.size() > 2};
  return gradient;
}

void ExpectConvAndGradients(const OpCase& conv, DType dtype = DType::kFloat32) {
  EXPECT_TRUE(CheckOnEmulatedGpu(conv, ToleranceOf(dtype))) << conv.ToString();
  EXPECT_TRUE(CheckOnEmulatedGpu(InputGradientOf(conv, dtype), ToleranceOf(dtype)))
      << conv.ToString();
  EXPECT_TRUE(CheckOnEmulatedGpu(WeightGradientOf(conv, dtype), ToleranceOf(dtype)))
      << conv.ToString();
}

TEST(CudaConvTest, AgreesOnImagesOfOneToThreeAxes) {
  ExpectConvAndGradients(ConvCase({2, 3, 9}, {5, 3, 4}, {}, true));
  ExpectConvAndGradients(ConvCase({2, 3, 7, 6}, {4, 3, 3, 2}, {}, true));
  ExpectConvAndGradients(ConvCase({2, 2, 4, 5, 3}, {3, 2, 2, 3, 2}, {}, true));
}

TEST(CudaConvTest, AgreesWithPadsStridesAndDilations) {
  ExpectConvAndGradients(ConvCase(
      {2, 2, 9, 8}, {3, 2, 3, 2},
      {{"pads", Ints{0, 2, 1, 3}}, {"strides", Ints{3, 2}}, {"dilations", Ints{2, 1}}}, true));
  ExpectConvAndGradients(
      ConvCase({1, 2, 7, 7}, {3, 2, 3, 3}, {{"auto_pad", "SAME_UPPER"}, {"strides", Ints{2, 2}}}));
  // Rows and columns that no window holds.
  ExpectConvAndGradients(ConvCase({1, 2, 8, 9}, {2, 2, 2, 2}, {{"strides", Ints{3, 4}}}));
}

TEST(CudaConvTest, AgreesWithGroups) {
  const Attributes three = {{"group", int64_t{3}}, {"pads", Ints{1, 1, 1, 1}}};
  ExpectConvAndGradients(ConvCase({2, 15, 4, 5}, {12, 5, 3, 3}, three, true));
  // Direct: two channels to two, and one to one.
  ExpectConvAndGradients(ConvCase({2, 6, 4, 5}, {6, 2, 3, 3}, three, true));
  ExpectConvAndGradients(ConvCase({3, 3, 5, 4}, {6, 1, 3, 3},
                                  {{"group", int64_t{3}},
                                   {"pads", Ints{1, 0, 1, 2}},
                                   {"strides", Ints{2, 1}},
                                   {"dilations", Ints{1, 2}}},
                                  true));
}

TEST(CudaConvTest, AgreesWithWindowsOfOneElement) {
  ExpectConvAndGradients(ConvCase({3, 5, 3, 4}, {7, 5, 1, 1}, {}, true));
  ExpectConvAndGradients(ConvCase({3, 10, 3, 4}, {14, 5, 1, 1}, {{"group", int64_t{2}}}));
  ExpectConvAndGradients(ConvCase({2, 5, 5, 4}, {3, 5, 1, 1}, {{"strides", Ints{2, 2}}}));
}

TEST(CudaConvTest, UnfoldsNoWindowsOfOneElement) {
  const OpCase conv = ConvCase({3, 5, 3, 4}, {7, 5, 1, 1});
  EXPECT_TRUE(CheckOnEmulatedGpu(conv));
  if (TestsOnARealGpu()) return;  // it keeps no record of its launches
  std::vector<EmulatedLaunchRecord> launches;
  const auto y = RunOnEmulatedGpu(conv, {}, &launches);
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(launches.size(), 1) << "the product alone";
}

TEST(CudaConvTest, AgreesForAllTypes) {
  for (const DType dtype : kTypes) {
    ExpectConvAndGradients(
        ConvCase({3, 3, 6, 5}, {4, 3, 3, 3}, {{"pads", Ints{1, 1, 1, 1}}}, true, dtype), dtype);
    ExpectConvAndGradients(
        ConvCase({2, 3, 5, 4}, {3, 1, 3, 2}, {{"group", int64_t{3}}}, true, dtype), dtype);
    ExpectConvAndGradients(ConvCase({2, 3, 5, 4}, {4, 3, 1, 1}, {}, true, dtype), dtype);
  }
}

TEST(CudaConvTest, AgreesWithoutElements) {
  EXPECT_TRUE(CheckOnEmulatedGpu(ConvCase({0, 3, 4, 4}, {2, 3, 2, 2}, {}, true)));
  EXPECT_TRUE(CheckOnEmulatedGpu(ConvCase({2, 0, 4, 4}, {2, 0, 2, 2}, {}, true)));
  EXPECT_TRUE(CheckOnEmulatedGpu(ConvCase({2, 3, 4, 4}, {0, 3, 2, 2})));
  OpCase gradient = WeightGradientOf(ConvCase({0, 3, 4, 4}, {2, 3, 2, 2}, {}, true));
  EXPECT_TRUE(CheckOnEmulatedGpu(gradient)) << "sums of nothing are zero";
  EXPECT_TRUE(CheckOnEmulatedGpu(InputGradientOf(ConvCase({2, 3, 4, 4}, {0, 3, 2, 2}))));
}

TEST(CudaConvTest, SumsABiasOverManyElements) {
  const OpCase conv = ConvCase({3, 1, 53, 61}, {2, 1, 1, 1}, {}, true);
  EXPECT_TRUE(CheckOnEmulatedGpu(WeightGradientOf(conv)));
}

TEST(CudaConvTest, RefusesWhatItCannotDo) {
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(ConvCase({1, 1, 2, 2, 2, 2}, {1, 1, 1, 1, 1, 1}),
                                       absl::StatusCode::kUnimplemented,
                                       {"at most 3 image axes, this one has 4"}));
}

TEST(CudaConvTransposeTest, Agrees) {
  const auto transposed = [](Shape x, Shape w, Attributes attributes, int64_t outputs,
                             DType dtype) {
    OpCase op_case = ConvCase(x, w, std::move(attributes), false, dtype);
    op_case.op = "ConvTranspose";
    if (outputs > 0) op_case.inputs.push_back(RandomTensor({outputs}, 3, -1, 1, dtype));
    return op_case;
  };
  for (const DType dtype : kTypes) {
    const Tolerance tolerance = ToleranceOf(dtype);
    EXPECT_TRUE(
        CheckOnEmulatedGpu(transposed({2, 3, 4, 5}, {3, 4, 3, 2}, {}, 4, dtype), tolerance));
    EXPECT_TRUE(
        CheckOnEmulatedGpu(transposed({2, 3, 4, 5}, {3, 4, 1, 1}, {}, 4, dtype), tolerance));
  }
  const Attributes strided = {{"strides", Ints{2, 3}},
                              {"pads", Ints{1, 0, 0, 1}},
                              {"output_padding", Ints{1, 2}},
                              {"dilations", Ints{2, 1}}};
  EXPECT_TRUE(
      CheckOnEmulatedGpu(transposed({2, 3, 4, 3}, {3, 4, 3, 2}, strided, 4, DType::kFloat32)));
  const Attributes groups = {{"group", int64_t{2}}, {"strides", Ints{2}}};
  EXPECT_TRUE(CheckOnEmulatedGpu(transposed({2, 10, 4}, {10, 4, 3}, groups, 8, DType::kFloat32)));
  EXPECT_TRUE(CheckOnEmulatedGpu(transposed({2, 4, 4}, {4, 2, 3}, groups, 4, DType::kFloat32)));
  EXPECT_TRUE(CheckOnEmulatedGpu(transposed({1, 2, 3, 3}, {2, 1, 2, 2},
                                            {{"output_shape", Ints{7, 5}}, {"strides", Ints{2, 2}}},
                                            0, DType::kFloat32)));
}

// ---- Pieces that a small limit forces.

absl::StatusOr<cuda::ConvPlan> PlanFor(const PrepareContext& context, const Shape& large,
                                       const Shape& weights, const Shape& small) {
  const auto window = WindowSpec::Create(context.attributes(),
                                         Ints(weights.dims().begin() + 2, weights.dims().end()));
  if (!window.ok()) return window.status();
  const auto axes = window->ResolveAll(large);
  if (!axes.ok()) return axes.status();
  return cuda::PlanConv(context, large, weights, small, *axes);
}

// Kernels whose pieces are of at most `limits`.
KernelRegistry LimitedRegistry(cuda::ConvLimits limits) {
  KernelRegistry registry;
  EXPECT_TRUE(
      registry
          .Register("", "Conv", DeviceKind::kCuda,
                    [limits](const PrepareContext& c) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                      auto plan = PlanFor(c, c.InputShape(0), c.InputShape(1), c.OutputShape(0));
                      if (!plan.ok()) return plan.status();
                      return cuda::MakeSmallProduct(c, *plan, c.HasInput(2), limits);
                    })
          .ok());
  EXPECT_TRUE(
      registry
          .Register(kWeft, "ConvGradInput", DeviceKind::kCuda,
                    [limits](const PrepareContext& c) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                      auto plan = PlanFor(c, c.OutputShape(0), c.InputShape(1), c.InputShape(0));
                      if (!plan.ok()) return plan.status();
                      return cuda::MakeLargeProduct(c, *plan, false, limits);
                    })
          .ok());
  EXPECT_TRUE(
      registry
          .Register(kWeft, "ConvGradWeights", DeviceKind::kCuda,
                    [limits](const PrepareContext& c) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                      auto plan = PlanFor(c, c.InputShape(0), c.OutputShape(0), c.InputShape(1));
                      if (!plan.ok()) return plan.status();
                      return cuda::MakeWeightsProduct(c, *plan, c.HasOutput(1), limits);
                    })
          .ok());
  return registry;
}

void ExpectInPieces(const OpCase& op_case, const cuda::ConvLimits& limits, DType dtype,
                    size_t min_calls) {
  const KernelRegistry registry = LimitedRegistry(limits);
  EmulatedRunOptions options;
  options.registry = &registry;
  RecordingBlasLt::Get().TakeCalls();
  const auto actual = RunOnEmulatedGpu(op_case, options);
  ASSERT_TRUE(actual.ok()) << actual.status();
  const size_t calls = RecordingBlasLt::Get().TakeCalls().size();
  EXPECT_TRUE(TestsOnARealGpu() || calls >= min_calls) << op_case.ToString();
  const auto expected = RunOp(InFloat64(op_case), Kernels::kReference);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (size_t i = 0; i < actual->size(); ++i) {
    if (!(*actual)[i].valid()) continue;
    EXPECT_TRUE(TensorsNear((*actual)[i], (*expected)[i], ToleranceOf(dtype), /*any_dtype=*/true));
  }
}

TEST(CudaConvPiecesTest, AgreesInPiecesOfSamplesAndOfOneSample) {
  // Columns of a sample: 3 * 9 * 30 elements; of a channel 270, of a position 27.
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    const OpCase conv =
        ConvCase({5, 3, 6, 5}, {4, 3, 3, 3}, {{"pads", Ints{1, 1, 1, 1}}}, true, dtype);
    const OpCase inputs = InputGradientOf(conv, dtype);
    const OpCase weights = WeightGradientOf(conv, dtype);
    const cuda::ConvLimits two_samples = {.column_bytes = 7000, .partial_bytes = 900};
    ExpectInPieces(conv, two_samples, dtype, 2);
    ExpectInPieces(inputs, two_samples, dtype, 3);
    ExpectInPieces(weights, two_samples, dtype, 3);
    const cuda::ConvLimits part_of_sample = {.column_bytes = 1100, .partial_bytes = 1};
    ExpectInPieces(conv, part_of_sample, dtype, 10);
    ExpectInPieces(inputs, part_of_sample, dtype, 15);
    ExpectInPieces(weights, part_of_sample, dtype, 10);
  }
}

TEST(CudaConvPiecesTest, AgreesInPiecesOfGroups) {
  const OpCase conv = ConvCase({3, 6, 5, 4}, {10, 3, 2, 2}, {{"group", int64_t{2}}}, true);
  const cuda::ConvLimits limits = {.column_bytes = 500, .partial_bytes = 1000};
  ExpectInPieces(conv, limits, DType::kFloat32, 6);
  ExpectInPieces(InputGradientOf(conv), limits, DType::kFloat32, 9);
  ExpectInPieces(WeightGradientOf(conv), limits, DType::kFloat32, 9);
}

TEST(CutPiecesTest, TakesWholeSamplesWhereTheyFit) {
  const auto pieces = cuda::CutPieces(5, 10, 4, 85, 5);
  ASSERT_EQ(pieces.size(), 3);
  EXPECT_EQ(pieces[0].samples, 2);
  EXPECT_EQ(pieces[2].first_sample, 4);
  EXPECT_EQ(pieces[2].samples, 1);
  EXPECT_EQ(pieces[2].count, 10);
  EXPECT_EQ(cuda::CutPieces(5, 10, 4, 1000, 3)[0].samples, 3) << "at most max_samples";
}

TEST(CutPiecesTest, CutsASampleThatDoesNotFit) {
  const auto pieces = cuda::CutPieces(2, 10, 4, 17, 2);
  ASSERT_EQ(pieces.size(), 6);
  EXPECT_EQ(pieces[2].first, 8);
  EXPECT_EQ(pieces[2].count, 2);
  EXPECT_EQ(pieces[3].first_sample, 1);
  EXPECT_EQ(cuda::CutPieces(1, 3, 4, 1, 1).size(), 3) << "one at a time, however small the limit";
}

}  // namespace
}  // namespace weft::testing
