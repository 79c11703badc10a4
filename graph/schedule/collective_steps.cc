#include "graph/schedule/collective_steps.h"

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

using Kind = CollectiveStep::Kind;

std::string RangeToString(const BufferRange& range) {
  return absl::StrCat("b", range.buffer, "[", range.first, "+", range.count, "]");
}

}  // namespace

int64_t CollectiveSchedule::elements_sent() const {
  int64_t sent = 0;
  for (const CollectiveStep& step : steps) {
    if (step.kind == Kind::kSend) sent += step.source.count;
  }
  return sent;
}

std::string CollectiveSchedule::ToString() const {
  std::string text = "buffers";
  for (int64_t elements : buffer_elements) absl::StrAppend(&text, " ", elements);
  for (const CollectiveStep& step : steps) {
    switch (step.kind) {
      case Kind::kSend:
        absl::StrAppend(&text, "\nsend ", RangeToString(step.source), " to ", step.peer);
        break;
      case Kind::kReceive:
        absl::StrAppend(&text, "\nreceive ", RangeToString(step.target), " from ", step.peer);
        break;
      case Kind::kReduce:
        absl::StrAppend(&text, "\nreduce ", RangeToString(step.target),
                        " += ", RangeToString(step.source));
        break;
      case Kind::kCopy:
        absl::StrAppend(&text, "\ncopy ", RangeToString(step.target), " = ",
                        RangeToString(step.source));
        break;
    }
  }
  return text;
}

}  // namespace weft
