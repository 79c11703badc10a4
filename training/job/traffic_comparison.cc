#include "training/job/traffic_comparison.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "placement/partition/traffic_prediction.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status AddProgram(const ProgramTraffic& measured, const Partition& partition,
                        RankTraffic& rank) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<StreamPrediction> predicted, PredictTraffic(partition));
  std::map<std::pair<std::string, RankId>, StreamComparison> streams;
  for (const StreamPrediction& stream : predicted) {
    streams[{stream.name, stream.to}].predicted_bytes = measured.steps * stream.bytes;
  }
  for (const StreamTraffic& stream : measured.streams) {
    streams[{stream.name, stream.to}].measured_bytes = stream.payload_bytes;
  }
  for (auto& [key, stream] : streams) {
    stream.program = measured.program;
    std::tie(stream.name, stream.to) = key;
    rank.predicted_bytes += stream.predicted_bytes;
    rank.measured_bytes += stream.measured_bytes;
    rank.streams.push_back(std::move(stream));
  }
  rank.steps += measured.steps;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<RankTraffic>> CompareTraffic(
    const PreparedJob& job, const std::vector<WorkerTraffic>& measured) {
  std::vector<RankTraffic> ranks;
  for (size_t i = 0; i < measured.size(); ++i) {
    RankTraffic& rank = ranks.emplace_back();
    rank.rank = RankId(static_cast<int32_t>(i));
    rank.header_bytes = measured[i].header_bytes;
    for (const ProgramTraffic& traffic : measured[i].programs) {
      const auto program =
          std::find_if(job.programs.begin(), job.programs.end(),
                       [&](const JobProgram& program) { return program.name == traffic.program; });
      if (program == job.programs.end() || program->partitions.size() != measured.size()) {
        return absl::InternalError(absl::StrCat("the job has no program '", traffic.program,
                                                "' for ", measured.size(), " workers"));
      }
      WEFT_RETURN_IF_ERROR(AddProgram(traffic, program->partitions[i], rank));
    }
  }
  return ranks;
}

}  // namespace weft
