// The Trace Event Format (Chrome, Perfetto): complete events ("X"), and metadata that names
// processes and threads.
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "placement/simulation/simulator.h"

namespace weft {
namespace {

constexpr double kMicrosecondsPerSecond = 1e6;

std::string Quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

int ThreadOf(StreamKind stream) { return stream == StreamKind::kCompute ? 0 : 1; }

void AppendNames(const StepModel& model, int32_t rank, std::string& json) {
  const StepRank& rank_spec = model.ranks[rank];
  absl::StrAppendFormat(&json,
                        "{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":"
                        "\"rank %d, stage %d, worker %d\"}},\n",
                        rank, rank, rank_spec.stage, rank_spec.worker);
  for (const StreamKind stream : {StreamKind::kCompute, StreamKind::kCommunication}) {
    absl::StrAppendFormat(&json,
                          "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":"
                          "{\"name\":\"%s\"}},\n",
                          rank, ThreadOf(stream),
                          stream == StreamKind::kCompute ? "compute" : "communication");
  }
}

}  // namespace

std::string TimelineJson(const StepModel& model, const std::vector<TimelineSpan>& timeline) {
  std::string json = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  std::vector<bool> named(model.ranks.size(), false);
  for (const TimelineSpan& span : timeline) {
    if (!named[span.rank]) AppendNames(model, span.rank, json);
    named[span.rank] = true;
  }
  for (const TimelineSpan& span : timeline) {
    std::string arguments = absl::StrCat("\"step\":", span.step);
    if (span.micro_batch >= 0) {
      absl::StrAppend(&arguments, ",\"micro_batch\":", span.micro_batch);
    }
    absl::StrAppendFormat(
        &json,
        "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":%s,"
        "\"args\":{%s}},\n",
        span.rank, ThreadOf(span.stream), span.start * kMicrosecondsPerSecond,
        (span.end - span.start) * kMicrosecondsPerSecond, Quoted(span.name), arguments);
  }
  if (json.ends_with(",\n")) json.erase(json.size() - 2, 1);
  return absl::StrCat(json, "]}\n");
}

}  // namespace weft
