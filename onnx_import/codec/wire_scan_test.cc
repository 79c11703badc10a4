#include "onnx_import/codec/wire_scan.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/codec/wire_reader.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

absl::Status Scan(const std::string& bytes, const WireLimits& limits = {}) {
  return ScanWire(bytes, onnx::TensorProto(), limits);
}
std::string Text(const absl::Status& status) { return std::string(status.message()); }

TEST(ScanWire, TakesWhatProtobufWrites) {
  onnx::TensorProto tensor;
  tensor.set_name("w");
  tensor.add_dims(-1);
  tensor.add_float_data(0.5f);
  tensor.set_raw_data("bytes");
  EXPECT_TRUE(Scan(tensor.SerializeAsString()).ok()) << Scan(tensor.SerializeAsString());
}

TEST(ScanWire, NamesTheByteWhereAFileEnds) {
  onnx::TensorProto tensor;
  tensor.set_name("weight");
  std::string bytes = tensor.SerializeAsString();
  bytes.pop_back();
  EXPECT_THAT(Text(Scan(bytes)), HasSubstr("not a whole ONNX file: at byte "));
  EXPECT_THAT(Text(Scan(bytes)), HasSubstr("claims 6 bytes where 5 are left"));
}

TEST(ScanWire, NamesAFieldOfAnotherWireType) {
  std::string bytes;
  AppendVarintField(onnx::TensorProto::kNameFieldNumber, 1, bytes);
  EXPECT_THAT(Text(Scan(bytes)), HasSubstr("field TensorProto.name has wire type 0, expected 2"));
}

TEST(ScanWire, UnknownFieldsAreTakenAndOurOwnRefused) {
  std::string later;
  AppendBytesField(17, "of a later version", later);
  AppendVarintField(5000, 1, later);
  EXPECT_TRUE(Scan(later).ok()) << Scan(later);
  for (const int number :
       {onnx::TensorProto::kFileOffsetFieldNumber, onnx::TensorProto::kFileBytesFieldNumber}) {
    std::string bytes;
    AppendVarintField(number, 0, bytes);
    EXPECT_THAT(Text(Scan(bytes)), HasSubstr("is no field of ONNX")) << number;
  }
}

TEST(ScanWire, MemoryAndSizeAreBounded) {
  onnx::TensorProto tensor;
  for (int i = 0; i < 1000; ++i) tensor.add_string_data("");
  const std::string bytes = tensor.SerializeAsString();
  EXPECT_EQ(Scan(bytes, {.max_growth = 2, .min_memory = 100}).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Scan(bytes, {.max_bytes = 100}).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Scan(bytes).ok());
}

// A million nodes of a few bytes took gigabytes.
TEST(ScanWire, NodesAreCountedWhereverTheyAre) {
  onnx::ModelProto model;
  for (int i = 0; i < 2; ++i) model.mutable_graph()->add_node()->set_op_type("Relu");
  model.add_functions()->add_node()->set_op_type("Relu");
  onnx::AttributeProto& body = *model.mutable_graph()->mutable_node(0)->add_attribute();
  body.mutable_g()->add_node()->set_op_type("Relu");
  const std::string bytes = model.SerializeAsString();
  EXPECT_TRUE(ScanWire(bytes, model, {.max_nodes = 4}).ok());
  const absl::Status status = ScanWire(bytes, model, {.max_nodes = 3});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("more than 3 nodes"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("--max-nodes N"));
}

TEST(VarintOf, ReadsWhatIsWrittenInAnyNumberOfBytes) {
  for (const uint64_t value : {uint64_t{0}, uint64_t{127}, uint64_t{300}, ~uint64_t{0}}) {
    std::string bytes;
    AppendVarintField(3, value, bytes);
    WireReader reader(bytes);
    EXPECT_EQ(VarintOf(*reader.Next()), value);
  }
  WireReader longer(std::string_view("\x70\x81\x00", 3));
  EXPECT_EQ(VarintOf(*longer.Next()), 1u);
}

}  // namespace
}  // namespace weft
