#include "tensor/tensor.h"

#include <complex>
#include <cstring>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/device.h"
#include "tensor/host_memory.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A host tensor over the given bytes.
Tensor FromBytes(DType dtype, Shape shape, const std::vector<uint8_t>& bytes) {
  Tensor tensor = Tensor::Allocate(dtype, std::move(shape)).value();
  std::memcpy(tensor.raw_data(), bytes.data(), tensor.bytes());
  return tensor;
}

TEST(TensorTest, HoldsACopyOfItsValues) {
  std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const Tensor tensor = Tensor::Of<float>(Shape{2, 3}, values);
  values[0] = 9;
  EXPECT_EQ(tensor.dtype(), DType::kFloat32);
  EXPECT_EQ(tensor.shape(), (Shape{2, 3}));
  EXPECT_THAT(tensor.data<float>(), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.raw_data()) % kAlignment, 0u);
}

TEST(TensorTest, CopiesShareTheBufferAndClonesDoNot) {
  Tensor tensor = Tensor::Of<int32_t>(Shape{2}, std::vector<int32_t>{1, 2});
  const Tensor copy = tensor;
  const Tensor clone = tensor.Clone().value();
  tensor.mutable_data<int32_t>()[0] = 7;
  EXPECT_THAT(copy.data<int32_t>(), ElementsAre(7, 2));
  EXPECT_THAT(clone.data<int32_t>(), ElementsAre(1, 2));
}

TEST(TensorTest, AllocateRefusesHostileSizes) {
  const absl::Status negative = Tensor::Allocate(DType::kFloat32, Shape{2, -3}).status();
  EXPECT_EQ(negative.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(negative.message(), HasSubstr("dimension 1 of shape [2,-3]"));
  const absl::Status elements = Tensor::Allocate(DType::kInt8, Shape{kMaxDim, kMaxDim}).status();
  EXPECT_EQ(elements.code(), absl::StatusCode::kInvalidArgument);
  const absl::Status bytes =
      Tensor::Allocate(DType::kFloat64, Shape{kMaxDim, int64_t{1} << 22}).status();
  EXPECT_EQ(bytes.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(bytes.message(), HasSubstr("more than 2^63-1 bytes"));
}

TEST(TensorTest, AllocateReportsThatMemoryIsExhausted) {
  const absl::Status status =
      Tensor::Allocate(DType::kInt8, Shape{kMaxDim, int64_t{1} << 21}).status();  // 2 EiB
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("cpu:0 cannot allocate 2305843009213693952 bytes"));
}

TEST(TensorTest, AllocateRefusesTypesWithoutASize) {
  EXPECT_THAT(Tensor::Allocate(DType::kString, Shape{2}).status().message(),
              HasSubstr("dtype string"));
  EXPECT_FALSE(Tensor::Zeros(DType::kInvalid, Shape{2}).ok());
}

TEST(TensorTest, EmptyTensorsWork) {
  const Tensor tensor = Tensor::Zeros(DType::kFloat32, Shape{0, 3}).value();
  EXPECT_EQ(tensor.bytes(), 0u);
  EXPECT_TRUE(tensor.data<float>().empty());
  EXPECT_EQ(tensor.ToString(), "float32[0,3]{}");
  EXPECT_TRUE(BitwiseEqual(tensor, tensor.Clone().value()));
  EXPECT_TRUE(ToDoubles(tensor)->empty());
}

TEST(TensorTest, RowsAreViews) {
  Tensor tensor = Tensor::Of<int64_t>(Shape{3, 2}, std::vector<int64_t>{0, 1, 2, 3, 4, 5});
  Tensor rows = tensor.Rows(1, 3);
  EXPECT_EQ(rows.shape(), (Shape{2, 2}));
  EXPECT_THAT(rows.data<int64_t>(), ElementsAre(2, 3, 4, 5));
  rows.mutable_data<int64_t>()[0] = 9;
  EXPECT_EQ(tensor.data<int64_t>()[2], 9);
  EXPECT_THAT(rows.Rows(1, 2).data<int64_t>(), ElementsAre(4, 5));
  EXPECT_EQ(tensor.Rows(3, 3).num_elements(), 0);
}

TEST(TensorTest, ReshapedIsAView) {
  const Tensor tensor = Tensor::Of<int8_t>(Shape{2, 2}, std::vector<int8_t>{1, 2, 3, 4});
  const Tensor flat = tensor.Reshaped(Shape{4});
  EXPECT_EQ(flat.raw_data(), tensor.raw_data());
  EXPECT_THAT(flat.data<int8_t>(), ElementsAre(1, 2, 3, 4));
}

TEST(TensorTest, AdoptedMemoryKeepsItsOwner) {
  auto bytes = std::make_shared<const std::vector<int16_t>>(std::vector<int16_t>{5, 6, 7});
  std::weak_ptr<const std::vector<int16_t>> watched = bytes;
  {
    const Tensor tensor(DType::kInt16, Shape{3}, AdoptHostMemory(bytes->data(), 6, bytes));
    bytes.reset();
    EXPECT_FALSE(watched.expired());
    EXPECT_TRUE(tensor.is_on_host());
    EXPECT_EQ(&tensor.buffer()->device(), &CpuDevice());
    EXPECT_THAT(tensor.data<int16_t>(), ElementsAre(5, 6, 7));
  }
  EXPECT_TRUE(watched.expired());
}

TEST(TensorTest, MisalignedMemoryCanBeRead) {
  auto bytes = std::make_shared<std::vector<uint8_t>>(9, uint8_t{0});
  const float values[] = {1.5f, -2.0f};
  std::memcpy(bytes->data() + 1, values, sizeof(values));
  const Tensor tensor(DType::kFloat32, Shape{2}, AdoptHostMemory(bytes->data() + 1, 8, bytes));
  EXPECT_THAT(*ToDoubles(tensor), ElementsAre(1.5, -2.0));
  const Tensor clone = tensor.Clone().value();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(clone.raw_data()) % kAlignment, 0u);
  EXPECT_TRUE(BitwiseEqual(tensor, clone));
}

