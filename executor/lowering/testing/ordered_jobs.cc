#include "executor/lowering/testing/ordered_jobs.h"

#include <cmath>
#include <deque>
#include <list>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "executor/interfaces/device_collectives.h"
#include "executor/interfaces/input_source.h"
#include "executor/lowering/executor_environment.h"
#include "executor/lowering/testing/hand_made_partition.h"
#include "executor/lowering/testing/mirror_communicator.h"
#include "executor/program/compile_step.h"
#include "executor/variables/variable_store.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/kernel.h"
#include "platform/clock.h"
#include "platform/status_macros.h"
#include "tensor/tensor.h"
#include "tensor/value.h"

namespace weft::testing {
namespace {

constexpr int64_t kSteps = kOrderedSteps;
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

// All-reduces, sends and receives in the order of the stream, with images of this rank. What is
// received is what a MirrorCommunicator receives.
class MirrorCollectives final : public DeviceCollectives {
 public:
  bool Takes(const DeviceCollectiveSpec& spec) const override {
    return (spec.kind == Kind::kAllReduce || spec.kind == Kind::kSend ||
            spec.kind == Kind::kReceive) &&
           spec.dtype == DType::kFloat32;
  }
  absl::StatusOr<Handle> Open(const DeviceCollectiveSpec& spec) override {
    specs_.push_back(spec);
    return static_cast<Handle>(specs_.size()) - 1;
  }
  absl::Status Enqueue(Handle collective, MessageKey key, void* const* buffers,
                       Stream& stream) override {
    const DeviceCollectiveSpec& spec = specs_[static_cast<size_t>(collective)];
    runs_.push_back({this, &spec, key, static_cast<float*>(buffers[0])});
    return stream.Enqueue({[](void* argument, Stream&) {
                             static_cast<const Run*>(argument)->Do();
                             return absl::OkStatus();
                           },
                           &runs_.back()});
  }
  absl::Status status() const override { return absl::OkStatus(); }
  void Abort(const absl::Status&) override {}

  std::vector<std::string> sent;  // in the order of the streams

 private:
  using Kind = DeviceCollectiveSpec::Kind;
  struct Run {
    MirrorCollectives* owner;
    const DeviceCollectiveSpec* spec;
    MessageKey key;
    float* data;

    void Do() const {
      if (spec->kind == Kind::kSend) {
        owner->sent.push_back(absl::StrCat("mb", key.micro_batch, " ", data[0]));
      } else if (spec->kind == Kind::kReceive) {
        data[0] = data[1] = ReceivedValue(key);
      } else {
        for (int64_t i = 0; i < spec->counts[0]; ++i) {
          data[i] *= static_cast<float>(spec->group.size());
        }
      }
    }
  };
  std::deque<DeviceCollectiveSpec> specs_;
  std::list<Run> runs_;
};

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

// Values that come from a peer.
void AddReceive(GraphBuilder& builder, const std::string& value, int64_t channel) {
  const auto outputs = builder.Ops(std::string(kWeftDomain), "Recv", {},
                                   {{"channel", channel},
                                    {"dtype", static_cast<int64_t>(DType::kFloat32)},
                                    {"shape", std::vector<int64_t>{1, 2}}},
                                   {true});
  builder.Name(outputs[0], value);
}

Channel ChannelFromPeer(int32_t id, const std::string& value) {
  return {ChannelId(id), RankId(1), RankId(0), value, DType::kFloat32, Shape{1, 2}, true};
}

// Number `number` of so many calls in each step may be left out.
void Cover(const std::string& call, int64_t calls, int64_t number, const std::string& reason,
           OrderedJob& job) {
  for (int64_t step = 0; step < kSteps; ++step) {
    job.covered[absl::StrCat(call, " ", step * calls + number)] = reason;
  }
}

Partition ReceivingStep() {
  Partition partition = SumOfTwice([](GraphBuilder& b) {
    AddReceive(b, "more", 3);
    b.Name(b.Op("Add", {Find(b, "y"), Find(b, "more")}), "both");
  });
  partition.channels = {ChannelFromPeer(3, "more")};
  AddSum(partition, "both", "received", 0, kMicroBatches);
  AddUpdate(partition, "received");
  return partition;
}

// A stage in the middle: what comes from a peer, changed, goes to a peer.
Partition RelayingStep() {
  Partition partition = SumOfTwice([](GraphBuilder& b) {
    AddReceive(b, "more", 3);
    Scaled(b, "less", "more", 0.5);
    AddSend(b, "less", 5);
  });
  partition.channels = {ChannelFromPeer(3, "more"), ChannelOf(5, "less")};
  AddUpdate(partition, "sum");
  return partition;
}

}  // namespace

class OrderedRun::Impl {
 public:
  Impl(const OrderedJob& job, Device& device, Communicator* communicator)
      : partition_(job.make()),
        feeds_ahead_(job.feeds_ahead),
        variables_(device),
        source_(job.poisoned_step) {
    const bool is_host = device.info().host_accessible;
    if (!is_host) RegisterKernels(job);
    ExecutorEnvironment environment;
    environment.device = &device;
    environment.variables = &variables_;
    environment.communicator = communicator != nullptr ? communicator : &communicator_;
    environment.input = &source_;
    environment.clock = &RealClock();
    environment.kernels = is_host || job.kernels.empty() ? nullptr : &kernels_;
    environment.device_collectives = job.device_collectives && !is_host ? &collectives_ : nullptr;
    if (feeds_ahead_) environment.min_ahead_bytes = 0;
    status_ = Compile(environment);
  }

