// What a stranger may send to a worker's port, and what comes of it: nothing. The worker is a
// process; its job is trained while the stranger's connections are still open.
//
// WEFT_RUNNER: graph_runner. WEFT_CONNECTIONS: how many connections the flood has (1000).
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "platform/file_descriptor.h"
#include "tests/attacks/attacked_worker.h"
#include "tests/attacks/http2_bytes.h"
#include "tests/command_run.h"

namespace weft::testing {
namespace {

// A stranger is ended after 10 s; some more for the machine.
constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr int64_t kMaxMemoryGrowth = int64_t{192} << 20;
// gRPC 1.51 holds some 20 KiB for each call until a thread has ended it, also one that was reset.
constexpr int64_t kMaxMemoryOfResets = int64_t{640} << 20;

FileDescriptor ConnectTo(const std::string& address) {
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
  FileDescriptor connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_port = htons(static_cast<uint16_t>(port));
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(connection.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  const timeval patience = {15, 0};
  setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  return connection;
}

// As much of it as the worker takes.
void SendAll(const FileDescriptor& connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(connection.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

// Whether the other end has ended it.
bool IsOver(const FileDescriptor& connection) {
  char bytes[4096];
  while (true) {
    const ssize_t count = recv(connection.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (count > 0) continue;
    return count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }
}

std::string Repeated(const std::string& text, int times) {
  std::string all;
  all.reserve(text.size() * static_cast<size_t>(times));
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

// The same on each run.
std::string Garbage(size_t bytes) {
  std::string garbage;
  uint32_t state = 12345;
  while (garbage.size() < bytes) {
    state = state * 1664525 + 1013904223;
    garbage.push_back(static_cast<char>(state >> 24));
  }
  return garbage;
}

// A call on each of these odd streams, which sends nothing more.
std::string Calls(int count, uint8_t flags, const std::string& after_each) {
  std::string all = ClientPreface();
  for (int i = 0; i < count; ++i) {
    const auto stream = static_cast<uint32_t>(2 * i + 1);
    all += Frame(FrameKind::kHeaders, flags, stream, CallHeaders("/weft.rpc.Control/Join"));
    if (!after_each.empty()) all += Frame(FrameKind::kReset, 0, stream, after_each);
  }
  return all;
}

// A field that fills the table of fields, and then is meant again and again, by a byte each time:
// 20 KiB stand for 64 MiB.
std::string HeaderBomb() {
  const std::string value(4000, 'x');
  std::string block = CallHeaders("/weft.rpc.Control/Join");
  // Literal, indexed from now on: length in the integers of HPACK, of a prefix of 7 bits.
  const size_t rest = value.size() - 127;
  block += std::string("\x40\x01y\x7f", 4);
  block.push_back(static_cast<char>(0x80 | (rest & 0x7f)));
  block.push_back(static_cast<char>(rest >> 7));
  block += value + std::string(16'000, '\xbe');
  return ClientPreface() + Frame(FrameKind::kHeaders, 0, 1, block.substr(0, 16'384)) +
         Frame(FrameKind::kContinuation, kEndOfHeaders, 1, block.substr(16'384));
}

// A call whose one message says that it has so many bytes.
std::string MessageThatClaims(uint32_t bytes) {
  return ClientPreface() +
         Frame(FrameKind::kHeaders, kEndOfHeaders, 1, CallHeaders("/weft.rpc.Control/AddProgram")) +
         Frame(FrameKind::kData, 0, 1, std::string(1, '\0') + BigEndian(bytes) + "some of it");
}

struct PortAttack {
  std::string name;
  AttackedWorker::Door door;
  std::string bytes;
  int connections = 1;
  bool says_goodbye = false;  // nothing more will come, and the answer is awaited
  int64_t max_memory = kMaxMemoryGrowth;
};

constexpr AttackedWorker::Door kPlain = AttackedWorker::Door::kToken;
constexpr AttackedWorker::Door kSecured = AttackedWorker::Door::kKeys;

std::vector<PortAttack> PortAttacks() {
  const std::string preface = ClientPreface();
  const auto frame = [](FrameKind kind, uint8_t flags, uint32_t stream, const std::string& bytes) {
    return Frame(kind, flags, stream, bytes);
  };
  return {
      {"GarbageOnThePort", kPlain, Garbage(64 << 10), 20},
      {"SilenceOnThePort", kPlain, "", 40},
      {"HttpOne", kPlain, "GET / HTTP/1.1\r\nHost: worker\r\n\r\n", 20},
      {"HttpOneWithAnEndlessHeader", kPlain, "GET / HTTP/1.1\r\nX: " + std::string(8 << 20, 'a')},
      {"HalfAPreface", kPlain, preface.substr(0, 12), 40},
      {"PrefaceAndSilence", kPlain, preface, 40},
      {"HandshakeOfTlsOnAPlainPort", kPlain,
       std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + Garbage(512), 20},
      {"FrameOf16MiB", kPlain,
       preface + FrameHeader(FrameKind::kData, 0, 1, (1 << 24) - 1) +
           std::string((1 << 24) - 1, '\0')},
      {"FiveThousandStreams", kPlain, Calls(5'000, kEndOfHeaders, "")},
      {"TwentyThousandResets", kPlain, Calls(20'000, kEndOfHeaders | kEndOfStream, BigEndian(8)), 1,
       false, kMaxMemoryOfResets},
      {"EndlessContinuation", kPlain,
       preface + frame(FrameKind::kHeaders, 0, 1, CallHeaders("/weft.rpc.Control/Join")) +
           Repeated(frame(FrameKind::kContinuation, 0, 1,
                          Repeated(HeaderField("x", std::string(100, 'y')), 150)),
                    2'000)},
      {"HeaderBomb", kPlain, HeaderBomb(), 10},
      {"PingFlood", kPlain, preface + Repeated(frame(FrameKind::kPing, 0, 0, "12345678"), 100'000)},
      {"SettingsFlood", kPlain, preface + Repeated(frame(FrameKind::kSettings, 0, 0, ""), 100'000)},
      {"WindowThatOverflows", kPlain,
       preface + Repeated(frame(FrameKind::kWindowUpdate, 0, 0, BigEndian(0x7fffffff)), 3)},
      {"MessageThatClaims4GiB", kPlain, MessageThatClaims(0xffffffff), 10},
      {"MessageThatClaims2MiBAndStops", kPlain, MessageThatClaims(2 << 20), 60},
      {"CallOfNoMethod", kPlain,
       preface + frame(FrameKind::kHeaders, kEndOfHeaders | kEndOfStream, 1,
                       CallHeaders("/weft.rpc.Control/Nothing"))},
      {"ShutdownWithoutToken", kPlain,
       preface + frame(FrameKind::kHeaders, kEndOfHeaders | kEndOfStream, 1,
                       CallHeaders("/weft.rpc.Control/Shutdown"))},
      {"HalfClosedInThePreface", kPlain, preface.substr(0, 12), 200, true},
      {"HalfClosedWithinACall", kPlain, Calls(10, kEndOfHeaders, ""), 100, true},
      {"FrameOnNoStream", kPlain, preface + frame(FrameKind::kHeaders, kEndOfHeaders, 0, "x")},
      {"GarbageOnASecuredPort", kSecured, Garbage(64 << 10), 20},
      {"SilenceOnASecuredPort", kSecured, "", 40},
      {"PlaintextOnASecuredPort", kSecured, Calls(1, kEndOfHeaders | kEndOfStream, ""), 20},
      {"RecordLongerThanTls", kSecured,
       std::string("\x16\x03\x01\xff\xff", 5) + std::string(65'535, '\1'), 20},
      {"ClientHelloOf16MiB", kSecured,
       std::string("\x16\x03\x01\x40\x00\x01\xff\xff\xff", 9) + std::string(16'380, '\1') +
           Repeated(std::string("\x16\x03\x01\x40\x00", 5) + std::string(16'384, '\1'), 1'000)},
  };
}

class PortAttacksTest : public ::testing::Test {
 protected:
  // Each of them, and an honest job while its connections are still open.
  void AttackAll(AttackedWorker& worker, AttackedWorker::Door door) {
    worker.ExpectUnharmed();  // as it is; and what it needs for that
    std::vector<FileDescriptor> connections;
    for (const PortAttack& attack : PortAttacks()) {
      if (attack.door != door) continue;
      SCOPED_TRACE(attack.name);
      worker.ForgetPeakMemory();  // that of the attack before is not this one's
      const int64_t before = worker.PeakMemory();
      ASSERT_GT(before, 0);
      for (int i = 0; i < attack.connections; ++i) {
        connections.push_back(ConnectTo(worker.address()));
        SendAll(connections.back(), attack.bytes);
        if (attack.says_goodbye) shutdown(connections.back().get(), SHUT_WR);
      }
      worker.ExpectUnharmed();
      EXPECT_LT(worker.PeakMemory() - before, attack.max_memory);
      if (!worker.is_running()) return;
    }
    const auto open = [&connections] {
      return std::count_if(connections.begin(), connections.end(),
                           [](const FileDescriptor& one) { return !IsOver(one); });
    };
    for (const absl::Time end = absl::Now() + kPatience; open() > 0 && absl::Now() < end;) {
      absl::SleepFor(absl::Milliseconds(50));
    }
    EXPECT_EQ(open(), 0) << "strangers' connections are ended, whatever they say";
  }
};

TEST_F(PortAttacksTest, WithoutTheTokenNothingIsDone) {
  const auto worker = AttackedWorker::Start(kPlain);
  ASSERT_NE(worker, nullptr);
  AttackAll(*worker, kPlain);
}

TEST_F(PortAttacksTest, WithoutKeysNothingIsDone) {
  const auto worker = AttackedWorker::Start(kSecured);
  ASSERT_NE(worker, nullptr);
  AttackAll(*worker, kSecured);
}

// Files that this process may have open at once, as many as the system allows.
size_t AllowedFiles() {
  rlimit limit = {};
  EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<size_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
}

int64_t Lines(const std::string& path) {
  std::ifstream file(path);
  int64_t lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  return lines;
}

// A job that runs does not notice them.
TEST(ConnectionFloodTest, AJobThatRunsGoesOn) {
  const char* const text = std::getenv("WEFT_CONNECTIONS");
  int count = 1000;
  if (text != nullptr) {
    ASSERT_TRUE(absl::SimpleAtoi(text, &count)) << text;
  }
  const auto worker = AttackedWorker::Start(kPlain);
  ASSERT_NE(worker, nullptr);
  const std::string metrics = worker->Path("metrics.csv"), model = worker->Path("flooded.onnx");
  const int steps = 2000 + count;
  CommandResult job;
  std::thread training([&] {
    job = RunProgram(worker->Job(steps) + worker->Credentials() +
                     Arguments{"--metrics", metrics, "-o", model});
  });
  const absl::Time end = absl::Now() + absl::Seconds(60);
  while (Lines(metrics) < 20 && absl::Now() < end) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_GE(Lines(metrics), 20) << "the job has not begun";
  const size_t room = AllowedFiles() / 2;
  std::deque<FileDescriptor> flood;
  for (int i = 0; i < count; ++i) {
    flood.push_back(ConnectTo(worker->address()));
    if (flood.size() > room) flood.pop_front();
  }
  training.join();
  EXPECT_EQ(job.exit_code, 0) << job.err;
  EXPECT_GT(Lines(metrics), steps);  // and the names of the columns
  worker->ExpectUnharmed();
}

}  // namespace
}  // namespace weft::testing
