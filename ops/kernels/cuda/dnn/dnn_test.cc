// What convolutions are checked for before a library sees them.
#include "ops/kernels/cuda/dnn/dnn.h"

#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace weft::cuda {
namespace {

// 3x3 windows over 9x8 with padding 1, in two groups.
ConvolutionSpec GroupedSpec() {
  ConvolutionSpec spec;
  spec.large = DnnTensor::Dense({2, 6, 9, 8});
  spec.weights = DnnTensor::Dense({4, 3, 3, 3});
  spec.small = DnnTensor::Dense({2, 4, 5, 4});
  spec.groups = 2;
  spec.pads = {1, 1};
  spec.strides = {2, 2};
  spec.dilations = {1, 1};
  return spec;
}

std::string FaultOf(const ConvolutionSpec& spec) {
  const absl::Status status = CheckConvolution(spec);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  return std::string(status.message());
}

TEST(DnnTensorTest, IsDenseInRowMajorOrder) {
  const DnnTensor tensor = DnnTensor::Dense({2, 3, 5, 7});
  EXPECT_EQ(tensor.strides, (std::vector<int64_t>{105, 35, 7, 1}));
  EXPECT_EQ(tensor.num_elements(), 210);
  EXPECT_EQ(tensor.span(), 210);
  EXPECT_EQ((DnnTensor{{2, 3}, {10, 2}}.span()), 15) << "1 * 10 + 2 * 2 is the last element";
}

TEST(CheckConvolutionTest, TakesWhatFits) {
  EXPECT_TRUE(CheckConvolution(GroupedSpec()).ok()) << CheckConvolution(GroupedSpec());
  EXPECT_EQ(GroupedSpec().ToString(), "float32 Conv [2,6,9,8] * [4,3,3,3] = [2,4,5,4] in 2 groups");
}

TEST(CheckConvolutionTest, NamesWhatDoesNotFit) {
  ConvolutionSpec spec = GroupedSpec();
  spec.dtype = DType::kFloat64;
  EXPECT_NE(FaultOf(spec).find("this element type"), std::string::npos);
  spec = GroupedSpec();
  spec.small = DnnTensor::Dense({2, 4, 5, 5});
  EXPECT_NE(FaultOf(spec).find("an image size that its windows do not give"), std::string::npos);
  spec = GroupedSpec();
  spec.groups = 3;
  EXPECT_NE(FaultOf(spec).find("channels that do not fit"), std::string::npos);
  spec = GroupedSpec();
  spec.large = DnnTensor::Dense({0, 6, 9, 8});
  EXPECT_NE(FaultOf(spec).find("no elements"), std::string::npos);
  spec = GroupedSpec();
  spec.pads = {1};
  EXPECT_NE(FaultOf(spec).find("other than its image axes"), std::string::npos);
  spec = GroupedSpec();
  spec.has_bias = spec.adds = true;
  EXPECT_NE(FaultOf(spec).find("a bias beside an addend"), std::string::npos);
  spec = GroupedSpec();
  spec.dtype = DType::kFloat16;
  spec.tf32 = true;
  EXPECT_NE(FaultOf(spec).find("TF32 in 16 bits"), std::string::npos);
}

TEST(CheckConvolutionTest, RefusesOperandsBeyond32Bits) {
  ConvolutionSpec spec = GroupedSpec();
  spec.large = DnnTensor::Dense({1 << 26, 6, 9, 8});
  spec.small = DnnTensor::Dense({1 << 26, 4, 5, 4});
  EXPECT_EQ(CheckConvolution(spec).code(), absl::StatusCode::kUnimplemented);
}

// Four heads of 16 that share two of keys.
AttentionSpec SharedHeadsSpec() {
  AttentionSpec spec;
  spec.query = DnnTensor::Dense({2, 4, 7, 16});
  spec.key = DnnTensor::Dense({2, 2, 9, 16});
  spec.value = DnnTensor::Dense({2, 2, 9, 8});
  spec.result = DnnTensor::Dense({2, 4, 7, 8});
  return spec;
}

TEST(CheckAttentionTest, TakesWhatFits) {
  AttentionSpec spec = SharedHeadsSpec();
  EXPECT_TRUE(CheckAttention(spec).ok()) << CheckAttention(spec);
  spec.causal = true;
  EXPECT_EQ(spec.ToString(), "bfloat16 attention of [2,4,7,16] to [2,2,9,16], causal");
}

TEST(CheckAttentionTest, NamesWhatDoesNotFit) {
  const auto fault = [](const AttentionSpec& spec) {
    const absl::Status status = CheckAttention(spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    return std::string(status.message());
  };
  AttentionSpec spec = SharedHeadsSpec();
  spec.key = DnnTensor::Dense({2, 3, 9, 16});
  EXPECT_NE(fault(spec).find("heads that do not share keys evenly"), std::string::npos);
  spec = SharedHeadsSpec();
  spec.value = DnnTensor::Dense({2, 2, 8, 8});
  EXPECT_NE(fault(spec).find("rows or sizes that do not fit"), std::string::npos);
  spec = SharedHeadsSpec();
  spec.result = DnnTensor::Dense({1, 4, 7, 8});
  EXPECT_NE(fault(spec).find("different samples"), std::string::npos);
  spec = SharedHeadsSpec();
  spec.query.strides[3] = 2;
  EXPECT_NE(fault(spec).find("elements of a row that lie apart"), std::string::npos);
}

TEST(CheckAttentionTest, LeavesOtherTypesAndSizesToOthers) {
  AttentionSpec spec = SharedHeadsSpec();
  spec.dtype = DType::kFloat32;
  EXPECT_EQ(CheckAttention(spec).code(), absl::StatusCode::kUnimplemented);
  spec = SharedHeadsSpec();
  spec.value = DnnTensor::Dense({2, 2, 9, 12});
  spec.result = DnnTensor::Dense({2, 4, 7, 12});
  EXPECT_EQ(CheckAttention(spec).code(), absl::StatusCode::kUnimplemented);
  spec = SharedHeadsSpec();
  spec.query.strides[2] = 20;
  EXPECT_EQ(CheckAttention(spec).code(), absl::StatusCode::kUnimplemented);
}

NormalizationSpec ChannelsSpec() {
  NormalizationSpec spec;
  spec.kind = NormalizationKind::kBatch;
  spec.x = DnnTensor::Dense({2, 3, 5, 7});
  return spec;
}
NormalizationSpec RowsSpec() {
  NormalizationSpec spec;
  spec.dtype = spec.parameter_dtype = DType::kBfloat16;
  spec.x = DnnTensor::Rows(9, 16);
  return spec;
}

TEST(CheckNormalizationTest, TakesWhatFits) {
  NormalizationSpec spec = ChannelsSpec();
  EXPECT_TRUE(CheckNormalization(spec).ok()) << CheckNormalization(spec);
  EXPECT_EQ(spec.ToString(), "float32 batch normalization of [2,3,5,7]");
  EXPECT_EQ(spec.statistics().dims, (std::vector<int64_t>{1, 3, 1, 1}));
  spec = RowsSpec();
  EXPECT_TRUE(CheckNormalization(spec).ok()) << CheckNormalization(spec);
  EXPECT_EQ(spec.x.strides, (std::vector<int64_t>{16, 1, 16, 16}));
  EXPECT_EQ(spec.x.span(), 9 * 16);
  EXPECT_EQ(spec.statistics().dims, (std::vector<int64_t>{9, 1, 1, 1}));
  EXPECT_EQ(spec.parameters().dims, (std::vector<int64_t>{1, 16, 1, 1}));
  spec.kind = NormalizationKind::kRms;
  spec.is_gradient = true;
  EXPECT_TRUE(CheckNormalization(spec).ok()) << CheckNormalization(spec);
  EXPECT_EQ(spec.ToString(), "bfloat16 gradient of RMS normalization of [9,16,1,1]");
}

TEST(CheckNormalizationTest, NamesWhatDoesNotFit) {
  const auto fault = [](const NormalizationSpec& spec) {
    const absl::Status status = CheckNormalization(spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    return std::string(status.message());
  };
  NormalizationSpec spec = ChannelsSpec();
  spec.dtype = DType::kFloat64;
  EXPECT_NE(fault(spec).find("this element type"), std::string::npos);
  spec = ChannelsSpec();
  spec.dtype = spec.parameter_dtype = DType::kBfloat16;
  EXPECT_NE(fault(spec).find("scales of this type"), std::string::npos) << "of batches: float32";
  spec = RowsSpec();
  spec.parameter_dtype = DType::kFloat16;
  EXPECT_NE(fault(spec).find("scales of this type"), std::string::npos);
  spec = RowsSpec();
  spec.x = DnnTensor::Dense({9, 16, 2, 1});
  EXPECT_NE(fault(spec).find("rows of images"), std::string::npos);
  spec = RowsSpec();
  spec.x.strides = {32, 2, 32, 32};
  EXPECT_NE(fault(spec).find("elements of a row that lie apart"), std::string::npos);
  spec = RowsSpec();
  spec.x = DnnTensor::Dense({9, 16, 1, 1, 1});
  EXPECT_NE(fault(spec).find("another rank than 4"), std::string::npos);
  spec = RowsSpec();
  spec.epsilon = -1;
  EXPECT_NE(fault(spec).find("an epsilon"), std::string::npos);
}

TEST(CheckNormalizationTest, RefusesOperandsBeyond32Bits) {
  NormalizationSpec spec = RowsSpec();
  spec.x = DnnTensor::Rows(1 << 27, 16);
  EXPECT_EQ(CheckNormalization(spec).code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace weft::cuda
