#include "distributed/grpc/address.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/file_descriptor.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

TEST(CheckAddressTest, TakesTheThreeForms) {
  for (const char* const address :
       {"127.0.0.1:4000", "127.8.9.10:1", "localhost:0", "[::1]:65535", "unix:/run/w0"}) {
    EXPECT_TRUE(CheckAddress(address, false).ok()) << address;
    EXPECT_TRUE(IsLocalAddress(address)) << address;
  }
}

TEST(CheckAddressTest, RefusesOtherForms) {
  for (const char* const address : {"", "worker", ":4000", "host:", "host:-1", "host:65536",
                                    "host:port", "unix:", "unix:relative/w0"}) {
    EXPECT_EQ(CheckAddress(address, true).code(), absl::StatusCode::kInvalidArgument) << address;
  }
}

// The kernel cuts longer ones, and two workers would share what is left.
TEST(CheckAddressTest, ASocketsPathEndsWhereTheSystemEndsIt) {
  const std::string longest = "/" + std::string(sizeof(sockaddr_un{}.sun_path) - 2, 's');
  EXPECT_TRUE(CheckAddress("unix:" + longest, false).ok());
  const absl::Status status = CheckAddress("unix:" + longest + "s", false);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the system allows sockets 107"));
}

TEST(CheckAddressTest, TheNetworkIsAskedFor) {
  for (const char* const address : {"10.0.0.1:4000", "0.0.0.0:4000", "[::]:4000",
                                    "127.example.org:4000", "localhost.example.org:4000"}) {
    EXPECT_FALSE(IsLocalAddress(address)) << address;
    const absl::Status status = CheckAddress(address, false);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << address;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--insecure-network"));
    EXPECT_TRUE(CheckAddress(address, true).ok()) << address;
  }
}

class UnixSocketTest : public ::testing::Test {
 protected:
  // The test's own folder has a path that is too long for a socket.
  UnixSocketTest()
      : path_(absl::StrCat("/tmp/weft-address-test-", getpid())), address_("unix:" + path_) {}
  ~UnixSocketTest() override { unlink(path_.c_str()); }

  // Something that listens there, until it is destroyed; the file stays.
  FileDescriptor Listen() const {
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path, path_.data(), path_.size());
    FileDescriptor listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
    EXPECT_EQ(listen(listener.get(), 1), 0);
    return listener;
  }
  bool Exists() const { return access(path_.c_str(), F_OK) == 0; }

  const std::string path_;
  const std::string address_;
};

TEST_F(UnixSocketTest, AFreeOneCanBeListenedOnAndIsLeftFree) {
  EXPECT_TRUE(ProbeListen(address_).ok());
  EXPECT_FALSE(Exists());
}

TEST_F(UnixSocketTest, OneThatAnotherProcessHasIsNamed) {
  const FileDescriptor listener = Listen();
  const absl::Status status = ProbeListen(address_);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(address_));
  EXPECT_TRUE(Exists());
}

TEST_F(UnixSocketTest, WhatAKilledProcessLeftIsRemoved) {
  { const FileDescriptor killed = Listen(); }
  ASSERT_TRUE(Exists());
  EXPECT_TRUE(ProbeListen(address_).ok());
  EXPECT_FALSE(Exists());
}

// Its bytes were copied past the end of the system's structure.
TEST_F(UnixSocketTest, APathThatIsTooLongIsRefused) {
  EXPECT_EQ(ProbeListen("unix:/" + std::string(200, 's')).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(UnixSocketTest, IsItsUsersAlone) {
  const FileDescriptor listener = Listen();
  ASSERT_EQ(chmod(path_.c_str(), 0777), 0);
  ASSERT_TRUE(KeepSocketPrivate(address_).ok());
  struct stat status = {};
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  RemoveSocket(address_);
  EXPECT_FALSE(Exists());
  EXPECT_FALSE(KeepSocketPrivate(address_).ok());
}

TEST(ProbeListenTest, APortThatIsTakenIsNamed) {
  FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  socklen_t size = sizeof(name);
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&name), &size), 0);
  const std::string address = absl::StrCat("127.0.0.1:", ntohs(name.sin_port));
  const absl::Status status = ProbeListen(address);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(address));
  EXPECT_TRUE(ProbeListen("127.0.0.1:0").ok());
}

}  // namespace
}  // namespace weft
