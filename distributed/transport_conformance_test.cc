// What every transport promises (transport.h), held over all of them.
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/testing/awaited_transfer.h"
#include "distributed/testing/transport_cluster.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::weft::testing::AwaitedTransfer;

class TransportTest : public ::testing::TestWithParam<std::string> {
 protected:
  void StartRanks(int ranks) { cluster_ = testing::NewTransportCluster(GetParam(), ranks); }
  Transport& Rank(int rank) { return cluster_->transport(rank); }

  static MessageHeader HeaderFor(uint32_t stream, uint64_t sequence, size_t floats) {
    MessageHeader header;
    header.job_id = testing::kTestJobId;
    header.incarnation = 42;
    header.stream = stream;
    header.sequence = sequence;
    header.step = 3;
    header.dtype = DType::kFloat32;
    header.elements = floats;
    header.bytes = floats * sizeof(float);
    return header;
  }
  static std::vector<float> Ramp(size_t floats, float first) {
    std::vector<float> values(floats);
    std::iota(values.begin(), values.end(), first);
    return values;
  }
  // The status of rank 1's receive of `expected` when rank 0 sends `sent`.
  absl::Status Exchange(const MessageHeader& sent, const MessageHeader& expected) {
    std::vector<float> data(sent.bytes / sizeof(float) + 1);
    std::vector<float> target(expected.bytes / sizeof(float) + 1);
    AwaitedTransfer send, receive;
    Rank(1).Receive(RankId(0), expected, target.data(), receive);
    Rank(0).Send(RankId(1), sent, data.data(), send);
    EXPECT_TRUE(send.Await().ok());
    return receive.Await();
  }

  std::unique_ptr<testing::TransportCluster> cluster_;
};

TEST_P(TransportTest, SenderMayComeFirst) {
  StartRanks(2);
  const std::vector<float> data = Ramp(1000, 1);
  std::vector<float> target(1000);
  AwaitedTransfer send, receive;
  Rank(0).Send(RankId(1), HeaderFor(5, 0, 1000), data.data(), send);
  Rank(1).Receive(RankId(0), HeaderFor(5, 0, 1000), target.data(), receive);
  EXPECT_TRUE(send.Await().ok());
  ASSERT_TRUE(receive.Await().ok()) << receive.Await();
  EXPECT_EQ(target, data);
}

TEST_P(TransportTest, ReceiverMayComeFirst) {
  StartRanks(2);
  const std::vector<float> data = Ramp(1000, 1);
  std::vector<float> target(1000);
  AwaitedTransfer send, receive;
  Rank(1).Receive(RankId(0), HeaderFor(5, 0, 1000), target.data(), receive);
  Rank(0).Send(RankId(1), HeaderFor(5, 0, 1000), data.data(), send);
  EXPECT_TRUE(send.Await().ok());
  ASSERT_TRUE(receive.Await().ok()) << receive.Await();
  EXPECT_EQ(target, data);
  EXPECT_EQ(Rank(0).bytes_sent(), 4000);
  EXPECT_EQ(receive.calls(), 1);
}

TEST_P(TransportTest, MessagesOfOneStreamArriveInOrder) {
  StartRanks(2);
  constexpr int kMessages = 50;
  std::vector<std::vector<float>> sent, got;
  std::deque<AwaitedTransfer> sends(kMessages), receives(kMessages);
  for (int i = 0; i < kMessages; ++i) {
    sent.push_back(Ramp(100, static_cast<float>(i)));
    got.emplace_back(100);
  }
  for (int i = 0; i < kMessages; ++i) {
    if (i % 3 == 0) {
      Rank(1).Receive(RankId(0), HeaderFor(1, i, 100), got[i].data(), receives[i]);
    }
    Rank(0).Send(RankId(1), HeaderFor(1, i, 100), sent[i].data(), sends[i]);
    if (i % 3 != 0) {
      Rank(1).Receive(RankId(0), HeaderFor(1, i, 100), got[i].data(), receives[i]);
    }
  }
  for (int i = 0; i < kMessages; ++i) ASSERT_TRUE(receives[i].Await().ok()) << receives[i].Await();
  EXPECT_EQ(got, sent);
  for (AwaitedTransfer& send : sends) EXPECT_TRUE(send.Await().ok());
}

