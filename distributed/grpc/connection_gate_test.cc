// Connections of strangers, however many and however slow, take no room from a job, and do not
// close the door: gRPC's own listener accepted nothing any more after a thousand of them.
#include "distributed/grpc/connection_gate.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/grpc/channel_options.h"
#include "distributed/grpc/grpc_server.h"
#include "distributed/grpc/status_codec.h"
#include "distributed/grpc/weft.grpc.pb.h"
#include "gtest/gtest.h"
#include "platform/file_descriptor.h"

namespace weft {
namespace {

constexpr char kToken[] = "0123456789abcdef0123456789abcdef";

// A connection to a port of this machine that says nothing.
FileDescriptor Connect(const std::string& address) {
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
  FileDescriptor connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_port = htons(static_cast<uint16_t>(port));
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(connection.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  return connection;
}

// Whether the other end has ended it.
bool HasEnded(const FileDescriptor& connection) {
  char bytes[4096];
  while (true) {
    const ssize_t count = recv(connection.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (count > 0) continue;
    return count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }
}

template <typename Condition>
bool Await(const Condition& condition, absl::Duration timeout = absl::Seconds(20)) {
  for (const absl::Time end = absl::Now() + timeout; absl::Now() < end;) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return condition();
}

// What a caller with the token is told by a server without a worker.
absl::Status CallWithToken(rpc::Control::Stub& stub) {
  grpc::ClientContext context;
  context.AddMetadata(kTokenKey, kToken);
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
  rpc::Empty reply;
  const grpc::Status status = stub.Shutdown(&context, &reply)->Finish();
  return WasAnswered(context) ? AnswerOf(context, status) : FromGrpc(status);
}

TEST(ConnectionGateTest, ManyStrangersTakeNoRoom) {
  const ConnectionLimits limits = {.strangers = 8, .total = 64, .patience = absl::Hours(1)};
  const auto server = GrpcServer::Start({"127.0.0.1:0", false, kToken, limits}).value();
  const std::string& address = server->address();
  // Let in by its token: it is no stranger, and is never ended.
  const auto stub = rpc::Control::NewStub(NewChannel(address));
  EXPECT_EQ(CallWithToken(*stub).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(Await([&] { return server->gate().strangers() == 0; }));
  ASSERT_EQ(server->gate().connections(), 1);
  std::vector<FileDescriptor> flood;
  for (int i = 0; i < 300; ++i) flood.push_back(Connect(address));
  const auto open = [&flood] {
    int count = 0;
    for (const FileDescriptor& one : flood) count += HasEnded(one) ? 0 : 1;
    return count;
  };
  EXPECT_TRUE(Await([&] { return open() == limits.strangers; })) << open();
  EXPECT_EQ(server->gate().connections(), limits.strangers + 1);
  // The newest stay: who comes with a token has time to show it.
  EXPECT_FALSE(HasEnded(flood.back()));
  EXPECT_EQ(CallWithToken(*stub).code(), absl::StatusCode::kFailedPrecondition);
  flood.clear();
  EXPECT_TRUE(Await([&] { return server->gate().connections() == 1; }));
}

TEST(ConnectionGateTest, WhoHasTheTokenComesInAmongThem) {
  const ConnectionLimits limits = {.strangers = 8, .total = 64, .patience = absl::Hours(1)};
  const auto server = GrpcServer::Start({"127.0.0.1:0", false, kToken, limits}).value();
  std::vector<FileDescriptor> flood;
  for (int i = 0; i < 100; ++i) flood.push_back(Connect(server->address()));
  const auto stub = rpc::Control::NewStub(NewChannel(server->address()));
  EXPECT_EQ(CallWithToken(*stub).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ConnectionGateTest, WhoIsSlowIsEnded) {
  const ConnectionLimits limits = {.patience = absl::Milliseconds(100)};
  const auto server = GrpcServer::Start({"127.0.0.1:0", false, kToken, limits}).value();
  const FileDescriptor silent = Connect(server->address());
  const FileDescriptor slow = Connect(server->address());
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  size_t sent = 0;
  EXPECT_TRUE(Await([&] {
    if (sent < preface.size()) send(slow.get(), &preface[sent++], 1, MSG_NOSIGNAL);
    return HasEnded(silent) && HasEnded(slow);
  }));
  EXPECT_LT(sent, preface.size()) << "it was ended before it had begun";
}

// A stranger that says that it sends no more is no longer counted: so it is ended.
TEST(ConnectionGateTest, WhoOnlyListensIsEnded) {
  const ConnectionLimits limits = {.strangers = 8, .total = 64, .patience = absl::Hours(1)};
  const auto gate = ConnectionGate::Listen("127.0.0.1:0", limits).value();
  std::atomic<int> taken = -1;
  // A server that does not notice.
  gate->Start([&taken](int, int connection) { taken = connection; });
  const FileDescriptor caller = Connect(gate->address());
  ASSERT_TRUE(Await([&] { return taken >= 0; }));
  EXPECT_FALSE(HasEnded(caller));
  ASSERT_EQ(shutdown(caller.get(), SHUT_WR), 0);
  EXPECT_TRUE(Await([&] { return HasEnded(caller); }));
  EXPECT_EQ(gate->connections(), 0);
  gate->Stop();
  close(taken);
}

TEST(ConnectionGateTest, TheDoorOpensAgainAfterTheLastDescriptor) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const ConnectionLimits limits = {.strangers = 1000, .total = 1000};
  const auto gate = ConnectionGate::Listen("127.0.0.1:0", limits).value();
  rlimit after = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);  // the gate has asked for more
  std::vector<FileDescriptor> callers;
  for (int i = 0; i < 40; ++i) callers.push_back(Connect(gate->address()));
  // Room for some of them.
  const int next = fcntl(0, F_DUPFD_CLOEXEC, 0);
  FileDescriptor probe(next);
  const rlimit low = {static_cast<rlim_t>(next) + 10, after.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  std::atomic<int> taken = 0;
  gate->Start([&taken](int, int connection) {
    ++taken;
    // As a server does: closes what its other end, or the gate, has ended.
    std::thread([connection] {
      char byte;
      fcntl(connection, F_SETFL, 0);
      while (read(connection, &byte, 1) > 0) {
      }
      close(connection);
    }).detach();
  });
  EXPECT_TRUE(Await([&] { return taken > 0; }));
  absl::SleepFor(absl::Milliseconds(300));  // some refusals
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &after), 0);
  callers.clear();
  const int seen = taken;
  const FileDescriptor late = Connect(gate->address());
  EXPECT_TRUE(Await([&] { return taken > seen; }));
  EXPECT_TRUE(Await([&] { return gate->connections() == 1; })) << gate->connections();
  gate->Stop();
  setrlimit(RLIMIT_NOFILE, &before);
}

// 1: a connection to the socket gets a byte, 0: its end, -1: there is none. System calls alone, for
// a child of fork.
int FirstByteOf(const sockaddr_un& name) {
  const int file = socket(AF_UNIX, SOCK_STREAM, 0);
  if (connect(file, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0) return -1;
  char byte = 0;
  const ssize_t count = read(file, &byte, 1);
  close(file);
  return count == 1 ? 1 : 0;
}

// Even where the socket's mode and folder let it in.
TEST(ConnectionGateTest, AnotherUserIsTurnedAwayFromAUnixSocket) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  constexpr uid_t kNobody = 65534;
  constexpr int kNoOtherUser = 9;
  const std::string path = absl::StrCat("/tmp/weft-gate-", getpid());
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.data(), path.size());
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    if (setgid(kNobody) != 0 || setuid(kNobody) != 0) _exit(kNoOtherUser);
    if (read(go[0], &byte, 1) != 1) _exit(kNoOtherUser + 1);
    _exit(FirstByteOf(name) + 1);
  }
  const auto gate = ConnectionGate::Listen("unix:" + path, {}).value();
  gate->Start([](int, int connection) {
    EXPECT_EQ(write(connection, "x", 1), 1);
    close(connection);
  });
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  ASSERT_EQ(write(go[1], "x", 1), 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNoOtherUser) {
    gate->Stop();
    unlink(path.c_str());
    GTEST_SKIP() << "root of a user namespace without other users";
  }
  EXPECT_EQ(WEXITSTATUS(status) - 1, 0) << "connected, and got nothing";
  EXPECT_EQ(FirstByteOf(name), 1) << "it still opens to its own user";
  gate->Stop();
  unlink(path.c_str());
}

TEST(ConnectionGateTest, AnAddressThatIsTakenIsNamed) {
  const auto first = ConnectionGate::Listen("127.0.0.1:0", {}).value();
  const auto second = ConnectionGate::Listen(first->address(), {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(second.status().message().find(first->address()), std::string::npos);
}

}  // namespace
}  // namespace weft
