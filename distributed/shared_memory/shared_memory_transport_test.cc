// What a peer on this machine may do wrong: end, fall silent, lie. And which way messages go.
#include "distributed/shared_memory/shared_memory_transport.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/in_process_transport.h"
#include "distributed/shared_memory/ranks_here.h"
#include "distributed/shared_memory/ring.h"
#include "distributed/testing/awaited_transfer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weft::testing::AwaitedTransfer;

constexpr uint64_t kJobId = 9;
constexpr char kToken[] = "a token of the job's workers";

MessageHeader HeaderFor(uint64_t sequence, uint64_t bytes) {
  MessageHeader header;
  header.job_id = kJobId;
  header.incarnation = 42;
  header.stream = 1;
  header.sequence = sequence;
  header.dtype = DType::kUint8;
  header.elements = header.bytes = bytes;
  return header;
}

// A process that claims to be a rank, and says what the test has it say.
struct RawPeer {
  FileDescriptor connection;
  std::unique_ptr<RingWriter> writer;

  void Write(const MessageHeader& header, const std::string& part) {
    Frame frame;
    frame.header = header;
    const auto written =
        writer->Write(frame, reinterpret_cast<const std::byte*>(part.data()), part.size());
    ASSERT_TRUE(written.ok() && *written);
    if (writer->TakeReaderSleeps()) Notify(connection, RingNotice::Kind::kWake);
  }
  // What the other end says, without wakes and beats; it comes within seconds.
  absl::StatusOr<RingNotice> AwaitNotice() {
    for (int i = 0; i < 10'000; ++i) {
      auto notice = TakeNotice(connection);
      if (!notice.ok()) return notice.status();
      if (!notice->has_value()) {
        usleep(1000);
      } else if ((*notice)->kind != RingNotice::Kind::kWake &&
                 (*notice)->kind != RingNotice::Kind::kBeat) {
        return **notice;
      }
    }
    return absl::DeadlineExceededError("no notice");
  }
};

class SharedMemoryTransportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (std::filesystem::temp_directory_path() / "weft-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    hub_ = std::make_unique<InProcessHub>(3);
  }
  void TearDown() override {
    transports_.clear();
    std::filesystem::remove_all(folder_);
  }
  // The transport of a rank of three, the last of which is on another machine. "Sockets" are the
  // hub's.
  Transport& Open(int rank) {
    const SharedMemoryJob job{folder_,
                              kJobId,
                              RankId(rank),
                              {"unix:/a", "unix:/b", "elsewhere:1"},
                              {rank < 2, rank < 2, rank == 2},
                              kToken};
    const auto open =
        [&](SharedMemoryTransport::OnAbort) -> absl::StatusOr<std::unique_ptr<Transport>> {
      return hub_->NewTransport(RankId(rank));
    };
    transports_.push_back(SharedMemoryTransport::Open(job, open).value());
    return *transports_.back();
  }
  // Connects to rank 0 as rank 1, or as another.
  RawPeer Connect(const RingGreeting& greeting = {kJobId, RankId(1), RankId(0), kToken}) {
    RawPeer peer;
    peer.writer = RingWriter::Create().value();
    Hand(peer, greeting, peer.writer->file());
    return peer;
  }
  void Hand(RawPeer& peer, const RingGreeting& greeting, int file) {
    auto connection = ConnectToRing({folder_, kJobId, RankId(0)});
    ASSERT_TRUE(connection.ok() && connection->has_value()) << connection.status();
    peer.connection = *std::move(*connection);
    ASSERT_TRUE(SendGreeting(peer.connection, greeting, file).ok());
  }
  // Where rank 0 finds a rank 1, so that it waits for its ring.
  void ListenAsRankOne() { listener_ = RingListener::Listen({folder_, kJobId, RankId(1)}).value(); }
  void Receive(uint64_t sequence, size_t bytes = 3) {
    target_.assign(bytes, '\0');
    transports_.front()->Receive(RankId(1), HeaderFor(sequence, bytes), target_.data(), received_);
  }

  std::string folder_;
  std::unique_ptr<InProcessHub> hub_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::unique_ptr<RingListener> listener_;
  std::string target_;
  AwaitedTransfer received_;
};

TEST_F(SharedMemoryTransportTest, NeighboursShareMemoryAndOthersDoNot) {
  Transport& first = Open(0);
  Transport& second = Open(1);
  Transport& third = Open(2);
  std::string target(3, '\0');
  AwaitedTransfer sent, received, sent_far, received_far;
  first.Send(RankId(1), HeaderFor(0, 3), "abc", sent);
  second.Receive(RankId(0), HeaderFor(0, 3), target.data(), received);
  ASSERT_TRUE(received.Await().ok()) << received.Await();
  EXPECT_EQ(target, "abc");
  EXPECT_TRUE(sent.Await().ok());
  EXPECT_EQ(hub_->NewTransport(RankId(0))->bytes_sent(), 0);
  third.Receive(RankId(0), HeaderFor(0, 5), target.data(), received_far);
  first.Send(RankId(2), HeaderFor(0, 5), "defgh", sent_far);
  ASSERT_TRUE(received_far.Await().ok());
  EXPECT_EQ(hub_->NewTransport(RankId(0))->bytes_sent(), 5);
  EXPECT_EQ(first.bytes_sent(), 8);
}

