// What a caller without the token gets from a worker: nothing. Each of these calls once did
// something.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/grpc/address.h"
#include "distributed/grpc/channel_options.h"
#include "distributed/grpc/grpc_server.h"
#include "distributed/grpc/seal.h"
#include "distributed/grpc/status_codec.h"
#include "distributed/grpc/weft.grpc.pb.h"
#include "distributed/worker.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/clock.h"

namespace weft {
namespace {

constexpr char kToken[] = "0123456789abcdef0123456789abcdef";

// Counts what reaches it.
class WorkerStub final : public Worker {
 public:
  int aborts() const { return aborts_; }
  std::string name() const override { return "stub"; }
  absl::StatusOr<WorkerInfo> Join(const JobMembership&) override { return WorkerInfo(); }
  absl::StatusOr<MemoryRequirement> AddProgram(const std::string&, const Partition&,
                                               const std::string&) override {
    return MemoryRequirement();
  }
  absl::StatusOr<MemoryRequirement> TakeProgram(const std::string&, Partition,
                                                const std::string&) override {
    return MemoryRequirement();
  }
  absl::StatusOr<VariableShard> FindVariable(const std::string&) const override {
    return absl::NotFoundError("none");
  }
  absl::Status WriteVariablePart(const std::string&, int64_t, std::span<const std::byte>) override {
    return absl::OkStatus();
  }
  absl::Status ReadVariablePart(const std::string&, int64_t, std::span<std::byte>) override {
    return absl::OkStatus();
  }
  absl::Status WriteVariable(const std::string&, const Tensor&) override {
    return absl::OkStatus();
  }
  absl::StatusOr<Tensor> ReadVariable(const std::string&) override { return Tensor(); }
  absl::Status RunSteps(const std::vector<StepRange>&,
                        const std::function<void(const StepReport&)>&) override {
    return absl::OkStatus();
  }
  absl::StatusOr<ControlReply> Answer(const ControlRequest&) override { return ProcessMemory(); }
  // Not those of the end of an attendance.
  void Abort(const absl::Status& reason) override {
    if (absl::IsAborted(reason)) ++aborts_;
  }

 private:
  std::atomic<int> aborts_ = 0;
};

class StrangerTest : public ::testing::Test {
 protected:
  StrangerTest()
      : server_(GrpcServer::Start({"127.0.0.1:0", false, kToken}).value()),
        stub_(rpc::Control::NewStub(NewChannel(server_->address()))) {}