TEST_P(TransportTest, StreamsDoNotWaitForEachOther) {
  StartRanks(2);
  const std::vector<float> first = Ramp(10, 1), second = Ramp(10, 100);
  std::vector<float> target(10);
  AwaitedTransfer send_first, send_second, receive_second, receive_first;
  Rank(0).Send(RankId(1), HeaderFor(1, 0, 10), first.data(), send_first);
  Rank(0).Send(RankId(1), HeaderFor(2, 0, 10), second.data(), send_second);
  Rank(1).Receive(RankId(0), HeaderFor(2, 0, 10), target.data(), receive_second);
  ASSERT_TRUE(receive_second.Await().ok());
  EXPECT_EQ(target, second);
  Rank(1).Receive(RankId(0), HeaderFor(1, 0, 10), target.data(), receive_first);
  ASSERT_TRUE(receive_first.Await().ok());
  EXPECT_EQ(target, first);
  EXPECT_TRUE(send_first.Await().ok());
  EXPECT_TRUE(send_second.Await().ok());
}

TEST_P(TransportTest, ManyStreamsBetweenManyRanksAtOnce) {
  constexpr int kRanks = 4, kStreams = 40;
  StartRanks(kRanks);
  std::deque<AwaitedTransfer> transfers;
  std::deque<std::vector<float>> sent, got;
  for (int from = 0; from < kRanks; ++from) {
    for (int to = 0; to < kRanks; ++to) {
      for (int s = 0; s < kStreams && from != to; ++s) {
        sent.push_back(Ramp(257, static_cast<float>(from * 10000 + to * 1000 + s)));
        got.emplace_back(257);
        const MessageHeader header = HeaderFor(s, 0, 257);
        Rank(from).Send(RankId(to), header, sent.back().data(), transfers.emplace_back());
        Rank(to).Receive(RankId(from), header, got.back().data(), transfers.emplace_back());
      }
    }
  }
  for (AwaitedTransfer& transfer : transfers) ASSERT_TRUE(transfer.Await().ok());
  EXPECT_EQ(got, sent);
}

TEST_P(TransportTest, EmptyMessagesArrive) {
  StartRanks(2);
  EXPECT_TRUE(Exchange(HeaderFor(1, 0, 0), HeaderFor(1, 0, 0)).ok());
}

TEST_P(TransportTest, LongMessagesArriveInPlace) {
  StartRanks(2);
  constexpr size_t kFloats = (size_t{64} << 20) / sizeof(float) + 13;
  const std::vector<float> data = Ramp(kFloats, 0);
  std::vector<float> target(kFloats);
  for (int i = 0; i < 2; ++i) {
    AwaitedTransfer send, receive;
    // The second time the sender comes first, and the message exceeds what may wait.
    if (i == 0) Rank(1).Receive(RankId(0), HeaderFor(1, i, kFloats), target.data(), receive);
    Rank(0).Send(RankId(1), HeaderFor(1, i, kFloats), data.data(), send);
    if (i == 1) Rank(1).Receive(RankId(0), HeaderFor(1, i, kFloats), target.data(), receive);
    ASSERT_TRUE(receive.Await().ok()) << receive.Await();
    ASSERT_TRUE(send.Await().ok());
    EXPECT_EQ(std::memcmp(data.data(), target.data(), kFloats * sizeof(float)), 0);
    std::fill(target.begin(), target.end(), 0.0f);
  }
}

TEST_P(TransportTest, RefusesOtherHeadersNamingTheField) {
  StartRanks(2);
  const MessageHeader expected = HeaderFor(1, 0, 8);
  struct Case {
    std::string text;
    MessageHeader sent;
  };
  std::vector<Case> cases;
  const auto add = [&](const std::string& text, auto change) {
    MessageHeader sent = expected;
    change(sent);
    sent.stream = static_cast<uint32_t>(cases.size());
    cases.push_back({text, sent});
  };
  add("step is 4, expected 3", [](MessageHeader& h) { h.step = 4; });
  add("micro-batch is 2, expected -1", [](MessageHeader& h) { h.micro_batch = 2; });
  add("element type is int32, expected float32", [](MessageHeader& h) { h.dtype = DType::kInt32; });
  add("element count is 7, expected 8", [](MessageHeader& h) { h.elements = 7; });
  add("size is 28, expected 32", [](MessageHeader& h) { h.bytes = 28; });
  add("sequence number is 1, expected 0", [](MessageHeader& h) { h.sequence = 1; });
  add("job_id is 99, expected", [](MessageHeader& h) { h.job_id = 99; });
  for (const Case& test : cases) {
    MessageHeader own = expected;
    own.stream = test.sent.stream;
    const absl::Status status = Exchange(test.sent, own);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(test.text));
    EXPECT_THAT(std::string(status.message()), HasSubstr("from rank 0"));
  }
}

