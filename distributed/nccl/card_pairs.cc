#include "distributed/nccl/card_pairs.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "graph/node_class.h"
#include "graph/schedule/action_nodes.h"
#include "graph/schedule/end_order.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

using Kind = PeerAction::Kind;

// Walks a partition as lowering does.
class ActionReader {
 public:
  explicit ActionReader(const Partition& partition) {
    for (const Channel& channel : partition.channels) channels_[channel.id.value] = &channel;
  }

  void Add(const Graph& graph, const std::vector<NodeId>& nodes, int micro_batch) {
    for (const NodeId id : nodes) Add(graph.node(id), micro_batch);
  }
  void WaitForAll() {
    for (const auto& [channel, sent] : unsent_) Append(Kind::kWaitSent, channel, sent);
    unsent_.clear();
  }
  void AddGuard() { actions_.push_back({.kind = Kind::kGuard}); }
  std::vector<PeerAction> Take() { return std::move(actions_); }

 private:
  void Add(const Node& node, int micro_batch) {
    const CommunicationKind kind = KindOf(node);
    if (kind == CommunicationKind::kNone) return;
    if (!IsPointToPoint(kind)) {
      PeerAction action;
      action.kind = Kind::kCollective;
      action.micro_batch = micro_batch;
      action.name = node.name;
      for (const int64_t rank : node.attributes.Ints("group")) {
        action.group.push_back(RankId(static_cast<int32_t>(rank)));
      }
      if (action.group.size() > 1) actions_.push_back(std::move(action));
      return;
    }
    const int64_t channel = node.attributes.Int("channel", -1);
    if (kind == CommunicationKind::kReceive) {
      Append(Kind::kReceive, channel, micro_batch);
      return;
    }
    const auto before = unsent_.find(channel);
    if (before != unsent_.end()) Append(Kind::kWaitSent, channel, before->second);
    Append(Kind::kSend, channel, micro_batch);
    unsent_[channel] = micro_batch;
  }
  void Append(Kind kind, int64_t channel, int micro_batch) {
    const auto found = channels_.find(channel);
    if (found == channels_.end()) return;  // lowering says so
    const Channel& ends = *found->second;
    actions_.push_back({kind, channel, ends.from, ends.to, micro_batch, "", {}});
  }

  std::map<int64_t, const Channel*> channels_;
  std::map<int64_t, int> unsent_;  // the micro-batch of the last send, by channel
  std::vector<PeerAction> actions_;
};

// What goes from one rank to another, as one of them does it: channel and micro-batch. A guard is
// in it, since what one end has before it the other must have before it too.
using Sequence = std::vector<std::pair<int64_t, int>>;

Sequence SequenceOf(const CardPair& pair, Kind kind, const std::vector<PeerAction>& actions) {
  Sequence sequence;
  for (const PeerAction& action : actions) {
    if (action.kind == Kind::kGuard) {
      sequence.emplace_back(-1, -1);
    } else if (action.kind == kind && action.from == pair.first && action.to == pair.second) {
      sequence.emplace_back(action.channel, action.micro_batch);
    }
  }
  return sequence;
}

// Runs the actions of all ranks.
class Rehearsal {
 public:
  Rehearsal(const std::vector<CardPair>& pairs, const std::vector<std::vector<PeerAction>>& actions)
      : pairs_(pairs.begin(), pairs.end()), actions_(actions), ranks_(actions.size()) {}

