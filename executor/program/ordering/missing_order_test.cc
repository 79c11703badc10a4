// Steps with one kind of transfer each, on a device that does nothing before the host waits for it:
// they equal those of the CPU, and each call that orders their work is needed.
#include <cmath>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "executor/interfaces/device_collectives.h"
#include "executor/interfaces/input_source.h"
#include "executor/lowering/executor_environment.h"
#include "executor/lowering/testing/hand_made_partition.h"
#include "executor/lowering/testing/mirror_communicator.h"
#include "executor/program/compile_step.h"
#include "executor/variables/variable_store.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/kernel.h"
#include "platform/clock.h"
#include "tensor/device.h"
#include "tensor/tensor.h"
#include "tensor/testing/lazy_device.h"
#include "tensor/testing/test_device.h"
#include "tensor/testing/watched_device.h"
#include "tensor/value.h"

namespace weft::testing {
namespace {

constexpr int64_t kSteps = 3;
constexpr int kMicroBatches = 4;

// Sample i of step s is (i + 1) x (1, 10) + s x (100, 100), so that no two steps are alike; not a
// number where the job says so.
class StepSource final : public InputSource {
 public:
  explicit StepSource(int64_t poisoned_step) : poisoned_step_(poisoned_step) {}
  absl::Status Fill(int64_t step, const FeedInput&, int64_t first, int64_t count,
                    void* target) override {
    float* out = static_cast<float*>(target);
    for (int64_t i = first; i < first + count; ++i) {
      *out++ = step == poisoned_step_ ? NAN : static_cast<float>(i + 1 + 100 * step);
      *out++ = static_cast<float>(10 * (i + 1) + 100 * step);
    }
    return absl::OkStatus();
  }

 private:
  const int64_t poisoned_step_;
};

// All-reduces in the order of the stream, with images of this rank.
class MirrorCollectives final : public DeviceCollectives {
 public:
  bool Takes(const DeviceCollectiveSpec& spec) const override {
    return spec.kind == DeviceCollectiveSpec::Kind::kAllReduce && spec.dtype == DType::kFloat32;
  }
  absl::StatusOr<Handle> Open(const DeviceCollectiveSpec& spec) override {
    specs_.push_back(spec);
    return static_cast<Handle>(specs_.size()) - 1;
  }
  absl::Status Enqueue(Handle collective, MessageKey, void* const* buffers,
                       Stream& stream) override {
    const DeviceCollectiveSpec& spec = specs_[static_cast<size_t>(collective)];
    runs_.push_back(
        {static_cast<float*>(buffers[0]), spec.counts[0], static_cast<float>(spec.group.size())});
    return stream.Enqueue({[](void* argument, Stream&) {
                             const auto& run = *static_cast<const Product*>(argument);
                             for (int64_t i = 0; i < run.count; ++i) run.data[i] *= run.factor;
                             return absl::OkStatus();
                           },
                           &runs_.back()});
  }
  absl::Status status() const override { return absl::OkStatus(); }
  void Abort(const absl::Status&) override {}

