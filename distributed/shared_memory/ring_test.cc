// What is written comes out as it was; what a hostile peer writes is refused.
#include "distributed/shared_memory/ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/checksum.h"
#include "platform/random.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

class RingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto writer = RingWriter::Create();
    ASSERT_TRUE(writer.ok()) << writer.status();
    writer_ = *std::move(writer);
    auto reader = RingReader::Open(FileDescriptor(dup(writer_->file())));
    ASSERT_TRUE(reader.ok()) << reader.status();
    reader_ = *std::move(reader);
    auto mapping = RingMapping::Map(writer_->file());
    ASSERT_TRUE(mapping.ok()) << mapping.status();
    hostile_ = *std::move(mapping);
  }
  // What was written of `bytes`; nothing where there was no room.
  size_t Write(const std::string& bytes, uint64_t offset = 0) {
    Frame frame;
    frame.header.stream = 7;
    frame.header.bytes = bytes.size();
    frame.offset = offset;
    const auto* const data = reinterpret_cast<const std::byte*>(bytes.data()) + offset;
    const auto written = writer_->Write(frame, data, bytes.size() - offset);
    EXPECT_TRUE(written.ok()) << written.status();
    return written.ok() && *written ? frame.part_bytes : 0;
  }
  std::string Read() {
    Frame frame;
    const auto read = reader_->Read(frame);
    EXPECT_TRUE(read.ok() && *read) << read.status();
    std::string bytes(frame.part_bytes, '\0');
    std::memcpy(bytes.data(), reader_->part(), bytes.size());
    EXPECT_EQ(frame.header.checksum, Checksum(std::as_bytes(std::span(bytes))));
    EXPECT_EQ(frame.header.stream, 7u);
    reader_->Advance(frame);
    return bytes;
  }
  absl::Status ReadError() {
    Frame frame;
    return reader_->Read(frame).status();
  }
  static absl::Status OpenError(int file) {
    return RingReader::Open(FileDescriptor(file)).status();
  }

  std::unique_ptr<RingWriter> writer_;
  std::unique_ptr<RingReader> reader_;
  RingMapping hostile_;  // what either end may do to the memory
};

