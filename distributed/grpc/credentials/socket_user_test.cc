#include "distributed/grpc/credentials/socket_user.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

constexpr uid_t kNobody = 65534;

class SocketUserTest : public ::testing::Test {
 protected:
  SocketUserTest() {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    path_ = folder_ + "/w";
    address_.sun_family = AF_UNIX;
    std::memcpy(address_.sun_path, path_.data(), path_.size());
  }
  ~SocketUserTest() override { std::filesystem::remove_all(folder_); }
  // System calls alone, for a child of fork.
  int Listen() const {
    const int file = socket(AF_UNIX, SOCK_STREAM, 0);
    const bool listens =
        bind(file, reinterpret_cast<const sockaddr*>(&address_), sizeof(address_)) == 0 &&
        listen(file, 5) == 0;
    return listens ? file : -1;
  }
  std::string folder_ = (std::filesystem::temp_directory_path() / "weft-XXXXXX").string();
  std::string path_;
  sockaddr_un address_ = {};
};

TEST_F(SocketUserTest, ItsOwnUserMayListen) {
  EXPECT_TRUE(CheckLocalListener(path_).ok()) << "nobody does";
  const int file = Listen();
  ASSERT_GE(file, 0);
  EXPECT_TRUE(CheckLocalListener(path_).ok());
  close(file);
}

// A socket that another user has made where ours should be: the token would be told to it.
TEST_F(SocketUserTest, AnotherUsersSocketIsNotTalkedTo) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  ASSERT_EQ(chmod(folder_.c_str(), 0777), 0);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(kNobody) != 0 || setuid(kNobody) != 0 || Listen() < 0) _exit(9);
    if (write(ready[1], "x", 1) != 1) _exit(9);
    pause();
    _exit(0);
  }
  close(ready[1]);  // so that a child that has gone is no wait
  char byte = 0;
  const ssize_t count = read(ready[0], &byte, 1);
  close(ready[0]);
  if (count != 1) {
    waitpid(child, nullptr, 0);
    GTEST_SKIP() << "root of a user namespace without other users";
  }
  const absl::Status status = CheckLocalListener(path_);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr(absl::StrCat("process ", child, " of user ", kNobody)));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(PeerUser, IsTheKernelsWord) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  EXPECT_TRUE(CheckPeerUser(pair[0], geteuid()).ok());
  if (geteuid() != 0) {
    EXPECT_EQ(CheckPeerUser(pair[0], geteuid() + 1).code(), absl::StatusCode::kPermissionDenied);
  }
  close(pair[0]);
  close(pair[1]);
  EXPECT_FALSE(CheckPeerUser(-1, geteuid()).ok());
}

}  // namespace
}  // namespace weft
