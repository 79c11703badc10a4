// Who may connect to a worker that has keys, and what each may do. The attacks are made with gRPC
// itself and with certificates that a cluster did not issue, or not for that.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/grpc/channel_options.h"
#include "distributed/grpc/credentials/call_roles.h"
#include "distributed/grpc/credentials/tls_credentials.h"
#include "distributed/grpc/grpc_client.h"
#include "distributed/grpc/grpc_server.h"
#include "distributed/grpc/outbox.h"
#include "distributed/grpc/status_codec.h"
#include "distributed/grpc/weft.grpc.pb.h"
#include "distributed/keys/cluster_keys.h"
#include "distributed/keys/key_maker.h"
#include "distributed/keys/testing/tls_client.h"
#include "distributed/worker_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/log.h"
#include "platform/private_folder.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kToken[] = "0123456789abcdef0123456789abcdef";
constexpr absl::Duration kDay = absl::Hours(24);
// Where the tests' workers are, as certificates have it.
constexpr char kHost[] = "127.0.0.1";

class SecureCallsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SetLogSink([this](const std::string& line) {
      const std::lock_guard<std::mutex> lock(log_mutex_);
      log_ += line + "\n";
    });
    SetLogLevel(LogLevel::kDebug);
    Renew();
  }
  void TearDown() override {
    server_.reset();
    SetLogSink(nullptr);
    SetLogLevel(LogLevel::kError);
    // Whatever a test has tried: nothing that opens a door is in the log.
    const std::string log = LogText();
    EXPECT_THAT(log, Not(HasSubstr("PRIVATE")));
    EXPECT_THAT(log, Not(HasSubstr(kToken)));
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
      if (entry.path().filename() != kIdentityFile) continue;
      const std::string secret =
          ReadKeyFolderText(entry.path().parent_path().filename()).substr(28, 40);
      ASSERT_EQ(secret.size(), 40u) << entry.path();
      EXPECT_THAT(log, Not(HasSubstr(secret)));
    }
    std::filesystem::remove_all(folder_);
  }

  std::string LogText() {
    const std::lock_guard<std::mutex> lock(log_mutex_);
    return log_;
  }
  void Renew() {
    const auto made =
        MakeClusterKeys({folder_, ParseHosts("127.0.0.1,b,c").value(), 30, absl::Now()});
    ASSERT_TRUE(made.ok()) << made.status();
  }
  std::string Folder(const std::string& name) const { return absl::StrCat(folder_, "/", name); }
  std::shared_ptr<KeyRing> Ring(const std::string& name) const {
    return KeyRing::Open(Folder(name)).value();
  }
  // A folder of keys that `cluster keys` would not make.
  std::shared_ptr<KeyRing> Forge(const Identity& authority, const CertificateRequest& request) {
    const std::string path = Folder(absl::StrCat("forged-", forged_++));
    const auto folder = OpenPrivateFolder(path).value();
    EXPECT_TRUE(folder->Write(kAuthorityFile, authority.certificate_pem).ok());
    EXPECT_TRUE(
        folder->Write(kIdentityFile, IssueCertificate(authority, request).value().pem()).ok());
    auto ring = KeyRing::Open(path);
    EXPECT_TRUE(ring.ok()) << ring.status();
    return *std::move(ring);
  }
  static CertificateRequest RequestOf(Role role, const std::string& address = kHost) {
    return {"forged", {}, {address}, role, absl::Now() - kDay, absl::Now() + kDay};
  }
  // The cluster's own authority, as only its owner has it.
  Identity OwnAuthority() const {
    const std::string pem = ReadKeyFolderText("authority");
    return {pem, pem};
  }
  std::string ReadKeyFolderText(const std::string& name) const {
    return OpenPrivateFolder(Folder(name)).value()->Read(kIdentityFile, 1 << 20).value();
  }
  static Identity OtherAuthority() {
    return MakeAuthority("other", absl::Now() - kDay, absl::Now() + 10 * kDay).value();
  }

  void Serve(std::shared_ptr<KeyRing> keys) {
    auto server = GrpcServer::Start({"127.0.0.1:0", false, kToken, {}, std::move(keys)});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  using CallFn = std::function<grpc::Status(rpc::Control::Stub&, grpc::ClientContext&)>;
  template <typename Request, typename Reply>
  static CallFn Write(std::unique_ptr<grpc::ClientWriter<Request>> (rpc::Control::Stub::*method)(
      grpc::ClientContext*, Reply*)) {
    return [method](rpc::Control::Stub& stub, grpc::ClientContext& context) {
      Reply reply;
      const auto writer = (stub.*method)(&context, &reply);
      writer->WritesDone();
      return writer->Finish();
    };
  }
  template <typename Request, typename Reply>
  static CallFn Talk(std::unique_ptr<grpc::ClientReaderWriter<Request, Reply>> (
      rpc::Control::Stub::*method)(grpc::ClientContext*)) {
    return [method](rpc::Control::Stub& stub, grpc::ClientContext& context) {
      const auto stream = (stub.*method)(&context);
      stream->WritesDone();
      return stream->Finish();
    };
  }
  // Shutdown. A worker that answers that the caller holds no lease has looked at token and role:
  // OK here.
  absl::Status Call(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    context.AddMetadata(kTokenKey, kToken);
    const grpc::Status status =
        Write(&rpc::Control::Stub::Shutdown)(*rpc::Control::NewStub(channel), context);
    if (!WasAnswered(context)) return FromGrpc(status);
    const absl::Status answer = AnswerOf(context, status);
    return absl::IsFailedPrecondition(answer) ? absl::OkStatus() : answer;
  }
  absl::Status CallWith(const std::shared_ptr<KeyRing>& keys) {
    return Call(NewChannel(server_->address(), keys.get()));
  }
  // A channel whose keys nobody has looked at first.
  absl::Status CallUnchecked(const std::string& identity_pem, const std::string& authority_pem) {
    return Call(grpc::CreateChannel(
        server_->address(), NewChannelCredentials({identity_pem, authority_pem, {}}, kHost)));
  }
  void ExpectStillServes() { EXPECT_TRUE(CallWith(Ring("coordinator")).ok()); }

  // The error of a coordinator that connects; it must come long before its patience ends.
  absl::Status Connect(const std::shared_ptr<KeyRing>& keys, const std::string& address = "") {
    GrpcClientOptions options;
    options.address = address.empty() ? server_->address() : address;
    options.rank = RankId(0);
    options.token = kToken;
    options.keys = keys;
    options.connect_deadline = absl::Now() + absl::Seconds(60);
    const absl::Time begin = absl::Now();
    const absl::Status status = ConnectToWorker(options).status();
    EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
    return status;
  }
  void ExpectError(const absl::Status& status, absl::StatusCode code,
                   const std::vector<std::string>& parts) {
    EXPECT_EQ(status.code(), code) << status;
    for (const std::string& part : parts) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    }
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr(kToken)));
  }

  const std::string folder_ = absl::StrCat(::testing::TempDir(), "/secure-", getpid());
  int forged_ = 0;
  std::mutex log_mutex_;
  std::string log_;
  std::unique_ptr<GrpcServer> server_;
};

