#include "distributed/nccl/card_groups.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "distributed/nccl/nccl.h"
#include "graph/node_class.h"

namespace weft {
namespace {

bool IsCollective(const Node& node) {
  switch (KindOf(node)) {
    case CommunicationKind::kAllReduce:
    case CommunicationKind::kAllGather:
    case CommunicationKind::kReduceScatter:
    case CommunicationKind::kAllToAll:
    case CommunicationKind::kBroadcast:
      return true;
    default:
      return false;
  }
}

void AddGroups(const Graph& graph, std::vector<std::vector<RankId>>& groups) {
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    if (!IsCollective(node)) continue;
    std::vector<RankId> group;
    for (const int64_t rank : node.attributes.Ints("group")) {
      group.push_back(RankId(static_cast<int32_t>(rank)));
    }
    const bool is_new = std::find(groups.begin(), groups.end(), group) == groups.end();
    if (group.size() > 1 && is_new) groups.push_back(std::move(group));
  }
}

void AddGroups(const Partition& partition, std::vector<std::vector<RankId>>& groups) {
  AddGroups(partition.begin, groups);
  for (const Graph& micro : partition.micro) AddGroups(micro, groups);
  AddGroups(partition.end, groups);
}

bool HasCard(RankId rank, const std::vector<RankCard>& cards) {
  return rank.value >= 0 && static_cast<size_t>(rank.value) < cards.size() &&
         !cards[rank.value].name.empty();
}

}  // namespace

std::vector<std::vector<RankId>> CollectiveGroups(const Partition& partition) {
  std::vector<std::vector<RankId>> groups;
  AddGroups(partition, groups);
  return groups;
}

bool HaveCards(const std::vector<RankId>& group, const std::vector<RankCard>& cards) {
  return std::all_of(group.begin(), group.end(),
                     [&](RankId member) { return HasCard(member, cards); });
}

std::string NoCardText(const std::vector<RankId>& group, const std::vector<RankCard>& cards) {
  const auto without = std::find_if(group.begin(), group.end(),
                                    [&](RankId member) { return !HasCard(member, cards); });
  return absl::StrCat("worker:", without->value, " has no GPU");
}

std::string CardRefusal(const std::vector<RankId>& group, const std::vector<RankCard>& cards) {
  std::set<std::string> names;
  const RankCard& first = cards[group.front().value];
  for (const RankId member : group) {
    const RankCard& card = cards[member.value];
    if (!names.insert(card.name).second) {
      return absl::StrCat("worker:", member.value, " shares its card with another worker");
    }
    if (card.nccl_version == 0) return absl::StrCat("worker:", member.value, ": ", card.problem);
    if (card.nccl_version != first.nccl_version) {
      return absl::StrCat("worker:", member.value, " has NCCL ", NcclVersionText(card.nccl_version),
                          ", worker:", group.front().value, " has ",
                          NcclVersionText(first.nccl_version));
    }
  }
  return "";
}

CardGroupChoice ChooseCardGroups(const std::vector<RankCard>& cards,
                                 const std::vector<Partition>& partitions, bool strict) {
  const auto is_idle = [](const Partition& partition) { return partition.micro_batches.empty(); };
  const auto idle = std::count_if(partitions.begin(), partitions.end(), is_idle);
  const bool is_uneven = idle > 0 && idle < static_cast<int64_t>(partitions.size());
  CardGroupChoice choice;
  std::vector<std::vector<RankId>> groups;
  for (const Partition& partition : partitions) AddGroups(partition, groups);
  for (std::vector<RankId>& group : groups) {
    if (!HaveCards(group, cards)) {
      const bool any = std::any_of(group.begin(), group.end(),
                                   [&](RankId member) { return HasCard(member, cards); });
      if (any) choice.host.push_back({group, NoCardText(group, cards)});
      continue;
    }
    std::string refusal;
    if (strict) {
      refusal = "a strict job adds in an order of its own";
    } else if (is_uneven) {
      refusal = "some ranks have no micro-batches";
    } else {
      refusal = CardRefusal(group, cards);
    }
    if (refusal.empty()) {
      choice.groups.push_back(std::move(group));
      continue;
    }
    if (choice.refusal.empty()) choice.refusal = refusal;
    choice.host.push_back({std::move(group), std::move(refusal)});
  }
  return choice;
}

std::string DescribeCardUse(const CardUse& use) {
  std::vector<std::string> joined;
  if (use.ranks > 0) joined.push_back(absl::StrCat("collectives of ", use.ranks, " GPUs"));
  if (use.pairs > 0) {
    joined.push_back(absl::StrCat("sends of ", use.pairs, use.pairs == 1 ? " pair" : " pairs",
                                  use.ranks > 0 ? "" : " of GPUs"));
  }
  std::string text;
  if (!joined.empty()) {
    text = absl::StrCat(absl::StrJoin(joined, ", "), ": NCCL ", NcclVersionText(use.nccl_version));
  }
  const auto add = [&](const char* what, bool some, const std::string& refusal) {
    if (refusal.empty()) return;
    absl::StrAppend(&text, text.empty() ? "" : "; ", some ? "some " : "", what,
                    " of GPUs go through the host: ", refusal);
  };
  add("collectives", use.ranks > 0, use.refusal);
  if (use.send_refusal != use.refusal || use.ranks > 0) {
    add("sends", use.pairs > 0, use.send_refusal);
  }
  return text;
}

}  // namespace weft
