#include "onnx_import/codec/left_payloads.h"

#include <string>

#include "gtest/gtest.h"
#include "onnx_import/codec/byte_rope.h"
#include "onnx_import/codec/wire.pb.h"

namespace weft {
namespace {

// What is left out of the parsed model is where it says, and nothing else changes.
void ExpectLeft(const onnx::TensorProto& parsed, const onnx::TensorProto& whole,
                const std::string& bytes) {
  EXPECT_FALSE(parsed.has_raw_data());
  ASSERT_EQ(parsed.file_bytes(), whole.raw_data().size());
  ASSERT_LE(parsed.file_offset() + parsed.file_bytes(), bytes.size());
  EXPECT_EQ(bytes.substr(parsed.file_offset(), parsed.file_bytes()), whole.raw_data());
  EXPECT_EQ(parsed.name(), whole.name());
}

TEST(LeavePayloadsTest, LargePayloadsStayInTheFile) {
  onnx::ModelProto model;
  model.set_producer_name("somebody");
  onnx::GraphProto& graph = *model.mutable_graph();
  graph.set_name("g");
  for (const size_t size : {kLeftPayloadBytes - 1, kLeftPayloadBytes, 3 * kLeftPayloadBytes}) {
    onnx::TensorProto& tensor = *graph.add_initializer();
    tensor.set_name("t" + std::to_string(size));
    tensor.set_raw_data(std::string(size, static_cast<char>('a' + graph.initializer_size())));
  }
  onnx::NodeProto& constant = *graph.add_node();
  constant.set_op_type("Constant");
  onnx::AttributeProto& value = *constant.add_attribute();
  value.set_name("value");
  value.mutable_t()->set_raw_data(std::string(kLeftPayloadBytes + 5, 'z'));
  const std::string bytes = model.SerializeAsString();

  onnx::ModelProto parsed;
  ASSERT_TRUE(parsed.ParseFromString(LeavePayloads(bytes).ToString()));
  ASSERT_EQ(parsed.graph().initializer_size(), 3);
  EXPECT_EQ(parsed.graph().initializer(0).raw_data(), graph.initializer(0).raw_data());
  EXPECT_EQ(parsed.graph().initializer(0).file_bytes(), 0u);
  ExpectLeft(parsed.graph().initializer(1), graph.initializer(1), bytes);
  ExpectLeft(parsed.graph().initializer(2), graph.initializer(2), bytes);
  ExpectLeft(parsed.graph().node(0).attribute(0).t(), value.t(), bytes);
  EXPECT_EQ(parsed.producer_name(), "somebody");
  EXPECT_EQ(parsed.graph().name(), "g");
  EXPECT_EQ(parsed.graph().node(0).op_type(), "Constant");
}

TEST(LeavePayloadsTest, AModelWithoutLargePayloadsIsAsItWas) {
  onnx::ModelProto model;
  model.mutable_graph()->add_initializer()->set_raw_data("few");
  const std::string bytes = model.SerializeAsString();
  EXPECT_EQ(LeavePayloads(bytes).ToString(), bytes);
}

}  // namespace
}  // namespace weft
