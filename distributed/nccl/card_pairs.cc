#include "distributed/nccl/card_pairs.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "graph/node_class.h"
#include "graph/schedule/action_nodes.h"
#include "graph/schedule/end_order.h"
#include "platform/status_macros.h"
#include "tensor/dtype.h"

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
    actions_.push_back({kind,
                        channel,
                        ends.from,
                        ends.to,
                        micro_batch,
                        DTypeBytes(ends.dtype, ends.shape.num_elements()),
                        "",
                        {}});
  }

  std::map<int64_t, const Channel*> channels_;
  std::map<int64_t, int> unsent_;  // the micro-batch of the last send, by channel
  std::vector<PeerAction> actions_;
};

// What goes from one rank to another, as one of them does it: channel and micro-batch. A guard is
// in it, since what one end has before it the other must have before it too.
using Sequence = std::vector<std::pair<int64_t, int>>;
constexpr int64_t kGuardChannel = -1;

Sequence SequenceOf(const CardPair& pair, Kind kind, const std::vector<PeerAction>& actions) {
  Sequence sequence;
  for (const PeerAction& action : actions) {
    if (action.kind == Kind::kGuard) {
      sequence.emplace_back(kGuardChannel, -1);
    } else if (action.kind == kind && action.from == pair.first && action.to == pair.second) {
      sequence.emplace_back(action.channel, action.micro_batch);
    }
  }
  return sequence;
}

using Channels = std::set<int64_t>;

// Both ends of a pair.
class PairOrder {
 public:
  PairOrder(const CardPair& pair, const std::vector<std::vector<PeerAction>>& actions)
      : sent_(SequenceOf(pair, Kind::kSend, actions[pair.first.value])),
        received_(SequenceOf(pair, Kind::kReceive, actions[pair.second.value])) {
    for (const PeerAction& action : actions[pair.first.value]) {
      if (action.kind == Kind::kSend) bytes_[action.channel] += action.bytes;
    }
    for (const Sequence* sequence : {&sent_, &received_}) {
      for (const auto& [channel, micro_batch] : *sequence) {
        if (channel == kGuardChannel) continue;
        all_.insert(channel);
        bytes_.try_emplace(channel, 0);
      }
    }
  }

  const Channels& all() const { return all_; }

  // Channels that both ends have in one order, so many that no other could be added. Two sequences
  // are equal if what they have of any two channels is.
  Channels Agreeing() const {
    Channels kept = all_;
    if (Agree(kept)) return kept;
    std::erase_if(kept, [this](int64_t channel) { return !Agree({channel}); });
    if (Agree(kept)) return kept;
    const std::map<int64_t, Channels> conflicts = Conflicts(kept);
    std::vector<int64_t> left_out;
    for (int64_t worst = Worst(kept, conflicts); worst >= 0; worst = Worst(kept, conflicts)) {
      kept.erase(worst);
      left_out.push_back(worst);
    }
    std::stable_sort(left_out.begin(), left_out.end(),
                     [this](int64_t a, int64_t b) { return bytes_.at(a) > bytes_.at(b); });
    for (const int64_t channel : left_out) {
      if (CountIn(kept, conflicts.at(channel)) == 0) kept.insert(channel);
    }
    return kept;
  }

 private:
  static Sequence Only(const Sequence& sequence, const Channels& channels) {
    Sequence part;
    for (const auto& one : sequence) {
      if (one.first == kGuardChannel || channels.contains(one.first)) part.push_back(one);
    }
    return part;
  }
  bool Agree(const Channels& channels) const {
    return Only(sent_, channels) == Only(received_, channels);
  }

  std::map<int64_t, Channels> Conflicts(const Channels& channels) const {
    std::map<int64_t, Channels> conflicts;
    for (const int64_t a : channels) {
      conflicts[a];
      for (const int64_t b : channels) {
        if (a != b && (b < a ? conflicts.at(b).contains(a) : !Agree({a, b})))
          conflicts[a].insert(b);
      }
    }
    return conflicts;
  }
  static int64_t CountIn(const Channels& kept, const Channels& conflicts) {
    return std::count_if(conflicts.begin(), conflicts.end(),
                         [&kept](int64_t channel) { return kept.contains(channel); });
  }
  // With the most conflicts for its bytes; -1: there are none.
  int64_t Worst(const Channels& kept, const std::map<int64_t, Channels>& conflicts) const {
    int64_t worst = -1;
    double max_per_byte = 0;
    for (const int64_t channel : kept) {
      const auto count = static_cast<double>(CountIn(kept, conflicts.at(channel)));
      const double per_byte = count / static_cast<double>(std::max<int64_t>(1, bytes_.at(channel)));
      if (per_byte <= max_per_byte) continue;
      worst = channel;
      max_per_byte = per_byte;
    }
    return worst;
  }

