// A message that was changed on its way is found, whatever changed: 3 of 13 flipped bits of a
// request for steps once went unnoticed, and the job ended with other weights.
#include "distributed/grpc/seal.h"

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/util/message_differencer.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/grpc/control_codec.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

rpc::RunStepsRequest SomeSteps() {
  StepRange range;
  range.program = "train/128";
  range.first_step = 40;
  range.count = 9;
  range.scalars = {{"learning_rate", 0.125}, {"loss_scale", 1024}};
  range.checkpoint = "step-49";
  return Encode(std::vector{range});
}

// Whether the bytes, as a peer gets them, are still the message.
template <typename Message>
absl::Status Arrive(const std::string& bytes, Message& message) {
  rpc::Sealed sealed;
  if (!sealed.ParseFromString(bytes)) return absl::DataLossError("not a message");
  return Unseal(sealed, message);
}

template <typename Message>
void ExpectEveryFlippedBitIsFound(const Message& message) {
  const std::string bytes = Seal(message).SerializeAsString();
  Message read;
  ASSERT_TRUE(Arrive(bytes, read).ok());
  // Not their bytes: the entries of a map are written in an order of each object's own.
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(read, message))
      << read.DebugString();
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    Message other;
    const absl::Status arrived = Arrive(damaged, other);
    EXPECT_EQ(arrived.code(), absl::StatusCode::kDataLoss)
        << message.GetTypeName() << ", bit " << bit;
  }
}

TEST(SealTest, EveryFlippedBitIsFound) {
  ExpectEveryFlippedBitIsFound(SomeSteps());
  rpc::ProgramChunk chunk;
  chunk.set_program("train/128");
  chunk.set_data("{}");
  chunk.set_part("a partition");
  chunk.set_total_bytes(11);
  ExpectEveryFlippedBitIsFound(chunk);
  // The name of one variable is often a flipped bit away from that of another.
  const Tensor tensor = Tensor::Of<float>({2}, std::vector<float>{0.5f, -1.0f});
  ExpectEveryFlippedBitIsFound(MakeVariableChunk("layer.0.weight", tensor, 0, 8));
  rpc::ReadVariableRequest request;
  request.set_name("layer.0.weight");
  ExpectEveryFlippedBitIsFound(request);
}

TEST(SealTest, AnyCutIsFound) {
  const std::string bytes = Seal(SomeSteps()).SerializeAsString();
  for (size_t size = 0; size < bytes.size(); ++size) {
    rpc::RunStepsRequest read;
    EXPECT_FALSE(Arrive(bytes.substr(0, size), read).ok()) << size;
  }
}

// Both have a text in field 1.
TEST(SealTest, AMessageIsNotTakenForOneOfAnotherType) {
  rpc::ReadVariableRequest request;
  request.set_name("w");
  rpc::ProgramChunk chunk;
  EXPECT_EQ(Unseal(Seal(request), chunk).code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(Unseal(Seal(request), request).ok());
}

// The declarations of a message with one field.
std::string FormatWith(const std::string& field, int number) {
  google::protobuf::FileDescriptorProto file;
  file.set_name("one.proto");
  file.set_syntax("proto3");
  auto* const message = file.add_message_type();
  message->set_name("One");
  auto* const declared = message->add_field();
  declared->set_name(field);
  declared->set_number(number);
  declared->set_label(google::protobuf::FieldDescriptorProto::LABEL_OPTIONAL);
  declared->set_type(google::protobuf::FieldDescriptorProto::TYPE_INT64);
  google::protobuf::DescriptorPool pool;
  return WireFormatOf({pool.BuildFile(file)});
}

// The version of the program was the same for builds whose messages differed.
TEST(WireFormatTest, TellsMessagesWithOtherFieldsApart) {
  EXPECT_EQ(FormatWith("step", 1), FormatWith("step", 1));
  EXPECT_NE(FormatWith("step", 1), FormatWith("step", 2));
  EXPECT_NE(FormatWith("step", 1), FormatWith("count", 1));
  EXPECT_EQ(FormatWith("step", 1).size(), 16u);
}

TEST(WireFormatTest, IsPartOfTheVersion) {
  EXPECT_EQ(HandshakeVersion("program 7"), "program 7 (wire format " + WireFormat() + ")");
  EXPECT_NE(WireFormat(), WireFormatOf({}));
}

TEST(SealTest, AnEmptyMessageHasAChecksumToo) {
  rpc::Empty empty;
  EXPECT_TRUE(Unseal(Seal(empty), empty).ok());
  EXPECT_EQ(Unseal(rpc::Sealed(), empty).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace weft