 private:
  struct Product {
    float* data;
    int64_t count;
    float factor;
  };
  std::vector<DeviceCollectiveSpec> specs_;
  std::list<Product> runs_;
};

struct OrderedJob {
  std::string name;
  std::function<Partition()> make;
  DeviceKind kind = DeviceKind::kFake;
  std::vector<std::string> kernels = {};  // of a device of another kind: those of the CPU
  bool device_collectives = false;
  int64_t poisoned_step = -1;
  // What may be left out unseen: "compute record 2" for the third recording of that stream.
  std::map<std::string, std::string> covered = {};  // with the reason
};

void PrintTo(const OrderedJob& job, std::ostream* out) { *out << job.name; }

// "sum": of y = 2 x over all micro-batches.
Partition SumOfTwice(const Build& more = [](GraphBuilder&) {}) {
  Partition partition = NewPartition(kMicroBatches, [&](GraphBuilder& b) {
    Scaled(b, "y", "x", 2);
    more(b);
  });
  partition.inputs.push_back({"rate", InputRole::kStep, DType::kFloat32, Shape{}});
  AddSum(partition, "y", "sum", 0, kMicroBatches);
  partition.end.AddInput("rate", FloatType(Shape{}), InputRole::kStep);
  VariableShard w;
  w.name = "w";
  w.dtype = DType::kFloat32;
  w.global_shape = w.local_shape = Shape{1, 2};
  partition.variables.push_back(w);
  partition.end.AddVariable("w", FloatType({1, 2}), Tensor(), true);
  return partition;
}

// w -= rate * total; "got" is three times total; `seen` says more of it.
void AddUpdate(Partition& partition, const std::string& total,
               const std::function<void(GraphBuilder&, ValueId)>& more = nullptr) {
  GraphBuilder end(partition.end);
  end.set_phase(Phase::kUpdate);
  const ValueId sum = Find(end, total);
  Scaled(end, "got", total, 3);
  partition.end.AddOutput(Find(end, "got"));
  partition.reports.push_back("got");
  if (more != nullptr) more(end, sum);
  partition.end.SetVariableUpdate(
      "w", end.WeftOp("SgdUpdate", {Find(end, "w"), sum, Find(end, "rate")}));
  ASSERT_TRUE(end.status().ok()) << end.status();
}

// "reduced" is `from` summed over two ranks.
void AddAllReduceOf(Partition& partition, const std::string& from) {
  GraphBuilder end(partition.end);
  end.set_phase(Phase::kUpdate);
  const std::vector<ValueId> sums =
      end.Ops(std::string(kWeftDomain), "AllReduce", {Find(end, from)},
              {{"axis", std::string("data")},
               {"group", std::vector<int64_t>{0, 1}},
               {"algorithm", std::string("ring")}},
              {true});
  ASSERT_TRUE(end.status().ok()) << end.status();
  end.Name(sums[0], "reduced");
}

Partition GuardedStep() {
  Partition partition = SumOfTwice();
  AddUpdate(partition, "sum", [&partition](GraphBuilder& end, ValueId sum) {
    const ValueId loss = end.Op("Slice", {sum, end.Ints({0}), end.Ints({1}), end.Ints({1})});
    end.Name(loss, "loss");
    partition.end.AddOutput(loss);
    partition.guard = "loss";
    partition.reports.push_back("loss");
  });
  return partition;
}

Partition SendingStep() {
  Partition partition = SumOfTwice([](GraphBuilder& b) { AddSend(b, "y", 5); });
  partition.channels = {ChannelOf(5, "y")};
  AddUpdate(partition, "sum");
  return partition;
}

// A collective beside the compute list.
Partition ReducingStep() {
  Partition partition = SumOfTwice();
  AddAllReduceOf(partition, "sum");
  AddUpdate(partition, "reduced");
  return partition;
}

// A collective in the compute list: it sums what the end graph has made.
Partition ReducingLaterStep() {
  Partition partition = SumOfTwice();
  {
    GraphBuilder end(partition.end);
    end.set_phase(Phase::kUpdate);
    Scaled(end, "half", "sum", 0.5);
  }
  AddAllReduceOf(partition, "half");
  AddUpdate(partition, "reduced");
  return partition;
}

// A value of which only the run shows the size.
Partition SeekingStep() {
  Partition partition = SumOfTwice();
  AddUpdate(partition, "sum", [&partition](GraphBuilder& end, ValueId sum) {
    const ValueId seen = end.Op("Unique", {sum});
    end.Name(seen, "seen");
    partition.end.AddOutput(seen);
    partition.reports.push_back("seen");
  });
  return partition;
}

// An operator without a kernel for the device.
Partition HostNodeStep() {
  Partition partition = SumOfTwice();
  AddUpdate(partition, "sum");
  partition.host_ops = {"ai.weft::Scale"};
  return partition;
}

// What the steps leave behind, step by step.
using Traces = std::vector<std::string>;

// Calls `before_last` when one step is left: the streams are drained once more at its end, so that
// no work is under way when the program ends.
Traces RunSteps(const OrderedJob& job, Device& device, DeviceCollectives* collectives,
                const KernelRegistry* kernels, const std::function<void()>& before_last) {
  Traces traces;
  const Partition partition = job.make();
  VariableStore variables(device);
  EXPECT_TRUE(variables.Add(partition.variables).ok());
  Tensor initial = Tensor::Of<float>({1, 2}, {1, 2});
  EXPECT_TRUE(variables.Write("w", initial).ok());
  initial.mutable_data<float>()[0] = 7;  // whoever reads it now, reads too late
  MirrorCommunicator communicator;
  StepSource source(job.poisoned_step);
  ExecutorEnvironment environment = {&device, &variables,   &communicator,
                                     &source, &RealClock(), kernels};
  environment.device_collectives = collectives;
  std::vector<StepResult> results(kSteps + 1);  // a late copy still finds its memory
  auto program = CompileStep(partition, environment);
  EXPECT_TRUE(program.ok()) << program.status();
  if (!program.ok()) return traces;
  for (int64_t step = 0; step <= kSteps; ++step) {
    if (step == kSteps && before_last != nullptr) before_last();
    StepResult& result = results[static_cast<size_t>(step)];
    const absl::Status status = (*program)->RunInto(
        {.step = step, .scalars = {{"rate", 0.5 + static_cast<double>(step)}}}, result);
    std::string trace = absl::StrCat("step ", step, ": ", status.ok());
    if (status.ok()) {
      for (const auto& [name, tensor] : result.reports) {
        if (tensor.valid()) absl::StrAppend(&trace, " ", name, " ", Value(tensor).ToString());
      }
      for (const auto& [name, value] : result.values) {
        absl::StrAppend(&trace, " ", name, " ", value.ToString());
      }
    }
    const auto w = variables.Read("w");
    EXPECT_TRUE(w.ok()) << w.status();
    absl::StrAppend(&trace, " w ", w.ok() ? Value(*w).ToString() : "");
    traces.push_back(trace);
  }
  traces.push_back(absl::StrJoin(communicator.calls, ", "));
  return traces;
}

class MissingOrderTest : public ::testing::TestWithParam<OrderedJob> {
 protected:
  void SetUp() override {
    for (const std::string& op : GetParam().kernels) {
      const KernelFactory* const factory =
          KernelRegistry::Global().Find(kWeftDomain, op, DeviceKind::kCpu);
      ASSERT_NE(factory, nullptr) << op;
      ASSERT_TRUE(kernels_.Register(kWeftDomain, op, GetParam().kind, *factory).ok());
    }
    for (const std::string& op : GetParam().make().host_ops) {
      const std::string name = op.substr(op.rfind(':') + 1);
      ASSERT_TRUE(kernels_
                      .Register(kWeftDomain, name, DeviceKind::kCpu,
                                *KernelRegistry::Global().Find(kWeftDomain, name, DeviceKind::kCpu))
                      .ok());
    }
  }
  Traces OnCpu() const {
    return RunSteps(GetParam(), *NewTestDevice(kOnCpu), nullptr, nullptr, nullptr);
  }
  Traces On(Device& device, const std::function<void()>& before_last = nullptr) const {
    MirrorCollectives collectives;
    return RunSteps(GetParam(), device, GetParam().device_collectives ? &collectives : nullptr,
                    GetParam().kernels.empty() ? nullptr : &kernels_, before_last);
  }

