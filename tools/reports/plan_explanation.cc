#include "tools/reports/plan_explanation.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/console/quantity.h"

namespace weft {
namespace {

constexpr size_t kMaxNames = 8;

std::string WorkersText(const PlanChoice& choice, const ClusterSpec& cluster) {
  std::string text =
      absl::StrCat(choice.workers.size(), " of ", cluster.workers.size(), " workers");
  if (choice.workers.size() == cluster.workers.size()) return text;
  std::vector<std::string> names;
  for (const int worker : choice.workers) {
    if (names.size() == kMaxNames) break;
    names.push_back(cluster.workers[worker].name);
  }
  const bool more = choice.workers.size() > names.size();
  return absl::StrCat(text, " (", absl::StrJoin(names, ", "), more ? ", ..." : "", ")");
}

std::string PartText(double seconds, double all) {
  return absl::StrFormat("%s (%.0f %%)", DurationText(seconds), all > 0 ? 100 * seconds / all : 0);
}

std::string MemoryText(const PlanCandidate& candidate) {
  const std::string needs = ByteQuantity(candidate.memory_bytes);
  if (candidate.memory_limit == 0) return needs;
  return absl::StrCat(needs, " of ", ByteQuantity(candidate.memory_limit));
}

// What the figure of MemoryText counts.
const char* MemoryParts(const PlanCandidate& candidate) {
  return candidate.compiled
             ? " on the fullest rank: its compiled program, 16 MiB of process, and messages; train "
               "prints what a worker requires, with data and libraries\n"
             : " on the fullest rank: variables, 16 MiB of process, and an arena estimated without "
               "workspaces and outputs over inputs; the table of ranks has the compiled arena, and "
               "train prints what a worker requires, with data, messages and libraries\n";
}

nlohmann::ordered_json CandidateJson(const PlanCandidate& candidate) {
  nlohmann::ordered_json json = {{"parallel", ParallelText(candidate.choice)},
                                 {"workers", candidate.choice.workers},
                                 {"step_seconds", candidate.step_seconds},
                                 {"compute_seconds", candidate.compute_seconds},
                                 {"exposed_communication_seconds", candidate.communication_seconds},
                                 {"bubble_seconds", candidate.bubble_seconds},
                                 {"memory_bytes", candidate.memory_bytes},
                                 {"memory_limit_bytes", candidate.memory_limit},
                                 {"memory_compiled", candidate.compiled},
                                 {"fits", candidate.fits},
                                 {"simulated_rank_by_rank", candidate.exact}};
  if (!candidate.reason.empty()) json["reason"] = candidate.reason;
  return json;
}

}  // namespace

std::string ExplanationText(const SearchResult& result, const ClusterSpec& cluster) {
  const PlanCandidate& chosen = result.chosen;
  const double step = chosen.step_seconds;
  std::string text = absl::StrCat(
      "found      --parallel ", ParallelText(chosen.choice), " on ",
      WorkersText(chosen.choice, cluster), ", the best of ", result.evaluated,
      " plans that were evaluated\n", "step       ", DurationText(step), " predicted, ",
      chosen.exact ? "simulated rank by rank" : "simulated with coarse estimates", ": compute ",
      PartText(chosen.compute_seconds, step), ", exposed communication ",
      PartText(chosen.communication_seconds, step), ", bubble ",
      PartText(chosen.bubble_seconds, step), "\n", "memory     ", MemoryText(chosen),
      MemoryParts(chosen));
  if (!result.batch_reason.empty()) {
    absl::StrAppend(&text, "batch      ", result.batch_reason, "\n");
  }
  if (result.rejected.empty()) return text;
  absl::StrAppend(&text, "rejected\n");
  size_t width = 0;
  bool is_coarse = false;  // while that of the chosen plan is exact
  for (const PlanCandidate& other : result.rejected) {
    width = std::max(width, ParallelText(other.choice).size());
    is_coarse |= chosen.exact && !other.exact;
  }
  for (const PlanCandidate& other : result.rejected) {
    const bool fewer = other.choice.workers.size() != cluster.workers.size();
    const char* const about = chosen.exact && !other.exact ? "~" : "";
    absl::StrAppendFormat(&text, "  %-*s %11s  %s%s\n", static_cast<int>(width),
                          ParallelText(other.choice),
                          absl::StrCat(about, DurationText(other.step_seconds)), other.reason,
                          fewer ? absl::StrCat("; on ", WorkersText(other.choice, cluster)) : "");
  }
  if (is_coarse)
    absl::StrAppend(&text, "  (~: a coarse estimate; too slow for an exact simulation)\n");
  return text;
}

nlohmann::ordered_json ExplanationJson(const SearchResult& result, const ClusterSpec& cluster) {
  nlohmann::ordered_json rejected = nlohmann::ordered_json::array();
  for (const PlanCandidate& other : result.rejected) rejected.push_back(CandidateJson(other));
  nlohmann::ordered_json json = {{"cluster_workers", cluster.workers.size()},
                                 {"evaluated", result.evaluated},
                                 {"chosen", CandidateJson(result.chosen)},
                                 {"rejected", std::move(rejected)}};
  if (!result.batch_reason.empty()) json["batch"] = result.batch_reason;
  return json;
}

}  // namespace weft
