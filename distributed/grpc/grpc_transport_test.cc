// What the gRPC transport refuses: streams of another job, and of ranks that are none.
#include "distributed/grpc/grpc_transport.h"

#include <grpcpp/grpcpp.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/grpc/grpc_server.h"
#include "distributed/grpc/part_size.h"
#include "distributed/grpc/weft.grpc.pb.h"
#include "distributed/testing/awaited_transfer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::weft::testing::AwaitedTransfer;

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