  KernelRegistry kernels_;
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
  EXPECT_EQ(On(lazy), expected);
  EXPECT_TRUE(lazy.Verify().ok()) << lazy.Verify();
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    options.scheduling.seed = seed;
    FakeDevice fake(options);
    EXPECT_EQ(On(fake), expected);
    EXPECT_TRUE(fake.Verify().ok()) << fake.Verify();
  }
}

TEST_P(MissingOrderTest, EachCallThatOrdersWorkIsNeeded) {
  const Traces expected = OnCpu();
  FakeDeviceOptions options;
  options.kind = GetParam().kind;
  std::vector<OrderingPlace> places;
  {
    LazyDevice lazy(options);
    WatchedDevice watched(lazy);
    ASSERT_EQ(On(watched, [&] { places = watched.ordering(); }), expected);
  }
  std::set<std::string> unseen;
  for (const OrderingPlace& place : places) {
    bool is_seen = false;
    for (const std::string eager_stream : {"", "collectives"}) {
      LazyDevice lazy(options, eager_stream);
      WatchedDeviceOptions without;
      without.without = place;
      WatchedDevice watched(lazy, without);
      is_seen = is_seen || On(watched) != expected || !lazy.Verify().ok();
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

// Of a job with so many recordings of the compute stream in a step, those that may be left out in
// each step for this reason; and what may be in any job, whose constants are so many.
std::map<std::string, std::string> CoveredCalls(int recordings, const std::vector<int>& covered,
                                                const std::string& reason, int constants) {
  std::map<std::string, std::string> calls;
  for (int64_t step = 0; step < kSteps; ++step) {
    for (const int number : covered) {
      calls[absl::StrCat("compute record ", step * recordings + number)] = reason;
    }
  }
  for (int i = 0; i < constants; ++i) {
    calls[absl::StrCat("constants synchronize ", i)] = "the stream ends before the first step";
  }
  calls["variables synchronize 0"] = "the first value goes over these zeros";
  return calls;
}

std::vector<OrderedJob> OrderedJobs() {
  // The staging memory of an input has two blocks; those of the last two micro-batches are not
  // filled again before the end of the step.
  const std::string last = "the end of the step comes before the block's next rows";
  std::vector<OrderedJob> jobs;
  jobs.push_back({.name = "Guarded",
                  .make = GuardedStep,
                  .poisoned_step = 1,
                  .covered = CoveredCalls(4, {2, 3}, last, 5)});
  for (const int number : {4, 5}) {
    jobs.back().covered[absl::StrCat("compute record ", number)] = "the step has no result";
  }
  for (const int number : {0, 4}) {
    jobs.back().covered[absl::StrCat("compute synchronize ", number)] = "the loss is finite";
  }
  jobs.back().covered["compute synchronize 3"] = "the guard that failed has waited";
  jobs.push_back({.name = "Sending",
                  .make = SendingStep,
                  .covered = CoveredCalls(8, {0, 2, 4, 6}, "what is sent is waited for", 2)});
  jobs.push_back(
      {.name = "Reducing", .make = ReducingStep, .covered = CoveredCalls(5, {2, 3}, last, 2)});
  jobs.push_back({.name = "ReducingLater",
                  .make = ReducingLaterStep,
                  .covered = CoveredCalls(4, {2, 3}, last, 3)});
  jobs.push_back({.name = "ReducingOnDevice",
                  .make = ReducingStep,
                  .device_collectives = true,
                  .covered = CoveredCalls(5, {2, 3}, last, 2)});
  jobs.push_back({.name = "ReducingLaterOnDevice",
                  .make = ReducingLaterStep,
                  .device_collectives = true,
                  .covered = CoveredCalls(5, {2, 3}, last, 3)});
  jobs.push_back(
      {.name = "Seeking", .make = SeekingStep, .covered = CoveredCalls(4, {2, 3}, last, 2)});
  jobs.push_back({.name = "HostNode",
                  .make = HostNodeStep,
                  .kind = DeviceKind::kCuda,
                  .kernels = {"SgdUpdate"},
                  .covered = CoveredCalls(4, {0, 1, 2, 3}, "a node on the host waits", 2)});
  return jobs;
}

INSTANTIATE_TEST_SUITE_P(Jobs, MissingOrderTest, ::testing::ValuesIn(OrderedJobs()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::testing
