#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

const std::string kWeft(kWeftDomain);

struct CudaLossOptions {
  std::string reduction = "mean";
  bool weights = false;
  std::optional<int64_t> ignored = std::nullopt;
  DType dtype = DType::kFloat32;
  bool log_prob = false;
};

Shape LabelShape(const Shape& scores) {
  Shape shape;
  for (int d = 0; d < scores.rank(); ++d) {
    if (d != 1) shape.AddDim(scores.dim(d));
  }
  return shape;
}

// Some labels are ignored. Labels are int32 where there are weights.
OpCase Loss(const char* op, const Shape& scores, const CudaLossOptions& options) {
  const int64_t classes = scores.dim(1);
  Tensor labels =
      RandomTensor(LabelShape(scores), 5, 0, static_cast<double>(classes), DType::kInt64);
  const std::span<int64_t> values = labels.mutable_data<int64_t>();
  for (size_t i = 0; options.ignored.has_value() && i < values.size(); i += 3) {
    values[i] = *options.ignored;
  }
  OpCase op_case{.op = op,
                 .attributes = {{"reduction", options.reduction}},
                 .inputs = {Cast(RandomTensor(scores, 1, -3, 3), options.dtype),
                            Cast(labels, options.weights ? DType::kInt32 : DType::kInt64)}};
  if (options.ignored.has_value()) op_case.attributes.Set("ignore_index", *options.ignored);
  if (options.weights) {
    op_case.inputs.push_back(Cast(RandomTensor({classes}, 2, 0.2, 2), options.dtype));
  }
  if (options.log_prob) op_case.outputs = {true, true};
  return op_case;
}

// The backward kernel of the same case.
OpCase Backward(const std::string& op, const Shape& scores, const CudaLossOptions& options) {
  OpCase op_case = Loss("", scores, options);
  op_case.domain = kWeft;
  op_case.op = op;
  const Shape of_dy = options.reduction == "none" ? LabelShape(scores) : Shape{};
  op_case.inputs.insert(op_case.inputs.begin(),
                        Cast(RandomTensor(of_dy, 8, 0.5, 2), options.dtype));
  return op_case;
}

std::vector<CudaLossOptions> CudaLossCases() {
  std::vector<CudaLossOptions> cases;
  for (const char* reduction : {"none", "sum", "mean"}) {
    for (const bool weights : {false, true}) {
      cases.push_back({reduction, weights, std::nullopt});
      cases.push_back({reduction, weights, weights ? -5 : 2});
    }
  }
  return cases;
}

class CudaLossTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::string Gradient() const {
    return std::string(GetParam()) == "SoftmaxCrossEntropyLoss" ? "SoftmaxCrossEntropyGrad"
                                                                : "NegativeLogLikelihoodGrad";
  }
};

TEST_P(CudaLossTest, AgreesWithTheReference) {
  for (const CudaLossOptions& options : CudaLossCases()) {
    for (const Shape& shape : {Shape{7, 5}, Shape{3, 5, 2, 3}}) {
      EXPECT_TRUE(CheckOnEmulatedGpu(Loss(GetParam(), shape, options), {}, 1));
      EXPECT_TRUE(CheckOnEmulatedGpu(Backward(Gradient(), shape, options), {}, 1));
    }
  }
}

TEST_P(CudaLossTest, ManyClassesAndManySamples) {
  for (const Shape& shape :
       {Shape{2, 1031}, Shape{3, 512}, Shape{1, 8196}, Shape{301, 4}, Shape{2, 40, 33}}) {
    EXPECT_TRUE(CheckOnEmulatedGpu(Loss(GetParam(), shape, {}), {}, 1));
    EXPECT_TRUE(CheckOnEmulatedGpu(Backward(Gradient(), shape, {}), {}, 1));
  }
  EXPECT_TRUE(CheckOnEmulatedGpu(Loss(GetParam(), {0, 3}, {.reduction = "sum"})));
  EXPECT_TRUE(CheckOnEmulatedGpu(Backward(Gradient(), {0, 3}, {.reduction = "sum"})));
}

