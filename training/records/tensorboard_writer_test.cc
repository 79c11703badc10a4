#include "training/records/tensorboard_writer.h"

#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/testing/fake_clock.h"
#include "platform/testing/fake_file_system.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

// A reader of its own, from TensorFlow's event.proto and summary.proto: field numbers and types.
struct Message {
  struct Field {
    uint64_t number = 0;  // of the field
    uint64_t value = 0;   // of a varint or a fixed one
    std::string bytes;    // of a message or text
  };
  std::vector<Field> fields;

  explicit Message(const std::string& bytes) {
    size_t at = 0;
    const auto varint = [&] {
      uint64_t value = 0;
      for (int shift = 0;; shift += 7) {
        const auto byte = static_cast<unsigned char>(bytes.at(at++));
        value |= uint64_t{byte & 0x7fu} << shift;
        if (byte < 0x80) return value;
      }
    };
    while (at < bytes.size()) {
      const uint64_t tag = varint();
      Field& field = fields.emplace_back();
      field.number = tag >> 3;
      const size_t fixed = (tag & 7) == 1 ? 8 : (tag & 7) == 5 ? 4 : 0;
      if (fixed > 0) {
        std::memcpy(&field.value, bytes.substr(at, fixed).data(), fixed);
        at += fixed;
      } else if ((tag & 7) == 0) {
        field.value = varint();
      } else {
        EXPECT_EQ(tag & 7, 2u);
        const size_t size = varint();
        field.bytes = bytes.substr(at, size);
        at += size;
      }
    }
  }
  const Field& Find(uint64_t number) const {
    for (const Field& field : fields) {
      if (field.number == number) return field;
    }
    static const Field kNone;
    return kNone;
  }
};

double AsDouble(uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

float AsFloat(uint64_t bits) {
  const auto low = static_cast<uint32_t>(bits);
  float value;
  std::memcpy(&value, &low, sizeof(value));
  return value;
}

std::vector<Message> Events(const std::string& file) {
  std::vector<Message> events;
  for (size_t at = 0; at < file.size();) {
    uint64_t length = 0;
    std::memcpy(&length, file.data() + at, 8);
    events.emplace_back(file.substr(at + 12, length));
    at += 12 + length + 4;
  }
  return events;
}

TEST(TensorBoardWriterTest, WritesScalarsInTheFormatOfEventFiles) {
  testing::FakeFileSystem files;
  testing::FakeClock clock(absl::FromUnixSeconds(1234567890));
  auto writer = TensorBoardWriter::Create(files, clock, "/logs/run");
  ASSERT_TRUE(writer.ok()) << writer.status();
  clock.Advance(absl::Milliseconds(1500));
  (*writer)->AddScalar("loss", 0, 2.5);
  (*writer)->AddScalar("lr", 300, 0.1);
  ASSERT_TRUE((*writer)->Close().ok());
  EXPECT_THAT(*files.ListDirectory("/logs/run"),
              ElementsAre("events.out.tfevents.1234567890.weft"));
  const auto events = Events(*files.ReadFile("/logs/run/events.out.tfevents.1234567890.weft"));
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(AsDouble(events[0].Find(1).value), 1234567890.0);
  EXPECT_EQ(events[0].Find(3).bytes, "brain.Event:2");
  EXPECT_EQ(AsDouble(events[1].Find(1).value), 1234567891.5);
  EXPECT_EQ(events[1].Find(2).value, 0u);
  const Message loss(Message(events[1].Find(5).bytes).Find(1).bytes);
  EXPECT_EQ(loss.Find(1).bytes, "loss");
  EXPECT_EQ(AsFloat(loss.Find(2).value), 2.5f);
  EXPECT_EQ(events[2].Find(2).value, 300u);
  const Message rate(Message(events[2].Find(5).bytes).Find(1).bytes);
  EXPECT_EQ(rate.Find(1).bytes, "lr");
  EXPECT_EQ(AsFloat(rate.Find(2).value), 0.1f);
}

TEST(TensorBoardWriterTest, TheFirstErrorIsKeptUntilClose) {
  testing::FakeFileSystem files;
  testing::FakeClock clock;
  auto writer = TensorBoardWriter::Create(files, clock, "/logs");
  ASSERT_TRUE(writer.ok()) << writer.status();
  files.InjectError(testing::FakeFileSystem::Operation::kWrite, ENOSPC);
  (*writer)->AddScalar("loss", 0, 1);
  (*writer)->AddScalar("loss", 1, 1);
  EXPECT_EQ((*writer)->Close().code(), absl::StatusCode::kResourceExhausted);
}

TEST(TensorBoardWriterTest, AFolderThatCannotBeMadeIsAnError) {
  testing::FakeFileSystem files;
  testing::FakeClock clock;
  ASSERT_TRUE(files.WriteFileAtomically("/logs", "a file").ok());
  EXPECT_FALSE(TensorBoardWriter::Create(files, clock, "/logs").ok());
}

}  // namespace
}  // namespace weft
