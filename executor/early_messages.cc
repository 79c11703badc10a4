#include "executor/early_messages.h"

#include <algorithm>

#include "tensor/dtype.h"

namespace weft {

std::map<RankId, int64_t> EarlyChannelBytes(const Partition& partition) {
  std::map<RankId, int64_t> bytes;
  for (const Channel& channel : partition.channels) {
    if (channel.to != partition.rank) continue;
    const auto messages =
        static_cast<int64_t>(channel.per_micro_batch ? partition.micro_batches.size() : size_t{1});
    bytes[channel.from] += messages * DTypeBytes(channel.dtype, channel.shape.num_elements());
  }
  return bytes;
}

int64_t EarlyCollectiveBytes(const std::vector<const CollectiveSpec*>& collectives, RankId peer) {
  int64_t most[2] = {0, 0};  // by thread
  int64_t unanswered = 0;    // of collectives in which this rank only receives
  for (const CollectiveSpec* const spec : collectives) {
    int64_t sum = 0;
    int64_t longest = 0;
    int64_t ahead = static_cast<int64_t>(spec->group.size()) - 1;
    int64_t run = 0;  // receives without a send between them
    bool answers = false;
    for (const CollectiveStep& step : spec->schedule.steps) {
      if (step.kind == CollectiveStep::Kind::kSend) {
        run = 0;
        answers = true;
      }
      if (step.kind != CollectiveStep::Kind::kReceive || spec->group[step.peer] != peer) continue;
      const int64_t bytes = DTypeBytes(spec->dtype, step.target.count);
      sum += bytes;
      longest = std::max(longest, bytes);
      ahead = std::max(ahead, ++run);
    }
    if (!answers) unanswered += sum;
    int64_t& of_thread = most[spec->beside_compute ? 1 : 0];
    if (answers) of_thread = std::max(of_thread, longest * ahead);
  }
  return most[0] + most[1] + unanswered;
}

}  // namespace weft
