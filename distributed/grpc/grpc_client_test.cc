#include "distributed/grpc/grpc_client.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "distributed/grpc/weft.grpc.pb.h"
#include "distributed/loss_detection.h"
#include "gtest/gtest.h"
#include "platform/mutex.h"

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

// Answers two questions, and is silent from then on: its connection stays. Its steps end with the
// lease.
class FrozenService final : public rpc::Control::Service {
 public:
  grpc::Status Attend(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<rpc::AttendReply, rpc::AttendRequest>* stream) override {
    stream->Write(rpc::AttendReply());
    rpc::AttendRequest request;
    for (int answers = 2; stream->Read(&request); --answers) {
      if (answers > 0) stream->Write(rpc::AttendReply());
    }
    MutexLock lock(mutex_);
    has_ended_ = true;
    changed_.NotifyAll();
    return grpc::Status::OK;
  }
  grpc::Status RunSteps(grpc::ServerContext*,
                        grpc::ServerReaderWriter<rpc::Sealed, rpc::Sealed>*) override {
    MutexLock lock(mutex_);
    while (!has_ended_) changed_.Wait(mutex_);
    return grpc::Status::OK;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool has_ended_ ABSL_GUARDED_BY(mutex_) = false;
};

// The promise of --detect fast is a second of silence, as the coordinator has measured it.
TEST(GrpcClientTest, AWorkerThatFallsSilentIsLostWithTheTimeOfItsSilence) {
  FrozenService service;
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
  options.detection = kFastDetection;
  auto client = ConnectToWorker(options);
  ASSERT_TRUE(client.ok()) << client.status();
  const absl::Status lost = (*client)->RunSteps({}, nullptr);
  EXPECT_TRUE(absl::IsUnavailable(lost)) << lost;
  const std::string text(lost.message());
  std::smatch silence;
  ASSERT_TRUE(std::regex_search(text, silence, std::regex("it has not answered for ([0-9.]+) s")))
      << text;
  // Four questions, 0.18 s apart, before the fifth.
  EXPECT_GE(std::stod(silence[1]), 4 * 0.18 - 0.01);
}

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