TEST_F(SecureCallsTest, EachCallNeedsTheRoleThatTheTableSays) {
  Serve(Ring("127.0.0.1"));
  using Stub = rpc::Control::Stub;
  const std::vector<std::pair<WorkerCall, CallFn>> calls = {
      {WorkerCall::kAttend, Talk(&Stub::Attend)},
      {WorkerCall::kJoin, Write(&Stub::Join)},
      {WorkerCall::kAddProgram, Talk(&Stub::AddProgram)},
      {WorkerCall::kWriteVariable, Talk(&Stub::WriteVariable)},
      {WorkerCall::kReadVariable, Talk(&Stub::ReadVariable)},
      {WorkerCall::kRunSteps, Talk(&Stub::RunSteps)},
      {WorkerCall::kAsk, Write(&Stub::Ask)},
      {WorkerCall::kAbort, Write(&Stub::Abort)},
      {WorkerCall::kShutdown, Write(&Stub::Shutdown)}};
  // A certificate of the cluster without a role may do nothing.
  CertificateRequest without_role = RequestOf(Role::kWorker);
  without_role.role.reset();
  const std::vector<std::pair<std::optional<Role>, std::shared_ptr<KeyRing>>> callers = {
      {Role::kCoordinator, Ring("coordinator")},
      {Role::kWorker, Ring("b")},
      {Role::kObserver, Ring("observer")},
      {std::nullopt, Forge(OwnAuthority(), without_role)}};
  for (const auto& [role, keys] : callers) {
    const auto stub = rpc::Control::NewStub(NewChannel(server_->address(), keys.get()));
    for (const auto& [kind, call] : calls) {
      const auto rule =
          std::find_if(kCallRules.begin(), kCallRules.end(),
                       [kind = kind](const CallRule& entry) { return entry.call == kind; });
      ASSERT_NE(rule, kCallRules.end());
      if (kind == WorkerCall::kAttend && role == Role::kCoordinator)
        continue;  // waits for a worker
      grpc::ClientContext context;
      context.AddMetadata(kTokenKey, kToken);
      const grpc::Status status = call(*stub, context);
      ASSERT_TRUE(status.ok() || WasAnswered(context)) << status.error_message();
      const absl::Status answer = status.ok() ? absl::OkStatus() : AnswerOf(context, status);
      EXPECT_EQ(answer.code() == absl::StatusCode::kPermissionDenied, role != rule->role)
          << rule->name << ": " << answer;
      // The right role without the token is not enough.
      grpc::ClientContext stranger;
      const grpc::Status refused = call(*stub, stranger);
      EXPECT_EQ(AnswerOf(stranger, refused).code(), absl::StatusCode::kUnauthenticated);
    }
  }
}

