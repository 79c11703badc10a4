// What the executor itself costs: a chain of 1,000 tiny ops, and what a step allocates.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "executor/interfaces/communicator.h"
#include "executor/lowering/node_context.h"
#include "executor/program/compile_step.h"
#include "executor/program/step_program.h"
#include "graph/graph_builder.h"
#include "platform/clock.h"
#include "tensor/cpu_device.h"

namespace {
std::atomic<int64_t> allocations{0};
}

// Counts every allocation of the process through operator new.
void* operator new(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace weft {
namespace {

constexpr int kOps = 1000;
constexpr int kSteps = 200;
constexpr int kRounds = 9;

// y = -(-(... x)): kOps negations of one float.
Partition ChainPartition() {
  Partition partition;
  partition.rank = RankId(0);
  partition.inputs = {{"x", InputRole::kStep, DType::kFloat32, Shape{}}};
  GraphBuilder builder(partition.end);
  ValueId value =
      partition.end.AddInput("x", {ValueKind::kTensor, DType::kFloat32, Shape{}}, InputRole::kStep);
  for (int i = 0; i < kOps; ++i) value = builder.Op("Neg", {value});
  partition.end.AddOutput(value);
  partition.actions = {{Action::Kind::kUpdate, 0}};
  if (!builder.status().ok()) {
    std::fprintf(stderr, "%s\n", builder.status().ToString().c_str());
    std::exit(1);
  }
  return partition;
}

// The same kernels called in a plain loop: what is left of a step is the executor's.
double PlainLoopNanos(Clock& clock, std::vector<std::unique_ptr<Kernel>>& kernels) {
  alignas(64) float a = 1;
  alignas(64) float b = 0;
  const void* inputs[] = {&a};
  void* outputs[] = {&b};
  KernelContext context;
  context.inputs = inputs;
  context.outputs = outputs;
  const int64_t begin = clock.MonotonicNanos();
  for (int step = 0; step < kSteps; ++step) {
    for (auto& kernel : kernels) {
      if (!kernel->Run(context).ok()) std::exit(1);
    }
  }
  return static_cast<double>(clock.MonotonicNanos() - begin) / kSteps / kOps;
}

absl::StatusOr<std::unique_ptr<Kernel>> Prepare(const Graph& graph, const Node& node,
                                                Device& device) {
  auto context = NodeContext::Create(graph, node, {&device, 1, false});
  if (!context.ok()) return context.status();
  return KernelRegistry::Global().Prepare(*context);
}

int Main() {
  Clock& clock = RealClock();
  const std::unique_ptr<Device> device = NewCpuDevice({});
  VariableStore variables(*device);
  const std::unique_ptr<Communicator> communicator = NewSoloCommunicator();
  const Partition partition = ChainPartition();
  auto program = CompileStep(
      partition, {device.get(), &variables, communicator.get(), nullptr, &clock, nullptr});
  if (!program.ok()) {
    std::fprintf(stderr, "%s\n", program.status().ToString().c_str());
    return 1;
  }
  StepOptions options;
  options.scalars = {{"x", 1.0}};
  const auto step_nanos = [&] {
    const int64_t begin = clock.MonotonicNanos();
    for (int step = 0; step < kSteps; ++step) {
      if (!(*program)->Run(options).ok()) std::exit(1);
    }
    return static_cast<double>(clock.MonotonicNanos() - begin) / kSteps / kOps;
  };
  std::vector<std::unique_ptr<Kernel>> kernels;
  for (NodeId id : partition.end.node_ids()) {
    auto kernel = Prepare(partition.end, partition.end.node(id), *device);
    if (!kernel.ok()) return 1;
    kernels.push_back(*std::move(kernel));
  }
  step_nanos();
  std::vector<double> whole, plain;
  for (int round = 0; round < kRounds; ++round) {
    whole.push_back(step_nanos());
    plain.push_back(PlainLoopNanos(clock, kernels));
  }
  const int64_t before = allocations.load();
  step_nanos();
  const double allocated = static_cast<double>(allocations.load() - before) / kSteps;
  std::sort(whole.begin(), whole.end());
  std::sort(plain.begin(), plain.end());
  std::printf(
      "chain of %d ops: %.1f ns per op (%.1f to %.1f), of which the kernel %.1f; executor "
      "overhead %.1f ns per op\n",
      kOps, whole[kRounds / 2], whole.front(), whole.back(), plain[kRounds / 2],
      whole[kRounds / 2] - plain[kRounds / 2]);
  std::printf("allocations per step: %.2f (0 on the compute path; the rest is the step's result)\n",
              allocated);
  return 0;
}

}  // namespace
}  // namespace weft

int main() { return weft::Main(); }
