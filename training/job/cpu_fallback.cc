#include "training/job/cpu_fallback.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "executor/lowering/node_context.h"
#include "graph/node_description.h"
#include "ops/node_runner.h"
#include "placement/cost/op_key.h"
#include "placement/graph_views/graph_for_samples.h"
#include "placement/graph_views/graph_node_view.h"
#include "platform/byte_quantity.h"
#include "platform/status_macros.h"
#include "tensor/device.h"

namespace weft {
namespace {

constexpr char kAnyOperator[] = "*";
constexpr size_t kShownNodes = 5;

bool LacksCudaKernel(const Node& node, const KernelRegistry& kernels) {
  return node.schema != nullptr && node.schema->op_class() == OpClass::kCompute &&
         node.schema->aliases().empty() &&
         kernels.Find(node.domain, node.op, DeviceKind::kCuda) == nullptr;
}

// What factories of kernels for CUDA are asked with on any machine: it says what it is, and does
// nothing.
class GpuInName final : public Device {
 public:
  GpuInName() {
    info_.kind = DeviceKind::kCuda;
    info_.host_accessible = false;
    info_.runs_host_work = false;
    info_.name = "a GPU";
  }
  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<std::shared_ptr<Buffer>> Allocate(size_t) override { return Nothing(); }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream(const std::string&) override {
    return Nothing();
  }
  absl::StatusOr<std::unique_ptr<Event>> NewEvent() override { return Nothing(); }
  absl::StatusOr<std::shared_ptr<Buffer>> AllocateHostMemory(size_t) override { return Nothing(); }
  absl::Status CopyFromHost(Stream&, const void*, void*, size_t) override { return Nothing(); }
  absl::Status CopyToHost(Stream&, const void*, void*, size_t) override { return Nothing(); }
  absl::Status CopyOnDevice(Stream&, const void*, void*, size_t) override { return Nothing(); }
  size_t bytes_in_use() const override { return 0; }
  size_t peak_bytes() const override { return 0; }
  void ForgetPeakBytes() override {}

