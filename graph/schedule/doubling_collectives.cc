// All-reduces in a logarithmic number of rounds. With members beyond the largest power of two p,
// members m and m + p first make one of two, and the upper one gets the result last.
#include "graph/schedule/collective_schedule.h"
#include "graph/schedule/schedule_writer.h"

namespace weft {
namespace {

// Pieces [first, last) of buffer 0 as one range.
BufferRange Join(const std::vector<BufferRange>& pieces, int first, int last) {
  const int64_t end = pieces[last - 1].first + pieces[last - 1].count;
  return {0, pieces[first].first, end - pieces[first].first};
}

// Recursive halving: each round a member gives one half of its pieces to a partner and adds the
// partner's other half; after it member m holds the sum of piece m. Then recursive doubling: the
// same rounds backwards, each exchanging what both have.
void WriteHalvingDoubling(const std::vector<BufferRange>& pieces, int member,
                          ScheduleWriter& writer) {
  const int power = static_cast<int>(pieces.size());
  for (int distance = power / 2; distance >= 1; distance /= 2) {
    const int partner = member ^ distance;
    const int own = member / distance * distance;
    const int others = partner / distance * distance;
    writer.Send(partner, Join(pieces, others, others + distance));
    writer.ReceiveAndAdd(partner, Join(pieces, own, own + distance));
  }
  for (int distance = 1; distance < power; distance *= 2) {
    const int partner = member ^ distance;
    const int own = member / distance * distance;
    const int others = partner / distance * distance;
    writer.Send(partner, Join(pieces, own, own + distance));
    writer.Receive(partner, Join(pieces, others, others + distance));
  }
}

}  // namespace

CollectiveSchedule RecursiveDoublingAllReduce(int members, int member, int64_t elements) {
  const int power = PowerOfTwoIn(members);
  const BufferRange own{0, 0, elements};
  ScheduleWriter writer;
  if (member >= power) {
    writer.Send(member - power, own);
    writer.Receive(member - power, own);
    return writer.FinishWithScratch(elements);
  }
  const bool has_partner_above = member + power < members;
  if (has_partner_above) writer.ReceiveAndAdd(member + power, own);
  for (int distance = 1; distance < power; distance *= 2) {
    writer.Send(member ^ distance, own);
    writer.ReceiveAndAdd(member ^ distance, own);
  }
  if (has_partner_above) writer.Send(member + power, own);
  return writer.FinishWithScratch(elements);
}

CollectiveSchedule HalvingDoublingAllReduce(int members, int member, int64_t elements) {
  const int power = PowerOfTwoIn(members);
  const BufferRange all{0, 0, elements};
  const std::vector<BufferRange> halves = EvenRanges(2, elements);
  ScheduleWriter writer;
  if (member >= power) {  // adds the second half for the member below
    const int below = member - power;
    writer.Send(below, halves[0]);
    writer.ReceiveAndAdd(below, halves[1]);
    writer.Send(below, halves[1]);
    writer.Receive(below, all);
    return writer.FinishWithScratch(elements);
  }
  const int above = member + power;
  if (above < members) {
    writer.Send(above, halves[1]);
    writer.ReceiveAndAdd(above, halves[0]);
    writer.Receive(above, halves[1]);
  }
  WriteHalvingDoubling(EvenRanges(power, elements), member, writer);
  if (above < members) writer.Send(above, all);
  return writer.FinishWithScratch(elements);
}

}  // namespace weft