  const Sequence sent_;
  const Sequence received_;
  Channels all_;
  std::map<int64_t, int64_t> bytes_;  // of a step, by channel
};

// By channel, sender and receiver.
using ChannelKey = std::tuple<int64_t, RankId, RankId>;

// Runs the actions of all ranks.
class Rehearsal {
 public:
  // `joined`: the channels that NCCL serves.
  Rehearsal(std::set<ChannelKey> joined, const std::vector<std::vector<PeerAction>>& actions)
      : joined_(std::move(joined)), actions_(actions), ranks_(actions.size()) {}

  // Whether all come to their ends. If not, so far as they come.
  bool Ends() {
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (size_t rank = 0; rank < actions_.size(); ++rank) {
        while (!IsDone(rank) && Passes(rank)) {
          ++ranks_[rank].next;
          ranks_[rank].is_there = false;
          goes_on = true;
        }
      }
    }
    for (size_t rank = 0; rank < actions_.size(); ++rank) {
      if (!IsDone(rank)) return false;
    }
    return true;
  }

  // Where they did not: has the host keep one of the sends for which ranks wait in a ring, and
  // which it is. None: they wait for something else.
  std::optional<ChannelKey> LeaveToHost() {
    std::vector<size_t> way;
    size_t rank = 0;
    while (rank < actions_.size() && IsDone(rank)) ++rank;
    auto met = way.end();
    while (met == way.end()) {
      if (rank >= actions_.size() || IsDone(rank)) return std::nullopt;
      way.push_back(rank);
      rank = AwaitedBy(rank);
      met = std::find(way.begin(), way.end(), rank);
    }
    const PeerAction* smallest = nullptr;
    for (; met != way.end(); ++met) {
      const PeerAction& action = Next(*met);
      if (action.kind != Kind::kWaitSent) continue;
      if (smallest == nullptr || action.bytes < smallest->bytes) smallest = &action;
    }
    if (smallest == nullptr) return std::nullopt;
    const ChannelKey key = KeyOf(*smallest);
    joined_.erase(key);
    return key;
  }

  const std::set<ChannelKey>& joined() const { return joined_; }

 private:
  using Collective = std::pair<std::string, std::vector<RankId>>;
  struct Rank {
    size_t next = 0;
    bool is_there = false;  // counted where it waits
    std::map<Collective, int> arrivals;
  };

  static ChannelKey KeyOf(const PeerAction& action) {
    return {action.channel, action.from, action.to};
  }
  bool IsDone(size_t rank) const { return ranks_[rank].next >= actions_[rank].size(); }
  const PeerAction& Next(size_t rank) const { return actions_[rank][ranks_[rank].next]; }

  bool Passes(size_t rank) {
    const PeerAction& action = Next(rank);
    const ChannelKey key = KeyOf(action);
    switch (action.kind) {
      case Kind::kSend:
        ++sent_[key];
        return true;
      case Kind::kWaitSent:  // the host keeps what is not received yet
        return !joined_.contains(key) || received_[key] >= sent_[key];
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
    return FirstAbsent(rank, collective) == actions_.size();
  }
  // A member that has not come yet; the number of ranks: all have.
  size_t FirstAbsent(size_t rank, const Collective& collective) {
    const int arrivals = ranks_[rank].arrivals[collective];
    for (const RankId member : collective.second) {
      const auto index = static_cast<size_t>(member.value);
      if (index < ranks_.size() && ranks_[index].arrivals[collective] < arrivals) return index;
    }
    return actions_.size();
  }

  // The rank for which one waits that does not pass.
  size_t AwaitedBy(size_t rank) {
    const PeerAction& action = Next(rank);
    if (action.kind == Kind::kWaitSent) return static_cast<size_t>(action.to.value);
    if (action.kind == Kind::kReceive) return static_cast<size_t>(action.from.value);
    return FirstAbsent(rank, {action.name, action.group});
  }

  std::set<ChannelKey> joined_;
  const std::vector<std::vector<PeerAction>>& actions_;
  std::vector<Rank> ranks_;
  std::map<ChannelKey, int> sent_;
  std::map<ChannelKey, int> received_;
};

