#include "tools/reports/simulation_report.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/console/quantity.h"

namespace weft {
namespace {

// Rows of ranks and of links for people; the others are counted.
constexpr size_t kRows = 32;

std::string SimulatedWorkerName(const SimulatedPlan& simulated, size_t rank) {
  return simulated.cluster.workers[simulated.model.ranks[rank].worker].name;
}

// By `value`, the largest first where there are more than are shown; else in order.
template <typename Fn>
std::vector<size_t> Shown(size_t count, Fn value) {
  std::vector<size_t> indices(count);
  std::iota(indices.begin(), indices.end(), size_t{0});
  if (count <= kRows) return indices;
  std::stable_sort(indices.begin(), indices.end(),
                   [&](size_t a, size_t b) { return value(a) > value(b); });
  indices.resize(kRows);
  return indices;
}

std::string MoreText(size_t count, const char* what) {
  return count <= kRows ? "" : absl::StrCat("  and ", count - kRows, " more ", what, "\n");
}

std::string RanksText(const SimulatedPlan& simulated) {
  const std::vector<RankTime>& ranks = simulated.simulation.ranks;
  std::string text = absl::StrFormat("%5s %-14s %6s %10s %14s %10s %12s\n", "rank", "worker",
                                     "stage", "compute", "communication", "bubble", "sends/step");
  for (const size_t rank : Shown(ranks.size(), [&](size_t r) { return ranks[r].compute; })) {
    absl::StrAppendFormat(&text, "%5d %-14s %6d %10s %14s %10s %12s\n", rank,
                          SimulatedWorkerName(simulated, rank), simulated.model.ranks[rank].stage,
                          DurationText(ranks[rank].compute),
                          DurationText(ranks[rank].communication), DurationText(ranks[rank].bubble),
                          ByteQuantity(simulated.simulation.sent_bytes[rank]));
  }
  return absl::StrCat(text, MoreText(ranks.size(), "ranks that compute less"));
}

std::string LinksText(const SimulatedPlan& simulated) {
  const std::vector<int64_t>& bytes = simulated.simulation.link_bytes;
  std::string text = bytes.empty() ? "" : "links, what they carry per step\n";
  for (const size_t link : Shown(bytes.size(), [&](size_t l) { return bytes[l]; })) {
    absl::StrAppendFormat(&text, "  %-30s %12s\n", simulated.model.links[link].name,
                          ByteQuantity(bytes[link]));
  }
  return absl::StrCat(text, MoreText(bytes.size(), "links that carry less"));
}

std::string StallText(const SimulatedStall& stall) {
  std::string text =
      absl::StrCat("stalls at ", DurationText(stall.at_seconds), ": ", stall.text, "\n");
  const size_t shown = std::min(stall.waits.size(), kRows);
  for (size_t i = 0; i < shown; ++i) {
    const SimulatedWait& wait = stall.waits[i];
    absl::StrAppend(&text, "  rank ", wait.rank, " waits for ", wait.what, " since ",
                    DurationText(wait.since), "\n");
  }
  return absl::StrCat(text, MoreText(stall.waits.size(), "waits"));
}

nlohmann::ordered_json StallJson(const SimulatedStall& stall) {
  nlohmann::ordered_json waits = nlohmann::ordered_json::array();
  for (const SimulatedWait& wait : stall.waits) {
    waits.push_back({{"rank", wait.rank},
                     {"step", wait.step},
                     {"for", wait.what},
                     {"on_ranks", wait.on_ranks},
                     {"since_seconds", wait.since}});
  }
  return {{"at_seconds", stall.at_seconds},
          {"text", stall.text},
          {"stopped", stall.stopped},
          {"waits", std::move(waits)}};
}

}  // namespace

std::string SimulationText(const SimulatedPlan& simulated) {
  const Simulation& simulation = simulated.simulation;
  const size_t steps = simulation.step_ends.size();
  std::string text = absl::StrFormat(
      "%d simulated step%s of %s, %d micro-batches, %s: %s per step\n", steps,
      steps == 1 ? "" : "s", simulated.plan.mesh.ToString(), simulated.plan.micro_batches,
      simulated.plan.schedule, DurationText(simulation.step_seconds));
  if (simulation.stall.has_value()) absl::StrAppend(&text, StallText(*simulation.stall));
  absl::StrAppend(&text, "utilisation");
  for (size_t stage = 0; stage < simulation.stage_utilisation.size(); ++stage) {
    absl::StrAppendFormat(&text, "%s stage %d %.1f %%", stage == 0 ? "" : ",", stage,
                          100 * simulation.stage_utilisation[stage]);
  }
  return absl::StrCat(text, "\n", RanksText(simulated), LinksText(simulated));
}

nlohmann::ordered_json SimulationJson(const SimulatedPlan& simulated) {
  const Simulation& simulation = simulated.simulation;
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (size_t rank = 0; rank < simulation.ranks.size(); ++rank) {
    ranks.push_back({{"rank", rank},
                     {"worker", SimulatedWorkerName(simulated, rank)},
                     {"stage", simulated.model.ranks[rank].stage},
                     {"compute_seconds", simulation.ranks[rank].compute},
                     {"communication_seconds", simulation.ranks[rank].communication},
                     {"bubble_seconds", simulation.ranks[rank].bubble},
                     {"sent_bytes", simulation.sent_bytes[rank]}});
  }
  nlohmann::ordered_json links = nlohmann::ordered_json::array();
  for (size_t link = 0; link < simulation.link_bytes.size(); ++link) {
    links.push_back({{"link", simulated.model.links[link].name},
                     {"bytes_per_step", simulation.link_bytes[link]}});
  }
  nlohmann::ordered_json json = {{"step_seconds", simulation.step_seconds},
                                 {"step_ends", simulation.step_ends},
                                 {"stage_utilisation", simulation.stage_utilisation},
                                 {"ranks", std::move(ranks)},
                                 {"links", std::move(links)}};
  if (simulation.stall.has_value()) json["stall"] = StallJson(*simulation.stall);
  return json;
}

}  // namespace weft
