// Calls and data streams over a link of 1 Mbit/s whose sender's buffers hold seconds' worth of it:
// the worker is not lost, as what keepalive and the lease ask need not wait behind the data.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "distributed/grpc/grpc_client.h"
#include "distributed/grpc/grpc_server.h"
#include "distributed/testing/awaited_transfer.h"
#include "gtest/gtest.h"
#include "platform/file_descriptor.h"
#include "platform/mutex.h"

namespace weft {
namespace {

constexpr char kToken[] = "0123456789abcdef";
constexpr double kBytesPerSecond = 125e3;
// Takes longer than keepalive waits, 1 s + 3 s.
constexpr int64_t kBytes = 800 << 10;

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Passes on to a port of this machine what comes to its own one, so many bytes a second; what comes
// back is not held up. It takes little in advance: the rest stays in the sender's buffers.
class SlowLink {
 public:
  explicit SlowLink(int target) : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int little = 16384;
    setsockopt(listener_.get(), SOL_SOCKET, SO_RCVBUF, &little, sizeof(little));
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_.get(), any, size), 0);
    EXPECT_EQ(listen(listener_.get(), 8), 0);
    EXPECT_EQ(getsockname(listener_.get(), any, &size), 0);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this, target] { Accept(target); });
  }
  ~SlowLink() {
    shutdown(listener_.get(), SHUT_RDWR);
    acceptor_.join();
    {
      MutexLock lock(mutex_);
      for (const FileDescriptor& one : ends_) shutdown(one.get(), SHUT_RDWR);
    }
    for (std::thread& pump : pumps_) pump.join();
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  void Accept(int target) {
    while (true) {
      FileDescriptor near(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!near.valid()) return;
      FileDescriptor far(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const sockaddr_in address = Loopback(target);
      if (connect(far.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
        continue;
      }
      const int from = near.get(), to = far.get();
      pumps_.emplace_back([from, to] { Pump(from, to, kBytesPerSecond); });
      pumps_.emplace_back([from, to] { Pump(to, from, 0); });
      MutexLock lock(mutex_);
      ends_.push_back(std::move(near));
      ends_.push_back(std::move(far));
    }
  }
  // `rate`: bytes a second; 0: as fast as they come.
  static void Pump(int from, int to, double rate) {
    std::array<char, 2048> bytes;
    while (true) {
      const ssize_t got = read(from, bytes.data(), bytes.size());
      if (got <= 0) break;
      if (rate > 0) absl::SleepFor(absl::Seconds(static_cast<double>(got) / rate));
      ssize_t sent = 0;
      while (sent < got) {
        const ssize_t now =
            send(to, bytes.data() + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
        if (now <= 0) break;
        sent += now;
      }
      if (sent < got) break;
    }
    shutdown(from, SHUT_RDWR);
    shutdown(to, SHUT_RDWR);
  }

  const FileDescriptor listener_;
  int port_ = 0;
  std::thread acceptor_;
  std::vector<std::thread> pumps_;  // of the acceptor, until it has ended
  Mutex mutex_;
  std::vector<FileDescriptor> ends_ ABSL_GUARDED_BY(mutex_);
};

// Has one variable, of kBytes.
class OneVariable final : public Worker {
 public:
  std::string bytes;

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
  absl::StatusOr<VariableShard> FindVariable(const std::string& name) const override {
    VariableShard shard;
    shard.name = name;
    shard.dtype = DType::kUint8;
    shard.global_shape = shard.local_shape = Shape({kBytes});
    return shard;
  }
  absl::Status WriteVariablePart(const std::string&, int64_t offset,
                                 std::span<const std::byte> part) override {
    bytes.resize(static_cast<size_t>(offset));
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
    return absl::OkStatus();
  }
  absl::Status ReadVariablePart(const std::string&, int64_t offset,
                                std::span<std::byte> part) override {
    std::memcpy(part.data(), bytes.data() + offset, part.size());
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
  void Abort(const absl::Status&) override {}
};

int PortOf(const GrpcServer& server) {
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(server.address().substr(server.address().rfind(':') + 1), &port));
  return port;
}

// Bytes that differ from their neighbours.
std::string Pattern() {
  std::string bytes(kBytes, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>((i * 2654435761u) >> 13);
  return bytes;
}

TEST(SlowLinkTest, AWorkerTakesALargeVariableAndIsNotLost) {
  const auto server = GrpcServer::Start({"127.0.0.1:0", false, kToken}).value();
  OneVariable worker;
  server->control().SetWorker(&worker, "test");
  const SlowLink link(PortOf(*server));
  GrpcClientOptions options;
  options.address = link.address();
  options.rank = RankId(0);
  options.token = kToken;
  auto client = ConnectToWorker(options);
  ASSERT_TRUE(client.ok()) << client.status();
  const std::string bytes = Pattern();
  Tensor value = Tensor::Allocate(DType::kUint8, Shape({kBytes})).value();
  std::memcpy(value.raw_data(), bytes.data(), bytes.size());
  const absl::Status taken = (*client)->WriteVariable("w", value);
  EXPECT_TRUE(taken.ok()) << taken;
  EXPECT_EQ(worker.bytes, bytes);
  const auto read = (*client)->ReadVariable("w");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(std::memcmp(read->raw_data(), bytes.data(), bytes.size()), 0);
  client->reset();
  server->control().Stop();
}

TEST(SlowLinkTest, AMessageOfSecondsReachesItsPeer) {
  std::vector<std::unique_ptr<GrpcServer>> servers;
  for (int i = 0; i < 2; ++i) {
    servers.push_back(GrpcServer::Start({"127.0.0.1:0", false, kToken}).value());
  }
  const SlowLink link(PortOf(*servers[1]));
  JobMembership membership;
  membership.job_id = 2222;
  membership.addresses = {servers[0]->address(), link.address()};
  std::vector<std::unique_ptr<Transport>> transports;
  for (int i = 0; i < 2; ++i) {
    membership.rank = RankId(i);
    transports.push_back(servers[static_cast<size_t>(i)]->OpenTransport(membership).value());
  }
  MessageHeader header;
  header.job_id = 2222;
  header.incarnation = 1;
  header.stream = 4;
  header.dtype = DType::kUint8;
  header.elements = header.bytes = kBytes;
  const std::string bytes = Pattern();
  std::string got(kBytes, '\0');
  testing::AwaitedTransfer sent, received;
  transports[1]->Receive(RankId(0), header, got.data(), received);
  transports[0]->Send(RankId(1), header, bytes.data(), sent);
  EXPECT_TRUE(received.Await().ok()) << received.Await();
  EXPECT_EQ(got, bytes);
  EXPECT_TRUE(sent.Await().ok()) << sent.Await();
  transports.clear();
}

}  // namespace
}  // namespace weft