TEST_F(SharedMemoryTransportTest, CountsAHeaderForEachPart) {
  Transport& first = Open(0);
  Transport& second = Open(1);
  const std::string data(2 * kRingPartBytes + 1, 'x');
  std::string target(data.size(), '\0');
  AwaitedTransfer sent, received;
  first.Send(RankId(1), HeaderFor(0, data.size()), data.data(), sent);
  second.Receive(RankId(0), HeaderFor(0, data.size()), target.data(), received);
  ASSERT_TRUE(received.Await().ok());
  ASSERT_TRUE(sent.Await().ok());
  EXPECT_EQ(target, data);
  EXPECT_EQ(first.header_bytes_sent(), 3 * 96);
  EXPECT_EQ(second.header_bytes_sent(), 0);
}

// Both ways of a pair, so that they agree.
TEST_F(SharedMemoryTransportTest, WhoHasNoListenerIsSentToThroughSockets) {
  Transport& first = Open(0);
  const std::unique_ptr<Transport> second = hub_->NewTransport(RankId(1));
  std::string target(3, '\0');
  AwaitedTransfer sent, received, answered, got;
  first.Send(RankId(1), HeaderFor(0, 3), "abc", sent);
  second->Receive(RankId(0), HeaderFor(0, 3), target.data(), received);
  ASSERT_TRUE(received.Await().ok());
  EXPECT_EQ(target, "abc");
  second->Send(RankId(0), HeaderFor(0, 3), "def", answered);
  first.Receive(RankId(1), HeaderFor(0, 3), target.data(), got);
  ASSERT_TRUE(got.Await().ok());
  EXPECT_EQ(target, "def");
}

TEST_F(SharedMemoryTransportTest, WhatALostPeerHasWrittenIsReadBefore) {
  Open(0);
  ListenAsRankOne();
  RawPeer peer = Connect();
  peer.Write(HeaderFor(0, 3), "abc");
  peer.connection.Close();
  Receive(0);
  EXPECT_TRUE(received_.Await().ok()) << received_.Await();
  EXPECT_EQ(target_, "abc");
  AwaitedTransfer next, sent;
  transports_.front()->Receive(RankId(1), HeaderFor(1, 3), target_.data(), next);
  const absl::Status status = next.Await();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(std::string(status.message()),
            "rank 1 (unix:/b) is lost: its connection broke (did its process end?)");
  transports_.front()->Send(RankId(1), HeaderFor(0, 3), "abc", sent);
  EXPECT_TRUE(absl::IsUnavailable(sent.Await()));
}

TEST_F(SharedMemoryTransportTest, HalfAMessageOfALostPeerIsNone) {
  Open(0);
  ListenAsRankOne();
  Receive(0, 6);
  RawPeer peer = Connect();
  peer.Write(HeaderFor(0, 6), "abc");
  peer.connection.Close();
  EXPECT_TRUE(absl::IsUnavailable(received_.Await()));
  EXPECT_EQ(received_.calls(), 1);
}

TEST_F(SharedMemoryTransportTest, APeerThatSaysGoodbyeHasLeft) {
  Open(0);
  ListenAsRankOne();
  RawPeer peer = Connect();
  Notify(peer.connection, RingNotice::Kind::kClose);
  Receive(0);
  EXPECT_EQ(std::string(received_.Await().message()), "rank 1 (unix:/b) has left the job");
}

// It is connected, and says nothing: after four seconds it is lost.
TEST_F(SharedMemoryTransportTest, ASilentPeerIsLost) {
  Open(0);
  ListenAsRankOne();
  const RawPeer peer = Connect();
  Receive(0);
  const absl::Status status = received_.Await();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 lost rank 1"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("does not answer"));
}

TEST_F(SharedMemoryTransportTest, AnAbortIsHeardWhileTheRingIsFull) {
  Open(0);
  ListenAsRankOne();
  RawPeer peer = Connect();
  std::string part(kRingPartBytes, 'x');
  MessageHeader header = HeaderFor(0, uint64_t{1'200'000'000'000});
  peer.Write(header, part);  // for which there is no room
  Notify(peer.connection, RingNotice::Kind::kAbort, absl::AbortedError("loss is nan"));
  Receive(0);
  EXPECT_EQ(received_.Await(), absl::AbortedError("the job was aborted: loss is nan"));
}

TEST_F(SharedMemoryTransportTest, AClaimedSizeTakesNoMemory) {
  Open(0);
  ListenAsRankOne();
  RawPeer peer = Connect();
  peer.Write(HeaderFor(0, uint64_t{1'200'000'000'000}), "abc");
  Receive(0);
  EXPECT_EQ(received_.calls(), 0);  // the rest does not come
  peer.connection.Close();
  EXPECT_TRUE(absl::IsUnavailable(received_.Await())) << received_.Await();
}

