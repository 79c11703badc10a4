// In the steady state a step allocates nothing (law 4 of docs/architecture.md), on any thread of
// two workers in this process: compute, communication, transport, reports. Kernels of the job are
// ours; what oneDNN and gRPC allocate is measured by tools/bench/allocations.cc.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "distributed/coordinator.h"
#include "distributed/in_process_cluster.h"
#include "distributed/testing/sum_job.h"
#include "gtest/gtest.h"

namespace {

std::atomic<int64_t> allocations{0};

void* Allocated(void* memory) {
  if (memory == nullptr) std::abort();
  allocations.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return Allocated(std::malloc(bytes == 0 ? 1 : bytes)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  const auto unit = static_cast<size_t>(alignment);
  return Allocated(std::aligned_alloc(unit, (std::max<size_t>(bytes, 1) + unit - 1) / unit * unit));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace weft::testing {
namespace {

constexpr int kWorkers = 2;
constexpr int64_t kWarmUp = 100;
constexpr int64_t kWindow = 50;
constexpr int64_t kWindows = 8;
constexpr int64_t kSteps = kWarmUp + kWindow * kWindows + 1;
constexpr char kTestVersion[] = "test";

// What was counted when rank 0 asked for the data of each step.
using Counts = std::array<int64_t, kSteps>;

// Looks at the count at the begin of rank 0's steps; allocates `each_step` times itself.
class CountedSource final : public InputSource {
 public:
  CountedSource(std::unique_ptr<InputSource> source, Counts& counts, int each_step)
      : source_(std::move(source)), counts_(counts), each_step_(each_step) {}
  absl::Status Fill(int64_t step, const FeedInput& input, int64_t first, int64_t count,
                    void* target) override {
    if (first == 0) {  // the first micro-batch, which rank 0 has
      counts_[static_cast<size_t>(step)] = allocations.load(std::memory_order_relaxed);
      for (int i = 0; i < each_step_; ++i) ::operator delete(::operator new(1));
    }
    return source_->Fill(step, input, first, count, target);
  }

 private:
  const std::unique_ptr<InputSource> source_;
  Counts& counts_;
  const int each_step_;
};

// Allocations of the window of steps that has the fewest. A message that comes before it is wanted
// is kept, in memory that the transport gets once and then keeps, whenever that happens first: so
// not every window needs to be clean, but what each step allocates is in all of them.
int64_t FewestOfAWindow(const Counts& counts) {
  int64_t fewest = INT64_MAX;
  for (int64_t window = 0; window < kWindows; ++window) {
    const auto begin = static_cast<size_t>(kWarmUp + window * kWindow);
    fewest = std::min(fewest, counts[begin + static_cast<size_t>(kWindow)] - counts[begin]);
  }
  return fewest;
}

void RunCounted(int each_step, Counts& counts) {
  InProcessCluster cluster(
      kWorkers,
      [&](const std::string& data) -> absl::StatusOr<std::unique_ptr<InputSource>> {
        auto source = OpenSumJobInput(data);
        if (!source.ok()) return source.status();
        return std::make_unique<CountedSource>(*std::move(source), counts, each_step);
      },
      kTestVersion);
  Coordinator coordinator(cluster.clients());
  JobMembership membership;
  membership.job_id = 17;
  membership.version = kTestVersion;
  const auto joined = coordinator.Join(membership);
  ASSERT_TRUE(joined.ok()) << joined.status();
  const auto added = coordinator.AddProgram("train", SumJobPartitions(kWorkers), "data");
  ASSERT_TRUE(added.ok()) << added.status();
  int64_t reports = 0;
  const absl::Status run = coordinator.RunSteps(
      {{"train", 0, kSteps, {{"rate", 0.5}}}}, [&reports](const StepReport& report) {
        // The sum over both ranks: 2 x (1 + 2).
        if (report.values.at("loss").data<float>()[0] == 6) ++reports;
      });
  ASSERT_TRUE(run.ok()) << run;
  EXPECT_EQ(reports, kSteps);
}

TEST(SteadyStepAllocations, AStepAllocatesNothing) {
  Counts counts = {};
  RunCounted(/*each_step=*/0, counts);
  EXPECT_GT(counts[0], 0);  // starting did
  EXPECT_EQ(FewestOfAWindow(counts), 0);
}

TEST(SteadyStepAllocations, OneForEachStepIsSeen) {
  Counts counts = {};
  RunCounted(/*each_step=*/1, counts);
  EXPECT_GE(FewestOfAWindow(counts), kWindow);
}

}  // namespace
}  // namespace weft::testing
