#include "onnx_import/codec/byte_rope.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "gtest/gtest.h"
#include "onnx_import/codec/wire.pb.h"

namespace weft {
namespace {

constexpr int kGraphOfModel = 7;
constexpr int kInitializerOfGraph = 5;

// What protobuf writes for a model with one tensor of these bytes.
std::string ModelBytes(const std::string& raw) {
  onnx::ModelProto model;
  model.mutable_graph()->add_initializer()->set_raw_data(raw);
  return model.SerializeAsString();
}

TEST(ByteRopeTest, NestedFieldsAreWhatProtobufWrites) {
  for (const size_t size : {0, 100, 300, 70000}) {
    SCOPED_TRACE(size);
    const std::string raw(size, 'r');
    ByteRope tensor;
    tensor.AppendFieldHeader(onnx::TensorProto::kRawDataFieldNumber, raw.size());
    tensor.AppendView(raw);
    ByteRope graph;
    graph.AppendField(kInitializerOfGraph, std::move(tensor));
    ByteRope model;
    model.AppendField(kGraphOfModel, std::move(graph));
    EXPECT_EQ(model.ToString(), ModelBytes(raw));
    EXPECT_EQ(model.size(), model.ToString().size());
  }
}

TEST(ByteRopeTest, RefersToLongBytesAndKeepsTheirOwner) {
  auto owner = std::make_shared<const std::string>(1000, 'x');
  const std::weak_ptr<const std::string> watched = owner;
  {
    ByteRope rope;
    rope.AppendCopy("head");
    rope.AppendShared(*owner, owner);
    rope.AppendCopy("tail");
    ASSERT_EQ(rope.pieces(), 3u);
    EXPECT_EQ(rope.piece(1).data(), owner->data());
    owner.reset();
    EXPECT_FALSE(watched.expired());
    EXPECT_EQ(rope.ToString(), "head" + std::string(1000, 'x') + "tail");
  }
  EXPECT_TRUE(watched.expired());
}

TEST(RopeInputStreamTest, ProtobufParsesAcrossPieces) {
  std::string raw(5000, '\0');
  for (size_t i = 0; i < raw.size(); ++i) raw[i] = static_cast<char>(i * 7);
  const std::string bytes = ModelBytes(raw);
  const std::string_view all = bytes;
  for (const size_t cut : {size_t{300}, size_t{777}, size_t{2500}}) {
    ByteRope rope;
    rope.AppendView(all.substr(0, cut));
    rope.AppendView(all.substr(cut));
    ASSERT_EQ(rope.pieces(), 2u);
    RopeInputStream stream(rope);
    onnx::ModelProto model;
    ASSERT_TRUE(model.ParseFromZeroCopyStream(&stream)) << cut;
    EXPECT_EQ(model.graph().initializer(0).raw_data(), raw);
    EXPECT_EQ(stream.ByteCount(), static_cast<int64_t>(bytes.size()));
  }
}

TEST(RopeInputStreamTest, SkipsAndGoesBack) {
  ByteRope rope;
  const std::string first(300, 'a');
  const std::string second(300, 'b');
  rope.AppendView(first);
  rope.AppendView(second);
  RopeInputStream stream(rope);
  EXPECT_TRUE(stream.Skip(450));
  EXPECT_EQ(stream.ByteCount(), 450);
  const void* data = nullptr;
  int size = 0;
  ASSERT_TRUE(stream.Next(&data, &size));
  EXPECT_EQ(size, 150);
  stream.BackUp(50);
  ASSERT_TRUE(stream.Next(&data, &size));
  EXPECT_EQ(size, 50);
  EXPECT_FALSE(stream.Next(&data, &size));
  EXPECT_FALSE(stream.Skip(1));
}

}  // namespace
}  // namespace weft
