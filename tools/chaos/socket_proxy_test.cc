#include "tools/chaos/socket_proxy.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "gtest/gtest.h"
#include "platform/file_descriptor.h"

namespace weft {
namespace {

constexpr int kNoMillis = 200;       // in which nothing must come
constexpr int kSoonMillis = 20'000;  // in which something must

class SocketProxyTest : public ::testing::Test {
 protected:
  SocketProxyTest() {
    char pattern[] = "/tmp/weft-proxy-XXXXXX";
    folder_ = mkdtemp(pattern);
    listener_ = Socket();
    const sockaddr_un address = AddressOf(folder_ + "/target");
    bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    listen(listener_.get(), 4);
    auto proxy = SocketProxy::Create(folder_ + "/proxy", folder_ + "/target");
    EXPECT_TRUE(proxy.ok()) << proxy.status();
    if (proxy.ok()) proxy_ = *std::move(proxy);
  }
  ~SocketProxyTest() override {
    proxy_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  static FileDescriptor Socket() { return FileDescriptor(socket(AF_UNIX, SOCK_STREAM, 0)); }
  static sockaddr_un AddressOf(const std::string& path) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    return address;
  }
  FileDescriptor Connect() const {
    FileDescriptor socket_end = Socket();
    const sockaddr_un address = AddressOf(folder_ + "/proxy");
    EXPECT_EQ(
        connect(socket_end.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    return socket_end;
  }
  FileDescriptor Accept() const {
    EXPECT_TRUE(CanRead(listener_, kSoonMillis));
    return FileDescriptor(accept(listener_.get(), nullptr, nullptr));
  }
  static bool CanRead(const FileDescriptor& socket_end, int milliseconds) {
    pollfd request = {socket_end.get(), POLLIN, 0};
    return poll(&request, 1, milliseconds) == 1;
  }
  // So many bytes, or fewer at the end of the connection.
  static std::string Read(const FileDescriptor& socket_end, size_t size) {
    std::string bytes(size, '\0');
    size_t filled = 0;
    while (filled < size && CanRead(socket_end, kSoonMillis)) {
      const ssize_t got = read(socket_end.get(), bytes.data() + filled, size - filled);
      if (got <= 0) break;
      filled += static_cast<size_t>(got);
    }
    bytes.resize(filled);
    return bytes;
  }
  static void Write(const FileDescriptor& socket_end, const std::string& bytes) {
    EXPECT_EQ(send(socket_end.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

  std::string folder_;
  FileDescriptor listener_;
  std::unique_ptr<SocketProxy> proxy_;
};

TEST_F(SocketProxyTest, PassesBytesInBothDirections) {
  const FileDescriptor near = Connect();
  const FileDescriptor far = Accept();
  Write(near, "question");
  EXPECT_EQ(Read(far, 8), "question");
  Write(far, "answer");
  EXPECT_EQ(Read(near, 6), "answer");
}

TEST_F(SocketProxyTest, TellsBothOfAnEnd) {
  FileDescriptor near = Connect();
  const FileDescriptor far = Accept();
  Write(near, "last");
  near.Close();
  EXPECT_EQ(Read(far, 100), "last");
}

TEST_F(SocketProxyTest, HoldsBackWhatIsSentWhileItIsCut) {
  const FileDescriptor near = Connect();
  const FileDescriptor far = Accept();
  Write(near, "a");
  EXPECT_EQ(Read(far, 1), "a");
  proxy_->SetCut(true);
  Write(near, "b");
  // A byte that was on its way may have passed; what comes after the thread has seen it does not.
  CanRead(far, kNoMillis);
  Write(near, "c");
  const bool has_b = CanRead(far, 0) && Read(far, 1) == "b";
  EXPECT_FALSE(CanRead(far, kNoMillis));
  proxy_->SetCut(false);
  EXPECT_EQ(Read(far, has_b ? 1 : 2), has_b ? "c" : "bc");
}

TEST_F(SocketProxyTest, FlipsOneBitOfManyBytesOnce) {
  const FileDescriptor near = Connect();
  const FileDescriptor far = Accept();
  Write(near, "a");
  EXPECT_EQ(Read(far, 1), "a");
  proxy_->FlipBit();
  Write(near, "short");
  EXPECT_EQ(Read(far, 5), "short");
  const std::string sent(1000, 'x');
  Write(near, sent);
  const std::string got = Read(far, sent.size());
  ASSERT_EQ(got.size(), sent.size());
  int different = 0;
  for (size_t i = 0; i < sent.size(); ++i) different += got[i] != sent[i] ? 1 : 0;
  EXPECT_EQ(different, 1);
  Write(near, sent);
  EXPECT_EQ(Read(far, sent.size()), sent);
}

TEST_F(SocketProxyTest, ClosesAllConnectionsAndTakesNewOnes) {
  const FileDescriptor near = Connect();
  const FileDescriptor far = Accept();
  Write(near, "a");
  EXPECT_EQ(Read(far, 1), "a");
  proxy_->Reset();
  EXPECT_EQ(Read(near, 1), "");
  EXPECT_EQ(Read(far, 1), "");
  const FileDescriptor again = Connect();
  const FileDescriptor behind = Accept();
  Write(again, "b");
  EXPECT_EQ(Read(behind, 1), "b");
}

}  // namespace
}  // namespace weft