  const absl::Status& status() const { return status_; }
  absl::Status RunStep(int64_t step, StepResult& result, bool check_numerics) {
    StepOptions options;
    options.step = step;
    options.scalars = {{"rate", 0.5 + static_cast<double>(step)}};
    options.check_numerics = check_numerics;
    if (feeds_ahead_) options.next_step = step + 1;
    return program_->RunInto(options, result);
  }
  std::string Variable() {
    const auto w = variables_.Read("w");
    EXPECT_TRUE(w.ok()) << w.status();
    return w.ok() ? Value(*w).ToString() : "";
  }
  void End() { program_.reset(); }
  std::string Sent() const {
    std::vector<std::string> sent = collectives_.sent;
    for (const std::string& call : communicator_.calls) {
      // "send 5 mb2 7", of the one channel.
      if (absl::StartsWith(call, "send ")) sent.push_back(call.substr(call.find(" mb") + 1));
    }
    return absl::StrJoin(sent, ", ");
  }

 private:
  void RegisterKernels(const OrderedJob& job) {
    const auto add = [this](const std::string& op, DeviceKind kind) {
      const KernelFactory* const factory =
          KernelRegistry::Global().Find(kWeftDomain, op, DeviceKind::kCpu);
      ASSERT_NE(factory, nullptr) << op;
      ASSERT_TRUE(kernels_.Register(kWeftDomain, op, kind, *factory).ok());
    };
    for (const std::string& op : job.kernels) add(op, job.kind);
    for (const std::string& op : partition_.host_ops) {
      add(op.substr(op.rfind(':') + 1), DeviceKind::kCpu);
    }
  }
  absl::Status Compile(const ExecutorEnvironment& environment) {
    WEFT_RETURN_IF_ERROR(variables_.Add(partition_.variables));
    WEFT_RETURN_IF_ERROR(variables_.Write("w", initial_));
    initial_.mutable_data<float>()[0] = 7;  // whoever reads it now, reads too late
    WEFT_ASSIGN_OR_RETURN(program_, CompileStep(partition_, environment));
    return absl::OkStatus();
  }

