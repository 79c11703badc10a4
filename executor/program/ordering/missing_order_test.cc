// Steps with one kind of transfer each, on a device that does nothing before the host waits for it:
// they equal those of the CPU, and each call that orders their work is needed.
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "executor/lowering/testing/ordered_jobs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/device.h"
#include "tensor/testing/fake_device.h"
#include "tensor/testing/lazy_device.h"
#include "tensor/testing/test_device.h"
#include "tensor/testing/watched_device.h"
#include "tensor/value.h"

namespace weft::testing {
namespace {

// What the steps leave behind, step by step.
using Traces = std::vector<std::string>;

// Calls `before_last` when one step is left: the streams are drained once more at its end, so that
// no work but sends is under way when the program ends.
Traces RunSteps(const OrderedJob& job, Device& device,
                const std::function<void()>& before_last = nullptr) {
  Traces traces;
  std::vector<StepResult> results(kOrderedSteps + 1);  // a late copy still finds its memory
  OrderedRun run(job, device);
  EXPECT_TRUE(run.status().ok()) << run.status();
  if (!run.status().ok()) return traces;
  for (int64_t step = 0; step <= kOrderedSteps; ++step) {
    if (step == kOrderedSteps && before_last != nullptr) before_last();
    StepResult& result = results[static_cast<size_t>(step)];
    const absl::Status status = run.RunStep(step, result);
    std::string trace = absl::StrCat("step ", step, ": ", status.ok());
    if (status.ok()) {
      for (const auto& [name, tensor] : result.reports) {
        if (tensor.valid()) absl::StrAppend(&trace, " ", name, " ", Value(tensor).ToString());
      }
      for (const auto& [name, value] : result.values) {
        absl::StrAppend(&trace, " ", name, " ", value.ToString());
      }
    }
    absl::StrAppend(&trace, " w ", run.Variable());
    traces.push_back(trace);
  }
  run.End();
  traces.push_back(run.Sent());
  return traces;
}

class MissingOrderTest : public ::testing::TestWithParam<OrderedJob> {
 protected:
  static Traces OnCpu() { return RunSteps(GetParam(), *NewTestDevice(kOnCpu)); }
};

std::string TextOf(const OrderingPlace& place) {
  const char* const call = place.call == OrderingCall::kRecord ? "record"
                           : place.call == OrderingCall::kWait ? "wait"
                                                               : "synchronize";
  return absl::StrCat(place.stream, " ", call, " ", place.number);
}

TEST_P(MissingOrderTest, StepsEqualThoseOfTheCpuOnEachDevice) {
  const Traces expected = OnCpu();
  FakeDeviceOptions options;
  options.kind = GetParam().kind;
  LazyDevice lazy(options);
  EXPECT_EQ(RunSteps(GetParam(), lazy), expected);
  EXPECT_TRUE(lazy.Verify().ok()) << lazy.Verify();
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    options.scheduling.seed = seed;
    FakeDevice fake(options);
    EXPECT_EQ(RunSteps(GetParam(), fake), expected);
    EXPECT_TRUE(fake.Verify().ok()) << fake.Verify();
  }
}

TEST_P(MissingOrderTest, EachCallThatOrdersWorkIsNeeded) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "work without its order reads freed memory, which this sanitizer ends";
#endif
  const Traces expected = OnCpu();
  FakeDeviceOptions options;
  options.kind = GetParam().kind;
  std::vector<OrderingPlace> places;
  {
    LazyDevice lazy(options);
    WatchedDevice watched(lazy);
    ASSERT_EQ(RunSteps(GetParam(), watched, [&] { places = watched.ordering(); }), expected);
  }
  std::set<std::string> unseen;
  for (const OrderingPlace& place : places) {
    bool is_seen = false;
    std::vector<std::string> eager_streams = {"", "collectives", "lane 0", "lane 1"};
    // Copies that nobody waits for come too late for kernels that are early, too early for others.
    if (GetParam().feeds_ahead) eager_streams = {"", "lane 0", "feeds", "compute"};
    for (const std::string& eager_stream : eager_streams) {
      LazyDevice lazy(options, eager_stream);
      WatchedDeviceOptions without;
      without.without = place;
      WatchedDevice watched(lazy, without);
      is_seen = is_seen || RunSteps(GetParam(), watched) != expected || !lazy.Verify().ok();
    }
    if (!is_seen) unseen.insert(TextOf(place));
  }
  std::set<std::string> covered;
  for (const auto& [place, reason] : GetParam().covered) covered.insert(place);
  EXPECT_EQ(unseen, covered);
  EXPECT_GT(places.size(), covered.size());
  RecordProperty("places", static_cast<int>(places.size()));
  RecordProperty("seen", static_cast<int>(places.size() - unseen.size()));
}

INSTANTIATE_TEST_SUITE_P(Jobs, MissingOrderTest, ::testing::ValuesIn(OrderedJobs()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::testing
