// How long the search for a plan takes, what memory, and which plan it finds: transformers on
// clusters of A100s by published specs: `bazel run //tools/bench:plan_search [-- CASE...]`.
// `--search=anneal` or another strategy instead of dp; `--sweep` instead of cases: many small
// clusters. Times are the process's own (of the CPU) and by the clock: only the first hold on a
// busy machine. The peak of the memory is that of the process: of the largest case so far.
#include "placement/search/plan_search.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/cluster_spec.h"
#include "ops/node_runner.h"
#include "placement/cost/cost_model.h"
#include "platform/status_macros.h"
#include "tools/bench/gpt_block.h"
#include "training/graph/training_graph.h"

namespace weft {
namespace {

// Hosts of GPUs joined by NVLink, or of a processor, and what is between them.
struct Machines {
  int workers = 8;
  int per_host = 8;
  std::string between = "infiniband-hdr";
  DeviceKind device = DeviceKind::kCuda;
  int64_t memory_gibibytes = 0;  // of each; 0 = as built
  bool unequal = false;          // the first host's processors have four times the threads
};

struct SearchCase {
  std::string name;
  GptBlocks shape;
  Machines machines;
  int64_t batch = 64;
  bool may_leave_out = false;
};

std::vector<SearchCase> Cases() {
  const GptBlocks small = {5, 1024, 16, 512, false};
  return {
      {"small", small, {}, 64},
      {"small-may-leave-out", small, {}, 64, true},
      {"small-ethernet", small, {8, 4, "ethernet-10g"}, 64, true},
      {"small-processor-hosts", small, {8, 4, "ethernet-10g", DeviceKind::kCpu}, 64, true},
      {"small-processors", small, {8, 1, "ethernet-10g", DeviceKind::kCpu}, 64, true},
      {"small-wide", {5, 4096, 32, 512, false}, {8, 1, "ethernet-10g"}, 64},
      {"small-tight", {5, 4096, 32, 512, false}, {8, 8, "ethernet-10g", DeviceKind::kCuda, 4}, 64},
      {"gpt2", {12, 768, 12, 1024, false}, {8, 4, "ethernet-10g"}, 64},
      {"deep", {96, 2048, 16, 1024, false}, {64}, 512},
      {"gpt3", {96, 12288, 96, 2048, false}, {1024}, 1536},
  };
}

// On InfiniBand there is a card for each worker of a host.
ClusterSpec ClusterOf(const Machines& machines) {
  ClusterSpec cluster;
  for (int i = 0; i < machines.workers; ++i) {
    WorkerSpec worker;
    worker.name = absl::StrCat("worker:", i);
    worker.host = absl::StrCat("host", i / machines.per_host);
    worker.address = absl::StrCat(worker.host, ":", 4000 + i % machines.per_host);
    worker.device = machines.device;
    worker.threads = machines.unequal && i < machines.per_host ? 4 : 1;
    if (machines.device == DeviceKind::kCuda) {
      worker.device_index = i % machines.per_host;
      worker.model = "A100-80GB";
    }
    cluster.workers.push_back(std::move(worker));
  }
  LinkSpec within;
  within.from = "*";
  within.kind = "nvlink3";
  LinkSpec between;
  between.from = between.to = "*";
  between.kind = machines.between;
  if (machines.between == "infiniband-hdr") between.rails = machines.per_host;
  cluster.links = {within, between};
  return cluster;
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double PeakMebibytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

double ClockSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Transformers of 536 nodes on eight devices, in all combinations of what the time may depend on.
std::vector<SearchCase> Sweep() {
  struct Device {
    const char* name;
    DeviceKind kind;
    bool unequal;
  };
  std::vector<SearchCase> cases;
  for (const int width : {256, 1024, 4096}) {
    const GptBlocks shape = {5, width, width / 64, 512, false};
    for (const Device& device :
         {Device{"GPUs", DeviceKind::kCuda, false}, Device{"processors", DeviceKind::kCpu, false},
          Device{"unequal processors", DeviceKind::kCpu, true}}) {
      for (const char* const between : {"ethernet-1g", "ethernet-10g", "infiniband-hdr"}) {
        for (const int per_host : {1, 2, 4}) {
          for (const int64_t batch : {16, 64, 512}) {
            const std::string name =
                absl::StrFormat("%d wide, batch %d, %dx%d %s, %s", width, batch, 8 / per_host,
                                per_host, device.name, between);
            const Machines machines = {8, per_host, between, device.kind, 0, device.unequal};
            cases.push_back({name, shape, machines, batch, true});
          }
        }
      }
    }
  }
  return cases;
}

absl::StatusOr<Graph> TrainingGraphOf(const GptBlocks& shape) {
  WEFT_ASSIGN_OR_RETURN(const Graph model, GptModel(shape));
  TrainingSpec spec;
  spec.optimizer.kind = "adam";
  return BuildTrainingGraph(model, spec);
}

// Seconds by the clock.
absl::StatusOr<double> Measure(const SearchCase& one, const std::string& strategy) {
  WEFT_ASSIGN_OR_RETURN(const Graph graph, TrainingGraphOf(one.shape));
  const ClusterSpec cluster = ClusterOf(one.machines);
  WEFT_ASSIGN_OR_RETURN(const CostModel cost, CostModel::OfSpec(cluster));
  SearchOptions options;
  options.global_batch = one.batch;
  options.strategy = strategy;
  options.may_leave_out = one.may_leave_out;
  for (int worker = 0; worker < one.machines.workers; ++worker) {
    const int64_t given = one.machines.memory_gibibytes << 30;
    options.memory_limits.push_back(given > 0 ? given : cost.MemoryBytes(worker));
  }
  const double graph_mebibytes = PeakMebibytes();
  const double cpu = CpuSeconds();
  const double clock = ClockSeconds();
  WEFT_ASSIGN_OR_RETURN(const SearchResult result,
                        SearchPlan(graph, cluster, cost, options, CpuNodeEvaluator()));
  const double seconds = ClockSeconds() - clock;
  std::printf(
      "%s: %d nodes, %d devices: %.2f s of CPU, %.2f s by the clock, %d plans looked at, peak "
      "%.0f MiB (%.0f before)\n  %s: %.6f s a step (%.6f compute, %.6f communication), %s\n",
      one.name.c_str(), graph.num_nodes(), one.machines.workers, CpuSeconds() - cpu, seconds,
      result.evaluated, PeakMebibytes(), graph_mebibytes,
      ParallelText(result.chosen.choice).c_str(), result.chosen.step_seconds,
      result.chosen.compute_seconds, result.chosen.communication_seconds,
      result.chosen.exact ? "simulated from its partitions" : "by coarse estimates");
  std::fflush(stdout);
  return seconds;
}

absl::Status MeasureAll(const std::vector<SearchCase>& cases, const std::string& strategy) {
  std::vector<double> seconds;
  for (const SearchCase& one : cases) {
    WEFT_ASSIGN_OR_RETURN(const double taken, Measure(one, strategy));
    seconds.push_back(taken);
  }
  if (seconds.empty()) return absl::InvalidArgumentError("there is no case of such a name");
  std::sort(seconds.begin(), seconds.end());
  std::printf("%zu searches: median %.2f s, slowest %.2f s\n", seconds.size(),
              seconds[seconds.size() / 2], seconds.back());
  return absl::OkStatus();
}

absl::Status MeasureNamed(std::vector<std::string_view> names) {
  constexpr std::string_view kSearch = "--search=";
  std::string strategy = "dp";
  if (!names.empty() && names.front().substr(0, kSearch.size()) == kSearch) {
    strategy = names.front().substr(kSearch.size());
    names.erase(names.begin());
  }
  std::vector<SearchCase> all = Cases();
  if (!names.empty() && names.front() == "--sweep") {
    all = Sweep();
    names.erase(names.begin());
  }
  std::vector<SearchCase> wanted;
  for (SearchCase& one : all) {
    const bool is_named = std::find(names.begin(), names.end(), one.name) != names.end();
    if (names.empty() || is_named) wanted.push_back(std::move(one));
  }
  return MeasureAll(wanted, strategy);
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  const absl::Status status = weft::MeasureNamed({argv + 1, argv + argc});
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
