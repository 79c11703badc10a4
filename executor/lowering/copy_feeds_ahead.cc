#include "executor/lowering/copy_feeds_ahead.h"

#include <algorithm>
#include <map>

namespace weft {

LoweringProgram CopyFeedsAhead(LoweringProgram program, int64_t min_bytes) {
  LoweredStep& step = program.step;
  std::map<int, int64_t> bytes_of_feed;  // the most rows that are filled at once
  for (const LoweredInstruction& instruction : step.compute) {
    const auto* const fill = instruction.As<lowered::Fill>();
    if (fill == nullptr) continue;
    int64_t& bytes = bytes_of_feed[fill->feed];
    bytes = std::max(bytes, step.buffers.bytes(fill->into));
  }
  int64_t missing = min_bytes;  // which cannot overflow, whatever the partition says
  for (const auto& [feed, bytes] : bytes_of_feed) missing -= std::min(bytes, missing);
  if (bytes_of_feed.empty() || missing > 0) return program;
  std::map<int, BufferIndex> ahead;
  for (const auto& [feed, bytes] : bytes_of_feed) ahead[feed] = step.buffers.AddReserved(bytes);
  for (LoweredInstruction& instruction : step.compute) {
    if (auto* const fill = instruction.As<lowered::Fill>()) fill->ahead = ahead.at(fill->feed);
  }
  return program;
}

}  // namespace weft
