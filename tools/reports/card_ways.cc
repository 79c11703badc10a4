#include "tools/reports/card_ways.h"

#include <cstddef>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {
namespace {

nlohmann::ordered_json RanksJson(const std::vector<RankId>& ranks) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const RankId rank : ranks) list.push_back(rank.value);
  return list;
}

nlohmann::ordered_json GroupJson(const std::vector<RankId>& members) {
  return {{"what", "collectives"}, {"ranks", RanksJson(members)}};
}

nlohmann::ordered_json SendsJson(const CardSends& sends) {
  return {{"what", "sends"},
          {"ranks", RanksJson({sends.pair.first, sends.pair.second})},
          {"channels", sends.channels.size()}};
}

std::string CountText(const char* what, size_t count, const char* unit) {
  return absl::StrCat(what, " of ", count, " ", unit, count == 1 ? "" : "s");
}

// "collectives of 1 group and sends of 2 pairs"; "" without any.
std::string WayText(size_t groups, size_t pairs) {
  std::vector<std::string> parts;
  if (groups > 0) parts.push_back(CountText("collectives", groups, "group"));
  if (pairs > 0) parts.push_back(CountText("sends", pairs, "pair"));
  return absl::StrJoin(parts, " and ");
}

}  // namespace

std::string CardWaysText(const PlannedCards& cards) {
  std::vector<std::string> ways;
  if (const std::string by_nccl = WayText(cards.groups.groups.size(), cards.sends.sends.size());
      !by_nccl.empty()) {
    ways.push_back(absl::StrCat(by_nccl, " by NCCL"));
  }
  if (const std::string by_host = WayText(cards.groups.host.size(), cards.sends.host.size());
      !by_host.empty()) {
    std::vector<std::string> reasons;  // the first of each kind
    if (!cards.groups.host.empty()) reasons.push_back(cards.groups.host.front().reason);
    if (!cards.sends.host.empty()) reasons.push_back(cards.sends.host.front().reason);
    if (reasons.size() == 2 && reasons[0] == reasons[1]) reasons.pop_back();
    ways.push_back(absl::StrCat(by_host, " through the host (", absl::StrJoin(reasons, "; "), ")"));
  }
  if (ways.empty()) return "";
  return absl::StrCat("between GPUs: ", absl::StrJoin(ways, "; "), "\n");
}

nlohmann::ordered_json CardWaysJson(const PlannedCards& cards) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  const auto add = [&rows](nlohmann::ordered_json row, const std::string& reason) {
    row["way"] = reason.empty() ? "nccl" : "host";
    if (!reason.empty()) row["host_because"] = reason;
    rows.push_back(std::move(row));
  };
  for (const std::vector<RankId>& members : cards.groups.groups) add(GroupJson(members), "");
  for (const CardSends& sends : cards.sends.sends) add(SendsJson(sends), "");
  for (const HostGroup& group : cards.groups.host) add(GroupJson(group.members), group.reason);
  for (const CardSends& sends : cards.sends.host) add(SendsJson(sends), sends.reason);
  return rows;
}

}  // namespace weft