TEST_P(TransportTest, AbortReachesPendingOperationsOfAllRanks) {
  StartRanks(3);
  std::vector<float> target(10);
  AwaitedTransfer at_zero, at_one, at_two;
  Rank(0).Receive(RankId(1), HeaderFor(1, 0, 10), target.data(), at_zero);
  Rank(1).Receive(RankId(2), HeaderFor(1, 0, 10), target.data(), at_one);
  Rank(2).Receive(RankId(0), HeaderFor(1, 0, 10), target.data(), at_two);
  Rank(1).Abort(absl::InvalidArgumentError("loss is nan"));
  for (AwaitedTransfer* transfer : {&at_zero, &at_one, &at_two}) {
    const absl::Status status = transfer->Await();
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_EQ(std::string(status.message()), "the job was aborted: loss is nan");
    EXPECT_EQ(transfer->calls(), 1);
  }
}

TEST_P(TransportTest, AbortReachesFutureOperations) {
  StartRanks(2);
  Rank(0).Abort(absl::InternalError("broken"));
  std::vector<float> data(10);
  AwaitedTransfer send, receive;
  Rank(0).Send(RankId(1), HeaderFor(1, 0, 10), data.data(), send);
  Rank(0).Receive(RankId(1), HeaderFor(1, 0, 10), data.data(), receive);
  EXPECT_EQ(send.Await().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(receive.Await().code(), absl::StatusCode::kAborted);
}

TEST_P(TransportTest, TheFirstAbortWins) {
  StartRanks(2);
  Rank(0).Abort(absl::InternalError("the cause"));
  Rank(0).Abort(absl::InternalError("a consequence"));
  std::vector<float> data(10);
  AwaitedTransfer receive;
  Rank(0).Receive(RankId(1), HeaderFor(1, 0, 10), data.data(), receive);
  EXPECT_THAT(std::string(receive.Await().message()), HasSubstr("the cause"));
}

TEST_P(TransportTest, WhatComesEarlyIsKeptAndTheSenderGoesOn) {
  StartRanks(2);
  for (int round = 0; round < 3; ++round) {
    std::vector<float> data(1000);
    std::deque<AwaitedTransfer> sends(6);
    for (int i = 0; i < 6; ++i) {
      data = Ramp(1000, static_cast<float>(10 * round + i));
      Rank(0).Send(RankId(1), HeaderFor(i % 3, 2 * round + i / 3, 1000), data.data(), sends[i]);
      ASSERT_TRUE(sends[i].Await().ok()) << sends[i].Await();  // nobody receives yet
    }
    for (int i : {2, 5, 0, 1, 3, 4}) {
      std::vector<float> target(1000);
      AwaitedTransfer receive;
      Rank(1).Receive(RankId(0), HeaderFor(i % 3, 2 * round + i / 3, 1000), target.data(), receive);
      ASSERT_TRUE(receive.Await().ok()) << receive.Await();
      EXPECT_EQ(target, Ramp(1000, static_cast<float>(10 * round + i)));
    }
  }
}

TEST_P(TransportTest, AbortEndsSendsThatNobodyReceives) {
  StartRanks(2);
  // More than a peer buffers, so that the last ones are under way or queued.
  constexpr size_t kFloats = (size_t{32} << 20) / sizeof(float);
  const std::vector<float> data(kFloats);
  std::deque<AwaitedTransfer> sends(6);
  for (int i = 0; i < 6; ++i) {
    Rank(0).Send(RankId(1), HeaderFor(1, i, kFloats), data.data(), sends[i]);
  }
  Rank(0).Abort(absl::InternalError("enough"));
  for (AwaitedTransfer& send : sends) {
    const absl::Status status = send.Await();
    EXPECT_TRUE(status.ok() || absl::IsAborted(status)) << status;
  }
  EXPECT_TRUE(absl::IsAborted(sends.back().Await()));
}

// A misspelled kind was tested as the one in this process.
TEST(TransportKinds, AreMadeAndNoOthers) {
  EXPECT_THAT(testing::TransportKinds(),
              ::testing::IsSupersetOf({"InProcess", "Grpc", "SharedMemory"}));
  for (const std::string& kind : testing::TransportKinds()) {
    EXPECT_TRUE(testing::NewTransportCluster(kind, 1) != nullptr) << kind;
  }
  EXPECT_TRUE(testing::NewTransportCluster("grpc", 1) == nullptr);
}

INSTANTIATE_TEST_SUITE_P(All, TransportTest, ::testing::ValuesIn(testing::TransportKinds()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace weft