void AddHostSends(const CardPair& pair, std::vector<int64_t> channels, const std::string& reason,
                  CardPairChoice& choice) {
  if (channels.empty()) return;
  if (choice.refusal.empty()) choice.refusal = reason;
  choice.host.push_back({pair, std::move(channels), reason});
}

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

std::vector<CardPair> PairsOf(const CardPairChoice& choice) {
  std::vector<CardPair> pairs;
  for (const CardSends& sends : choice.sends) pairs.push_back(sends.pair);
  return pairs;
}

CardPairChoice ChoosePairs(const std::vector<CardPair>& candidates,
                           const std::vector<std::vector<PeerAction>>& actions) {
  CardPairChoice choice;
  std::set<ChannelKey> joined;
  std::map<CardPair, Channels> agreeing;
  for (const CardPair& pair : candidates) {
    const PairOrder order(pair, actions);
    const Channels kept = order.Agreeing();
    for (const int64_t channel : kept) joined.insert({channel, pair.first, pair.second});
    std::vector<int64_t> others;
    std::set_difference(order.all().begin(), order.all().end(), kept.begin(), kept.end(),
                        std::back_inserter(others));
    AddHostSends(
        pair, std::move(others),
        absl::StrCat("worker:", pair.second.value,
                     " receives in another order than worker:", pair.first.value, " sends"),
        choice);
    agreeing[pair] = kept;
  }
  Rehearsal rehearsal(std::move(joined), actions);
  bool ends = true;
  while (!agreeing.empty() && !(ends = rehearsal.Ends()) && rehearsal.LeaveToHost().has_value()) {
  }
  for (const CardPair& pair : candidates) {
    CardSends sends = {pair, {}};
    std::vector<int64_t> ahead;
    for (const int64_t channel : agreeing.at(pair)) {
      const bool stays = ends && rehearsal.joined().contains({channel, pair.first, pair.second});
      (stays ? sends.channels : ahead).push_back(channel);
    }
    AddHostSends(pair, std::move(ahead), "the schedule has ranks send ahead of what they wait for",
                 choice);
    if (!sends.channels.empty()) choice.sends.push_back(std::move(sends));
  }
  return choice;
}

absl::StatusOr<CardPairChoice> ChooseCardPairs(const std::vector<RankCard>& cards,
                                               const std::vector<Partition>& partitions) {
  std::vector<CardPair> candidates;
  std::map<CardPair, Channels> channels;
  std::vector<CardPair> pairs;  // in the order in which the partitions name them
  for (const Partition& partition : partitions) {
    for (const Channel& channel : partition.channels) {
      if (channel.from == channel.to) continue;
      const CardPair pair = {channel.from, channel.to};
      const auto [known, is_new] = channels.try_emplace(pair);
      if (is_new) pairs.push_back(pair);
      known->second.insert(channel.id.value);
    }
  }
  CardPairChoice host;
  for (const CardPair& pair : pairs) {
    const std::vector<RankId> ends = {pair.first, pair.second};
    const Channels& own = channels.at(pair);
    if (HaveCards(ends, cards)) {
      const std::string reason = CardRefusal(ends, cards);
      if (reason.empty()) candidates.push_back(pair);
      if (!reason.empty()) AddHostSends(pair, {own.begin(), own.end()}, reason, host);
    } else if (HaveCards({pair.first}, cards) || HaveCards({pair.second}, cards)) {
      host.host.push_back({pair, {own.begin(), own.end()}, NoCardText(ends, cards)});
    }
  }
  if (candidates.empty()) return host;
  std::vector<std::vector<PeerAction>> actions;
  for (const Partition& partition : partitions) {
    WEFT_ASSIGN_OR_RETURN(actions.emplace_back(), PeerActionsOf(partition));
  }
  CardPairChoice choice = ChoosePairs(candidates, actions);
  if (choice.refusal.empty()) choice.refusal = host.refusal;
  choice.host.insert(choice.host.end(), host.host.begin(), host.host.end());
  return choice;
}

}  // namespace weft
