#include "tools/chaos/chaos.h"

#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "platform/file_system.h"
#include "platform/process.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"
#include "tools/chaos/chaos_job.h"
#include "tools/chaos/chaos_schedule.h"
#include "tools/chaos/chaos_workers.h"
#include "tools/chaos/disk_fault.h"
#include "tools/chaos/process_tree.h"
#include "tools/chaos/result_comparison.h"
#include "tools/console/exit_code.h"

namespace weft {
namespace {

// A folder of mode 0700, which goes with this object.
class ChaosFolder {
 public:
  static absl::StatusOr<std::unique_ptr<ChaosFolder>> Create() {
    std::error_code error;
    const auto place = std::filesystem::temp_directory_path(error);
    std::string path = (error ? std::filesystem::path("/tmp") : place) / "weft-chaos-XXXXXX";
    if (mkdtemp(path.data()) == nullptr) return SystemError(errno, "make", path);
    return std::unique_ptr<ChaosFolder>(new ChaosFolder(std::move(path)));
  }
  ChaosFolder(const ChaosFolder&) = delete;
  ChaosFolder& operator=(const ChaosFolder&) = delete;
  ~ChaosFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  explicit ChaosFolder(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

// Removes the files of a run but what says why it did not hold.
void RemoveModel(const std::string& model) {
  std::error_code ignored;
  std::filesystem::remove(model, ignored);
}

// Ten checkpoints of a run; of one whose length is not known, some.
int64_t CheckpointEvery(int64_t steps) {
  constexpr int64_t kUnknown = 100;
  return steps == 0 ? kUnknown : std::max<int64_t>(1, steps / 10);
}

absl::Status CheckWords(const std::vector<std::string>& words) {
  if (!words.empty() && words.front() == "train") return absl::OkStatus();
  return UsageError("chaos runs a training: give -- train and its flags");
}

// Whether one of the kinds can befall the job; notes on those that cannot.
absl::StatusOr<std::vector<FaultKind>> PossibleKinds(const ChaosOptions& options,
                                                     const ChaosJob& job) {
  std::vector<FaultKind> possible;
  std::vector<std::string> left_out;
  for (const FaultKind kind : options.kinds) {
    const FaultKindRow& row = RowOf(kind);
    if ((row.strikes_worker && job.workers == 0) ||
        (row.needs_proxy && !job.why_no_proxies.empty())) {
      left_out.emplace_back(row.name);
    } else {
      possible.push_back(kind);
    }
  }
  if (!left_out.empty()) {
    options.say(absl::StrCat("note: without ", absl::StrJoin(left_out, ", "), ": ",
                             job.why_no_proxies, "\n"));
  }
  if (possible.empty()) {
    return UsageError(absl::StrCat("none of these faults can befall the job: ",
                                   FaultKindNames(options.kinds), "; ", job.why_no_proxies));
  }
  return possible;
}

// The run that nobody disturbs.
absl::StatusOr<ExpectedResult> RunUndisturbed(const ChaosPlace& place, int64_t& steps) {
  ChaosRun run(place, ChaosSchedule(), 0, nullptr);
  WEFT_ASSIGN_OR_RETURN(const ChaosOutcome outcome, run.Run());
  if (!outcome.complaints.empty()) {
    return WithExitCode(
        absl::FailedPreconditionError(absl::StrCat("the undisturbed run did not come to its end: ",
                                                   outcome.complaints.front())),
        outcome.last_code == 0 ? ExitCode::kInternal : static_cast<ExitCode>(outcome.last_code));
  }
  steps = outcome.steps;
  ExpectedResult expected;
  expected.model = outcome.result.model;
  expected.sha256 = outcome.result.sha256;
  expected.losses = outcome.result.losses;
  return expected;
}

// One schedule, with workers of its own where it needs them.
absl::StatusOr<ChaosOutcome> RunOne(const ChaosPlace& place, const ChaosSchedule& schedule,
                                    int number) {
  std::unique_ptr<ChaosWorkers> workers;
  if (schedule.needs_proxies()) {
    WEFT_ASSIGN_OR_RETURN(
        workers, ChaosWorkers::Start(place.launcher, place.program,
                                     absl::StrCat(place.folder, "/w", number), place.job.workers));
  }
  absl::StatusOr<ChaosOutcome> outcome = absl::InternalError("the run was not made");
  {
    ChaosRun run(place, schedule, number, workers.get());
    outcome = run.Run();
  }
  if (workers == nullptr || !outcome.ok()) return outcome;
  for (std::string& late : workers->End()) outcome->complaints.push_back(std::move(late));
  return outcome;
}

}  // namespace

int64_t ChaosReport::held() const {
  return std::count_if(outcomes.begin(), outcomes.end(),
                       [](const ChaosOutcome& outcome) { return outcome.complaints.empty(); });
}

std::string ChaosReport::Again(const ChaosOutcome& outcome) const {
  return absl::StrCat("graph_runner chaos --seed ", outcome.schedule.seed, flags);
}

absl::StatusOr<ChaosReport> RunChaos(const ChaosOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckWords(options.words));
  ExpectedResult expected;
  if (!options.expect.empty()) {
    auto parsed = ParseExpectedResult(options.expect);
    if (!parsed.ok()) {
      return UsageError(absl::StrCat("--expect: ", std::string(parsed.status().message())));
    }
    expected = *std::move(parsed);
  }
  WEFT_ASSIGN_OR_RETURN(const std::string program, CurrentExecutable());
  WEFT_ASSIGN_OR_RETURN(const auto folder, ChaosFolder::Create());
  AdoptOrphans();
  WEFT_ASSIGN_OR_RETURN(
      const ChaosJob job,
      ReadChaosJob(RealProcessLauncher(), program, options.words, folder->path() + "/flags.log"));
  WEFT_ASSIGN_OR_RETURN(const std::vector<FaultKind> kinds, PossibleKinds(options, job));
  if (!expected.sha256.empty() && !job.is_strict) {
    return UsageError("--expect: only a job with --strict has the same bits again; give a loss");
  }
  if (!options.expect.empty() && job.steps == 0) {
    return UsageError("--expect needs to know how long the job is: give it --steps");
  }
  WEFT_RETURN_IF_ERROR(
      RealFileSystem().WriteFileAtomically(folder->path() + "/job.yaml", job.text));
  WEFT_ASSIGN_OR_RETURN(const auto disk, DiskFault::Create(folder->path() + "/saved"));
  ChaosPlace place{RealProcessLauncher(),
                   RealFileSystem(),
                   program,
                   folder->path(),
                   job,
                   CheckpointEvery(job.steps),
                   absl::Seconds(options.timeout_seconds),
                   *disk,
                   options.is_stopped};
  int64_t steps = job.steps;
  if (options.expect.empty()) {
    options.say("an undisturbed run first\n");
    WEFT_ASSIGN_OR_RETURN(expected, RunUndisturbed(place, steps));
    place.checkpoint_every = CheckpointEvery(steps);
  }
  ChaosReport report;
  report.expected_sha256 = expected.sha256;
  report.flags = absl::StrCat(" --faults ", FaultKindNames(options.kinds));
  if (!options.expect.empty()) absl::StrAppend(&report.flags, " --expect ", options.expect);
  absl::StrAppend(&report.flags, " --tolerance ", options.tolerance, " --timeout ",
                  options.timeout_seconds, " -- ", ShellText(options.words));
  const Exactness exactness{job.is_strict, options.tolerance};
  for (int64_t i = 0; i < options.schedules; ++i) {
    const ChaosSchedule schedule =
        DrawChaosSchedule(options.seed + i, kinds, steps, job.workers, job.silence);
    WEFT_ASSIGN_OR_RETURN(ChaosOutcome outcome, RunOne(place, schedule, static_cast<int>(i) + 1));
    if (!outcome.result.sha256.empty()) {
      for (std::string& different :
           CompareResults(RealFileSystem(), expected, outcome.result, exactness)) {
        outcome.complaints.push_back(std::move(different));
      }
    }
    RemoveModel(outcome.result.model);
    options.report(outcome, report.Again(outcome));
    report.outcomes.push_back(std::move(outcome));
  }
  return report;
}

}  // namespace weft