TEST_F(SecureCallsTest, StrangersDoNotConnectAndTheWorkerGoesOn) {
  Serve(Ring("127.0.0.1"));
  const std::string authority_pem = Ring("coordinator")->Current()->authority_pem;
  const int64_t before = FailedHandshakes();
  // Signed by another authority, whom only the caller trusts.
  const Identity other = OtherAuthority();
  const auto forged = IssueCertificate(other, RequestOf(Role::kCoordinator)).value();
  EXPECT_TRUE(absl::IsUnavailable(CallUnchecked(forged.pem(), authority_pem)));
  // Ours, but expired, or not valid yet.
  CertificateRequest request = RequestOf(Role::kCoordinator);
  request.not_after = absl::Now() - absl::Hours(1);
  EXPECT_TRUE(absl::IsUnavailable(
      CallUnchecked(IssueCertificate(OwnAuthority(), request).value().pem(), authority_pem)));
  request.not_before = absl::Now() + absl::Hours(1);
  request.not_after = absl::Now() + kDay;
  EXPECT_TRUE(absl::IsUnavailable(
      CallUnchecked(IssueCertificate(OwnAuthority(), request).value().pem(), authority_pem)));
  // No TLS at all.
  EXPECT_TRUE(absl::IsUnavailable(CallWith(nullptr)));
  // TLS without a certificate.
  grpc::SslCredentialsOptions anonymous;
  anonymous.pem_root_certs = authority_pem;
  EXPECT_TRUE(absl::IsUnavailable(
      Call(grpc::CreateChannel(server_->address(), grpc::SslCredentials(anonymous)))));
  EXPECT_GE(FailedHandshakes() - before, 5);
  // The log has one a second.
  absl::SleepFor(absl::Milliseconds(1100));
  EXPECT_TRUE(absl::IsUnavailable(CallWith(nullptr)));
  EXPECT_THAT(LogText(), HasSubstr("a secured connection was refused: it does not speak TLS"));
  ExpectStillServes();
}

TEST_F(SecureCallsTest, ACoordinatorIsToldWhatIsWrong) {
  const std::shared_ptr<KeyRing> coordinator = Ring("coordinator");
  // One of the two has no keys.
  Serve(nullptr);
  ExpectError(Connect(coordinator), absl::StatusCode::kFailedPrecondition,
              {server_->address(), "does not speak TLS", "--keys"});
  Serve(Ring("127.0.0.1"));
  ExpectError(Connect(nullptr), absl::StatusCode::kFailedPrecondition,
              {server_->address(), "speaks TLS", "--keys DIR"});
  // Each has keys of another cluster.
  const auto foreign = Forge(OtherAuthority(), RequestOf(Role::kCoordinator));
  ExpectError(Connect(foreign), absl::StatusCode::kUnauthenticated,
              {"'127.0.0.1'", "another authority"});
  // The caller trusts the worker, but not the other way round.
  const std::string path = Folder("half");
  {
    const auto folder = OpenPrivateFolder(path).value();
    const Identity other = OtherAuthority();
    ASSERT_TRUE(
        folder->Write(kAuthorityFile, coordinator->Current()->authority_pem + other.certificate_pem)
            .ok());
    ASSERT_TRUE(folder
                    ->Write(kIdentityFile,
                            IssueCertificate(other, RequestOf(Role::kCoordinator)).value().pem())
                    .ok());
  }
  ExpectError(Connect(KeyRing::Open(path).value()), absl::StatusCode::kUnauthenticated,
              {"does not take the certificate of 'forged', signed by 'other'"});
  ExpectStillServes();
  // The keys of another host, and keys of another role: these cannot serve.
  Serve(Ring("b"));
  ExpectError(Connect(coordinator), absl::StatusCode::kUnauthenticated,
              {"the certificate of 'b' is for b, not for 127.0.0.1", "cluster file"});
  Serve(Ring("observer"));
  ExpectError(Connect(coordinator), absl::StatusCode::kUnauthenticated,
              {"'observer'", "only a worker's may serve"});
  // Expired while it runs.
  CertificateRequest request = RequestOf(Role::kWorker);
  request.not_after = absl::Now() + absl::Seconds(2);
  Serve(Forge(OwnAuthority(), request));
  absl::SleepFor(absl::Seconds(3));
  ExpectError(Connect(coordinator), absl::StatusCode::kUnauthenticated,
              {"'forged'", "has expired on", "graph_runner cluster keys"});
}

