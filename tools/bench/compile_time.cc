// How long it takes to compile a step of many micro-batches, by parts, and how close its arena is
// to what is alive at once: `bazel run //tools/bench:compile_time [-- FLAG... MODEL.onnx...]`.
// --micro=16,32,64,128   micro-batches of the step
// --parallel=dp=1        any mesh; times are sums over the ranks, the arena is of the fullest
// --samples=2            of a micro-batch, whatever their number
// --length=64            of axes without a length but the first
// Models are files, lenet, gpt:BLOCKS (a transformer), and chain:NODES (small residual layers in a
// row, about that many nodes). Without one: LeNet and a transformer of two blocks. Times are of the
// CPU.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "executor/program/planned_memory.h"
#include "graph/graph_builder.h"
#include "graph/passes/pass.h"
#include "graph/schedule/memory_plan.h"
#include "onnx_import/importer.h"
#include "onnx_import/parameters/trainable.h"
#include "ops/node_runner.h"
#include "placement/completion/plan_completion.h"
#include "placement/files/plan_file.h"
#include "placement/partition/partition_memory.h"
#include "placement/partition/partitioner.h"
#include "platform/file_system.h"
#include "platform/status_macros.h"
#include "tensor/device.h"
#include "tools/bench/gpt_block.h"
#include "tools/bench/lenet.h"
#include "training/graph/training_graph.h"