TEST(TensorTest, PrintsEveryKindOfElement) {
  EXPECT_EQ(Tensor().ToString(), "invalid tensor");
  EXPECT_EQ(Tensor::Of<float>(Shape{2, 2}, std::vector<float>{1, 2.5, -3, 0.1f}).ToString(2),
            "float32[2,2]{1, 2.5, ...}");
  EXPECT_EQ(Tensor::Scalar(0.1f).ToString(), "float32[]{0.1}");
  EXPECT_EQ(Tensor::Scalar(std::numeric_limits<uint64_t>::max()).ToString(),
            "uint64[]{18446744073709551615}");
  EXPECT_EQ(Tensor::Scalar(std::numeric_limits<int64_t>::min()).ToString(),
            "int64[]{-9223372036854775808}");
  EXPECT_EQ(Tensor::OfStrings(Shape{2}, {"a", "b\n\""}).ToString(),
            "string[2]{\"a\", \"b\\n\\\"\"}");
  EXPECT_EQ(FromBytes(DType::kInt4, Shape{3}, {0xF1, 0x08}).ToString(), "int4[3]{1, -1, -8}");
  EXPECT_EQ(Tensor::Scalar(true).ToString(0), "bool[]{...}");
  const std::complex<float> complex(1.5f, -2.0f);
  std::vector<uint8_t> bytes(sizeof(complex));
  std::memcpy(bytes.data(), &complex, sizeof(complex));
  EXPECT_EQ(FromBytes(DType::kComplex64, Shape{}, bytes).ToString(), "complex64[]{(1.5, -2)}");
}

TEST(TensorTest, BitwiseEqualLooksAtBits) {
  const Tensor zero = Tensor::Scalar(0.0f);
  EXPECT_FALSE(BitwiseEqual(zero, Tensor::Scalar(-0.0f)));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(BitwiseEqual(Tensor::Scalar(nan), Tensor::Scalar(nan)));
  EXPECT_FALSE(BitwiseEqual(zero, Tensor::Scalar(int32_t{0})));
  EXPECT_FALSE(BitwiseEqual(zero, zero.Reshaped(Shape{1})));
  EXPECT_TRUE(BitwiseEqual(Tensor::OfStrings(Shape{1}, {"a"}), Tensor::OfStrings(Shape{1}, {"a"})));
  EXPECT_FALSE(
      BitwiseEqual(Tensor::OfStrings(Shape{1}, {"a"}), Tensor::OfStrings(Shape{1}, {"b"})));
}

TEST(TensorTest, BitwiseEqualIgnoresThePaddingOfPackedElements) {
  const Tensor a = FromBytes(DType::kUint4, Shape{3}, {0x21, 0x03});
  EXPECT_TRUE(BitwiseEqual(a, FromBytes(DType::kUint4, Shape{3}, {0x21, 0xF3})));
  EXPECT_FALSE(BitwiseEqual(a, FromBytes(DType::kUint4, Shape{3}, {0x21, 0x02})));
  const Tensor b = FromBytes(DType::kUint2, Shape{1}, {0x01});
  EXPECT_TRUE(BitwiseEqual(b, FromBytes(DType::kUint2, Shape{1}, {0xFD})));
  EXPECT_FALSE(BitwiseEqual(b, FromBytes(DType::kUint2, Shape{1}, {0x02})));
}

TEST(TensorDeathTest, BrokenRequirementsEndWithAMessage) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Tensor tensor = Tensor::Of<float>(Shape{2}, std::vector<float>{1, 2});
  EXPECT_DEATH((void)tensor.data<double>(), "float32\\[2\\] read as float64");
  EXPECT_DEATH((void)tensor.strings(), "read as string");
  EXPECT_DEATH((void)tensor.Reshaped(Shape{3}), "shape \\[2\\] reshaped to \\[3\\]");
  EXPECT_DEATH((void)tensor.Rows(1, 3), "rows 1 to 3 of a tensor float32\\[2\\]");
  EXPECT_DEATH(Tensor(DType::kFloat32, Shape{2}, tensor.buffer(), 4),
               "at offset 4 does not fit into a buffer of 8 bytes");
  EXPECT_DEATH(Tensor(DType::kFloat32, Shape{1}, nullptr), "without a buffer");
  EXPECT_DEATH((void)FromBytes(DType::kInt4, Shape{2, 2}, {1, 2}).Rows(0, 1), "rows 0 to 1");
}

}  // namespace
}  // namespace weft
