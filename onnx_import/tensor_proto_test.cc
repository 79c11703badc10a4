#include "onnx_import/tensor_proto.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx_import/codec/wire.pb.h"
#include "platform/testing/fake_file_system.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Value RoundTrip(const Value& value) {
  const auto parsed = ParseValue(SerializeValue("v", value), value.kind());
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->name, "v");
  return parsed->value;
}

// Bytes 1, 0, 3, 0, ... of every dtype come back; 1 and 0 so that they are bools, too.
TEST(TensorProto, KeepsEveryDType) {
  for (int number = 1; number < kDTypeCount; ++number) {
    const DType dtype = static_cast<DType>(number);
    if (dtype == DType::kString) continue;
    SCOPED_TRACE(std::string(DTypeName(dtype)));
    Tensor tensor = *Tensor::Zeros(dtype, Shape{3, 5});
    for (size_t i = 0; i < tensor.bytes(); i += 2) static_cast<char*>(tensor.raw_data())[i] = 1;
    EXPECT_TRUE(BitwiseEqual(RoundTrip(tensor).tensor(), tensor));
  }
}

TEST(TensorProto, KeepsStringsSequencesAndOptionals) {
  const Tensor strings = Tensor::OfStrings(Shape{2}, {"a", std::string("\0b", 2)});
  EXPECT_TRUE(BitwiseEqual(RoundTrip(strings).tensor(), strings));
  const Value sequence = Value::Sequence(
      {Value::Sequence({Tensor::Scalar<float>(1)}), Value::Sequence({Tensor::Scalar<float>(2)})});
  EXPECT_EQ(RoundTrip(sequence).ToString(), sequence.ToString());
  const Value full = Value::Optional(std::make_shared<const Value>(sequence));
  EXPECT_EQ(RoundTrip(full).ToString(), full.ToString());
  EXPECT_FALSE(RoundTrip(Value::Optional(nullptr)).has_value());
}

onnx::TensorProto Proto(DType dtype, int64_t elements) {
  onnx::TensorProto proto;
  proto.set_data_type(static_cast<int>(dtype));
  proto.add_dims(elements);
  return proto;
}

absl::StatusOr<Tensor> Parse(const onnx::TensorProto& proto) {
  const auto value = ParseValue(proto.SerializeAsString(), ValueKind::kTensor);
  if (!value.ok()) return value.status();
  return value->value.tensor();
}

TEST(TensorProto, ReadsTypedFields) {
  onnx::TensorProto int16 = Proto(DType::kInt16, 2);
  int16.add_int32_data(-3);
  int16.add_int32_data(300);
  EXPECT_THAT(Parse(int16)->data<int16_t>(), ElementsAre(-3, 300));
  onnx::TensorProto uint32 = Proto(DType::kUint32, 1);
  uint32.add_uint64_data(4'000'000'000);
  EXPECT_THAT(Parse(uint32)->data<uint32_t>(), ElementsAre(4'000'000'000));
  onnx::TensorProto boolean = Proto(DType::kBool, 2);
  boolean.add_int32_data(0);
  boolean.add_int32_data(1);
  EXPECT_THAT(Parse(boolean)->data<bool>(), ElementsAre(false, true));
  onnx::TensorProto half = Proto(DType::kFloat16, 1);
  half.add_int32_data(0x3c00);
  EXPECT_THAT(*ToDoubles(*Parse(half)), ElementsAre(1.0));
  // Of 6 bits each entry is one element; 4-bit entries hold two.
  onnx::TensorProto six = Proto(DType::kFloat6E3M2, 3);
  for (const int code : {0x1F, 0x04, 0x3F}) six.add_int32_data(code);
  EXPECT_THAT(*ToDoubles(*Parse(six)), ElementsAre(28, 0.25, -28));
  onnx::TensorProto complex = Proto(DType::kComplex64, 1);
  complex.add_float_data(1);
  complex.add_float_data(-2);
  EXPECT_EQ(Parse(complex)->ToString(), "complex64[1]{(1, -2)}");
}

// Two 4-bit elements a byte, the first in the low half; three of them take two bytes.
TEST(TensorProto, ReadsPackedTypedFields) {
  onnx::TensorProto int4 = Proto(DType::kInt4, 3);
  int4.add_int32_data(0x21);
  int4.add_int32_data(0x0f);
  EXPECT_THAT(*ToInt64s(*Parse(int4)), ElementsAre(1, 2, -1));
  int4.add_int32_data(0);
  EXPECT_THAT(Parse(int4).status().message(),
              HasSubstr("int32_data has 3 elements, expected 2 for int4[3]"));
}

TEST(TensorProto, MakesOddBoolsWhole) {
  onnx::TensorProto proto = Proto(DType::kBool, 2);
  proto.set_raw_data(std::string("\x07\x00", 2));
  const Tensor tensor = *Parse(proto);
  EXPECT_EQ(static_cast<const uint8_t*>(tensor.raw_data())[0], 1);
}

TEST(TensorProto, RefusesElementsOutOfRange) {
  onnx::TensorProto int8 = Proto(DType::kInt8, 1);
  int8.add_int32_data(200);
  EXPECT_EQ(Parse(int8).status().message(),
            "int32_data[0] is 200, expected -128 to 127 for int8[1]");
  onnx::TensorProto uint32 = Proto(DType::kUint32, 1);
  uint32.add_uint64_data(uint64_t{1} << 32);
  EXPECT_THAT(Parse(uint32).status().message(), HasSubstr("too large for uint32[1]"));
}

TEST(TensorProto, RefusesClaimsWithoutAllocating) {
  onnx::TensorProto huge = Proto(DType::kFloat32, int64_t{1} << 39);
  huge.add_float_data(1);
  EXPECT_THAT(Parse(huge).status().message(), HasSubstr("float_data has 1 elements, expected"));
}

TEST(TensorProto, RefusesMaps) {
  onnx::SequenceProto proto;
  proto.set_elem_type(onnx::SequenceProto::MAP);
  const auto value = ParseValue(proto.SerializeAsString(), ValueKind::kSequence);
  EXPECT_TRUE(absl::IsUnimplemented(value.status())) << value.status();
}

TEST(ReadValueFile, NamesFileAndValue) {
  FakeFileSystem files;
  onnx::TensorProto proto = Proto(DType::kFloat32, 2);
  proto.set_name("x");
  ASSERT_TRUE(files.WriteFileAtomically("/input_0.pb", proto.SerializeAsString()).ok());
  EXPECT_THAT(ReadValueFile(files, "/input_0.pb", ValueKind::kTensor).status().message(),
              AllOf(HasSubstr("value file '/input_0.pb': value 'x': float32[2] has no data")));
}

TEST(ReadValueFile, TakesUnsignedIntegersForTheFloatsTheyHold) {
  FakeFileSystem files;
  const std::vector<uint16_t> ones = {0x3f80, 0xbf80};
  const std::string bytes = SerializeValue("x", Tensor::Of<uint16_t>(Shape{2}, ones));
  ASSERT_TRUE(files.WriteFileAtomically("/input_0.pb", bytes).ok());
  const auto read = [&files](DType dtype) {
    return ReadValueFile(files, "/input_0.pb", ValueType{ValueKind::kTensor, dtype, {}})
        ->value.tensor();
  };
  EXPECT_THAT(*ToDoubles(read(DType::kBfloat16)), ElementsAre(1, -1));
  EXPECT_EQ(read(DType::kFloat32).dtype(), DType::kUint16);
  EXPECT_EQ(read(DType::kFloat8E5M2).dtype(), DType::kUint16);
}

}  // namespace
}  // namespace weft::testing
