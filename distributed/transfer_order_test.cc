// Two ranks send each other values over each transport, from memory of a device that does nothing
// before the host waits for it: what arrives is what the CPU sends, and each call that orders the
// copies to and from the host is needed.
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/testing/transport_cluster.h"
#include "distributed/transport_communicator.h"
#include "executor/lowering/testing/ordered_jobs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/clock.h"
#include "tensor/testing/test_device.h"
#include "tensor/testing/watched_device.h"
#include "tensor/value.h"

namespace weft::testing {
namespace {

constexpr int kRanks = 2;

// What the steps of both ranks leave behind.
using RankTraces = std::vector<std::vector<std::string>>;

// `before_last` is called when one step of rank 0 is left, at whose end its streams are drained.
std::vector<std::string> TracesOf(int rank, Device& device, Communicator& communicator,
                                  const std::function<void()>& before_last) {
  std::vector<std::string> traces;
  std::vector<StepResult> results(kOrderedSteps + 1);  // a late copy still finds its memory
  OrderedRun run({.name = "Exchanging", .make = [rank] { return ExchangingStep(rank); }}, device,
                 &communicator);
  EXPECT_TRUE(run.status().ok()) << run.status();
  if (!run.status().ok()) return traces;
  for (int64_t step = 0; step <= kOrderedSteps; ++step) {
    if (rank == 0 && step == kOrderedSteps && before_last != nullptr) before_last();
    StepResult& result = results[static_cast<size_t>(step)];
    const absl::Status status = run.RunStep(step, result);
    EXPECT_TRUE(status.ok()) << status;
    if (!status.ok()) break;
    traces.push_back(
        absl::StrCat("got ", Value(result.reports.at("got")).ToString(), " w ", run.Variable()));
  }
  run.End();
  return traces;
}

RankTraces RunRanks(const std::string& transport, const std::vector<Device*>& devices,
                    const std::function<void()>& before_last = nullptr) {
  const std::unique_ptr<TransportCluster> cluster = NewTransportCluster(transport, kRanks);
  RankTraces traces(kRanks);
  std::vector<std::unique_ptr<TransportCommunicator>> communicators;
  for (int rank = 0; rank < kRanks; ++rank) {
    communicators.push_back(std::make_unique<TransportCommunicator>(
        cluster->transport(rank), RealClock(),
        JobIdentity{kTestJobId, 100 + static_cast<uint64_t>(rank)}, absl::Seconds(60)));
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto index = static_cast<size_t>(rank);
      traces[index] = TracesOf(rank, *devices[index], *communicators[index], before_last);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return traces;
}

class TransferOrderTest : public ::testing::TestWithParam<std::string> {
 protected:
  static const RankTraces& OnCpu() {
    static const auto* const traces = [] {
      const TestDevices devices(kOnCpu, kRanks);
      return new RankTraces(RunRanks("InProcess", devices.all()));
    }();
    return *traces;
  }
};

// The samples of step s are (i + 1) (1, 10) + s (100, 100), and twice that is sent times 3 or 4.
TEST_P(TransferOrderTest, WhatArrivesIsWhatTheOtherRankHasComputed) {
  ASSERT_EQ(OnCpu()[0].size(), static_cast<size_t>(kOrderedSteps + 1));
  // 3 x (3 + 4) x 2 x (1 + 2 + 3 + 4) (1, 10)
  EXPECT_THAT(OnCpu()[0][0], ::testing::HasSubstr("420"));
  EXPECT_THAT(OnCpu()[0][0], ::testing::HasSubstr("4200"));
  EXPECT_EQ(OnCpu()[0], OnCpu()[1]) << "both have summed the same";
  for (const int order : {kOnCpu, kLazyOrder, 1, 2, 3}) {
    SCOPED_TRACE(TestDeviceName(order));
    const TestDevices devices(order, kRanks);
    EXPECT_EQ(RunRanks(GetParam(), devices.all()), OnCpu());
    EXPECT_TRUE(devices.Verify().ok()) << devices.Verify();
  }
}

std::string TextOf(const OrderingPlace& place) {
  const char* const call = place.call == OrderingCall::kRecord ? "record"
                           : place.call == OrderingCall::kWait ? "wait"
                                                               : "synchronize";
  return absl::StrCat(place.stream, " ", call, " ", place.number);
}

TEST_P(TransferOrderTest, EachCallThatOrdersCopiesIsNeeded) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "work without its order reads freed memory, which this sanitizer ends";
#endif
  std::vector<OrderingPlace> places;
  {
    const TestDevices devices(kLazyOrder, kRanks);
    WatchedDevice watched(*devices.all()[0]);
    ASSERT_EQ(
        RunRanks(GetParam(), {&watched, devices.all()[1]}, [&] { places = watched.ordering(); }),
        OnCpu());
  }
  std::set<std::string> unseen;
  for (const OrderingPlace& place : places) {
    const TestDevices devices(kLazyOrder, kRanks);
    WatchedDeviceOptions without;
    without.without = place;
    WatchedDevice watched(*devices.all()[0], without);
    const bool is_seen =
        RunRanks(GetParam(), {&watched, devices.all()[1]}) != OnCpu() || !devices.Verify().ok();
    if (!is_seen) unseen.insert(TextOf(place));
  }
  std::set<std::string> covered;
  for (const auto& [place, reason] :
       CoveredCalls(9, {0, 2, 4, 6}, "what is sent is waited for", 3)) {
    covered.insert(place);
  }
  EXPECT_EQ(unseen, covered);
  EXPECT_GT(places.size(), 2 * covered.size());
}

INSTANTIATE_TEST_SUITE_P(Transports, TransferOrderTest, ::testing::ValuesIn(TransportKinds()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace weft::testing
