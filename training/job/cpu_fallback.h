// Which operators of a job have no kernel on its GPUs, and what becomes of them.
#ifndef WEFT_TRAINING_JOB_CPU_FALLBACK_H_
#define WEFT_TRAINING_JOB_CPU_FALLBACK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/partition.h"
#include "graph/plan.h"
#include "ops/kernel.h"
#include "placement/cost/cost_model.h"
#include "training/job/job_spec.h"

namespace weft {

// The share of a step's FLOPs that may run on hosts without being asked for.
inline constexpr double kSmallHostShare = 0.01;

// An operator that no kernel for CUDA computes, or types of one whose kernel does not take them.
struct HostOperator {
  std::string op;    // "ai.weft::Scale", "Add(float64, float64) -> float64"
  std::string node;  // the first of its nodes
  int nodes = 0;
  double flops_share = 0;  // of all FLOPs of the step
};

// Those of a graph, by name, with the FLOPs of a step of `samples`. Views, transfers and
// collectives need no kernel. Whether a kernel takes types is asked of its factory, with a device
// that is none, where the first input or an output is not float32, float16 or bfloat16.
// InvalidArgument where sizes of the graph's inputs are not known.
absl::StatusOr<std::vector<HostOperator>> OperatorsWithoutCudaKernel(const Graph& graph,
                                                                     int64_t samples,
                                                                     const KernelRegistry& kernels);

// Where the job's cluster has GPUs: puts operators without a kernel for them into
// `spec.plan.host_ops`, as JobSpec::cpu_fallback says, and a line for people into `notes`.
// Operators that the plan names already are settled, unless all are refused. Unimplemented where
// they are refused, with each operator, its first node, its share of the FLOPs and what to do. On
// which machine a worker is makes no difference. But a program without CUDA's kernels cannot tell
// which these are: it allows any ("*") or none, or leaves it to the workers
// (WorkersSettleFallback), and a note says so. Nothing is done for stored programs, which are
// planned already.
absl::Status SettleCpuFallback(const Graph& graph, int64_t samples, const KernelRegistry& kernels,
                               JobSpec& spec, std::vector<std::string>& notes);

// Whether the workers say what runs on hosts, once they have the programs, and the small share is
// counted then: where SettleCpuFallback could not tell, and workers are on other machines. Their
// partitions allow any operator (AnyOperator) then. `spec` is as SettleCpuFallback left it.
bool WorkersSettleFallback(const JobSpec& spec, const KernelRegistry& kernels);
std::vector<std::string> AnyOperator();  // of Partition::host_ops

// What workers said: of each rank of `partitions` the names of the nodes that it runs on its host.
// Unimplemented where these have more of the step's FLOPs, on all ranks, than kSmallHostShare: with
// each operator, its first node, its share and what to do. Else a line for people; "" where there
// are none.
absl::StatusOr<std::string> SettleHostNodes(const std::vector<Partition>& partitions,
                                            const std::vector<std::vector<std::string>>& nodes);

// What a step runs on the hosts of workers with a device of their own, of all ranks together.
struct HostWork {
  std::vector<std::string> nodes;  // by name, in order
  int64_t runs = 0;                // of nodes, with all micro-batches
  int64_t bytes = 0;               // copied there and back
  double seconds = 0;              // copies and work, one after the other (CostModel::HostSeconds)
};
// `costs` as CostsOf (training/job/job_search.h) makes them for the plan.
absl::StatusOr<HostWork> HostWorkOf(const std::vector<Partition>& partitions, const Plan& plan,
                                    const CostModel& costs);
// "3 nodes run on hosts (Foo, Bar): 1.5 MiB copied per step, 2.1 ms", or "" without any.
std::string HostWorkText(const HostWork& work, const Plan& plan);

}  // namespace weft

#endif  // WEFT_TRAINING_JOB_CPU_FALLBACK_H_