 private:
  static absl::Status Nothing() {
    return absl::FailedPreconditionError("this device is only asked what it is");
  }
  DeviceInfo info_;
};

// What all kernels take that compute in anything.
bool IsUsual(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBfloat16;
}

bool HasUsualTypes(const NodeView& view) {
  if (view.HasInput(0) && !IsUsual(view.InputDType(0))) return false;
  for (int i = 0; i < view.num_outputs(); ++i) {
    if (view.HasOutput(i) && !IsUsual(view.OutputDType(i))) return false;
  }
  return true;
}

// True where the lowering may yet find a constant, and a factory wants one.
bool HasOpenValues(const Graph& graph, const Node& node) {
  const auto& positions = node.schema->value_inputs();
  return std::any_of(positions.begin(), positions.end(), [&](int i) {
    return i < static_cast<int>(node.inputs.size()) && node.inputs[i].valid() &&
           graph.value(node.inputs[i]).source != ValueSource::kConstant;
  });
}

// Of a node whose operator has a kernel. Other errors than that of a type come from the device.
bool LacksTypes(const Graph& graph, const Node& node, const NodeView& view,
                const KernelRegistry& kernels) {
  const KernelFactory* const factory = kernels.Find(node.domain, node.op, DeviceKind::kCuda);
  if (factory == nullptr || node.schema->op_class() != OpClass::kCompute) return false;
  if (HasUsualTypes(view) || HasOpenValues(graph, node)) return false;
  GpuInName device;
  const auto context = NodeContext::Create(graph, node, {&device});
  return context.ok() && absl::IsUnimplemented((*factory)(*context).status());
}

bool HasGpus(const ClusterSpec& cluster) {
  return std::any_of(cluster.workers.begin(), cluster.workers.end(),
                     [](const WorkerSpec& worker) { return worker.device == DeviceKind::kCuda; });
}

bool HasRemoteGpus(const ClusterSpec& cluster) {
  return std::any_of(cluster.workers.begin(), cluster.workers.end(), [](const WorkerSpec& worker) {
    return worker.device == DeviceKind::kCuda && !worker.address.empty();
  });
}

// "Foo (node 'foo_1' and 2 more, 0.3 % of the FLOPs)"
std::string OperatorText(const HostOperator& op) {
  return absl::StrCat(op.op, " (node '", op.node, "'",
                      op.nodes > 1 ? absl::StrCat(" and ", op.nodes - 1, " more") : std::string(),
                      absl::StrFormat(", %.2g %% of the FLOPs)", 100 * op.flops_share));
}

std::string OperatorsText(const std::vector<HostOperator>& ops) {
  return absl::StrJoin(ops, ", ", [](std::string* out, const HostOperator& op) {
    absl::StrAppend(out, OperatorText(op));
  });
}

absl::Status Refusal(const std::vector<HostOperator>& ops, double share, CpuFallback fallback) {
  const std::string why =
      fallback == CpuFallback::kRefuse
          ? std::string("--cpu-fallback refuse lets nothing run on the CPU of a GPU's worker")
          : absl::StrFormat(
                "%.2g %% of the step's FLOPs are more than the %.0f %% that may run on "
                "the CPU of a GPU's worker without a word",
                100 * share, 100 * kSmallHostShare);
  return absl::UnimplementedError(absl::StrCat(
      "no kernel for CUDA computes ", OperatorsText(ops), "; ", why,
      "; give --cpu-fallback allow, which copies their operands to the host and back, or give the "
      "job to CPU workers"));
}

// In a step, of the graphs of micro-batches.
std::vector<int64_t> RunsOfGraphs(const Partition& partition) {
  std::vector<int64_t> runs(partition.micro.size(), 0);
  for (const MicroBatch& micro_batch : partition.micro_batches) {
    ++runs[static_cast<size_t>(micro_batch.graph)];
  }
  return runs;
}

// Whether an entry is of this operator, with types or without.
bool MayBeNamed(const std::vector<std::string>& host_ops, const std::string& op) {
  return std::any_of(host_ops.begin(), host_ops.end(), [&op](const std::string& known) {
    return known == kAnyOperator || known.substr(0, known.find('(')) == op;
  });
}

void AddHostOps(const std::vector<HostOperator>& ops, Plan& plan) {
  std::set<std::string> names(plan.host_ops.begin(), plan.host_ops.end());
  for (const HostOperator& op : ops) names.insert(op.op);
  plan.host_ops.assign(names.begin(), names.end());
}

}  // namespace

absl::StatusOr<std::vector<HostOperator>> OperatorsWithoutCudaKernel(
    const Graph& graph, int64_t samples, const KernelRegistry& kernels) {
  WEFT_ASSIGN_OR_RETURN(const Graph sized, GraphForSamples(graph, samples, CpuNodeEvaluator()));
  std::map<std::string, HostOperator> found;
  double all_flops = 0;
  for (const NodeId id : sized.node_ids()) {
    const Node& node = sized.node(id);
    if (node.schema == nullptr) continue;
    // A shape that depends on values is refused elsewhere, by its node's name.
    const absl::StatusOr<GraphNodeView> view = GraphNodeView::Create(sized, node);
    const double flops = view.ok() ? CostOf(*view).flops : 0;
    all_flops += flops;
    std::string name;
    if (LacksCudaKernel(node, kernels)) {
      name = FullOpName(node);
    } else if (view.ok() && LacksTypes(sized, node, *view, kernels)) {
      name = TypedOpName(*view);
    } else {
      continue;
    }
    HostOperator& op = found[name];
    if (op.nodes++ == 0) op.node = node.name;
    op.flops_share += flops;
  }
  std::vector<HostOperator> ops;
  for (auto& [name, op] : found) {
    op.op = name;
    op.flops_share = all_flops > 0 ? op.flops_share / all_flops : 0;
    ops.push_back(std::move(op));
  }
  return ops;
}

absl::Status SettleCpuFallback(const Graph& graph, int64_t samples, const KernelRegistry& kernels,
                               JobSpec& spec, std::vector<std::string>& notes) {
  if (!HasGpus(spec.cluster) || spec.stored != nullptr) return absl::OkStatus();
  Plan& plan = spec.plan;
  // Of a plan file, which says less than the flag.
  if (spec.cpu_fallback == CpuFallback::kRefuse) plan.host_ops.clear();
  if (kernels.Count(DeviceKind::kCuda) == 0) {
    if (IsHostOp(plan.host_ops, kAnyOperator)) return absl::OkStatus();
    if (spec.cpu_fallback != CpuFallback::kAllow) {
      // Others cannot run under this program.
      if (WorkersSettleFallback(spec, kernels)) {
        notes.push_back(absl::StrFormat(
            "this program was not built to know which operators have no kernel on a GPU "
            "(--config=cuda): the workers say so before the first step, and the job is refused "
            "where that is more than %.0f %% of the FLOPs; the prediction has nothing of it",
            100 * kSmallHostShare));
      }
      return absl::OkStatus();
    }
    plan.host_ops.insert(plan.host_ops.begin(), kAnyOperator);
    notes.push_back(
        "operators without a kernel on a GPU run on its worker's CPU; which ones these are, this "
        "program was not built to know (--config=cuda), so they are not in the prediction");
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(std::vector<HostOperator> ops,
                        OperatorsWithoutCudaKernel(graph, samples, kernels));
  ops.erase(std::remove_if(ops.begin(), ops.end(),
                           [&](const HostOperator& op) {
                             // As it is, or all types of it.
                             return IsHostOp(plan.host_ops, op.op) ||
                                    IsHostOp(plan.host_ops, op.op.substr(0, op.op.find('(')));
                           }),
            ops.end());
  if (ops.empty()) return absl::OkStatus();
  double share = 0;
  for (const HostOperator& op : ops) share += op.flops_share;
  const bool is_refused =
      spec.cpu_fallback == CpuFallback::kRefuse ||
      (spec.cpu_fallback == CpuFallback::kSmallShare && share > kSmallHostShare);
  if (is_refused) return Refusal(ops, share, spec.cpu_fallback);
  AddHostOps(ops, plan);
  notes.push_back(
      absl::StrCat("run on the CPU of a GPU's worker, with copies: ", OperatorsText(ops)));
  return absl::OkStatus();
}

bool WorkersSettleFallback(const JobSpec& spec, const KernelRegistry& kernels) {
  return spec.cpu_fallback == CpuFallback::kSmallShare && spec.stored == nullptr &&
         spec.plan.host_ops.empty() && kernels.Count(DeviceKind::kCuda) == 0 &&
         HasRemoteGpus(spec.cluster);
}

std::vector<std::string> AnyOperator() { return {kAnyOperator}; }

absl::StatusOr<std::string> SettleHostNodes(const std::vector<Partition>& partitions,
                                            const std::vector<std::vector<std::string>>& nodes) {
  std::map<std::string, HostOperator> found;
  double all_flops = 0;
  for (size_t rank = 0; rank < partitions.size(); ++rank) {
    const Partition& partition = partitions[rank];
    const std::set<std::string> on_host(nodes[rank].begin(), nodes[rank].end());
    const auto add = [&](const Graph& graph, int64_t times) {
      for (const NodeId id : graph.node_ids()) {
        const Node& node = graph.node(id);
        const absl::StatusOr<GraphNodeView> view = GraphNodeView::Create(graph, node);
        const double flops = view.ok() ? static_cast<double>(times) * CostOf(*view).flops : 0;
        all_flops += flops;
        if (!on_host.contains(node.name)) continue;
        HostOperator& op = found[FullOpName(node)];
        if (op.nodes++ == 0) op.node = node.name;
        op.flops_share += flops;
      }
    };
    const std::vector<int64_t> runs = RunsOfGraphs(partition);
    add(partition.begin, 1);
    for (size_t i = 0; i < partition.micro.size(); ++i) add(partition.micro[i], runs[i]);
    add(partition.end, 1);
  }
  if (found.empty()) return std::string();
  double share = 0;
  std::vector<HostOperator> ops;
  for (auto& [name, op] : found) {
    op.op = name;
    op.flops_share = all_flops > 0 ? op.flops_share / all_flops : 0;
    share += op.flops_share;
    ops.push_back(std::move(op));
  }
  if (share > kSmallHostShare) return Refusal(ops, share, CpuFallback::kSmallShare);
  return absl::StrCat("run on the CPU of a GPU's worker, with copies: ", OperatorsText(ops));
}

absl::StatusOr<HostWork> HostWorkOf(const std::vector<Partition>& partitions, const Plan& plan,
                                    const CostModel& costs) {
  HostWork work;
  std::set<std::string> names;
  for (const Partition& partition : partitions) {
    const auto rank = static_cast<size_t>(partition.rank.value);
    if (rank >= plan.workers.size()) continue;
    const int worker = plan.workers[rank];
    const auto add = [&](const Graph& graph, int64_t times) -> absl::Status {
      for (const NodeId id : graph.node_ids()) {
        const Node& node = graph.node(id);
        if (!MayBeNamed(plan.host_ops, FullOpName(node))) continue;
        WEFT_ASSIGN_OR_RETURN(const GraphNodeView view, GraphNodeView::Create(graph, node));
        if (!costs.RunsOnHost(view, worker)) continue;
        names.insert(node.name);
        work.runs += times;
        work.bytes += times * HostCopiesOf(view).bytes;
        work.seconds += static_cast<double>(times) *
                        costs.HostSeconds(view, worker, plan.ThreadsOf(partition.rank));
      }
      return absl::OkStatus();
    };
    const std::vector<int64_t> runs = RunsOfGraphs(partition);
    WEFT_RETURN_IF_ERROR(add(partition.begin, 1));
    for (size_t i = 0; i < partition.micro.size(); ++i) {
      WEFT_RETURN_IF_ERROR(add(partition.micro[i], runs[i]));
    }
    WEFT_RETURN_IF_ERROR(add(partition.end, 1));
  }
  work.nodes.assign(names.begin(), names.end());
  return work;
}

std::string HostWorkText(const HostWork& work, const Plan& plan) {
  if (work.nodes.empty()) {
    return IsHostOp(plan.host_ops, kAnyOperator)
               ? "any operator without a kernel on a GPU runs on its worker's CPU; the copies are "
                 "not in the prediction"
               : "";
  }
  const std::vector<std::string> shown(
      work.nodes.begin(),
      work.nodes.begin() + static_cast<std::ptrdiff_t>(std::min(kShownNodes, work.nodes.size())));
  return absl::StrCat(work.nodes.size(), work.nodes.size() == 1 ? " node runs" : " nodes run",
                      " on the CPU of a GPU's worker (", absl::StrJoin(shown, ", "),
                      work.nodes.size() > kShownNodes ? ", ..." : "",
                      "): ", ByteQuantity(work.bytes), " copied per step in ", work.runs, " runs, ",
                      absl::StrFormat("%.3g ms", 1e3 * work.seconds));
}

}  // namespace weft
