#include "executor/lowering/lowering.h"

#include <functional>
#include <string_view>
#include <utility>

#include "executor/lowering/bind_nodes.h"
#include "executor/lowering/build_sums.h"
#include "executor/lowering/compute_lifetimes.h"
#include "executor/lowering/copy_feeds_ahead.h"
#include "executor/lowering/expand_collectives.h"
#include "executor/lowering/fuse_nodes.h"
#include "executor/lowering/group_kernels.h"
#include "executor/lowering/load_values.h"
#include "executor/lowering/lowering_program.h"
#include "executor/lowering/merge_in_place.h"
#include "executor/lowering/overlap_communication.h"
#include "executor/lowering/schedule_nodes.h"
#include "executor/lowering/step_description.h"
#include "platform/log.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr std::string_view kSchedule = "schedule";
constexpr std::string_view kBind = "bind";

// A pass from program to program.
struct Pass {
  std::string_view name;
  std::function<absl::StatusOr<LoweringProgram>(LoweringProgram, const Partition&,
                                                const ExecutorEnvironment&)>
      run;
};

// In order, after schedule and bind.
const std::vector<Pass>& Passes() {
  using Program = LoweringProgram;
  using Environment = ExecutorEnvironment;
  static const auto* const passes = new std::vector<Pass>{
      {"values", [](Program program, const Partition&,
                    const Environment&) { return LoadValues(std::move(program)); }},
      {"collectives", ExpandCollectives},
      {"sums", [](Program program, const Partition&,
                  const Environment&) { return BuildSums(std::move(program)); }},
      {"overlap", [](Program program, const Partition&,
                     const Environment&) { return OverlapCommunication(std::move(program)); }},
      {"in_place",
       [](Program program, const Partition& partition, const Environment&) {
         return MergeInPlace(std::move(program), partition.training);
       }},
      {"groups",
       [](Program program, const Partition&,
          const Environment& environment) -> absl::StatusOr<Program> {
         if (!environment.joins_kernels) return program;
         return GroupKernels(std::move(program));
       }},
      {"feeds",
       [](Program program, const Partition&,
          const Environment& environment) -> absl::StatusOr<Program> {
         if (environment.device->info().host_accessible) return program;
         return CopyFeedsAhead(std::move(program), environment.min_ahead_bytes);
       }},
      {"lifetimes", [](Program program, const Partition&,
                       const Environment&) { return ComputeLifetimes(std::move(program)); }},
  };
  return *passes;
}

absl::StatusOr<LoweredStep> LowerPartition(const Partition& partition,
                                           const ExecutorEnvironment& environment,
                                           const LoweringObserver* observer) {
  const auto show = [observer](std::string_view pass, const auto& result) {
    if (observer != nullptr) (*observer)(pass, Describe(result));
  };
  WEFT_ASSIGN_OR_RETURN(const StepSchedule schedule, ScheduleNodes(partition));
  show(kSchedule, schedule);
  WEFT_ASSIGN_OR_RETURN(LoweringProgram program, BindNodes(schedule, partition, environment));
  show(kBind, program);
  for (const Pass& pass : Passes()) {
    WEFT_ASSIGN_OR_RETURN(program, pass.run(std::move(program), partition, environment));
    show(pass.name, program);
  }
  return std::move(program.step);
}

}  // namespace

absl::StatusOr<LoweredStep> LowerStep(const Partition& partition,
                                      const ExecutorEnvironment& environment,
                                      const LoweringObserver* observer) {
  Device& device = *environment.device;
  const Partition* lowered = &partition;
  JoinedPartition joined;
  const DeviceTakesAttention takes =
      partition.uses_cudnn ? FindAttentionTaker(device.info().kind) : nullptr;
  if (takes != nullptr) {
    WEFT_ASSIGN_OR_RETURN(joined, JoinAttention(partition, [&](const auto& form, const Node& node) {
                            return takes(device, form, node);
                          }));
    Log(LogLevel::kInfo, "join: ", joined.gradients,
        " gradients of attention became one node each");
    if (joined.gradients > 0) lowered = &joined.partition;
  }
  const bool fuses = partition.fuses_nodes && !partition.strict;
  const FusionRules* const rules = fuses ? FindFusionRules(device.info().kind) : nullptr;
  if (rules == nullptr) return LowerPartition(*lowered, environment, observer);
  TakesProduct takes_product;
  if (const DeviceTakesProduct asked = FindProductTaker(device.info().kind)) {
    takes_product = [&device, asked, tf32 = partition.tf32](const Graph& body) {
      return asked(device, body, tf32);
    };
  }
  WEFT_ASSIGN_OR_RETURN(const FusedPartition fused, FuseNodes(*lowered, *rules, takes_product));
  Log(LogLevel::kInfo, "fuse: ", fused.counts.nodes, " nodes became ", fused.counts.regions);
  return LowerPartition(fused.partition, environment, observer);
}

std::vector<std::string> LoweringPassNames() {
  std::vector<std::string> names = {std::string(kSchedule), std::string(kBind)};
  for (const Pass& pass : Passes()) names.emplace_back(pass.name);
  return names;
}

}  // namespace weft
