#include "distributed/grpc/grpc_client.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>

#include "absl/strings/str_cat.h"
#include "distributed/grpc/weft.grpc.pb.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

// Is attended as a worker is, and remembers how that ended.
class AttendedService final : public rpc::Control::Service {
 public:
  grpc::Status Attend(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<rpc::AttendReply, rpc::AttendRequest>* stream) override {
    stream->Write(rpc::AttendReply());
    rpc::AttendRequest request;
    while (stream->Read(&request)) said_goodbye_ = request.goodbye();
    was_cancelled_ = context->IsCancelled();
    has_ended_ = true;
    return grpc::Status::OK;
  }
  bool was_cancelled() const { return was_cancelled_; }
  bool has_ended() const { return has_ended_; }
  bool said_goodbye() const { return said_goodbye_; }

 private:
  std::atomic<bool> was_cancelled_ = false;
  std::atomic<bool> has_ended_ = false;
  std::atomic<bool> said_goodbye_ = false;
};

// The next coordinator comes at once where a sweep goes on to its next trial: a worker that had not
// yet heard of the end of the one before said that another coordinator attends to it.
TEST(GrpcClientTest, AClientThatIsGoneHasLeftItsWorkerFree) {
  AttendedService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  GrpcClientOptions options;
  options.address = absl::StrCat("127.0.0.1:", port);
  options.rank = RankId(0);
  options.token = "token";
  auto client = ConnectToWorker(options);
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_FALSE(service.has_ended());
  EXPECT_FALSE(service.said_goodbye());
  client->reset();
  EXPECT_TRUE(service.said_goodbye());
  EXPECT_TRUE(service.has_ended());
  EXPECT_FALSE(service.was_cancelled());
}

}  // namespace
}  // namespace weft
