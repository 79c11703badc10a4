// Who may ask a coordinator to be taken in, and what others are told.
#include <grpcpp/grpcpp.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/grpc/channel_options.h"
#include "distributed/grpc/joining/join_desk.h"
#include "distributed/grpc/joining/join_requests.h"
#include "distributed/grpc/seal.h"
#include "distributed/grpc/status_codec.h"
#include "distributed/grpc/weft.grpc.pb.h"
#include "distributed/keys/cluster_keys.h"
#include "distributed/keys/key_ring.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kToken[] = "0123456789abcdef0123456789abcdef";
constexpr absl::Duration kTimeout = absl::Seconds(20);

class JoiningTest : public ::testing::Test {
 protected:
  void Open(JoinDeskOptions options = {}) {
    if (options.address.empty()) options.address = "127.0.0.1:0";
    options.token = kToken;
    options.version = "test";
    auto desk = JoinDesk::Open(options);
    ASSERT_TRUE(desk.ok()) << desk.status();
    desk_ = *std::move(desk);
  }
  JoinRequestOptions Asking(uint64_t incarnation = 1) const {
    JoinRequestOptions options;
    options.coordinator = desk_->address();
    options.token = kToken;
    options.version = "test";
    options.address = absl::StrCat("127.0.0.1:", 4000 + incarnation);
    options.device = "cpu:0";
    options.incarnation = incarnation;
    return options;
  }
  absl::StatusOr<int> Ask(uint64_t incarnation) {
    return OfferWorker(Asking(incarnation), kTimeout);
  }
  void ExpectRefused(const JoinRequestOptions& options, absl::StatusCode code,
                     const std::vector<std::string>& parts) {
    const absl::Status status = OfferWorker(options, kTimeout).status();
    EXPECT_EQ(status.code(), code) << status;
    for (const std::string& part : parts) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    }
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr(kToken)));
    EXPECT_THAT(desk_->TakeNew(), IsEmpty()) << "and nobody waits";
  }

  std::unique_ptr<JoinDesk> desk_;
};

TEST_F(JoiningTest, AWorkerWaitsUntilTheJobSaysWhatBecomesOfIt) {
  Open();
  EXPECT_EQ(Ask(7).value_or(0), 1);
  EXPECT_EQ(Ask(8).value_or(0), 2);
  EXPECT_EQ(Ask(7).value_or(0), 2) << "it asks again, and is the same";
  const std::vector<JoinOffer> offers = desk_->TakeNew();
  ASSERT_THAT(offers, SizeIs(2));
  EXPECT_EQ(offers[0].incarnation, 7u);
  EXPECT_EQ(offers[0].address, "127.0.0.1:4007");
  EXPECT_EQ(offers[0].device, "cpu:0");
  EXPECT_EQ(offers[1].incarnation, 8u);
  EXPECT_THAT(desk_->TakeNew(), IsEmpty()) << "each is told once";
  EXPECT_EQ(desk_->waiting(), 2);
  desk_->Forget(7);
  EXPECT_EQ(desk_->waiting(), 1);
}

TEST_F(JoiningTest, WhoIsRefusedIsToldWhyWheneverItAsks) {
  Open();
  ASSERT_TRUE(Ask(7).ok());
  ASSERT_THAT(desk_->TakeNew(), SizeIs(1));
  desk_->Refuse(7, absl::FailedPreconditionError("it has other op libraries"));
  for (int i = 0; i < 2; ++i) {
    ExpectRefused(Asking(7), absl::StatusCode::kFailedPrecondition, {"it has other op libraries"});
  }
  EXPECT_TRUE(Ask(8).ok());
}

TEST_F(JoiningTest, AStrangerIsRefused) {
  Open();
  JoinRequestOptions stranger = Asking();
  stranger.token = "fedcba9876543210fedcba9876543210";
  ExpectRefused(stranger, absl::StatusCode::kUnauthenticated, {"token"});
  stranger.token = "";
  ExpectRefused(stranger, absl::StatusCode::kUnauthenticated, {"token"});
}

TEST_F(JoiningTest, AnotherVersionIsRefusedWithBoth) {
  Open();
  JoinRequestOptions other = Asking();
  other.version = "older";
  ExpectRefused(other, absl::StatusCode::kPermissionDenied, {"older (wire", "test (wire"});
}

TEST_F(JoiningTest, OneTooManyIsRefusedUntilThereIsRoom) {
  JoinDeskOptions options;
  options.max_waiting = 2;
  Open(options);
  ASSERT_TRUE(Ask(1).ok());
  ASSERT_TRUE(Ask(2).ok());
  ASSERT_THAT(desk_->TakeNew(), SizeIs(2));
  ExpectRefused(Asking(3), absl::StatusCode::kResourceExhausted, {"2 workers wait", "try again"});
  EXPECT_TRUE(Ask(2).ok()) << "who waits may say that it still does";
  desk_->Forget(1);
  EXPECT_TRUE(Ask(3).ok());
}

