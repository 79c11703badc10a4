#include "executor/memory/unexpected_messages.h"

#include <algorithm>
#include <cstddef>

#include "tensor/dtype.h"

namespace weft {
namespace {

// What a rank receives from one peer in a collective.
struct Receives {
  int64_t bytes = 0;
  int64_t longest = 0;        // bytes of a message
  int64_t in_a_row = 0;       // messages without a send of this rank between them, at most
  int64_t longest_late = 0;   // of those that may be posted after the send before them
  bool follow_sends = false;  // this rank receives, from anybody, after it has sent
};

bool Overlap(const BufferRange& a, const BufferRange& b) {
  return a.buffer == b.buffer && a.first < b.first + b.count && b.first < a.first + a.count;
}

// Whether step `index`, a receive, may have to wait with its posting for a send of the collective.
bool IsLate(const std::vector<CollectiveStep>& steps, size_t index) {
  if (index == 0 || steps[index - 1].kind != CollectiveStep::Kind::kSend) return true;
  return std::any_of(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(index),
                     [&](const CollectiveStep& step) {
                       return step.kind == CollectiveStep::Kind::kSend &&
                              Overlap(step.source, steps[index].target);
                     });
}

Receives ReceivesFrom(const CollectiveSpec& spec, RankId peer) {
  const std::vector<CollectiveStep>& steps = spec.schedule.steps;
  Receives receives;
  int64_t row = 0;
  bool has_sent = false;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].kind == CollectiveStep::Kind::kSend) {
      row = 0;
      has_sent = true;
    }
    if (steps[i].kind != CollectiveStep::Kind::kReceive) continue;
    receives.follow_sends |= has_sent;
    if (spec.group[steps[i].peer] != peer) continue;
    const int64_t bytes = DTypeBytes(spec.dtype, steps[i].target.count);
    receives.bytes += bytes;
    receives.longest = std::max(receives.longest, bytes);
    receives.in_a_row = std::max(receives.in_a_row, ++row);
    if (bytes > receives.longest_late && IsLate(steps, i)) receives.longest_late = bytes;
  }
  return receives;
}

}  // namespace

std::map<RankId, int64_t> UnexpectedChannelBytes(const Partition& partition) {
  std::map<RankId, int64_t> bytes;
  for (const Channel& channel : partition.channels) {
    if (channel.to != partition.rank) continue;
    const auto messages =
        static_cast<int64_t>(channel.per_micro_batch ? partition.micro_batches.size() : size_t{1});
    bytes[channel.from] += messages * DTypeBytes(channel.dtype, channel.shape.num_elements());
  }
  return bytes;
}

int64_t UnexpectedCollectiveBytes(const std::vector<const CollectiveSpec*>& collectives,
                                  RankId peer) {
  struct Thread {
    int64_t lead = 0;  // messages
    int64_t longest = 0;
    int64_t longest_late = 0;
    int64_t bytes() const { return lead * longest + longest_late; }
  };
  Thread threads[2];
  int64_t unanswered = 0;
  for (const CollectiveSpec* const spec : collectives) {
    const Receives receives = ReceivesFrom(*spec, peer);
    if (!receives.follow_sends) {
      unanswered += receives.bytes;
    } else if (receives.in_a_row > 0) {
      Thread& thread = threads[spec->beside_compute ? 1 : 0];
      const int64_t others = static_cast<int64_t>(spec->group.size()) - 1;
      thread.lead = std::max(thread.lead, others - 1 + receives.in_a_row);
      thread.longest = std::max(thread.longest, receives.longest);
      thread.longest_late = std::max(thread.longest_late, receives.longest_late);
    }
  }
  return threads[0].bytes() + threads[1].bytes() + unanswered;
}

}  // namespace weft
