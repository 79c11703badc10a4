// What the gRPC transport refuses: streams of another job, and of ranks that are none.
#include "distributed/grpc/grpc_transport.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/grpc/channel_options.h"
#include "distributed/grpc/frame.h"
#include "distributed/grpc/grpc_server.h"
#include "distributed/grpc/outbox.h"
#include "distributed/grpc/part_size.h"
#include "distributed/grpc/weft.grpc.pb.h"
#include "distributed/testing/awaited_transfer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/checksum.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::weft::testing::AwaitedTransfer;

grpc::Slice BytesOf(const Frame& frame) {
  const FrameHeaderBytes bytes = EncodeFrameHeader(frame);
  return grpc::Slice(bytes.data(), bytes.size());
}

// What has happened next on a queue with one operation at a time.
bool Happened(grpc::CompletionQueue& queue) {
  void* tag = nullptr;
  bool ok = false;
  return queue.Next(&tag, &ok) && ok;
}

// Two servers; each test opens transports of the jobs it likes on them.
class GrpcTransportTest : public ::testing::Test {
 protected:
  GrpcTransportTest() {
    folder_ = (std::filesystem::temp_directory_path() / "weft-XXXXXX").string();
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    for (int i = 0; i < 2; ++i) {
      addresses_.push_back(absl::StrCat("unix:", folder_, "/", i));
      servers_.push_back(GrpcServer::Start({addresses_.back()}).value());
    }
  }
  ~GrpcTransportTest() override {
    servers_.clear();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::unique_ptr<Transport> Open(int server, int rank, uint64_t job_id) {
    JobMembership membership;
    membership.job_id = job_id;
    membership.rank = RankId(rank);
    membership.addresses = addresses_;
    return servers_[server]->OpenTransport(membership).value();
  }
  static MessageHeader Header(uint64_t job_id) {
    MessageHeader header;
    header.job_id = job_id;
    header.incarnation = 1;
    header.stream = 4;
    header.dtype = DType::kFloat32;
    header.elements = 2;
    header.bytes = 8;
    return header;
  }

  std::string folder_;
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<GrpcServer>> servers_;
};

TEST_F(GrpcTransportTest, AStreamOfAnotherJobIsRefusedWithBothJobIds) {
  const auto current = Open(1, 1, 2222);
  float got[2] = {};
  AwaitedTransfer received, next, ended;
  {
    const auto stale = Open(0, 0, 1111);
    // The sender learns it from the end of its stream, and so does who waits for an answer.
    stale->Receive(RankId(1), Header(1111), got, ended);
    const absl::Status status = ended.Await();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("stale peer: the stream is of job 1111, this worker is in job 2222"));
  }
  // The current job goes on, with the rank's next process.
  const auto peer = Open(0, 0, 2222);
  const float data[2] = {3, 4};
  AwaitedTransfer sent;
  current->Receive(RankId(0), Header(2222), got, received);
  peer->Send(RankId(1), Header(2222), data, sent);
  EXPECT_TRUE(received.Await().ok()) << received.Await();
  EXPECT_EQ(got[1], 4);
}

TEST_F(GrpcTransportTest, AMessageOfAnotherJobIsRefusedWithBothJobIds) {
  const auto receiver = Open(1, 1, 2222);
  const auto sender = Open(0, 0, 2222);
  const float data[2] = {3, 4};
  float got[2] = {};
  AwaitedTransfer sent, received;
  sender->Send(RankId(1), Header(1111), data, sent);
  receiver->Receive(RankId(0), Header(2222), got, received);
  const absl::Status status = received.Await();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("job_id is 1111, expected 2222"));
  EXPECT_EQ(got[0], 0);
}

TEST_F(GrpcTransportTest, ARankThatIsNoneIsRefused) {
  const auto transport = Open(0, 0, 2222);
  AwaitedTransfer sent;
  transport->Send(RankId(7), Header(2222), nullptr, sent);
  EXPECT_THAT(std::string(sent.Await().message()), HasSubstr("rank 7 is no peer of rank 0"));
}