  const Partition partition_;
  const bool feeds_ahead_;
  KernelRegistry kernels_;
  Tensor initial_ = Tensor::Of<float>({1, 2}, {1, 2});  // of "w"
  VariableStore variables_;
  MirrorCommunicator communicator_;
  MirrorCollectives collectives_;
  StepSource source_;
  std::unique_ptr<StepProgram> program_;
  absl::Status status_;
};

OrderedRun::OrderedRun(const OrderedJob& job, Device& device, Communicator* communicator)
    : impl_(std::make_unique<Impl>(job, device, communicator)) {}
OrderedRun::~OrderedRun() = default;

const absl::Status& OrderedRun::status() const { return impl_->status(); }

absl::Status OrderedRun::RunStep(int64_t step, StepResult& result, bool check_numerics) {
  return impl_->RunStep(step, result, check_numerics);
}

std::string OrderedRun::Variable() { return impl_->Variable(); }

void OrderedRun::End() { impl_->End(); }

std::string OrderedRun::Sent() const { return impl_->Sent(); }

void PrintTo(const OrderedJob& job, std::ostream* out) { *out << job.name; }

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

Partition ExchangingStep(int rank) {
  constexpr int32_t kFromFirst = 5;
  constexpr int32_t kFromSecond = 3;
  const int32_t own = rank == 0 ? kFromFirst : kFromSecond;
  const int32_t other = rank == 0 ? kFromSecond : kFromFirst;
  Partition partition = SumOfTwice([&](GraphBuilder& b) {
    Scaled(b, "given", "y", static_cast<float>(3 + rank));
    AddSend(b, "given", own);
    AddReceive(b, "more", other);
  });
  partition.rank = RankId(rank);
  for (const int32_t id : {own, other}) {
    const int from = id == kFromFirst ? 0 : 1;
    partition.channels.push_back({ChannelId(id), RankId(from), RankId(1 - from),
                                  id == own ? "given" : "more", DType::kFloat32, Shape{1, 2},
                                  true});
  }
  AddSum(partition, "more", "received", 0, kMicroBatches);
  AddAllReduceOf(partition, "received");
  AddUpdate(partition, "reduced");
  return partition;
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
  // A send reads memory that has two versions, in the order of its lane.
  const std::string later = "the last send of the step is waited for, and comes after this one";
  const std::string first = "nothing of this step has used the memory yet";
  const std::string sent = "what is sent is waited for";
  jobs.push_back({.name = "SendingOnDevice",
                  .make = SendingStep,
                  .device_collectives = true,
                  .covered = CoveredCalls(8, {4, 6}, last, 2)});
  Cover("compute wait", 4, 2, later, jobs.back());
  Cover("lane 0 record", 4, 2, later, jobs.back());
  jobs.push_back(
      {.name = "Receiving", .make = ReceivingStep, .covered = CoveredCalls(4, {2, 3}, last, 2)});
  jobs.push_back({.name = "ReceivingOnDevice",
                  .make = ReceivingStep,
                  .device_collectives = true,
                  .covered = CoveredCalls(8, {4, 6}, last, 2)});
  Cover("compute record", 8, 1, first, jobs.back());
  Cover("lane 0 wait", 4, 0, first, jobs.back());
  jobs.push_back({.name = "Relaying",
                  .make = RelayingStep,
                  .covered = CoveredCalls(8, {0, 2, 4, 6}, sent, 3)});
  jobs.push_back({.name = "RelayingOnDevice",
                  .make = RelayingStep,
                  .device_collectives = true,
                  .covered = CoveredCalls(12, {6, 9}, last, 3)});
  Cover("compute record", 12, 1, first, jobs.back());
  Cover("lane 0 wait", 4, 0, first, jobs.back());
  Cover("compute wait", 8, 6, later, jobs.back());
  Cover("lane 1 record", 4, 2, later, jobs.back());
  // The end of a step waits for the first rows of the next one, and their fill would too.
  const std::string waited = "the step before has waited";
  const auto cover_ahead = [&](int64_t waits, OrderedJob& job) {
    for (int64_t step = 0; step < kSteps; ++step) {
      if (step > 0) job.covered[absl::StrCat("compute wait ", step * waits)] = waited;
      job.covered[absl::StrCat("feeds record ", (step + 1) * kMicroBatches)] = waited;
      job.covered[absl::StrCat("feeds synchronize ", step)] = "the fill of these rows waits";
    }
    job.covered["feeds wait 0"] = "no rows lie there yet";
  };
  jobs.push_back({.name = "GuardedAhead",
                  .make = GuardedStep,
                  .poisoned_step = 1,
                  .feeds_ahead = true,
                  .covered = CoveredCalls(4, {}, "", 5)});
  cover_ahead(4, jobs.back());
  // The first rows of the step after the one that failed are copied twice.
  jobs.back().covered.erase("feeds record 12");
  jobs.back().covered["feeds record 13"] = waited;
  jobs.back().covered["feeds wait 9"] = "the step that failed has left the same rows";
  for (const int number : {4, 5, 6, 7}) {
    for (const char* const call : {"compute record ", "compute wait ", "feeds record "}) {
      jobs.back().covered[absl::StrCat(call, number)] = "the step has no result";
    }
    jobs.back().covered[absl::StrCat("feeds wait ", number + 1)] = "the step has no result";
  }
  for (const int number : {0, 4}) {
    jobs.back().covered[absl::StrCat("compute synchronize ", number)] = "the loss is finite";
  }
  jobs.back().covered["compute synchronize 3"] = "the guard that failed has waited";
  jobs.push_back({.name = "SendingAhead",
                  .make = SendingStep,
                  .feeds_ahead = true,
                  .covered = CoveredCalls(8, {}, "", 2)});
  cover_ahead(4, jobs.back());
  jobs.push_back({.name = "ReceivingOnDeviceAhead",
                  .make = ReceivingStep,
                  .device_collectives = true,
                  .feeds_ahead = true,
                  .covered = CoveredCalls(8, {}, "", 2)});
  cover_ahead(8, jobs.back());
  Cover("compute record", 8, 1, first, jobs.back());
  Cover("lane 0 wait", 4, 0, first, jobs.back());
  jobs.push_back({.name = "HostNodeAhead",
                  .make = HostNodeStep,
                  .kind = DeviceKind::kCuda,
                  .kernels = {"SgdUpdate"},
                  .feeds_ahead = true,
                  .covered = CoveredCalls(4, {}, "", 2)});
  cover_ahead(4, jobs.back());
  return jobs;
}

}  // namespace weft::testing