  using CallFn = std::function<grpc::Status(grpc::ClientContext&)>;
  // The status of a call with this token; null: without one. So of the lease.
  absl::StatusCode Try(const CallFn& call, const char* token, const std::string& lease = "") {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    if (token != nullptr) context.AddMetadata(kTokenKey, token);
    if (!lease.empty()) context.AddMetadata(kLeaseKey, lease);
    const grpc::Status status = call(context);
    return WasAnswered(context) ? AnswerOf(context, status).code() : FromGrpc(status).code();
  }
  using Named = std::pair<std::string, CallFn>;
  // Every call but Attend, with one message, or without it and without an end of the request.
  std::vector<Named> AllCalls(bool sends = true) {
    return {{"Join", Write(&rpc::Control::Stub::Join, sends)},
            {"AddProgram", Talk(&rpc::Control::Stub::AddProgram, sends)},
            {"WriteVariable", Talk(&rpc::Control::Stub::WriteVariable, sends)},
            {"ReadVariable", Talk(&rpc::Control::Stub::ReadVariable, sends)},
            {"RunSteps", Talk(&rpc::Control::Stub::RunSteps, sends)},
            {"Ask", Write(&rpc::Control::Stub::Ask, sends)},
            {"Abort", Write(&rpc::Control::Stub::Abort, sends)},
            {"Shutdown", Write(&rpc::Control::Stub::Shutdown, sends)}};
  }
  template <typename Request, typename Reply>
  CallFn Write(std::unique_ptr<grpc::ClientWriter<Request>> (rpc::Control::Stub::*method)(
                   grpc::ClientContext*, Reply*),
               bool sends) {
    return [this, method, sends](grpc::ClientContext& context) {
      Reply reply;
      const auto writer = (stub_.get()->*method)(&context, &reply);
      if (sends) writer->WriteLast(Message<Request>(), grpc::WriteOptions());
      return writer->Finish();
    };
  }
  template <typename Reply>
  CallFn Talk(std::unique_ptr<grpc::ClientReaderWriter<rpc::Sealed, Reply>> (
                  rpc::Control::Stub::*method)(grpc::ClientContext*),
              bool sends) {
    return [this, method, sends](grpc::ClientContext& context) {
      const auto stream = (stub_.get()->*method)(&context);
      if (sends) stream->WriteLast(Message<rpc::Sealed>(), grpc::WriteOptions());
      return stream->Finish();
    };
  }
  // One that Abort understands, and no other call.
  template <typename Request>
  static Request Message() {
    if constexpr (std::is_same_v<Request, rpc::Sealed>) return Seal(rpc::AbortRequest());
    return Request();
  }

  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<rpc::Control::Stub> stub_;
};

TEST_F(StrangerTest, EveryCallWantsTheToken) {
  for (const auto& [what, call] : AllCalls()) {
    const std::string longer = absl::StrCat(kToken, "0");
    for (const char* const token :
         {static_cast<const char*>(nullptr), "", "wrong", kToken + 1, longer.c_str()}) {
      EXPECT_EQ(Try(call, token), absl::StatusCode::kUnauthenticated) << what;
    }
    EXPECT_NE(Try(call, kToken), absl::StatusCode::kUnauthenticated) << what;
  }
}

// A request is not read, let alone kept, before its caller is known: it may have any size.
TEST_F(StrangerTest, IsRefusedBeforeItHasSentAnything) {
  const auto began = absl::Now();
  for (const auto& [what, call] : AllCalls(/*sends=*/false)) {
    EXPECT_EQ(Try(call, nullptr), absl::StatusCode::kUnauthenticated) << what;
  }
  EXPECT_LT(absl::Now() - began, absl::Seconds(5));
}

// Who has the token and does not attend once ended, or took over, the job of who does.
TEST_F(StrangerTest, EveryCallWantsTheLease) {
  grpc::ClientContext context;
  context.AddMetadata(kTokenKey, kToken);
  const auto lease = stub_->Attend(&context);
  rpc::AttendReply hello;
  WorkerStub worker;
  server_->control().SetWorker(&worker, "test");
  ASSERT_TRUE(lease->Read(&hello));
  ASSERT_NE(hello.lease(), 0u);
  const std::string right = absl::StrCat(hello.lease());
  for (const auto& [what, call] : AllCalls()) {
    for (const std::string& wrong : {std::string(), std::string("0"), right + "0"}) {
      EXPECT_EQ(Try(call, kToken, wrong), absl::StatusCode::kFailedPrecondition) << what;
    }
  }
  EXPECT_EQ(worker.aborts(), 0);
  EXPECT_FALSE(server_->control().AwaitEnd(RealClock(), absl::Now(), false));  // nobody ended it
  for (const auto& [what, call] : AllCalls()) {
    EXPECT_NE(Try(call, kToken, right), absl::StatusCode::kFailedPrecondition) << what;
  }
  EXPECT_EQ(worker.aborts(), 1);
  lease->WritesDone();
  lease->Finish();
  EXPECT_EQ(Try(AllCalls().front().second, kToken, right), absl::StatusCode::kFailedPrecondition);
  server_->control().Stop();
}

// A program that never ends was waited for for ever, also when its sender's job was long over.
TEST_F(StrangerTest, ACallEndsWithTheLease) {
  WorkerStub worker;
  server_->control().SetWorker(&worker, "test");
  grpc::ClientContext lease_context, context;
  lease_context.AddMetadata(kTokenKey, kToken);
  const auto lease = stub_->Attend(&lease_context);
  rpc::AttendReply hello;
  ASSERT_TRUE(lease->Read(&hello));
  context.AddMetadata(kTokenKey, kToken);
  context.AddMetadata(kLeaseKey, absl::StrCat(hello.lease()));
  const auto program = stub_->AddProgram(&context);
  rpc::ProgramChunk chunk;
  chunk.set_part("x");
  chunk.set_total_bytes(1000);
  ASSERT_TRUE(program->Write(Seal(chunk)));
  rpc::Sealed answer;  // now the worker waits for the next part
  ASSERT_TRUE(program->Read(&answer));
  lease->WritesDone();
  lease->Finish();
  const absl::Time began = absl::Now();
  EXPECT_FALSE(program->Finish().ok());  // although this end still writes
  EXPECT_LT(absl::Now() - began, absl::Seconds(5));
  server_->control().Stop();
}

TEST_F(StrangerTest, AProgramIsNoLongerThanItsSenderSays) {
  WorkerStub worker;
  server_->control().SetWorker(&worker, "test");
  grpc::ClientContext lease_context;
  lease_context.AddMetadata(kTokenKey, kToken);
  const auto lease = stub_->Attend(&lease_context);
  rpc::AttendReply hello;
  ASSERT_TRUE(lease->Read(&hello));
  const auto send = [&](int64_t total, const std::string& part) {
    grpc::ClientContext context;
    context.AddMetadata(kTokenKey, kToken);
    context.AddMetadata(kLeaseKey, absl::StrCat(hello.lease()));
    const auto program = stub_->AddProgram(&context);
    rpc::ProgramChunk chunk;
    chunk.set_part(part);
    chunk.set_total_bytes(total);
    program->Write(Seal(chunk));
    const grpc::Status status = program->Finish();
    return AnswerOf(context, status);
  };
  // Refused by the number alone, before the rest could come.
  for (const int64_t total : {int64_t{-1}, int64_t{0}, (int64_t{1} << 31) + 1, int64_t{1} << 62}) {
    EXPECT_EQ(send(total, "x").code(), absl::StatusCode::kResourceExhausted) << total;
  }
  EXPECT_EQ(send(3, "four").code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(send(4, "four").code(), absl::StatusCode::kInvalidArgument);  // no partition
  lease->WritesDone();
  lease->Finish();
  server_->control().Stop();
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