// Such an end once was the error of an unknown operator: the model was blamed.
TEST_F(GrpcTransportTest, WhatTheConnectionSaysIsALostPeer) {
  servers_[1].reset();
  rpc::Control::Service other;  // knows no data streams, so that gRPC answers by itself
  grpc::ServerBuilder builder;
  builder.AddListeningPort(addresses_[1], grpc::InsecureServerCredentials());
  builder.RegisterService(&other);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  const auto transport = Open(0, 0, 2222);
  float got[2] = {};
  AwaitedTransfer ended;
  transport->Receive(RankId(1), Header(2222), got, ended);
  const absl::Status status = ended.Await();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("lost rank 1"));
}

// The sender, which has written before it knows that, waits for no other answer.
TEST_F(GrpcTransportTest, AFrameThatAsksIsAnsweredAndNoOther) {
  const auto receiver = Open(1, 1, 2222);
  grpc::GenericStub stub(NewChannel(addresses_[1]));
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  context.AddMetadata(kTokenKey, "");
  context.AddMetadata(kJobIdKey, "2222");
  context.AddMetadata(kRankKey, "0");
  const auto call = stub.PrepareCall(&context, kDataMethod, &queue);
  call->StartCall(nullptr);
  ASSERT_TRUE(Happened(queue));

  const float data[2] = {3, 4};
  grpc::ByteBuffer answer;
  uint64_t next = 0;
  for (const bool asks : {false, true, false}) {
    Frame frame;
    frame.header = Header(2222);
    frame.header.sequence = next++;
    frame.header.checksum = Checksum(std::as_bytes(std::span(data)));
    frame.part_bytes = sizeof(data);
    frame.asks = asks;
    const grpc::Slice slices[2] = {BytesOf(frame), grpc::Slice(data, sizeof(data))};
    call->Write(grpc::ByteBuffer(slices, 2), nullptr);
    ASSERT_TRUE(Happened(queue));
    if (!asks) continue;
    call->Read(&answer, nullptr);
    ASSERT_TRUE(Happened(queue)) << "no answer";
  }
  for (uint64_t sequence = 0; sequence < next; ++sequence) {
    MessageHeader header = Header(2222);
    header.sequence = sequence;
    float got[2] = {};
    AwaitedTransfer received;
    receiver->Receive(RankId(0), header, got, received);
    EXPECT_TRUE(received.Await().ok()) << received.Await();
    EXPECT_EQ(got[1], 4);
  }
  call->WritesDone(nullptr);
  ASSERT_TRUE(Happened(queue));
  call->Read(&answer, nullptr);
  EXPECT_FALSE(Happened(queue)) << "an answer that nobody has asked for";
  grpc::Status status;
  call->Finish(&status, nullptr);
  EXPECT_TRUE(Happened(queue));
  queue.Shutdown();
}