  // Whether all come to their ends.
  bool Ends() {
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (size_t rank = 0; rank < actions_.size(); ++rank) {
        while (ranks_[rank].next < actions_[rank].size() && Passes(rank)) {
          ++ranks_[rank].next;
          ranks_[rank].is_there = false;
          goes_on = true;
        }
      }
    }
    for (size_t rank = 0; rank < actions_.size(); ++rank) {
      if (ranks_[rank].next < actions_[rank].size()) return false;
    }
    return true;
  }

 private:
  using Collective = std::pair<std::string, std::vector<RankId>>;
  struct Rank {
    size_t next = 0;
    bool is_there = false;  // counted where it waits
    std::map<Collective, int> arrivals;
  };
  // By channel, sender and receiver.
  using Key = std::tuple<int64_t, RankId, RankId>;

  bool Passes(size_t rank) {
    const PeerAction& action = actions_[rank][ranks_[rank].next];
    const Key key = {action.channel, action.from, action.to};
    switch (action.kind) {
      case Kind::kSend:
        ++sent_[key];
        return true;
      case Kind::kWaitSent:  // the host keeps what is not received yet
        return !pairs_.contains({action.from, action.to}) || received_[key] >= sent_[key];
      case Kind::kReceive:
        if (received_[key] >= sent_[key]) return false;
        ++received_[key];
        return true;
      case Kind::kCollective:
        return Meets(rank, {action.name, action.group});
      case Kind::kGuard:
        return true;
    }
    return true;
  }

  bool Meets(size_t rank, const Collective& collective) {
    Rank& own = ranks_[rank];
    if (!own.is_there) ++own.arrivals[collective];
    own.is_there = true;
    const int arrivals = own.arrivals[collective];
    return std::all_of(collective.second.begin(), collective.second.end(), [&](RankId member) {
      const auto index = static_cast<size_t>(member.value);
      return index < ranks_.size() && ranks_[index].arrivals[collective] >= arrivals;
    });
  }

  const std::set<CardPair> pairs_;
  const std::vector<std::vector<PeerAction>>& actions_;
  std::vector<Rank> ranks_;
  std::map<Key, int> sent_;
  std::map<Key, int> received_;
};

}  // namespace

absl::StatusOr<std::vector<PeerAction>> PeerActionsOf(const Partition& partition) {
  ActionReader reader(partition);
  WEFT_ASSIGN_OR_RETURN(const ActionNodes nodes, ActionNodes::Create(partition));
  for (const Action& action : partition.actions) {
    if (action.kind == Action::Kind::kBegin) {
      WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, partition.begin.TopologicalOrder());
      reader.Add(partition.begin, order, -1);
    } else if (action.kind == Action::Kind::kUpdate) {
      WEFT_ASSIGN_OR_RETURN(const EndOrder order, OrderOfEnd(partition));
      const auto guard = order.nodes.begin() + static_cast<std::ptrdiff_t>(order.before_guard);
      reader.WaitForAll();
      reader.Add(partition.end, {order.nodes.begin(), guard}, -1);
      if (!partition.guard.empty()) reader.AddGuard();
      reader.Add(partition.end, {guard, order.nodes.end()}, -1);
      reader.WaitForAll();
    } else {
      const MicroBatch& rows = partition.micro_batches[action.micro_batch];
      reader.Add(partition.micro[rows.graph], nodes.Of(action), rows.index);
    }
  }
  return reader.Take();
}

CardPairChoice ChoosePairs(const std::vector<CardPair>& candidates,
                           const std::vector<std::vector<PeerAction>>& actions) {
  CardPairChoice choice;
  for (const CardPair& pair : candidates) {
    const auto [from, to] = pair;
    if (SequenceOf(pair, Kind::kSend, actions[from.value]) ==
        SequenceOf(pair, Kind::kReceive, actions[to.value])) {
      choice.pairs.push_back(pair);
    } else if (choice.refusal.empty()) {
      choice.refusal = absl::StrCat(
          "worker:", to.value, " receives in another order than worker:", from.value, " sends");
    }
  }
  if (choice.pairs.empty() || Rehearsal(choice.pairs, actions).Ends()) return choice;
  choice.pairs.clear();
  choice.refusal = "the schedule has ranks send ahead of what they wait for";
  return choice;
}

absl::StatusOr<CardPairChoice> ChooseCardPairs(const std::vector<RankCard>& cards,
                                               const std::vector<Partition>& partitions) {
  std::vector<CardPair> candidates;
  std::string refusal;
  std::set<CardPair> seen;
  for (const Partition& partition : partitions) {
    for (const Channel& channel : partition.channels) {
      const std::vector<RankId> ends = {channel.from, channel.to};
      if (channel.from == channel.to || !HaveCards(ends, cards)) continue;
      if (!seen.insert({channel.from, channel.to}).second) continue;
      const std::string own = CardRefusal(ends, cards);
      if (own.empty()) candidates.emplace_back(channel.from, channel.to);
      if (refusal.empty()) refusal = own;
    }
  }
  if (candidates.empty()) return CardPairChoice{{}, refusal};
  std::vector<std::vector<PeerAction>> actions;
  for (const Partition& partition : partitions) {
    WEFT_ASSIGN_OR_RETURN(actions.emplace_back(), PeerActionsOf(partition));
  }
  CardPairChoice choice = ChoosePairs(candidates, actions);
  if (choice.refusal.empty()) choice.refusal = refusal;
  return choice;
}

}  // namespace weft