TEST_P(CudaLossTest, OtherTypes) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
    for (const Shape& shape : {Shape{4, 8}, Shape{4, 5, 3}}) {
      const CudaLossOptions options{.weights = true, .ignored = 2, .dtype = dtype};
      const Tolerance near{.of_magnitude = dtype == DType::kFloat64 ? 1e-13 : 1e-2};
      EXPECT_TRUE(CheckOnEmulatedGpu(Loss(GetParam(), shape, options), near, 1));
      EXPECT_TRUE(CheckOnEmulatedGpu(Backward(Gradient(), shape, options), near, 1));
    }
  }
}

TEST_P(CudaLossTest, ALabelThatIsNoClassIsAFault) {
  for (const char* reduction : {"none", "mean"}) {
    OpCase op_case = Loss(GetParam(), {3, 4}, {.reduction = reduction});
    op_case.inputs[1].mutable_data<int64_t>()[1] = 4;
    EXPECT_TRUE(ExpectErrorOnEmulatedGpu(op_case, absl::StatusCode::kInvalidArgument,
                                         {"'node': label", "4"}));
    op_case = Backward(Gradient(), {3, 4}, {.reduction = reduction});
    op_case.inputs[2].mutable_data<int64_t>()[1] = -1;
    EXPECT_TRUE(ExpectErrorOnEmulatedGpu(op_case, absl::StatusCode::kInvalidArgument,
                                         {"'node': label", "-1"}));
  }
}

// Rows that begin at any place of a packet, longer than registers hold; few and many chunks.
TEST_P(CudaLossTest, LongRowsOfAnySize) {
  for (const int64_t classes : {2049, 2051}) {
    const Shape shape{5, classes};
    EXPECT_TRUE(CheckOnEmulatedGpu(Loss(GetParam(), shape, {.ignored = 2}), {}, 1));
    EXPECT_TRUE(CheckOnEmulatedGpu(Backward(Gradient(), shape, {.ignored = 2}), {}, 1));
  }
  EXPECT_TRUE(CheckOnEmulatedGpu(Loss(GetParam(), {1, 16395}, {}), {}, 1));
  const CudaLossOptions narrow{.dtype = DType::kBfloat16, .log_prob = false};
  const Tolerance near{.of_magnitude = 1e-2};
  EXPECT_TRUE(CheckOnEmulatedGpu(Loss(GetParam(), {3, 2053}, narrow), near, 1));
  EXPECT_TRUE(CheckOnEmulatedGpu(Backward(Gradient(), {3, 2053}, narrow), near, 1));
  EXPECT_TRUE(
      CheckOnEmulatedGpu(Loss("SoftmaxCrossEntropyLoss", {3, 2051}, {.log_prob = true}), {}, 1));
}

INSTANTIATE_TEST_SUITE_P(Ops, CudaLossTest,
                         ::testing::Values("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"),
                         [](const auto& info) { return std::string(info.param); });

TEST(CudaSoftmaxCrossEntropyLoss, WritesLogProbabilities) {
  for (const Shape& shape : {Shape{7, 5}, Shape{3, 5, 2}, Shape{2, 8}}) {
    EXPECT_TRUE(CheckOnEmulatedGpu(
        Loss("SoftmaxCrossEntropyLoss", shape, {.ignored = 2, .log_prob = true})));
  }
}

TEST(CudaSoftmaxCrossEntropyGrad, IgnoredSamplesGiveZerosWhereAllAre) {
  OpCase op_case = Backward("SoftmaxCrossEntropyGrad", {2, 3}, {.ignored = 1});
  for (int64_t& label : op_case.inputs[2].mutable_data<int64_t>()) label = 1;
  const auto outputs = RunOnEmulatedGpu(op_case);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  for (const float value : outputs->at(0).data<float>()) EXPECT_EQ(value, 0.0f);
}