TEST_F(SharedMemoryTransportTest, AnIndexThatMakesNoSenseEndsTheStream) {
  Open(0);
  ListenAsRankOne();
  RawPeer peer = Connect();
  RingMapping::Map(peer.writer->file())->control().written.store(uint64_t{1} << 60);
  Notify(peer.connection, RingNotice::Kind::kWake);
  Receive(0);
  const absl::Status status = received_.Await();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 (unix:/b) sent a broken message"));
  EXPECT_EQ(peer.AwaitNotice()->kind, RingNotice::Kind::kRefuse);
}

TEST_F(SharedMemoryTransportTest, StrangersAreRefusedAndChangeNothing) {
  Open(0);
  ListenAsRankOne();
  struct Case {
    RingGreeting greeting;
    absl::Status refusal;
  };
  const std::vector<Case> cases = {
      {{kJobId, RankId(1), RankId(0), "another token"},
       absl::UnauthenticatedError("the token of this worker differs")},
      {{kJobId, RankId(1), RankId(0), ""},
       absl::UnauthenticatedError("the token of this worker differs")},
      {{8, RankId(1), RankId(0), kToken},
       absl::FailedPreconditionError("stale peer: the ring is of job 8, this worker is in job 9")},
      {{kJobId, RankId(2), RankId(0), kToken},
       absl::FailedPreconditionError("rank 2 shares no memory with rank 0 in this job")},
      {{kJobId, RankId(0), RankId(0), kToken},
       absl::FailedPreconditionError("rank 0 shares no memory with rank 0 in this job")},
      {{kJobId, RankId(-1), RankId(0), kToken},
       absl::FailedPreconditionError("rank -1 shares no memory with rank 0 in this job")},
      {{kJobId, RankId(1'000'000), RankId(0), kToken},
       absl::FailedPreconditionError("rank 1000000 shares no memory with rank 0 in this job")},
  };
  for (const Case& test : cases) {
    RawPeer peer = Connect(test.greeting);
    const auto notice = peer.AwaitNotice();
    ASSERT_TRUE(notice.ok()) << notice.status();
    EXPECT_EQ(notice->kind, RingNotice::Kind::kRefuse);
    EXPECT_EQ(notice->status, test.refusal);
  }
  RawPeer peer = Connect();
  peer.Write(HeaderFor(0, 3), "abc");
  Receive(0);
  EXPECT_TRUE(received_.Await().ok()) << received_.Await();
}

// Its size could change under the mapping, and end this process.
TEST_F(SharedMemoryTransportTest, MemoryThatCanShrinkIsRefused) {
  Open(0);
  const FileDescriptor file(memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(file.get(), kRingMappingBytes), 0);
  RawPeer peer;
  Hand(peer, {kJobId, RankId(1), RankId(0), kToken}, file.get());
  EXPECT_EQ(peer.AwaitNotice()->status.code(), absl::StatusCode::kPermissionDenied);
  // That was no stream of rank 1 yet.
  ListenAsRankOne();
  RawPeer again = Connect();
  again.Write(HeaderFor(0, 3), "abc");
  Receive(0);
  EXPECT_TRUE(received_.Await().ok());
}

TEST_F(SharedMemoryTransportTest, ARankHasOneRing) {
  Open(0);
  RawPeer first = Connect();
  RawPeer second = Connect();
  const auto notice = second.AwaitNotice();
  ASSERT_TRUE(notice.ok());
  EXPECT_THAT(std::string(notice->status.message()), HasSubstr("claim the same rank?"));
}

TEST_F(SharedMemoryTransportTest, ARefusedRankKnowsWhy) {
  Open(0);
  ListenAsRankOne();
  AwaitedTransfer sent;
  transports_.front()->Send(RankId(1), HeaderFor(0, 3), "abc", sent);
  auto connection = listener_->Accept();
  ASSERT_TRUE(connection.has_value());
  Notify(*connection, RingNotice::Kind::kRefuse, absl::UnauthenticatedError("no"));
  Receive(0);
  EXPECT_EQ(received_.Await(), absl::UnauthenticatedError("no"));
}

TEST(RanksHereTest, AreThoseOfOneHost) {
  const std::vector<std::string> addresses = {"unix:/a",       "127.0.0.1:4000", "localhost:4001",
                                              "10.0.0.1:4000", "10.0.0.1:4001",  "10.0.0.2:4000"};
  EXPECT_THAT(RanksHere(addresses, RankId(0)), ElementsAre(true, true, true, false, false, false));
  EXPECT_THAT(RanksHere(addresses, RankId(2)), ElementsAre(true, true, true, false, false, false));
  EXPECT_THAT(RanksHere(addresses, RankId(3)), ElementsAre(false, false, false, true, true, false));
  EXPECT_THAT(RanksHere(addresses, RankId(5)),
              ElementsAre(false, false, false, false, false, true));
  EXPECT_THAT(RanksHere({"unix:/a"}, RankId(1)), ElementsAre(false));
  EXPECT_THAT(RanksHere({"unix:/a"}, RankId()), ElementsAre(false));
}

}  // namespace
}  // namespace weft