// The end of a data stream that says it is of this rank.
absl::Status OpenStream(const std::string& address, const KeyRing& keys, uint64_t job, int rank) {
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(NewChannel(address, &keys));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
  context.AddMetadata(kTokenKey, kToken);
  context.AddMetadata(kJobIdKey, absl::StrCat(job));
  context.AddMetadata(kRankKey, absl::StrCat(rank));
  const auto call = stub.PrepareCall(&context, kDataMethod, &queue);
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
  queue.Shutdown();
  return FromGrpc(status);
}

TEST_F(SecureCallsTest, AStreamIsOfTheHostThatTheClusterFileHas) {
  Serve(Ring("127.0.0.1"));
  JobMembership membership;
  membership.job_id = 7;
  membership.rank = RankId(0);
  membership.addresses = {server_->address(), "b:4000", "c:4000"};
  const auto transport = server_->OpenTransport(membership).value();
  // Not for who has another role, whatever it says.
  for (const char* const who : {"coordinator", "observer"}) {
    ExpectError(OpenStream(server_->address(), *Ring(who), 7, 1),
                absl::StatusCode::kPermissionDenied, {who, "data stream is for the role worker"});
  }
  // Not for a worker that says it is another.
  ExpectError(OpenStream(server_->address(), *Ring("c"), 7, 1), absl::StatusCode::kPermissionDenied,
              {"rank 1", "on b", "for c"});
  ExpectError(OpenStream(server_->address(), *Ring("b"), 7, 2), absl::StatusCode::kPermissionDenied,
              {"rank 2", "on c", "for b"});
  // It is taken, and stays open until its deadline.
  const absl::StatusCode taken = OpenStream(server_->address(), *Ring("b"), 7, 1).code();
  EXPECT_EQ(taken, absl::StatusCode::kDeadlineExceeded);
}

TEST_F(SecureCallsTest, KeysChangeAHundredTimesWhileCallsGoOn) {
  const std::shared_ptr<KeyRing> worker = Ring("127.0.0.1");
  const std::shared_ptr<KeyRing> coordinator = Ring("coordinator");
  Serve(worker);
  const std::shared_ptr<grpc::Channel> old = NewChannel(server_->address(), coordinator.get());
  std::atomic<bool> ends = false;
  std::atomic<int> calls = 0;
  std::vector<absl::Status> errors;
  std::thread caller([&] {
    while (!ends) {
      for (const auto& channel : {old, NewChannel(server_->address(), coordinator.get())}) {
        const absl::Status status = Call(channel);
        ++calls;
        if (!status.ok()) errors.push_back(status);
      }
    }
  });
  for (int i = 0; i < 100; ++i) {
    Renew();
    EXPECT_TRUE(worker->Reload().ok());
    EXPECT_TRUE(coordinator->Reload().ok());
    absl::SleepFor(absl::Milliseconds(30));
  }
  ends = true;
  caller.join();
  EXPECT_GE(worker->changes(), 100);  // the ring may look between the two files of a folder
  EXPECT_GT(calls.load(), 10);
  EXPECT_TRUE(errors.empty()) << errors.size() << " of " << calls << ", first " << errors.front();
  // The server shows the newest within two seconds, and some for the machine.
  const std::string newest = worker->Current()->certificate.fingerprint;
  std::string shown;
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (shown != newest && absl::Now() < deadline) {
    grpc::ClientContext context;
    context.AddMetadata(kTokenKey, kToken);
    const auto stub = rpc::Control::NewStub(NewChannel(server_->address(), coordinator.get()));
    Write (&rpc::Control::Stub::Shutdown)(*stub, context);
    ASSERT_TRUE(WasAnswered(context));
    shown = PeerCertificate(*context.auth_context())->fingerprint;
  }
  EXPECT_EQ(shown, newest);
}

TEST_F(SecureCallsTest, TlsIsOnePointThree) {
  Serve(Ring("127.0.0.1"));
  const std::shared_ptr<const KeySet> keys = Ring("coordinator")->Current();
  EXPECT_TRUE(AgreesOnTls(server_->address(), *keys, TlsVersion::k13));
  EXPECT_FALSE(AgreesOnTls(server_->address(), *keys, TlsVersion::k12));
  ExpectStillServes();
}

TEST_F(SecureCallsTest, OtherMachinesNeedKeysOrAWord) {
  const auto refused = GrpcServer::Start({"0.0.0.0:0", false, kToken});
  ExpectError(refused.status(), absl::StatusCode::kFailedPrecondition,
              {"0.0.0.0:0", "--keys DIR", "--insecure-network"});
  EXPECT_TRUE(GrpcServer::Start({"0.0.0.0:0", true, kToken}).ok());
  EXPECT_TRUE(GrpcServer::Start({"0.0.0.0:0", false, kToken, {}, Ring("127.0.0.1")}).ok());
}

}  // namespace
}  // namespace weft
