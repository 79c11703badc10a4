// Faults that are injected, and what a communicator over any transport makes of them: the wait
// ends, and the error names what does not fit or was waited for.
#include "distributed/testing/fault_injecting_transport.h"

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "distributed/recovery/lost_peer.h"
#include "distributed/testing/awaited_transfer.h"
#include "distributed/testing/transport_cluster.h"
#include "distributed/transport_communicator.h"
#include "executor/interfaces/wait_info.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kElements = 8;

// Rank 0 sends to rank 1 on one channel; its transport has the faults.
class FaultInjectingTransportTest : public ::testing::TestWithParam<std::string> {
 protected:
  void Start(const std::string& faults, absl::Duration stall_timeout = absl::Seconds(30)) {
    cluster_ = NewTransportCluster(GetParam(), 2);
    const auto parsed = ParseTransportFaults(faults);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    faulty_ = std::make_unique<FaultInjectingTransport>(cluster_->transport(0), *parsed);
    sender_ = NewCommunicator(*faulty_, stall_timeout);
    receiver_ = NewCommunicator(cluster_->transport(1), stall_timeout);
    Channel channel;
    channel.id = ChannelId(3);
    channel.from = RankId(0);
    channel.to = RankId(1);
    channel.value = "hidden";
    channel.dtype = DType::kFloat32;
    channel.shape = Shape{kElements};
    sending_ = sender_->OpenChannel(channel).value();
    receiving_ = receiver_->OpenChannel(channel).value();
  }
  ~FaultInjectingTransportTest() override {
    sender_.reset();
    receiver_.reset();
    faulty_.reset();
  }
  static std::unique_ptr<TransportCommunicator> NewCommunicator(Transport& transport,
                                                                absl::Duration stall_timeout) {
    return std::make_unique<TransportCommunicator>(
        transport, RealClock(),
        JobIdentity{kTestJobId, 100 + static_cast<uint64_t>(transport.rank().value)},
        stall_timeout);
  }
  absl::Status Send(int micro_batch) {
    sent_.emplace_back(kElements, static_cast<float>(micro_batch));
    return sender_->Send(sending_, {5, micro_batch}, sent_.back().data());
  }
  absl::Status Receive(int micro_batch) {
    got_.assign(kElements, -1);
    return receiver_->Receive(receiving_, {5, micro_batch}, got_.data());
  }
  static std::string Text(const absl::Status& status) { return std::string(status.message()); }

  std::unique_ptr<TransportCluster> cluster_;
  std::unique_ptr<FaultInjectingTransport> faulty_;
  std::unique_ptr<TransportCommunicator> sender_;
  std::unique_ptr<TransportCommunicator> receiver_;
  Communicator::ChannelHandle sending_ = -1;
  Communicator::ChannelHandle receiving_ = -1;
  std::deque<std::vector<float>> sent_;
  std::vector<float> got_;
};

TEST_P(FaultInjectingTransportTest, WithoutFaultsEverythingArrives) {
  Start("");
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Send(i).ok());
    ASSERT_TRUE(Receive(i).ok());
    EXPECT_EQ(got_, sent_.back());
  }
  EXPECT_TRUE(sender_->WaitSent(sending_).ok());
  EXPECT_EQ(faulty_->bytes_sent(), 3 * kElements * 4);
  EXPECT_EQ(faulty_->struck(), 0);
}

TEST_P(FaultInjectingTransportTest, ADroppedMessageEndsTheReceiversWait) {
  Start("drop@0", absl::Milliseconds(100));
  ASSERT_TRUE(Send(0).ok());
  const absl::Status status = Receive(0);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(Text(status),
              HasSubstr("rank 1 waited 100ms for tensor 'hidden' from rank 0 (step 5, "
                        "micro-batch 0)"));
  EXPECT_EQ(faulty_->struck(), 1);
}

TEST_P(FaultInjectingTransportTest, AMessageAfterADroppedOneIsRefused) {
  Start("drop@0");
  ASSERT_TRUE(Send(0).ok());
  ASSERT_TRUE(Send(1).ok());
  const absl::Status status = Receive(0);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(Text(status), HasSubstr("sequence number is 1, expected 0"));
}

TEST_P(FaultInjectingTransportTest, ADuplicateIsRefused) {
  Start("duplicate@0");
  ASSERT_TRUE(Send(0).ok());
  ASSERT_TRUE(Receive(0).ok());
  const absl::Status status = Receive(1);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(Text(status), HasSubstr("sequence number is 0, expected 1"));
}

TEST_P(FaultInjectingTransportTest, ATruncatedMessageIsRefused) {
  Start("truncate@0");
  ASSERT_TRUE(Send(0).ok());
  const absl::Status status = Receive(0);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(Text(status), HasSubstr("size is 16, expected 32"));
}

TEST_P(FaultInjectingTransportTest, AFlippedMessageArrivesWithOtherBytes) {
  Start("flip@1");
  ASSERT_TRUE(Send(0).ok());
  ASSERT_TRUE(Receive(0).ok());
  EXPECT_EQ(got_, sent_.back());
  ASSERT_TRUE(Send(1).ok());
  ASSERT_TRUE(Receive(1).ok());
  EXPECT_NE(got_.front(), sent_.back().front());
  for (size_t i = 1; i < got_.size(); ++i) EXPECT_EQ(got_[i], sent_.back()[i]) << i;
  EXPECT_EQ(faulty_->struck(), 1);
}

