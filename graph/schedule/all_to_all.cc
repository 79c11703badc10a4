#include "graph/schedule/collective_schedule.h"
#include "graph/schedule/schedule_writer.h"

namespace weft {

CollectiveSchedule PairwiseAllToAll(const std::vector<std::vector<int64_t>>& counts, int member) {
  const int n = static_cast<int>(counts.size());
  std::vector<int64_t> incoming;
  for (int from = 0; from < n; ++from) incoming.push_back(counts[from][member]);
  const std::vector<BufferRange> received = RangesOf(incoming);
  std::vector<BufferRange> sent = RangesOf(counts[member]);
  for (BufferRange& range : sent) range.buffer = 1;
  ScheduleWriter writer;
  writer.Copy(sent[member], received[member]);
  for (int round = 1; round < n; ++round) {
    const int to = (member + round) % n;
    const int from = (member + n - round) % n;
    writer.Send(to, sent[to]);
    writer.Receive(from, received[from]);
  }
  return writer.Finish({TotalOf(received), TotalOf(sent)});
}

}  // namespace weft