TEST_F(JoiningTest, WhoAsksNoMoreIsForgotten) {
  JoinDeskOptions options;
  options.patience = absl::ZeroDuration();
  options.max_waiting = 1;
  Open(options);
  ASSERT_TRUE(Ask(1).ok());
  EXPECT_EQ(desk_->waiting(), 0);
  EXPECT_TRUE(Ask(2).ok()) << "it takes no room";
}

TEST_F(JoiningTest, AnAddressThatCannotBeUsedIsRefused) {
  JoinDeskOptions options;
  options.check_address = [](const std::string& address) {
    return address == "127.0.0.1:4009" ? absl::FailedPreconditionError("peers cannot reach it")
                                       : absl::OkStatus();
  };
  Open(options);
  JoinRequestOptions worker = Asking();
  worker.address = "10.0.0.7:4000";
  ExpectRefused(worker, absl::StatusCode::kFailedPrecondition, {"10.0.0.7:4000", "--keys"});
  for (const char* const address : {"", "nowhere", "127.0.0.1:70000", "unix:"}) {
    worker.address = address;
    ExpectRefused(worker, absl::StatusCode::kInvalidArgument, {});
  }
  worker.address = absl::StrCat(std::string(400, 'a'), ":1");
  ExpectRefused(worker, absl::StatusCode::kInvalidArgument, {});
  worker.address = "127.0.0.1:4009";
  ExpectRefused(worker, absl::StatusCode::kFailedPrecondition, {"peers cannot reach it"});
}

TEST_F(JoiningTest, DamageIsFound) {
  Open();
  const auto stub = rpc::Joining::NewStub(NewChannel(desk_->address()));
  for (const bool sends : {false, true}) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    context.AddMetadata(kTokenKey, kToken);
    context.AddMetadata(kOfferVersionKey, HandshakeVersion("test"));
    rpc::OfferRequest request;
    request.set_address("127.0.0.1:4000");
    request.set_incarnation(3);
    rpc::Sealed sealed = Seal(request), reply;
    sealed.mutable_content()->back() ^= 1;
    const auto writer = stub->Offer(&context, &reply);
    if (sends) writer->Write(sealed);
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    EXPECT_EQ(AnswerOf(context, status).code(), absl::StatusCode::kDataLoss);
  }
  EXPECT_THAT(desk_->TakeNew(), IsEmpty());
  EXPECT_TRUE(Ask(1).ok()) << "the desk goes on";
}

