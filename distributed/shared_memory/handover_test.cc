// Who may hand over a ring, and what of a greeting is believed.
#include "distributed/shared_memory/handover.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

class HandoverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (std::filesystem::temp_directory_path() / "weft-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    // Two ends, as a listener's and a peer's.
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    here_ = FileDescriptor(ends[0]);
    there_ = FileDescriptor(ends[1]);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  RingPlace Place(int rank, uint64_t job_id = 9) const { return {folder_, job_id, RankId(rank)}; }
  // Sends bytes with copies of a file.
  void SendWithFiles(const std::string& bytes, int files) {
    iovec part = {const_cast<char*>(bytes.data()), bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(static_cast<size_t>(files) * sizeof(int));
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(static_cast<size_t>(files) * sizeof(int));
    for (int i = 0; i < files; ++i) {
      const int file = STDERR_FILENO;
      std::memcpy(CMSG_DATA(header) + static_cast<size_t>(i) * sizeof(int), &file, sizeof(int));
    }
    ASSERT_GT(sendmsg(there_.get(), &message, 0), 0);
  }
  static size_t OpenFiles() {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return static_cast<size_t>(std::distance(begin(files), end(files)));
  }

  std::string folder_;
  FileDescriptor here_;
  FileDescriptor there_;
};

TEST_F(HandoverTest, AGreetingComesWithItsFile) {
  auto listener = RingListener::Listen(Place(1));
  ASSERT_TRUE(listener.ok()) << listener.status();
  auto connection = ConnectToRing(Place(1));
  ASSERT_TRUE(connection.ok() && connection->has_value()) << connection.status();
  ASSERT_TRUE(SendGreeting(**connection, {9, RankId(0), RankId(1), "secret"}, STDERR_FILENO).ok());
  const auto accepted = (*listener)->Accept();
  ASSERT_TRUE(accepted.has_value());
  const auto received = ReceiveGreeting(*accepted);
  ASSERT_TRUE(received.ok()) << received.status();
  EXPECT_EQ(received->greeting.job_id, 9u);
  EXPECT_EQ(received->greeting.from, RankId(0));
  EXPECT_EQ(received->greeting.to, RankId(1));
  EXPECT_EQ(received->greeting.token, "secret");
  struct stat sent = {}, got = {};
  ASSERT_EQ(fstat(STDERR_FILENO, &sent), 0);
  ASSERT_EQ(fstat(received->ring_file.get(), &got), 0);
  EXPECT_EQ(sent.st_ino, got.st_ino);
  EXPECT_FALSE((*listener)->Accept().has_value());
}

TEST_F(HandoverTest, WhereNobodyListensThereIsNoConnection) {
  ASSERT_TRUE(RingListener::Listen(Place(1)).ok());  // and has ended
  for (const RingPlace& place : {Place(1), Place(2), Place(1, 8)}) {
    const auto connection = ConnectToRing(place);
    ASSERT_TRUE(connection.ok()) << connection.status();
    EXPECT_FALSE(connection->has_value());
  }
}

// A worker that was killed leaves its socket.
TEST_F(HandoverTest, SocketsOfEndedJobsAreRemoved) {
  const std::string left = folder_ + "/0000000000000008-3";
  {
    const FileDescriptor killed(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, left.data(), left.size());
    ASSERT_EQ(bind(killed.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  auto other = RingListener::Listen(Place(3, 7));
  ASSERT_TRUE(other.ok());
  ASSERT_TRUE(RingListener::Listen(Place(0)).ok());
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_TRUE(ConnectToRing(Place(3, 7))->has_value());
}

TEST_F(HandoverTest, AFolderThatOthersMayEnterIsRefused) {
  ASSERT_EQ(chmod(folder_.c_str(), 0711), 0);
  const absl::Status status = RingListener::Listen(Place(0)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("chmod 700"));
}

TEST_F(HandoverTest, TheSocketIsOfThisUserAlone) {
  const auto listener = RingListener::Listen(Place(0));
  struct stat status = {};
  ASSERT_EQ(stat((folder_ + "/0000000000000009-0").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(HandoverTest, APathTooLongForASocketIsRefused) {
  const RingPlace place{folder_ + "/" + std::string(100, 'x'), 9, RankId(0)};
  EXPECT_EQ(RingListener::Listen(place).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(HandoverTest, WhatIsNoGreetingIsRefused) {
  EXPECT_TRUE(absl::IsUnavailable(ReceiveGreeting(here_).status()));
  ASSERT_GT(send(there_.get(), "hello", 5, 0), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(ReceiveGreeting(here_).status()));
  // Without a file, and with other bytes than a greeting's.
  ASSERT_GT(send(there_.get(), std::string(64, 'x').data(), 64, 0), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(ReceiveGreeting(here_).status()));
  SendWithFiles(std::string(64, 'x'), 1);
  EXPECT_TRUE(absl::IsInvalidArgument(ReceiveGreeting(here_).status()));
  SendWithFiles(std::string(100'000, 'x'), 1);
  EXPECT_TRUE(absl::IsInvalidArgument(ReceiveGreeting(here_).status()));
}

TEST_F(HandoverTest, FilesOfARefusedGreetingAreClosed) {
  const size_t before = OpenFiles();
  for (int files = 1; files <= 4; ++files) {
    SendWithFiles(std::string(64, 'x'), files);
    EXPECT_FALSE(ReceiveGreeting(here_).ok());
  }
  // So are those that come with a notice.
  SendWithFiles(std::string(1, '\1') + std::string(1, '\0'), 2);
  EXPECT_TRUE(TakeNotice(here_).ok());
  EXPECT_EQ(OpenFiles(), before);
}

TEST_F(HandoverTest, NoticesComeWithTheirReason) {
  EXPECT_FALSE(TakeNotice(here_)->has_value());
  Notify(there_, RingNotice::Kind::kAbort, absl::AbortedError("loss is nan"));
  Notify(there_, RingNotice::Kind::kRefuse, absl::DataLossError(std::string(50'000, 'x')));
  const auto abort = TakeNotice(here_);
  ASSERT_TRUE(abort.ok() && abort->has_value());
  EXPECT_EQ((*abort)->kind, RingNotice::Kind::kAbort);
  EXPECT_EQ((*abort)->status, absl::AbortedError("loss is nan"));
  const auto refusal = TakeNotice(here_);
  ASSERT_TRUE(refusal.ok() && refusal->has_value());
  EXPECT_EQ((*refusal)->status, absl::DataLossError(std::string(2000, 'x')));
}

TEST_F(HandoverTest, NoticesThatMakeNoSenseAreRefused) {
  for (const std::string& bytes : {std::string("\0\0", 2), std::string("\6\0", 2),
                                   std::string("\1\77", 2), std::string("\1", 1)}) {
    ASSERT_GT(send(there_.get(), bytes.data(), bytes.size(), 0), 0);
    EXPECT_EQ(TakeNotice(here_).status().code(), absl::StatusCode::kDataLoss);
  }
  there_.Close();
  EXPECT_TRUE(absl::IsUnavailable(TakeNotice(here_).status()));
}

TEST_F(HandoverTest, APeerThatDoesNotReadHoldsNobodyUp) {
  for (int i = 0; i < 10'000; ++i) Notify(there_, RingNotice::Kind::kWake);
  EXPECT_TRUE(TakeNotice(here_)->has_value());
}

}  // namespace
}  // namespace weft