namespace weft {
namespace {

struct Settings {
  std::vector<int> micro_batches = {16, 32, 64, 128};
  std::string parallel = "dp=1";
  int64_t samples = 2;
  int64_t length = 64;
  std::vector<std::string> models;
};

double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Gives data inputs axes of a known length, all but the first.
absl::Status BindLengths(Graph& graph, int64_t length) {
  for (const ValueId id : graph.inputs()) {
    SymbolicShape& shape = graph.value(id).type.shape;
    if (graph.input_role(id) != InputRole::kData || !shape.has_rank()) continue;
    std::vector<Dim> dims = shape.dims();
    for (size_t axis = 1; axis < dims.size(); ++axis) {
      if (!dims[axis].is_known()) dims[axis] = Dim(length);
    }
    shape = SymbolicShape(std::move(dims));
  }
  PassPipeline passes;
  passes.Add(NewInferShapesPass())
      .Add(NewFoldConstantsPass(CpuNodeEvaluator()))
      .Add(NewInferShapesPass());
  return passes.Run(graph).status();
}

// x [N,16] through layers of four nodes: x + relu(x w + b).
absl::StatusOr<Graph> ChainModel(int nodes) {
  constexpr int64_t kWidth = 16;
  Graph graph;
  GraphBuilder builder(graph);
  ValueId x = graph.AddInput(
      "x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape({Dim::Symbol("N"), Dim(kWidth)})});
  const auto weight = [&](const std::string& name, const Shape& shape) {
    return graph.AddVariable(name, {ValueKind::kTensor, DType::kFloat32, shape}, Tensor(), true);
  };
  for (int i = 0; i < std::max(1, nodes / 4); ++i) {
    const std::string name = absl::StrCat("layer", i);
    builder.set_name_prefix(name + "/");
    const ValueId product = builder.Op("MatMul", {x, weight(name + ".w", {kWidth, kWidth})});
    const ValueId sum = builder.Op("Add", {product, weight(name + ".b", {kWidth})});
    x = builder.Op("Add", {x, builder.Op("Relu", {sum})});
  }
  graph.AddOutput(x);
  WEFT_RETURN_IF_ERROR(builder.status());
  return graph;
}

absl::StatusOr<Graph> ModelOf(const std::string& name, const Settings& settings) {
  if (name == "lenet") return LenetModel();
  absl::string_view size = name;
  int number = 2;
  if (absl::ConsumePrefix(&size, "chain:") && absl::SimpleAtoi(size, &number)) {
    return ChainModel(number);
  }
  if (absl::ConsumePrefix(&size, "gpt:") && absl::SimpleAtoi(size, &number)) size = "gpt";
  if (size == "gpt") return GptModel({number, 64, 4, 32});
  WEFT_ASSIGN_OR_RETURN(ImportedModel model, ImportModelFile(RealFileSystem(), name));
  WEFT_RETURN_IF_ERROR(MarkTrainable(model).status());
  WEFT_RETURN_IF_ERROR(BindLengths(model.graph, settings.length));
  return std::move(model.graph);
}

ClusterSpec ClusterOf(int workers) {
  ClusterSpec cluster;
  for (int i = 0; i < workers; ++i) {
    WorkerSpec worker;
    worker.name = absl::StrCat("worker:", i);
    worker.address = absl::StrCat("localhost:", 4000 + i);
    worker.threads = 1;
    cluster.workers.push_back(std::move(worker));
  }
  return cluster;
}

// Layouts of what the partition says, and of what the program makes of it.
struct Arenas {
  int64_t partition = 0;
  int64_t program = 0;
  int64_t program_min = 0;
};

absl::Status Measure(const Graph& graph, const Settings& settings, int micro_batches) {
  WEFT_ASSIGN_OR_RETURN(Plan plan, ParseParallel(settings.parallel));
  plan.micro_batches = micro_batches;
  const int64_t batch = settings.samples * micro_batches;
  const double begin = CpuSeconds();
  WEFT_ASSIGN_OR_RETURN(plan, CompletePlan(graph, ClusterOf(plan.mesh.size()), plan, batch));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Partition> partitions,
                        PartitionStep(graph, plan, {/*training=*/true, batch}, CpuNodeEvaluator()));
  const double partitioned = CpuSeconds();
  double layout = 0;
  double lowering = 0;
  double compiling = 0;
  size_t buffers = 0;
  Arenas largest;
  for (const Partition& partition : partitions) {
    const double before = CpuSeconds();
    WEFT_ASSIGN_OR_RETURN(const std::vector<BufferLifetime> lifetimes, LifetimesOfStep(partition));
    WEFT_ASSIGN_OR_RETURN(const MemoryPlan arena, PlanMemory(lifetimes));
    const double laid_out = CpuSeconds();
    WEFT_ASSIGN_OR_RETURN(const ProgramMemory memory, PlanProgramMemory(partition, CpuDevice()));
    const double compiled = CpuSeconds();
    // With no arena to lay out, it ends where that would begin.
    (void)PlanProgram(partition, CpuDevice(), memory.variable_bytes).status();
    const double lowered = CpuSeconds();
    layout += laid_out - before;
    compiling += compiled - laid_out;
    lowering += lowered - compiled;
    buffers = std::max(buffers, lifetimes.size());
    largest.partition = std::max(largest.partition, arena.arena_bytes);
    if (memory.arena_bytes > largest.program) {
      largest.program = memory.arena_bytes;
      largest.program_min = memory.lower_bound_bytes;
    }
  }
  std::printf("%6d %8zu %10.3f %10.3f %10.3f %10.3f %14lld %14lld %14lld\n", micro_batches, buffers,
              partitioned - begin, layout, lowering, compiling,
              static_cast<long long>(largest.partition), static_cast<long long>(largest.program),
              static_cast<long long>(largest.program_min));
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::Status MeasureModels(const Settings& settings) {
  for (const std::string& name : settings.models) {
    WEFT_ASSIGN_OR_RETURN(const Graph model, ModelOf(name, settings));
    TrainingSpec training;
    training.optimizer.kind = "adam";
    const double begin = CpuSeconds();
    WEFT_ASSIGN_OR_RETURN(Graph graph, BuildTrainingGraph(model, training));
    const double differentiated = CpuSeconds();
    WEFT_RETURN_IF_ERROR(BindLengths(graph, settings.length));
    const double bound = CpuSeconds();
    std::printf("%s: %d nodes, %d with gradients; differentiate %.3f, bind %.3f\n", name.c_str(),
                model.num_nodes(), graph.num_nodes(), differentiated - begin,
                bound - differentiated);
    std::printf("%s, %s, %lld samples a micro-batch\n%6s %8s %10s %10s %10s %10s %14s %14s %14s\n",
                name.c_str(), settings.parallel.c_str(), static_cast<long long>(settings.samples),
                "micro", "buffers", "partition", "layout", "lowering", "compile", "layout bytes",
                "arena bytes", "least bytes");
    for (const int micro_batches : settings.micro_batches) {
      WEFT_RETURN_IF_ERROR(Measure(graph, settings, micro_batches));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Settings> ParseSettings(const std::vector<std::string>& arguments) {
  Settings settings;
  for (const std::string& argument : arguments) {
    absl::string_view value = argument;
    bool is_good = true;
    if (absl::ConsumePrefix(&value, "--micro=")) {
      settings.micro_batches.clear();
      for (const absl::string_view number : absl::StrSplit(value, ',')) {
        is_good = is_good && absl::SimpleAtoi(number, &settings.micro_batches.emplace_back());
      }
    } else if (absl::ConsumePrefix(&value, "--parallel=")) {
      settings.parallel = std::string(value);
    } else if (absl::ConsumePrefix(&value, "--samples=")) {
      is_good = absl::SimpleAtoi(value, &settings.samples);
    } else if (absl::ConsumePrefix(&value, "--length=")) {
      is_good = absl::SimpleAtoi(value, &settings.length);
    } else {
      settings.models.push_back(argument);
    }
    if (!is_good) return absl::InvalidArgumentError("cannot read " + argument);
  }
  if (settings.models.empty()) settings.models = {"lenet", "gpt"};
  return settings;
}

absl::Status Main(const std::vector<std::string>& arguments) {
  WEFT_ASSIGN_OR_RETURN(const Settings settings, ParseSettings(arguments));
  return MeasureModels(settings);
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  const absl::Status status = weft::Main({argv + 1, argv + argc});
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