// Many times around the ring, with parts of all lengths, cut where the ring ends.
TEST_F(RingTest, BytesComeInOrder) {
  RandomSequence random(RandomKey(3, "ring"));
  std::string sent, got;
  std::deque<size_t> parts;
  while (sent.size() < 8 * kRingBytes) {
    std::string bytes(1 + random.Next() % 100'000, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random.Next());
    for (size_t offset = 0; offset < bytes.size();) {
      const size_t part = Write(bytes, offset);
      EXPECT_LE(part, kRingPartBytes);
      if (part == 0) {  // full
        ASSERT_FALSE(parts.empty());
        const std::string read = Read();
        EXPECT_EQ(read.size(), parts.front());
        parts.pop_front();
        got += read;
      } else {
        parts.push_back(part);
        offset += part;
      }
    }
    sent += bytes;
  }
  while (reader_->has_next()) got += Read();
  EXPECT_TRUE(got == sent);
  EXPECT_FALSE(reader_->has_next());
}

TEST_F(RingTest, AnEmptyPartIsAFrame) {
  Frame frame;
  frame.header.stream = 7;
  EXPECT_TRUE(*writer_->Write(frame, nullptr, 0));
  EXPECT_EQ(Read(), "");
}

TEST_F(RingTest, TheSleepingReaderIsWokenOnce) {
  Write("a");
  EXPECT_FALSE(writer_->TakeReaderSleeps());
  reader_->AnnounceSleep(true);
  EXPECT_TRUE(reader_->has_next());
  Write("b");
  EXPECT_TRUE(writer_->TakeReaderSleeps());
  EXPECT_FALSE(writer_->TakeReaderSleeps());
}

TEST_F(RingTest, TheWaitingWriterIsWokenWhenHalfIsFree) {
  const std::string bytes(kRingPartBytes, 'x');
  while (Write(bytes) > 0) {
  }
  EXPECT_FALSE(writer_->has_room(1 << 20));
  writer_->AnnounceWait();
  int read = 0;
  do {
    Read();
    ++read;
  } while (!reader_->TakeWriterWaits());
  EXPECT_GE(read, 3);
  EXPECT_TRUE(writer_->has_room(1 << 20));
  Read();
  EXPECT_FALSE(reader_->TakeWriterWaits());
}

TEST_F(RingTest, AWritersIndexThatMakesNoSenseIsRefused) {
  for (const uint64_t written :
       {uint64_t{1}, kRingBytes + 128, uint64_t{1'200'000'000'000}, ~uint64_t{0}, ~uint64_t{127}}) {
    hostile_.control().written.store(written);
    EXPECT_EQ(ReadError().code(), absl::StatusCode::kDataLoss) << written;
  }
}

TEST_F(RingTest, AReadersIndexThatMakesNoSenseIsRefused) {
  for (const uint64_t read :
       {uint64_t{1}, uint64_t{128}, uint64_t{1'200'000'000'000}, ~uint64_t{0}}) {
    hostile_.control().read.store(read);
    Frame frame;
    const std::byte byte = {};
    EXPECT_EQ(writer_->Write(frame, &byte, 1).status().code(), absl::StatusCode::kDataLoss) << read;
  }
}

TEST_F(RingTest, APartBeyondWhatWasWrittenIsRefused) {
  Write("abc");
  Frame frame;
  frame.part_bytes = 200;
  const FrameHeaderBytes header = EncodeFrameHeader(frame);
  std::memcpy(hostile_.frames(), header.data(), header.size());
  EXPECT_THAT(std::string(ReadError().message()), HasSubstr("a part of 200 bytes, of 128 written"));
  frame.part_bytes = uint64_t{1'200'000'000'000};
  const FrameHeaderBytes huge = EncodeFrameHeader(frame);
  std::memcpy(hostile_.frames(), huge.data(), huge.size());
  EXPECT_EQ(ReadError().code(), absl::StatusCode::kDataLoss);
}

// It would reach beyond the mapping.
TEST_F(RingTest, APartOverTheEndOfTheRingIsRefused) {
  const std::string bytes(kRingPartBytes, 'x');
  while (Write(bytes) > 0) {
  }
  while (reader_->has_next()) Read();
  Write("abc");
  Read();
  const uint64_t at = hostile_.control().written.load();
  ASSERT_GT(at % kRingBytes, 0u);
  Frame frame;
  frame.part_bytes = kRingBytes - at % kRingBytes;
  const FrameHeaderBytes header = EncodeFrameHeader(frame);
  std::memcpy(hostile_.frames() + at % kRingBytes, header.data(), header.size());
  hostile_.control().written.store(at + kRingBytes);
  EXPECT_EQ(ReadError().code(), absl::StatusCode::kDataLoss);
}

TEST_F(RingTest, ADamagedHeaderIsRefused) {
  Write("abc");
  hostile_.frames()[17] ^= std::byte{1};
  EXPECT_EQ(ReadError().code(), absl::StatusCode::kDataLoss);
}

TEST_F(RingTest, ItsFileCannotShrink) {
  EXPECT_NE(ftruncate(writer_->file(), 4096), 0);
  EXPECT_NE(ftruncate(writer_->file(), 2 * kRingMappingBytes), 0);
}

TEST_F(RingTest, OtherFilesAreRefused) {
  const int can_shrink = memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(can_shrink, kRingMappingBytes), 0);
  EXPECT_THAT(std::string(OpenError(can_shrink).message()), HasSubstr("can shrink"));

  const int is_short = memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(is_short, 4096), 0);
  ASSERT_EQ(fcntl(is_short, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_THAT(std::string(OpenError(is_short).message()), HasSubstr("has 4096 bytes"));

  const int is_read_only = memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(is_read_only, kRingMappingBytes), 0);
  ASSERT_EQ(fcntl(is_read_only, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE), 0);
  EXPECT_THAT(std::string(OpenError(is_read_only).message()), HasSubstr("cannot be written"));

  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  const FileDescriptor other_end(pipe_ends[1]);
  EXPECT_EQ(OpenError(pipe_ends[0]).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(OpenError(open("/proc/self/exe", O_RDONLY | O_CLOEXEC)).code(),
            absl::StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace weft
