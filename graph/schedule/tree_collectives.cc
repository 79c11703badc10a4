// Collectives along a binomial tree: the fewest rounds where only one has or wants the data.
#include "graph/schedule/collective_schedule.h"
#include "graph/schedule/schedule_writer.h"

namespace weft {
namespace {

void WriteTreeBroadcast(int members, int member, int root, BufferRange all,
                        ScheduleWriter& writer) {
  const int position = (member - root + members) % members;  // the root is at 0
  int reach = 1;  // the member receives from position - reach, its lowest set bit
  while (reach < members && (position & reach) == 0) reach *= 2;
  if (position != 0) writer.Receive((position - reach + root) % members, all);
  for (int step = reach / 2; step >= 1; step /= 2) {
    if (position + step < members) writer.Send((position + step + root) % members, all);
  }
}

void WriteTreeReduce(int members, int member, int root, BufferRange all, ScheduleWriter& writer) {
  const int position = (member - root + members) % members;
  for (int step = 1; step < members; step *= 2) {
    if ((position & step) != 0) {
      writer.Send((position - step + root) % members, all);
      return;
    }
    if (position + step < members) writer.ReceiveAndAdd((position + step + root) % members, all);
  }
}

}  // namespace

CollectiveSchedule TreeBroadcast(int members, int member, int root, int64_t elements) {
  ScheduleWriter writer;
  WriteTreeBroadcast(members, member, root, {0, 0, elements}, writer);
  return writer.Finish({elements});
}

CollectiveSchedule TreeReduce(int members, int member, int root, int64_t elements) {
  ScheduleWriter writer;
  WriteTreeReduce(members, member, root, {0, 0, elements}, writer);
  return writer.FinishWithScratch(elements);
}

CollectiveSchedule TreeAllReduce(int members, int member, int64_t elements) {
  const BufferRange all{0, 0, elements};
  ScheduleWriter writer;
  WriteTreeReduce(members, member, /*root=*/0, all, writer);
  WriteTreeBroadcast(members, member, /*root=*/0, all, writer);
  return writer.FinishWithScratch(elements);
}

}  // namespace weft
