// What a caller without the token gets from a worker: nothing. Each of these calls once did
// something.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "distributed/grpc/address.h"
#include "distributed/grpc/channel_options.h"
#include "distributed/grpc/grpc_server.h"
#include "distributed/grpc/status_codec.h"
#include "distributed/grpc/weft.grpc.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

constexpr char kToken[] = "0123456789abcdef0123456789abcdef";

class StrangerTest : public ::testing::Test {
 protected:
  StrangerTest()
      : server_(GrpcServer::Start({"127.0.0.1:0", false, kToken}).value()),
        stub_(rpc::Control::NewStub(NewChannel(server_->address()))) {}

  using CallFn = std::function<grpc::Status(grpc::ClientContext&)>;
  // The status of a call with this token; null: without one.
  absl::StatusCode Try(const CallFn& call, const char* token) {
    grpc::ClientContext context;
    if (token != nullptr) context.AddMetadata(kTokenKey, token);
    const grpc::Status status = call(context);
    return WasAnswered(context) ? AnswerOf(context, status).code() : FromGrpc(status).code();
  }
  void ExpectRefused(const std::string& what, const CallFn& call) {
    for (const char* const token : {static_cast<const char*>(nullptr), "", "wrong"}) {
      EXPECT_EQ(Try(call, token), absl::StatusCode::kUnauthenticated) << what;
    }
    EXPECT_NE(Try(call, kToken), absl::StatusCode::kUnauthenticated) << what;
  }

  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<rpc::Control::Stub> stub_;
};

TEST_F(StrangerTest, EveryCallWantsTheToken) {
  rpc::Empty empty, nothing;
  ExpectRefused("Join", [&](grpc::ClientContext& context) {
    rpc::JoinReply reply;
    return stub_->Join(&context, rpc::JoinRequest(), &reply);
  });
  ExpectRefused("AddProgram", [&](grpc::ClientContext& context) {
    rpc::MemoryRequirement reply;
    const auto writer = stub_->AddProgram(&context, &reply);
    writer->WritesDone();
    return writer->Finish();
  });
  ExpectRefused("WriteVariable", [&](grpc::ClientContext& context) {
    const auto writer = stub_->WriteVariable(&context, &nothing);
    writer->WritesDone();
    return writer->Finish();
  });
  ExpectRefused("ReadVariable", [&](grpc::ClientContext& context) {
    return stub_->ReadVariable(&context, rpc::ReadVariableRequest())->Finish();
  });
  ExpectRefused("RunSteps", [&](grpc::ClientContext& context) {
    return stub_->RunSteps(&context, rpc::RunStepsRequest())->Finish();
  });
  ExpectRefused("Ask", [&](grpc::ClientContext& context) {
    rpc::ControlReply reply;
    return stub_->Ask(&context, rpc::ControlRequest(), &reply);
  });
  ExpectRefused("Abort", [&](grpc::ClientContext& context) {
    return stub_->Abort(&context, rpc::AbortRequest(), &nothing);
  });
  ExpectRefused("Shutdown", [&](grpc::ClientContext& context) {
    return stub_->Shutdown(&context, empty, &nothing);
  });
}

TEST_F(StrangerTest, AttendingWantsTheToken) {
  grpc::ClientContext context;
  const auto stream = stub_->Attend(&context);
  rpc::AttendReply reply;
  EXPECT_FALSE(stream->Read(&reply));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(AnswerOf(context, status).code(), absl::StatusCode::kUnauthenticated);
}

// The answer once told the number of the job, which was all that a peer had to know.
TEST_F(StrangerTest, DataStreamsWantTheTokenAndTellNoJob) {
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(NewChannel(server_->address()));
  grpc::ClientContext context;
  context.AddMetadata("weft-job-id", "1");
  context.AddMetadata("weft-rank", "0");
  const auto call = stub.PrepareCall(&context, "/weft.Data/Stream", &queue);
  const auto wait = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
  };
  call->StartCall(nullptr);
  wait();
  grpc::Status status;
  call->Finish(&status, nullptr);
  wait();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.error_message(), ::testing::Not(::testing::HasSubstr("stale")));
  EXPECT_THAT(status.error_message(), ::testing::HasSubstr("token"));
  queue.Shutdown();
}

TEST(SocketTest, OnlyThisUserMayConnectAndTheFileGoes) {
  const std::string path = absl::StrCat("/tmp/weft-stranger-", getpid());
  const mode_t before = umask(0);
  // Not even while it starts: for a moment the socket had the mode of the umask.
  std::atomic<bool> is_starting = true;
  std::atomic<unsigned> seen = 0;
  std::thread watcher([&] {
    struct stat info = {};
    while (is_starting) {
      if (stat(path.c_str(), &info) == 0) seen |= info.st_mode & 077;
    }
  });
  auto server = GrpcServer::Start({absl::StrCat("unix:", path), false, kToken});
  is_starting = false;
  watcher.join();
  umask(before);
  EXPECT_EQ(seen.load(), 0u);
  ASSERT_TRUE(server.ok()) << server.status();
  struct stat info = {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  server->reset();
  EXPECT_NE(stat(path.c_str(), &info), 0);
}

TEST(AddressTest, ANameThatBeginsLikeLoopbackIsOfTheNetwork) {
  EXPECT_TRUE(IsLocalAddress("127.0.0.1:80"));
  EXPECT_TRUE(IsLocalAddress("127.3.2.1:80"));
  EXPECT_FALSE(IsLocalAddress("127.example.org:80"));
  EXPECT_FALSE(IsLocalAddress("127.0.0.1.example.org:80"));
}

}  // namespace
}  // namespace weft