// A peer that takes frames one by one and answers when the test likes.
class SlowPeer {
 public:
  explicit SlowPeer(const std::string& address) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.SetMaxReceiveMessageSize(kLongestMessageBytes);
    builder.RegisterAsyncGenericService(&service_);
    queue_ = builder.AddCompletionQueue();
    server_ = builder.BuildAndStart();
    service_.RequestCall(&context_, &stream_, queue_.get(), queue_.get(), this);
  }
  ~SlowPeer() {
    if (accepted_) {
      stream_.Finish(grpc::Status::CANCELLED, this);
      Happened(*queue_);
    }
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
    queue_->Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_->Next(&tag, &ok)) {
    }
  }
  bool AwaitStream() { return accepted_ = Happened(*queue_); }
  Frame TakeFrame() {
    grpc::ByteBuffer message;
    stream_.Read(&message, this);
    EXPECT_TRUE(Happened(*queue_));
    return FrameOf(message);
  }
  // Whether one comes within a quarter of a second; if so, it is lost.
  bool ComesOne() {
    stream_.Read(&next_, this);
    void* tag = nullptr;
    bool ok = false;
    const auto deadline = std::chrono::system_clock::now() + std::chrono::milliseconds(250);
    return queue_->AsyncNext(&tag, &ok, deadline) == grpc::CompletionQueue::GOT_EVENT;
  }
  // Answers; the frame that ComesOne has waited for.
  Frame AnswerAndTake() {
    const grpc::Slice slice("1", 1);
    stream_.Write(grpc::ByteBuffer(&slice, 1), this);
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(Happened(*queue_));  // written; the next has come
    return FrameOf(next_);
  }

 private:
  static Frame FrameOf(const grpc::ByteBuffer& message) {
    std::vector<grpc::Slice> slices;
    EXPECT_TRUE(message.Dump(&slices).ok());
    std::string bytes;
    for (const grpc::Slice& slice : slices) {
      bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
    FrameHeaderBytes header = {};
    std::memcpy(header.data(), bytes.data(), std::min(bytes.size(), header.size()));
    auto frame = DecodeFrameHeader(header);
    EXPECT_TRUE(frame.ok()) << frame.status();
    return frame.ok() ? *frame : Frame();
  }

  grpc::AsyncGenericService service_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  grpc::ByteBuffer next_;
  bool accepted_ = false;
};

// A part that has left lies in buffers, which hold seconds' worth of a slow link. What is asked by
// keepalive then waits behind them.
TEST_F(GrpcTransportTest, OneUnansweredPartIsUnderWayAtMost) {
  servers_[1].reset();
  SlowPeer peer(addresses_[1]);
  auto sender = Open(0, 0, 2222);
  MessageHeader header = Header(2222);
  header.elements = 3 * PartSize::kSmallest / sizeof(float);
  header.bytes = 3 * PartSize::kSmallest;
  const std::vector<float> data(header.elements, 3);
  AwaitedTransfer sent;
  sender->Send(RankId(1), header, data.data(), sent);
  ASSERT_TRUE(peer.AwaitStream());
  Frame frame = peer.TakeFrame();
  for (uint64_t part = 0; part < 2; ++part) {
    EXPECT_EQ(frame.offset, part * PartSize::kSmallest);
    EXPECT_EQ(frame.part_bytes, PartSize::kSmallest);
    EXPECT_TRUE(frame.asks);
    ASSERT_FALSE(peer.ComesOne()) << "a part that did not wait for the answer";
    frame = peer.AnswerAndTake();
  }
  EXPECT_EQ(frame.offset, 2 * PartSize::kSmallest);
  EXPECT_TRUE(sent.Await().ok()) << sent.Await();
  sender->Abort(absl::CancelledError("the test ends"));
  sender.reset();
}

TEST_F(GrpcTransportTest, CountsHeadersApartFromPayload) {
  const auto receiver = Open(1, 1, 2222);
  const auto sender = Open(0, 0, 2222);
  // Two of the parts that a stream begins with, and a short one.
  MessageHeader header = Header(2222);
  header.elements = 2 * PartSize::kSmallest / sizeof(float) + 1;
  header.bytes = header.elements * sizeof(float);
  const std::vector<float> data(header.elements, 3);
  std::vector<float> got(header.elements);
  AwaitedTransfer sent, received;
  sender->Send(RankId(1), header, data.data(), sent);
  receiver->Receive(RankId(0), header, got.data(), received);
  ASSERT_TRUE(received.Await().ok());
  EXPECT_EQ(sender->bytes_sent(), static_cast<int64_t>(header.bytes));
  EXPECT_EQ(sender->header_bytes_sent(), 3 * 96);
  EXPECT_EQ(receiver->header_bytes_sent(), 0);
}

}  // namespace
}  // namespace weft
