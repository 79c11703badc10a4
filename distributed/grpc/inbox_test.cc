// Messages that were damaged, repeated, cut or mixed up on their way.
#include "distributed/grpc/inbox.h"

#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "distributed/testing/awaited_transfer.h"
#include "gmock/gmock.h"
#include "graph/schedule/channel_credits.h"
#include "gtest/gtest.h"
#include "platform/checksum.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::weft::testing::AwaitedTransfer;

class InboxTest : public ::testing::Test, public InboxSource {
 protected:
  InboxTest() : inbox_(RankId(3)), payload_(64, '\0'), target_(64, '\0') {
    std::iota(payload_.begin(), payload_.end(), '\0');
    EXPECT_TRUE(inbox_.Attach(*this).ok());
  }
  void ScheduleResume() override { ++resumes_; }

  static MessageHeader Header(uint64_t sequence, uint64_t bytes = 64) {
    MessageHeader header;
    header.job_id = 5;
    header.incarnation = 8;
    header.stream = 1;
    header.sequence = sequence;
    header.dtype = DType::kUint8;
    header.elements = header.bytes = bytes;
    return header;
  }
  // Part [offset, offset + size) of the payload, as it was sent.
  Frame PartOf(uint64_t sequence, uint64_t offset = 0, uint64_t size = 64) {
    Frame frame;
    frame.header = Header(sequence);
    frame.offset = offset;
    frame.part_bytes = size;
    frame.header.checksum = Checksum(std::as_bytes(std::span(payload_)).subspan(offset, size));
    return frame;
  }
  Inbox::Next Take(const Frame& frame, const std::string& bytes) {
    return inbox_.Take(frame, bytes.size(),
                       [&](std::byte* target) { std::memcpy(target, bytes.data(), bytes.size()); });
  }
  void Post(uint64_t sequence) { inbox_.Receive(Header(sequence), target_.data(), transfer_); }

  Inbox inbox_;
  std::string payload_;
  std::string target_;
  AwaitedTransfer transfer_;
  int resumes_ = 0;
};

TEST_F(InboxTest, PartsFillTheSlotInOrder) {
  Post(0);
  EXPECT_EQ(Take(PartOf(0, 0, 40), payload_.substr(0, 40)), Inbox::Next::kRead);
  EXPECT_EQ(transfer_.calls(), 0);
  EXPECT_EQ(Take(PartOf(0, 40, 24), payload_.substr(40)), Inbox::Next::kRead);
  EXPECT_TRUE(transfer_.Await().ok());
  EXPECT_EQ(target_, payload_);
}

TEST_F(InboxTest, AFlippedBitIsDataLoss) {
  Post(0);
  std::string damaged = payload_;
  damaged[17] ^= 4;
  Take(PartOf(0), damaged);
  const absl::Status status = transfer_.Await();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(std::string(status.message()),
            "message 0 from rank 3 on stream 1 was damaged on its way: the checksum of bytes 0 to "
            "64 differs");
}

TEST_F(InboxTest, AFlippedBitIsFoundInUnexpectedMessagesToo) {
  std::string damaged = payload_;
  damaged[63] ^= 1;
  Take(PartOf(0), damaged);
  Post(0);
  EXPECT_EQ(transfer_.Await().code(), absl::StatusCode::kDataLoss);
}

TEST_F(InboxTest, ARepeatedMessageIsRefused) {
  AwaitedTransfer first;
  inbox_.Receive(Header(0), target_.data(), first);
  Post(1);
  Take(PartOf(0), payload_);
  Take(PartOf(0), payload_);
  EXPECT_TRUE(first.Await().ok());
  EXPECT_THAT(std::string(transfer_.Await().message()),
              HasSubstr("sequence number is 0, expected 1"));
}

TEST_F(InboxTest, AMissingPartEndsTheStream) {
  Post(0);
  Take(PartOf(0, 0, 20), payload_.substr(0, 20));
  EXPECT_EQ(Take(PartOf(0, 40, 24), payload_.substr(40)), Inbox::Next::kEnd);
  EXPECT_EQ(transfer_.Await().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(transfer_.Await().message()),
              HasSubstr("24 bytes at 40 of 64, expected byte 20 of 64"));
}

TEST_F(InboxTest, APartShorterThanItsHeaderSaysEndsTheStream) {
  Post(0);
  EXPECT_EQ(Take(PartOf(0), payload_.substr(0, 63)), Inbox::Next::kEnd);
  EXPECT_EQ(transfer_.Await().code(), absl::StatusCode::kDataLoss);
}

TEST_F(InboxTest, AnotherIncarnationIsRefused) {
  Post(0);
  Take(PartOf(0, 0, 20), payload_.substr(0, 20));
  Frame stale = PartOf(0, 20, 44);
  stale.header.incarnation = 9;
  EXPECT_EQ(Take(stale, payload_.substr(20)), Inbox::Next::kEnd);
  EXPECT_THAT(std::string(transfer_.Await().message()), HasSubstr("is of incarnation 9"));
}

TEST_F(InboxTest, AMessageLargerThanTheCreditWaitsForItsSlot) {
  Frame frame = PartOf(0);
  frame.header.bytes = kInbox.bytes + 1;
  EXPECT_EQ(Take(frame, payload_), Inbox::Next::kHold);
  EXPECT_EQ(resumes_, 0);
  Post(0);
  EXPECT_EQ(resumes_, 1);
}

TEST_F(InboxTest, UnexpectedMessagesAreBoundedByTheirNumber) {
  for (size_t i = 0; i < kInbox.messages; ++i) {
    ASSERT_EQ(Take(PartOf(i), payload_), Inbox::Next::kRead);
  }
  EXPECT_EQ(Take(PartOf(kInbox.messages), payload_), Inbox::Next::kHold);
  Post(0);
  EXPECT_TRUE(transfer_.Await().ok());
  EXPECT_EQ(resumes_, 1);
}

TEST_F(InboxTest, WhatArrivedInWholeOutlivesItsSender) {
  Take(PartOf(0), payload_);
  inbox_.Fail(absl::UnavailableError("rank 3 has left the job"));
  Post(0);
  EXPECT_TRUE(transfer_.Await().ok());
  AwaitedTransfer next;
  inbox_.Receive(Header(1), target_.data(), next);
  EXPECT_EQ(next.Await().code(), absl::StatusCode::kUnavailable);
}

TEST_F(InboxTest, ARankHasOneStream) {
  const absl::Status status = inbox_.Attach(*this);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("do two processes claim the same rank?"));
}

TEST(FrameTest, HeadersComeBackAndDamageIsSeen) {
  Frame frame;
  frame.header.job_id = 7;
  frame.header.step = -4;
  frame.header.dtype = DType::kBfloat16;
  frame.offset = 99;
  frame.asks = true;
  FrameHeaderBytes bytes = EncodeFrameHeader(frame);
  const auto decoded = DecodeFrameHeader(bytes);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->header.job_id, 7u);
  EXPECT_EQ(decoded->header.step, -4);
  EXPECT_EQ(decoded->header.dtype, DType::kBfloat16);
  EXPECT_EQ(decoded->offset, 99u);
  EXPECT_TRUE(decoded->asks);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    FrameHeaderBytes damaged = bytes;
    damaged[bit / 8] ^= std::byte(1 << bit % 8);
    EXPECT_EQ(DecodeFrameHeader(damaged).status().code(), absl::StatusCode::kDataLoss) << bit;
  }
}

}  // namespace
}  // namespace weft