TEST_P(FaultInjectingTransportTest, AStaleJobIsRefusedWithBothValues) {
  Start("stale_job@0");
  ASSERT_TRUE(Send(0).ok());
  const absl::Status status = Receive(0);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(Text(status),
              HasSubstr(absl::StrCat("job_id is ", kTestJobId - 1, ", expected ", kTestJobId)));
}

TEST_P(FaultInjectingTransportTest, ADelayedMessageArrivesAfterOthers) {
  Start("delay@0+1");
  std::vector<float> other(kElements, 7), target(kElements);
  AwaitedTransfer sent, received;
  MessageHeader header;
  header.job_id = kTestJobId;
  header.incarnation = 100;
  header.stream = 9;
  header.dtype = DType::kFloat32;
  header.elements = kElements;
  header.bytes = kElements * 4;
  ASSERT_TRUE(Send(0).ok());
  faulty_->Send(RankId(1), header, other.data(), sent);  // sets it free
  cluster_->transport(1).Receive(RankId(0), header, target.data(), received);
  EXPECT_TRUE(received.Await().ok());
  ASSERT_TRUE(Receive(0).ok());
  EXPECT_EQ(got_, sent_.back());
  EXPECT_TRUE(sent.Await().ok());
}

TEST_P(FaultInjectingTransportTest, ACreditTooFewEndsTheSendersWait) {
  Start("withhold_credit@1", absl::Milliseconds(100));
  ASSERT_TRUE(Send(0).ok());
  ASSERT_TRUE(Receive(0).ok());
  ASSERT_TRUE(Send(1).ok());
  ASSERT_TRUE(Receive(1).ok());
  EXPECT_EQ(got_, sent_.back());
  const absl::Status status = Send(2);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(Text(status), HasSubstr("rank 0 waited 100ms for a credit to send tensor 'hidden' to "
                                      "rank 1 (step 5, micro-batch 1)"));
  EXPECT_EQ(WaitText(status), "a credit to send tensor 'hidden' to worker:1");
}

TEST_P(FaultInjectingTransportTest, ALostPeerIsNamedInTheErrorOfItsWait) {
  Start("lose_peer@1");
  ASSERT_TRUE(Send(0).ok());
  ASSERT_TRUE(Receive(0).ok());
  ASSERT_TRUE(Send(1).ok());
  const absl::Status status = sender_->WaitSent(sending_);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(Text(status), HasSubstr("rank 0 lost rank 1"));
  EXPECT_EQ(LostPeerOf(status), RankId(1));
  // It stays lost, in both directions.
  AwaitedTransfer sent, received;
  MessageHeader header;
  header.job_id = kTestJobId;
  header.stream = 9;
  faulty_->Send(RankId(1), header, nullptr, sent);
  faulty_->Receive(RankId(1), header, nullptr, received);
  EXPECT_TRUE(absl::IsUnavailable(sent.Await()));
  EXPECT_TRUE(absl::IsUnavailable(received.Await()));
  EXPECT_EQ(faulty_->struck(), 1);
}

TEST_P(FaultInjectingTransportTest, APeersAbortReachesWhatIsHeldBack) {
  Start("withhold_credit@0,delay@1+5");
  ASSERT_TRUE(Send(0).ok());
  ASSERT_TRUE(Receive(0).ok());
  AwaitedTransfer delayed;
  MessageHeader header;
  header.job_id = kTestJobId;
  header.incarnation = 100;
  header.stream = 9;
  faulty_->Send(RankId(1), header, nullptr, delayed);
  receiver_->Abort(absl::InternalError("the cause"));
  const absl::Status withheld = sender_->WaitSent(sending_);
  EXPECT_TRUE(absl::IsAborted(withheld)) << withheld;
  EXPECT_THAT(Text(withheld), HasSubstr("the cause"));
  EXPECT_TRUE(absl::IsAborted(delayed.Await()));
  EXPECT_EQ(delayed.calls(), 1);
}

INSTANTIATE_TEST_SUITE_P(All, FaultInjectingTransportTest, ::testing::ValuesIn(TransportKinds()),
                         [](const auto& info) { return info.param; });

TEST(ParseTransportFaultsTest, ReadsTheTextForm) {
  const auto faults = ParseTransportFaults("drop@7,delay@3+2,withhold_credit@0");
  ASSERT_TRUE(faults.ok()) << faults.status();
  ASSERT_EQ(faults->size(), 3u);
  EXPECT_EQ(faults->at(0).message, 7);
  EXPECT_EQ(faults->at(1).kind, TransportFault::Kind::kDelay);
  EXPECT_EQ(faults->at(1).later_sends, 2);
  EXPECT_EQ(faults->at(2).kind, TransportFault::Kind::kWithholdCredit);
  for (const char* text : {"drop", "burn@3", "drop@-1", "drop@x"}) {
    EXPECT_FALSE(ParseTransportFaults(text).ok()) << text;
  }
}

}  // namespace
}  // namespace weft::testing