TEST_F(JoiningTest, ASocketIsOfItsUser) {
  char folder[] = "/tmp/weft-joining-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  JoinDeskOptions options;
  options.address = absl::StrCat("unix:", folder, "/desk");
  Open(options);
  EXPECT_TRUE(Ask(1).ok());
  struct stat found = {};
  ASSERT_EQ(stat(absl::StrCat(folder, "/desk").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
  desk_.reset();
  EXPECT_FALSE(std::filesystem::exists(absl::StrCat(folder, "/desk")));
  std::filesystem::remove_all(folder);
}

TEST_F(JoiningTest, WithoutKeysADeskIsOfThisMachine) {
  JoinDeskOptions options;
  options.address = "0.0.0.0:0";
  options.token = kToken;
  const absl::Status status = JoinDesk::Open(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("--keys"));
  options.token = "";
  options.address = "127.0.0.1:0";
  EXPECT_FALSE(JoinDesk::Open(options).ok());
}

// With keys.
class SecureJoiningTest : public JoiningTest {
 protected:
  void SetUp() override {
    const auto made =
        MakeClusterKeys({folder_, ParseHosts("127.0.0.1,b").value(), 30, absl::Now()});
    ASSERT_TRUE(made.ok()) << made.status();
    const auto others =
        MakeClusterKeys({others_, ParseHosts("127.0.0.1").value(), 30, absl::Now()});
    ASSERT_TRUE(others.ok()) << others.status();
  }
  void TearDown() override {
    desk_.reset();
    std::filesystem::remove_all(folder_);
    std::filesystem::remove_all(others_);
  }
  static std::shared_ptr<KeyRing> Ring(const std::string& folder, const std::string& name) {
    return KeyRing::Open(absl::StrCat(folder, "/", name)).value();
  }
  void OpenSecured() {
    JoinDeskOptions options;
    options.keys = Ring(folder_, "coordinator");
    Open(options);
  }
  JoinRequestOptions AskingWith(std::shared_ptr<KeyRing> keys) const {
    JoinRequestOptions options = Asking();
    options.keys = std::move(keys);
    return options;
  }

  const std::string folder_ = absl::StrCat(::testing::TempDir(), "/joining-", getpid());
  const std::string others_ = absl::StrCat(::testing::TempDir(), "/joining-others-", getpid());
};

TEST_F(SecureJoiningTest, AWorkerOfTheClusterMayAsk) {
  OpenSecured();
  const auto waiting = OfferWorker(AskingWith(Ring(folder_, "127.0.0.1")), kTimeout);
  ASSERT_TRUE(waiting.ok()) << waiting.status();
  EXPECT_THAT(desk_->TakeNew(), SizeIs(1));
}

TEST_F(SecureJoiningTest, OtherRolesMayNot) {
  OpenSecured();
  for (const char* const role : {"coordinator", "observer"}) {
    ExpectRefused(AskingWith(Ring(folder_, role)), absl::StatusCode::kPermissionDenied,
                  {"Offer is for the role worker", role});
  }
}

TEST_F(SecureJoiningTest, NobodyOffersAnotherHost) {
  OpenSecured();
  ExpectRefused(AskingWith(Ring(folder_, "b")), absl::StatusCode::kPermissionDenied,
                {"offers to serve on 127.0.0.1", "is for b"});
}

TEST_F(SecureJoiningTest, StrangersDoNotConnect) {
  OpenSecured();
  ExpectRefused(AskingWith(nullptr), absl::StatusCode::kFailedPrecondition, {"speaks TLS"});
  ExpectRefused(AskingWith(Ring(others_, "127.0.0.1")), absl::StatusCode::kUnauthenticated,
                {"another authority"});
  EXPECT_TRUE(OfferWorker(AskingWith(Ring(folder_, "127.0.0.1")), kTimeout).ok());
}

TEST_F(SecureJoiningTest, WorkersJoinACoordinatorAlone) {
  for (const char* const role : {"127.0.0.1", "observer"}) {
    JoinDeskOptions options;
    options.address = "127.0.0.1:0";
    options.token = kToken;
    options.keys = Ring(folder_, role);
    const absl::Status status = JoinDesk::Open(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("workers join a coordinator alone"));
  }
}

// Asking again and again.
class JoinRequestsTest : public JoiningTest {
 protected:
  // Until `condition`, at most kTimeout.
  template <typename Condition>
  static bool Await(const Condition& condition) {
    const absl::Time deadline = absl::Now() + kTimeout;
    while (!condition()) {
      if (absl::Now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }
  JoinRequestOptions Quick() const {
    JoinRequestOptions options = Asking();
    options.interval = absl::Milliseconds(5);
    options.patience = absl::Milliseconds(50);
    return options;
  }

  std::atomic<bool> is_attended_{false};
};

TEST_F(JoinRequestsTest, AsksUntilItIsAttendedAndAgainWhenThatHasEnded) {
  Open();
  JoinRequests requests(Quick(), [this] { return is_attended_.load(); });
  ASSERT_TRUE(Await([this] { return !desk_->TakeNew().empty(); }));
  is_attended_.store(true);
  desk_->Forget(1);
  EXPECT_FALSE(requests.has_ended());
  is_attended_.store(false);
  EXPECT_TRUE(Await([this] { return !desk_->TakeNew().empty(); }));
  EXPECT_FALSE(requests.has_ended());
}

TEST_F(JoinRequestsTest, EndsWhereItIsRefused) {
  Open();
  desk_->Refuse(1, absl::FailedPreconditionError("it is slow"));
  JoinRequests requests(Quick(), [this] { return is_attended_.load(); });
  ASSERT_TRUE(Await([&] { return requests.has_ended(); }));
  EXPECT_EQ(requests.end().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(requests.end().message()),
              HasSubstr("this worker may not join: it is slow"));
}

TEST_F(JoinRequestsTest, EndsWellWithItsJob) {
  Open();
  is_attended_.store(true);
  std::atomic<int> looks{0};
  JoinRequests requests(Quick(), [this, &looks] {
    ++looks;
    return is_attended_.load();
  });
  ASSERT_TRUE(Await([&] { return looks.load() > 1; }));
  desk_.reset();
  is_attended_.store(false);
  ASSERT_TRUE(Await([&] { return requests.has_ended(); }));
  EXPECT_TRUE(requests.end().ok()) << requests.end();
}

TEST_F(JoinRequestsTest, ACoordinatorThatIsNotThereIsNamed) {
  Open();
  const JoinRequestOptions options = Quick();
  desk_.reset();
  JoinRequests requests(options, [this] { return is_attended_.load(); });
  ASSERT_TRUE(Await([&] { return requests.has_ended(); }));
  EXPECT_EQ(requests.end().code(), absl::StatusCode::kUnavailable) << requests.end();
  EXPECT_THAT(
      std::string(requests.end().message()),
      HasSubstr(absl::StrCat("this worker cannot join: nobody listens on ", options.coordinator)));
}

}  // namespace
}  // namespace weft
