// The gRPC transport and shared memory against raw sockets, and TLS against none, alternating:
// throughput of one stream of messages, and the time of all-reduces of 4 bytes to 64 MiB. Two
// threads of one process, as two ranks would be.
//   bazel run -c opt //distributed:transport_benchmark
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <functional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "distributed/keys/cluster_keys.h"
#include "distributed/keys/key_ring.h"
#include "distributed/testing/awaited_transfer.h"
#include "distributed/testing/transport_cluster.h"
#include "distributed/transport_communicator.h"
#include "platform/clock.h"
#include "platform/file_descriptor.h"

namespace weft {
namespace {

constexpr int kRounds = 9;

double Seconds(const std::function<void()>& work) {
  const int64_t begin = RealClock().MonotonicNanos();
  work();
  return static_cast<double>(RealClock().MonotonicNanos() - begin) * 1e-9;
}

struct Spread {
  double low = 0, median = 0, high = 0;
};
Spread SpreadOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values.front(), values[values.size() / 2], values.back()};
}

// A connected pair of stream sockets: TCP on loopback, or unix.
std::pair<FileDescriptor, FileDescriptor> ConnectedPair(bool tcp) {
  int ends[2];
  if (!tcp) {
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return {};
    return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
  }
  FileDescriptor listener(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(listener.get(), 1) != 0 ||
      getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return {};
  }
  FileDescriptor client(socket(AF_INET, SOCK_STREAM, 0));
  if (connect(client.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) return {};
  const int yes = 1;
  setsockopt(client.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  return {std::move(client), FileDescriptor(accept(listener.get(), nullptr, nullptr))};
}

void SendAll(int socket, const char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t sent = send(socket, data, bytes, MSG_NOSIGNAL);
    if (sent <= 0) return;
    data += sent;
    bytes -= static_cast<size_t>(sent);
  }
}

double RawSeconds(bool tcp, const std::vector<char>& source, std::vector<char>& target, int count) {
  auto [from, to] = ConnectedPair(tcp);
  return Seconds([&, out = from.get(), in = to.get()] {
    std::thread sender([&] {
      for (int i = 0; i < count; ++i) SendAll(out, source.data(), source.size());
    });
    for (int i = 0; i < count; ++i) recv(in, target.data(), target.size(), MSG_WAITALL);
    sender.join();
  });
}

// Messages one after the other, a few posted ahead on both sides.
double MessageSeconds(testing::TransportCluster& cluster, uint32_t stream,
                      const std::vector<char>& source, std::vector<char>& target, int count) {
  constexpr int kAhead = 4;
  const auto header = [&](int i) {
    MessageHeader header;
    header.job_id = testing::kTestJobId;
    header.incarnation = 1;
    header.stream = stream;
    header.sequence = static_cast<uint64_t>(i);
    header.dtype = DType::kUint8;
    header.elements = header.bytes = source.size();
    return header;
  };
  const auto transfer = [&](const std::function<void(int, TransferObserver&)>& post) {
    std::deque<testing::AwaitedTransfer> transfers(count);
    for (int i = 0; i < count + kAhead; ++i) {
      if (i < count) post(i, transfers[i]);
      if (i >= kAhead && !transfers[i - kAhead].Await().ok()) std::abort();
    }
  };
  return Seconds([&] {
    std::thread sender([&] {
      transfer([&](int i, TransferObserver& done) {
        cluster.transport(0).Send(RankId(1), header(i), source.data(), done);
      });
    });
    transfer([&](int i, TransferObserver& done) {
      cluster.transport(1).Receive(RankId(0), header(i), target.data(), done);
    });
    sender.join();
  });
}

void CompareThroughput(size_t bytes) {
  const int count = static_cast<int>(std::max<size_t>(4, (size_t{256} << 20) / bytes));
  std::vector<char> source(bytes, 'x'), target(bytes);
  const auto cluster = testing::NewTransportCluster("Grpc", 2);
  const auto memory = testing::NewTransportCluster("SharedMemory", 2);
  const double total = static_cast<double>(bytes) * count * 1e-9;
  std::vector<double> grpc, tcp, local, to_tcp, shared, to_grpc;
  MessageSeconds(*cluster, 1000, source, target, 2);
  MessageSeconds(*memory, 1000, source, target, 2);
  for (int round = 0; round < kRounds; ++round) {
    tcp.push_back(total / RawSeconds(true, source, target, count));
    std::fill(target.begin(), target.end(), '\0');
    grpc.push_back(total / MessageSeconds(*cluster, round, source, target, count));
    if (target != source) std::abort();
    std::fill(target.begin(), target.end(), '\0');
    shared.push_back(total / MessageSeconds(*memory, round, source, target, count));
    if (target != source) std::abort();
    local.push_back(total / RawSeconds(false, source, target, count));
    to_tcp.push_back(grpc.back() / tcp.back());
    to_grpc.push_back(shared.back() / grpc.back());
  }
  const Spread g = SpreadOf(grpc), t = SpreadOf(tcp), l = SpreadOf(local), r = SpreadOf(to_tcp);
  std::printf(
      "%3zu MiB: grpc/unix %.2f GB/s (%.2f to %.2f), raw tcp %.2f (%.2f to %.2f), raw unix %.2f "
      "(%.2f to %.2f); grpc / tcp %.2f (%.2f to %.2f)\n",
      bytes >> 20, g.median, g.low, g.high, t.median, t.low, t.high, l.median, l.low, l.high,
      r.median, r.low, r.high);
  const Spread m = SpreadOf(shared), q = SpreadOf(to_grpc);
  std::printf(
      "%3zu MiB: shared memory %.2f GB/s (%.2f to %.2f); shared memory / grpc %.2f (%.2f to "
      "%.2f)\n",
      bytes >> 20, m.median, m.low, m.high, q.median, q.low, q.high);
}

// On ports of this machine, which a network card would make slower.
void CompareTls(size_t bytes) {
  std::string folder = std::filesystem::temp_directory_path() / "weft-keys-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) std::abort();
  const auto made = MakeClusterKeys({folder, ParseHosts("127.0.0.1").value(), 30, absl::Now()});
  if (!made.ok()) std::abort();
  const int count = static_cast<int>(std::max<size_t>(4, (size_t{256} << 20) / bytes));
  std::vector<char> source(bytes, 'x'), target(bytes);
  const auto plain = testing::NewPortCluster(2, nullptr);
  const auto secured = testing::NewPortCluster(2, KeyRing::Open(folder + "/127.0.0.1").value());
  const double total = static_cast<double>(bytes) * count * 1e-9;
  std::vector<double> without, with, ratios;
  MessageSeconds(*plain, 1000, source, target, 2);
  MessageSeconds(*secured, 1000, source, target, 2);
  for (int round = 0; round < kRounds; ++round) {
    // Who comes first changes, as the machine's speed drifts.
    const auto measure = [&](bool tls) {
      std::fill(target.begin(), target.end(), '\0');
      auto& speeds = tls ? with : without;
      speeds.push_back(total /
                       MessageSeconds(tls ? *secured : *plain, round, source, target, count));
      if (target != source) std::abort();
    };
    measure(round % 2 == 0);
    measure(round % 2 != 0);
    ratios.push_back(without.back() / with.back());
  }
  const Spread p = SpreadOf(without), t = SpreadOf(with), r = SpreadOf(ratios);
  std::printf(
      "%3zu MiB on ports: without TLS %.2f GB/s (%.2f to %.2f), with %.2f (%.2f to %.2f); time "
      "with / without %.3f (%.3f to %.3f)\n",
      bytes >> 20, p.median, p.low, p.high, t.median, t.low, t.high, r.median, r.low, r.high);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

// Microseconds of each all-reduce of two ranks but the first few, as rank 0 sees them.
std::vector<double> AllReduceMicroseconds(testing::TransportCluster& cluster, int64_t elements,
                                          int64_t steps) {
  std::vector<double> microseconds;
  const auto body = [&](int rank) {
    TransportCommunicator communicator(cluster.transport(rank), RealClock(),
                                       {testing::kTestJobId, 1}, absl::Seconds(30));
    // As the program does: the second halves long ones.
    const CollectiveSpec spec{"all-reduce",
                              {RankId(0), RankId(1)},
                              DType::kFloat32,
                              elements <= 16384 ? RecursiveDoublingAllReduce(2, rank, elements)
                                                : RingAllReduce(2, rank, elements)};
    const auto handle = communicator.OpenCollective(spec);
    std::vector<std::vector<float>> buffers;
    std::vector<void*> pointers;
    for (const int64_t size : spec.schedule.buffer_elements) buffers.emplace_back(size);
    for (std::vector<float>& buffer : buffers) pointers.push_back(buffer.data());
    const int64_t warm = std::max<int64_t>(2, steps / 6);
    for (int64_t step = 0; step < warm + steps; ++step) {
      const double seconds = Seconds([&] {
        if (!communicator.RunCollective(*handle, {step, -1}, pointers.data()).ok()) std::abort();
      });
      if (rank == 0 && step >= warm) microseconds.push_back(seconds * 1e6);
    }
  };
  std::thread other(body, 1);
  body(0);
  other.join();
  return microseconds;
}

// Each kind in turn, with a cluster of its own for each round: streams begin anew.
void CompareAllReduces(int64_t bytes) {
  const std::vector<std::string> kinds = {"InProcess", "SharedMemory", "Grpc"};
  const int64_t steps = std::clamp<int64_t>((int64_t{64} << 20) / bytes, 3, 300);
  std::vector<std::vector<double>> medians(kinds.size());
  for (int round = 0; round < kRounds; ++round) {
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
      const auto cluster = testing::NewTransportCluster(kinds[kind], 2);
      medians[kind].push_back(SpreadOf(AllReduceMicroseconds(*cluster, bytes / 4, steps)).median);
    }
  }
  std::printf("all-reduce of %lld bytes, 2 ranks, medians in us:", static_cast<long long>(bytes));
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    const Spread spread = SpreadOf(medians[kind]);
    std::printf(" %s %.1f (%.1f to %.1f)", kinds[kind].c_str(), spread.median, spread.low,
                spread.high);
  }
  std::printf("\n");
}

}  // namespace
}  // namespace weft

int main() {
  for (const size_t mebibytes : {1, 16, 64}) weft::CompareThroughput(mebibytes << 20);
  for (const size_t mebibytes : {1, 16}) weft::CompareTls(mebibytes << 20);
  for (const int64_t bytes : {int64_t{4}, int64_t{4} << 10, int64_t{64} << 10, int64_t{246} << 10,
                              int64_t{1} << 20, int64_t{16} << 20, int64_t{64} << 20}) {
    weft::CompareAllReduces(bytes);
  }
  return 0;
}