TEST(CudaLossWeight, SumsTheWeightsOfLabels) {
  const Tensor labels = RandomTensor({3, 700}, 5, 0, 6, DType::kInt64);
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16}) {
    OpCase op_case{
        .domain = kWeft,
        .op = "LossWeight",
        .attributes = {{"dtype", static_cast<int64_t>(dtype)}, {"ignore_index", int64_t{2}}},
        .inputs = {labels}};
    const Tolerance near{.of_magnitude = dtype == DType::kFloat16 ? 1e-3 : 1e-6};
    EXPECT_TRUE(CheckOnEmulatedGpu(op_case, near, 1));
    op_case.inputs.push_back(Cast(RandomTensor({6}, 2, 0.2, 2), dtype));
    EXPECT_TRUE(CheckOnEmulatedGpu(op_case, near, 1));
    op_case.inputs[1] = Cast(RandomTensor({4}, 2, 0.2, 2), dtype);
    EXPECT_TRUE(ExpectErrorOnEmulatedGpu(op_case, absl::StatusCode::kInvalidArgument, {"label"}));
  }
}

TEST(CudaCountCorrect, CountsTheFirstOfTheLargest) {
  for (const Shape& shape : {Shape{40, 3}, Shape{9, 8}, Shape{5, 3, 7}, Shape{700, 2}}) {
    for (const DType labels : {DType::kInt32, DType::kInt64}) {
      EXPECT_TRUE(
          CheckOnEmulatedGpu({.domain = kWeft,
                              .op = "CountCorrect",
                              .inputs = {RandomTensor(shape, 1, 0, 3, DType::kFloat32),
                                         RandomTensor(LabelShape(shape), 2, 0,
                                                      static_cast<double>(shape.dim(1)), labels)}},
                             {.of_magnitude = 0}, 1));
    }
  }
  const Tensor equal = Cast(RandomTensor({50, 4}, 1, 0, 2, DType::kInt64), DType::kBfloat16);
  EXPECT_TRUE(CheckOnEmulatedGpu({.domain = kWeft,
                                  .op = "CountCorrect",
                                  .inputs = {equal, RandomTensor({50}, 2, 0, 4, DType::kInt64)}},
                                 {.of_magnitude = 0}));
}

TEST(CudaSquaredError, SumsMeansAndGradients) {
  for (const Shape& shape : {Shape{}, Shape{7, 5}, Shape{16, 64}, Shape{8209}, Shape{0, 3}}) {
    for (const char* op : {"SquaredErrorSum", "MeanSquaredError"}) {
      if (shape.num_elements() == 0 && std::string(op) == "MeanSquaredError") continue;
      EXPECT_TRUE(CheckOnEmulatedGpu(
          {.domain = kWeft, .op = op, .inputs = {RandomTensor(shape, 1), RandomTensor(shape, 2)}}));
    }
    EXPECT_TRUE(CheckOnEmulatedGpu(
        {.domain = kWeft,
         .op = "SquaredErrorGrad",
         .inputs = {RandomTensor({}, 3, 0.5, 2), RandomTensor(shape, 1), RandomTensor(shape, 2)}}));
  }
  for (const DType dtype : {DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
    const Tensor a = RandomTensor({3, 16}, 1, -1, 1, dtype);
    const Tensor b = RandomTensor({3, 16}, 2, -1, 1, dtype);
    const Tolerance near{.of_magnitude = dtype == DType::kFloat64 ? 1e-13 : 2e-2};
    EXPECT_TRUE(
        CheckOnEmulatedGpu({.domain = kWeft, .op = "MeanSquaredError", .inputs = {a, b}}, near));
    EXPECT_TRUE(CheckOnEmulatedGpu({.domain = kWeft,
                                    .op = "SquaredErrorGrad",
                                    .inputs = {RandomTensor({}, 3, 1, 2, dtype), a, b}},
                                   near));
  }
}

}  // namespace
}  // namespace weft::testing
