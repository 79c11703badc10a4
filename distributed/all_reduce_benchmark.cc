// Times all-reduces of two ranks on demand, so that a script can alternate them with another
// library's:
//
//   all_reduce_benchmark TRANSPORT
//
// TRANSPORT is a name of distributed/testing/transport_cluster.h, such as Grpc. Two threads are the
// ranks. After a line "opened", a request "ELEMENTS N" is answered by the seconds of N sums of so
// many float32, each checked.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "distributed/testing/transport_cluster.h"
#include "distributed/transport_communicator.h"
#include "graph/schedule/all_reduce_choice.h"
#include "platform/clock.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr int kRanks = 2;
constexpr int kSettling = 3;  // sums that are not timed

// Rank r adds r + 1 in each place, so that each sum is 3.
absl::Status RunRank(testing::TransportCluster& cluster, int rank, int64_t elements, int64_t count,
                     std::vector<double>& seconds) {
  TransportCommunicator communicator(cluster.transport(rank), RealClock(), {testing::kTestJobId, 1},
                                     absl::Seconds(60));
  AllReduceTask task;
  task.members = kRanks;
  task.elements = elements;
  task.element_bytes = sizeof(float);
  CollectiveSpec spec{"all-reduce",
                      {RankId(0), RankId(1)},
                      DType::kFloat32,
                      AllReduceBy(FastestAllReduce(task), task, rank)};
  WEFT_ASSIGN_OR_RETURN(const auto handle, communicator.OpenCollective(spec));
  std::vector<std::vector<float>> buffers;
  std::vector<void*> pointers;
  for (const int64_t size : spec.schedule.buffer_elements) buffers.emplace_back(size);
  for (std::vector<float>& buffer : buffers) pointers.push_back(buffer.data());
  for (int64_t step = 0; step < count + kSettling; ++step) {
    std::fill(buffers[0].begin(), buffers[0].end(), static_cast<float>(rank + 1));
    const int64_t begin = RealClock().MonotonicNanos();
    WEFT_RETURN_IF_ERROR(communicator.RunCollective(handle, {step, -1}, pointers.data()));
    const int64_t end = RealClock().MonotonicNanos();
    if (step >= kSettling) seconds.push_back(static_cast<double>(end - begin) * 1e-9);
    if (buffers[0].front() != 3 || buffers[0].back() != 3) {
      return absl::InternalError("a sum is wrong");
    }
  }
  return absl::OkStatus();
}

// Of rank 0. Streams of a cluster are used once, so each request has one of its own.
absl::StatusOr<std::vector<double>> TimeSums(const std::string& transport, int64_t elements,
                                             int64_t count) {
  const auto cluster = testing::NewTransportCluster(transport, kRanks);
  std::vector<double> seconds, ignored;
  absl::Status other_status;
  std::thread other([&] { other_status = RunRank(*cluster, 1, elements, count, ignored); });
  const absl::Status status = RunRank(*cluster, 0, elements, count, seconds);
  other.join();
  WEFT_RETURN_IF_ERROR(status);
  WEFT_RETURN_IF_ERROR(other_status);
  return seconds;
}

absl::Status Serve(const std::string& transport) {
  std::printf("opened\n");
  std::fflush(stdout);
  for (int64_t elements = 0, count = 0; std::cin >> elements >> count;) {
    if (elements < 1 || count < 1) return absl::InvalidArgumentError("ELEMENTS and N are above 0");
    WEFT_ASSIGN_OR_RETURN(const std::vector<double> seconds, TimeSums(transport, elements, count));
    for (const double value : seconds) std::printf("%.9f ", value);
    std::printf("\n");
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace weft

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: all_reduce_benchmark TRANSPORT\n");
    return 2;
  }
  const absl::Status status = weft::Serve(arguments[1]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  return 1;
}
