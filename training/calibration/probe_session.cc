#include "training/calibration/probe_session.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/custom/loaded_libraries.h"
#include "platform/cpu_info.h"
#include "platform/status_macros.h"
#include "training/calibration/median.h"

namespace weft {
namespace {

constexpr int kWarmUpSteps = 2;
constexpr int64_t kMaxSteps = 2000;  // of a round
// Where single steps take long, rounds are left out until a measurement takes no more than so many
// times what it was given; some remain.
constexpr double kRoundPatience = 10;
constexpr int kMinRounds = 2;

const ProgramStatistics* Find(const std::vector<ProgramStatistics>& programs,
                              const std::string& name) {
  for (const ProgramStatistics& program : programs) {
    if (program.program == name) return &program;
  }
  return nullptr;
}

// Of one rank: what its rounds took per step.
struct RankRounds {
  std::vector<double> step_seconds;
  std::vector<double> input_seconds;
  std::vector<double> all_nodes_seconds;
  std::map<std::string, std::vector<double>> node_seconds;

  void Add(const ProgramStatistics& before, const ProgramStatistics& after) {
    const auto steps = static_cast<double>(std::max<int64_t>(after.steps - before.steps, 1));
    if (after.timed_steps == before.timed_steps) {
      step_seconds.push_back((after.seconds - before.seconds) / steps);
      input_seconds.push_back((after.input_seconds - before.input_seconds) / steps);
      return;
    }
    std::map<std::string, double> nanoseconds;  // some nodes are there several times
    for (size_t i = 0; i < after.nodes.size(); ++i) {
      const int64_t earlier = i < before.nodes.size() ? before.nodes[i].nanoseconds : 0;
      nanoseconds[after.nodes[i].node] += static_cast<double>(after.nodes[i].nanoseconds - earlier);
    }
    double all = 0;
    for (const auto& [node, sum] : nanoseconds) {
      node_seconds[node].push_back(sum * 1e-9 / steps);
      all += sum * 1e-9 / steps;
    }
    all_nodes_seconds.push_back(all);
  }

  ProbeTimes Medians() {
    ProbeTimes times;
    times.step_seconds = Median(step_seconds);
    times.input_seconds = Median(input_seconds);
    double sum = 0;
    for (auto& [node, rounds] : node_seconds) {
      times.node_seconds[node] = Median(rounds);
      sum += times.node_seconds[node];
    }
    // A quota stops every step for a while, but most nodes in few of the rounds: their medians
    // leave out what a step never does without.
    if (!(sum > 0)) return times;
    const double part = Median(all_nodes_seconds) / sum;
    for (auto& [node, seconds] : times.node_seconds) seconds *= part;
    return times;
  }
};

}  // namespace

absl::Status ProbeSession::Begin(const std::vector<ProbeProgram>& programs, const std::string& data,
                                 const std::map<std::string, Tensor>& values, int64_t data_steps) {
  std::random_device random;
  JobMembership membership;
  membership.job_id = (uint64_t{random()} << 32) | random();
  membership.addresses = addresses_;
  membership.version = version_;
  membership.instruction_set = std::string(InstructionSetName(EffectiveInstructionSet()));
  membership.op_libraries = OpLibraryIdentities();
  WEFT_ASSIGN_OR_RETURN(workers_, coordinator_.Join(membership, {}, devices_));
  for (const ProbeProgram& program : programs) {
    WEFT_RETURN_IF_ERROR(coordinator_.AddProgram(program.name, program.partitions, data).status());
  }
  next_step_ = 0;
  data_steps_ = data_steps;
  return values.empty() ? absl::OkStatus() : coordinator_.WriteVariables(values);
}

absl::StatusOr<ProbeSession::Statistics> ProbeSession::RunRound(
    const std::string& program, int64_t steps, bool timed,
    const std::map<std::string, double>& scalars) {
  std::vector<StepRange> ranges;
  while (steps > 0) {
    if (next_step_ >= data_steps_) next_step_ = 0;
    StepRange& range = ranges.emplace_back();
    range.program = program;
    range.first_step = next_step_;
    range.count = std::min(steps, data_steps_ - next_step_);
    range.scalars = scalars;
    range.statistics = timed;
    next_step_ += range.count;
    steps -= range.count;
  }
  WEFT_RETURN_IF_ERROR(coordinator_.RunSteps(ranges, nullptr));
  return coordinator_.AskAll(StatisticsRequest{});
}

absl::StatusOr<std::vector<ProbeTimes>> ProbeSession::Measure(
    const std::string& program, double seconds, const std::map<std::string, double>& scalars,
    int rounds) {
  WEFT_ASSIGN_OR_RETURN(Statistics before, RunRound(program, kWarmUpSteps, false, scalars));
  WEFT_ASSIGN_OR_RETURN(Statistics after, RunRound(program, 1, false, scalars));
  double step_seconds = 0;  // of the slowest rank
  for (size_t rank = 0; rank < after.size(); ++rank) {
    const ProgramStatistics* const old = Find(before[rank], program);
    const ProgramStatistics* const now = Find(after[rank], program);
    if (old == nullptr || now == nullptr) {
      return absl::InternalError(absl::StrCat("worker:", rank, " has no program '", program, "'"));
    }
    step_seconds = std::max(step_seconds, now->seconds - old->seconds);
  }
  const double fitting = seconds / (2 * rounds * std::max(step_seconds, 1e-6));
  const auto steps = static_cast<int64_t>(std::clamp(fitting, 1.0, static_cast<double>(kMaxSteps)));
  const double patient = kRoundPatience * seconds / (2 * std::max(step_seconds, 1e-6));
  const int pairs = static_cast<int>(
      std::clamp(patient, static_cast<double>(kMinRounds), static_cast<double>(rounds)));
  std::vector<RankRounds> ranks(after.size());
  for (int round = 0; round < 2 * pairs; ++round) {
    before = std::move(after);
    WEFT_ASSIGN_OR_RETURN(after, RunRound(program, steps, round % 2 == 1, scalars));
    for (size_t rank = 0; rank < after.size(); ++rank) {
      ranks[rank].Add(*Find(before[rank], program), *Find(after[rank], program));
    }
  }
  std::vector<ProbeTimes> times;
  for (RankRounds& rank : ranks) times.push_back(rank.Medians());
  return times;
}

}  // namespace weft
