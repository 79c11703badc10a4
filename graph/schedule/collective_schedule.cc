#include "graph/schedule/collective_schedule.h"

#include "graph/schedule/schedule_writer.h"

namespace weft {
namespace {

// After it, member m's range (m + shift) mod n holds the sum.
void WriteRingReduceScatter(const std::vector<BufferRange>& ranges, int member, int shift,
                            ScheduleWriter& writer) {
  const int n = static_cast<int>(ranges.size());
  const auto at = [&](int i) { return ranges[((i % n) + n) % n]; };
  for (int round = 0; round < n - 1; ++round) {
    writer.Send((member + 1) % n, at(member + shift - round - 1));
    writer.ReceiveAndAdd((member + n - 1) % n, at(member + shift - round - 2));
  }
}

// Member m starts with range (m + shift) mod n and ends with all.
void WriteRingAllGather(const std::vector<BufferRange>& ranges, int member, int shift,
                        ScheduleWriter& writer) {
  const int n = static_cast<int>(ranges.size());
  const auto at = [&](int i) { return ranges[((i % n) + n) % n]; };
  for (int round = 0; round < n - 1; ++round) {
    writer.Send((member + 1) % n, at(member + shift - round));
    writer.Receive((member + n - 1) % n, at(member + shift - round - 1));
  }
}

}  // namespace

CollectiveSchedule RingAllReduce(int members, int member, int64_t elements) {
  const std::vector<BufferRange> ranges = EvenRanges(members, elements);
  ScheduleWriter writer;
  WriteRingReduceScatter(ranges, member, /*shift=*/0, writer);
  WriteRingAllGather(ranges, member, /*shift=*/0, writer);
  return writer.FinishWithScratch(elements);
}

CollectiveSchedule RingAllGather(const std::vector<int64_t>& counts, int member) {
  const std::vector<BufferRange> ranges = RangesOf(counts);
  ScheduleWriter writer;
  WriteRingAllGather(ranges, member, /*shift=*/0, writer);
  return writer.Finish({TotalOf(ranges)});
}

CollectiveSchedule RingReduceScatter(const std::vector<int64_t>& counts, int member) {
  const std::vector<BufferRange> ranges = RangesOf(counts);
  ScheduleWriter writer;
  WriteRingReduceScatter(ranges, member, /*shift=*/0, writer);
  return writer.FinishWithScratch(TotalOf(ranges));
}

}  // namespace weft
