// What a plan needs of each GPU's memory, and what of its prediction nobody has measured.
#ifndef WEFT_TOOLS_REPORTS_PLAN_ESTIMATES_H_
#define WEFT_TOOLS_REPORTS_PLAN_ESTIMATES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "distributed/nccl/planned_cards.h"
#include "graph/cluster_spec.h"
#include "graph/plan.h"
#include "nlohmann/json.hpp"
#include "placement/cost/cluster_profile.h"
#include "placement/cost/estimates.h"
#include "training/job/compiled_memory.h"

namespace weft {

// The memory of the card of one rank, in bytes.
struct DeviceNeed {
  int rank = 0;
  std::string worker;        // its name
  std::string model;         // of the card
  int64_t program = 0;       // variables, arena and constants
  int64_t context = 0;       // CUDA's: an assumption
  int64_t nccl = 0;          // of its communicators: an assumption (NcclBytes)
  int64_t limit = 0;         // 0: not known
  bool is_compiled = false;  // else the arena is an estimate without workspaces
  int64_t total() const { return program + context + nccl; }
};

// Of the ranks whose worker has a GPU. `plan` has its prediction; `planned` may be empty; `cards`
// are those of the plan (PlanCards).
std::vector<DeviceNeed> DeviceNeeds(const Plan& plan, const ClusterSpec& cluster,
                                    const ClusterProfile& profile, const PlannedRanks& planned,
                                    const PlannedCards& cards);

// EstimatesOf the plan's workers, what is estimated of the memory of `needs`, and where `cards`
// leave something to hosts, what its price rests on.
std::vector<Estimate> PlanEstimates(const Plan& plan, const ClusterProfile& profile,
                                    const std::vector<DeviceNeed>& needs,
                                    const PlannedCards& cards);

// Both for people: lines with their ends; "" where there is nothing to say.
std::string DeviceNeedsText(const std::vector<DeviceNeed>& needs);
std::string EstimatesText(const std::vector<Estimate>& estimates);

// [{"rank": 0, "worker": "worker:0", "model": "H100-80GB", "bytes": ..., "program_bytes": ...,
//   "context_bytes": ..., "nccl_bytes": ..., "limit_bytes": ..., "compiled": false}]
nlohmann::ordered_json DeviceNeedsJson(const std::vector<DeviceNeed>& needs);
// [{"what": "...", "basis": "published", "source": "..."}]
nlohmann::ordered_json EstimatesJson(const std::vector<Estimate>& estimates);

}  // namespace weft

#endif  // WEFT_TOOLS_REPORTS_PLAN_ESTIMATES_H_
