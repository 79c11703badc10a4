#include "ops/custom/isolation/helper_channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "ops/custom/isolation/shared_pages.h"
#include "platform/file_descriptor.h"

namespace weft {
namespace {

class HelperChannelTest : public ::testing::Test {
 protected:
  HelperChannelTest() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    first_ = std::make_unique<HelperChannel>(FileDescriptor(ends[0]), false);
    other_ = ends[1];
    second_ = std::make_unique<HelperChannel>(FileDescriptor(ends[1]), true);
  }
  // Bytes that no HelperChannel has written.
  void WriteRaw(const std::string& bytes) {
    ASSERT_EQ(write(other_, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }

  std::unique_ptr<HelperChannel> first_;
  std::unique_ptr<HelperChannel> second_;
  int other_ = -1;  // the socket of `second_`
};

MonotonicDeadline Soon() { return DeadlineAfter(absl::Milliseconds(50)); }
MonotonicDeadline Late() { return DeadlineAfter(absl::Seconds(30)); }

TEST_F(HelperChannelTest, CarriesFramesInOrder) {
  ASSERT_TRUE(first_->Send(HelperFrame::kCall, "one", Late()).ok());
  ASSERT_TRUE(first_->Send(HelperFrame::kAnswer, "", Late()).ok());
  const auto one = second_->Receive(Late());
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->kind, HelperFrame::kCall);
  EXPECT_EQ(one->payload, "one");
  EXPECT_TRUE(second_->HasNews());
  const auto two = second_->Receive(Late());
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ(two->kind, HelperFrame::kAnswer);
  EXPECT_FALSE(second_->HasNews());
}

// More than a socket holds: it goes in parts while the other end reads.
TEST_F(HelperChannelTest, CarriesWhatNoSocketHolds) {
  const std::string large(8 << 20, 'x');
  std::thread writer([&] { EXPECT_TRUE(first_->Send(HelperFrame::kDone, large, Late()).ok()); });
  const auto read = second_->Receive(Late());
  writer.join();
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->payload, large);
}

TEST_F(HelperChannelTest, WaitsNoLongerThanItsDeadline) {
  EXPECT_EQ(first_->Receive(Soon()).status().code(), absl::StatusCode::kDeadlineExceeded);
  WriteRaw("\x08");  // the begin of a frame alone
  EXPECT_EQ(first_->Receive(Soon()).status().code(), absl::StatusCode::kDeadlineExceeded);
  const std::string large(8 << 20, 'x');
  EXPECT_EQ(first_->Send(HelperFrame::kCall, large, Soon()).code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(HelperChannelTest, SaysWhenTheOtherEndIsClosed) {
  second_ = nullptr;
  EXPECT_TRUE(first_->HasNews());
  EXPECT_EQ(first_->Receive(Late()).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(first_->Send(HelperFrame::kCall, "", Late()).code(), absl::StatusCode::kUnavailable);
}

TEST_F(HelperChannelTest, TakesNoGarbageForAFrame) {
  WriteRaw("no frame at all");
  EXPECT_EQ(first_->Receive(Late()).status().code(), absl::StatusCode::kInvalidArgument);
}

// A kind that there is, and a length that would take all memory.
TEST_F(HelperChannelTest, TakesNoFrameOfAnyLength) {
  WriteRaw(std::string("\xff\xff\xff\xff\x02\0\0\0", 8));
  EXPECT_EQ(first_->Receive(Late()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(HelperChannelTest, MemoryGoesAlongWithAFrame) {
  absl::StatusOr<SharedPages> mine = SharedPages::Create(4096);
  ASSERT_TRUE(mine.ok()) << mine.status();
  ASSERT_TRUE(first_->Send(HelperFrame::kMapping, "", Late(), mine->descriptor()).ok());
  ASSERT_TRUE(second_->Receive(Late()).ok());
  FileDescriptor descriptor = second_->TakeDescriptor();
  ASSERT_TRUE(descriptor.valid());
  EXPECT_FALSE(second_->TakeDescriptor().valid());
  // Its size is what it is.
  EXPECT_NE(ftruncate(descriptor.get(), 0), 0);
  EXPECT_NE(ftruncate(descriptor.get(), 8192), 0);
  const absl::StatusOr<SharedPages> theirs = SharedPages::Map(std::move(descriptor), 4096);
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  std::memcpy(mine->data(), "seen", 4);
  EXPECT_EQ(std::memcmp(theirs->data(), "seen", 4), 0);
}

// Whoever is not trusted cannot make us hold its descriptors.
TEST_F(HelperChannelTest, OneSideKeepsNoDescriptors) {
  ASSERT_TRUE(second_->Send(HelperFrame::kDone, "", Late(), STDIN_FILENO).ok());
  ASSERT_TRUE(first_->Receive(Late()).ok());
  EXPECT_FALSE(first_->TakeDescriptor().valid());
}

TEST(SealedFileTest, NobodyChangesIt) {
  const std::string text = "bytes that were verified";
  const auto file = SealedFile("library", std::as_bytes(std::span(text)));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_LT(pwrite(file->get(), "X", 1, 0), 0);
  EXPECT_NE(ftruncate(file->get(), 1), 0);
  std::string read(text.size(), ' ');
  EXPECT_EQ(pread(file->get(), read.data(), read.size(), 0), static_cast<ssize_t>(text.size()));
  EXPECT_EQ(read, text);
}

}  // namespace
}  // namespace weft
