#include "tools/reports/plan_estimates.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "distributed/nccl/nccl_memory.h"
#include "placement/cost/published_specs.h"
#include "platform/byte_quantity.h"

namespace weft {

std::vector<DeviceNeed> DeviceNeeds(const Plan& plan, const ClusterSpec& cluster,
                                    const ClusterProfile& profile, const PlannedRanks& planned,
                                    const PlannedCards& cards) {
  std::vector<DeviceNeed> needs;
  const std::vector<int64_t> nccl = NcclBytes(cards, plan.prediction.memory_bytes.size());
  for (size_t rank = 0; rank < plan.prediction.memory_bytes.size(); ++rank) {
    const int index = plan.workers[rank];
    const WorkerSpec& worker = cluster.workers[static_cast<size_t>(index)];
    if (worker.device != DeviceKind::kCuda) continue;
    DeviceNeed need;
    need.rank = static_cast<int>(rank);
    need.worker = worker.name;
    need.model = worker.model;
    need.program = plan.prediction.memory_bytes[rank];
    need.context = kContextBytes;
    need.nccl = nccl[rank];
    need.limit = worker.memory_bytes > 0 ? worker.memory_bytes : profile.device(index).memory_bytes;
    need.is_compiled = rank < planned.size() && planned[rank].has_value();
    needs.push_back(std::move(need));
  }
  return needs;
}

std::vector<Estimate> PlanEstimates(const Plan& plan, const ClusterProfile& profile,
                                    const std::vector<DeviceNeed>& needs,
                                    const PlannedCards& cards) {
  std::vector<Estimate> estimates = EstimatesOf(profile, plan.workers);
  if (!cards.groups.host.empty() || !cards.sends.host.empty()) {
    for (Estimate& one : HostPathEstimates(profile, plan.workers)) {
      estimates.push_back(std::move(one));
    }
  }
  if (needs.empty()) return estimates;
  estimates.push_back(
      {absl::StrCat("the CUDA context takes ", ByteQuantity(kContextBytes), " of a card's memory"),
       EstimateBasis::kAssumed, "one figure for all cards"});
  const bool has_nccl =
      std::any_of(needs.begin(), needs.end(), [](const DeviceNeed& n) { return n.nccl > 0; });
  if (has_nccl) {
    estimates.push_back(
        {absl::StrCat(
             "buffers of NCCL: ", ByteQuantity(kReceivingChannelBytes + kSendingChannelBytes),
             " a channel and neighbour, ", kCollectiveChannels, " channels"),
         EstimateBasis::kAssumed, "NVIDIA/nccl issue 1685 has the allocations of a run"});
  }
  const auto uncompiled =
      std::count_if(needs.begin(), needs.end(), [](const DeviceNeed& n) { return !n.is_compiled; });
  if (uncompiled > 0) {
    estimates.push_back({absl::StrCat("arenas of ", uncompiled,
                                      " ranks: by lifetimes of values, without workspaces of "
                                      "kernels, rows copied ahead and outputs over inputs"),
                         EstimateBasis::kAssumed,
                         "this process has no such device to compile the ranks for"});
  }
  return estimates;
}

std::string DeviceNeedsText(const std::vector<DeviceNeed>& needs) {
  if (needs.empty()) return "";
  std::string text = "memory of each GPU\n";
  for (const DeviceNeed& need : needs) {
    const std::string limit =
        need.limit > 0 ? absl::StrCat(" of ", ByteQuantity(need.limit)) : std::string();
    const std::string nccl =
        need.nccl > 0 ? absl::StrCat(", NCCL ", ByteQuantity(need.nccl)) : std::string();
    absl::StrAppendFormat(&text, "%5d %-14s %s%s%s: program %s, CUDA context %s%s\n", need.rank,
                          need.worker, need.model.empty() ? "" : need.model + " ",
                          ByteQuantity(need.total()), limit, ByteQuantity(need.program),
                          ByteQuantity(need.context), nccl);
  }
  return text;
}

std::string EstimatesText(const std::vector<Estimate>& estimates) {
  if (estimates.empty()) return "";
  std::string text = "estimated, since nobody has measured it here\n";
  for (const Estimate& estimate : estimates) {
    absl::StrAppendFormat(&text, "  %-9s  %s (%s)\n", EstimateBasisName(estimate.basis),
                          estimate.what, estimate.source);
  }
  return text;
}

nlohmann::ordered_json DeviceNeedsJson(const std::vector<DeviceNeed>& needs) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const DeviceNeed& need : needs) {
    rows.push_back({{"rank", need.rank},
                    {"worker", need.worker},
                    {"model", need.model},
                    {"bytes", need.total()},
                    {"program_bytes", need.program},
                    {"context_bytes", need.context},
                    {"nccl_bytes", need.nccl},
                    {"limit_bytes", need.limit},
                    {"compiled", need.is_compiled}});
  }
  return rows;
}

nlohmann::ordered_json EstimatesJson(const std::vector<Estimate>& estimates) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Estimate& estimate : estimates) {
    rows.push_back({{"what", estimate.what},
                    {"basis", EstimateBasisName(estimate.basis)},
                    {"source", estimate.source}});
  }
  return rows;
}

}  // namespace weft
