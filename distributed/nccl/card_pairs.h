// Which ranks' cards send to each other by NCCL in a program.
#ifndef WEFT_DISTRIBUTED_NCCL_CARD_PAIRS_H_
#define WEFT_DISTRIBUTED_NCCL_CARD_PAIRS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/nccl/card_groups.h"
#include "graph/ids.h"
#include "graph/partition.h"

namespace weft {

// What a rank does with others in a step.
struct PeerAction {
  enum class Kind : uint8_t {
    kSend,
    kWaitSent,  // until what was sent last on the channel is received
    kReceive,
    kCollective,
    kGuard,  // a step may end here, on all ranks
  };
  Kind kind = Kind::kSend;
  // Of a send, a wait or a receive.
  int64_t channel = -1;
  RankId from = {};
  RankId to = {};
  int micro_batch = -1;  // job-wide index; -1 = once per step
  int64_t bytes = 0;     // of the message
  // Of a collective.
  std::string name = {};
  std::vector<RankId> group = {};
};

// In the order of the rank's program, as executor/lowering binds it: a send waits for the one
// before it on the channel, and both ends of the end graph wait for all.
absl::StatusOr<std::vector<PeerAction>> PeerActionsOf(const Partition& partition);

// Sender and receiver.
using CardPair = std::pair<RankId, RankId>;

// What goes from one rank to another, by one way.
struct CardSends {
  CardPair pair;
  std::vector<int64_t> channels;  // by number, ascending
  std::string reason = {};        // why they go through the host; empty: by NCCL
};

struct CardPairChoice {
  std::vector<CardSends> sends;  // by NCCL
  std::vector<CardSends> host;   // with a card at one end at least; one for each pair and reason
  // Why some send between cards goes through the host; empty: none does.
  std::string refusal;
};

// Those that NCCL joins for sends, in order.
std::vector<CardPair> PairsOf(const CardPairChoice& choice);

// Of what the candidates send, the channels that NCCL can serve; `actions` by rank. NCCL matches
// what a pair sends and receives by order, and a send may last until it is received. So of a pair
// those channels are taken that both ends have in one order: first those go that are on two sides
// of a guard, then those that are in the way of others, of the fewest bytes for each. And where
// ranks would wait for each other in a ring, the send of it with the fewest bytes is left to the
// host, which keeps it. That is found by running the actions: a rank waits for each receive, each
// sent message that its program waits for, and each collective, and for nothing else. What it
// finds holds for all timings, since no rank ever chooses. Where ranks would wait for each other
// through the host too, none is taken.
CardPairChoice ChoosePairs(const std::vector<CardPair>& candidates,
                           const std::vector<std::vector<PeerAction>>& actions);

// `cards` and `partitions` by rank, of all ranks. Candidates are the senders and receivers of
// channels that have cards which can be joined (CardRefusal).
absl::StatusOr<CardPairChoice> ChooseCardPairs(const std::vector<RankCard>& cards,
                                               const std::vector<Partition>& partitions);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_NCCL_CARD_PAIRS_H_
