#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tools/chaos/chaos.h"
#include "tools/chaos/chaos_job.h"
#include "tools/chaos/chaos_report.h"
#include "tools/chaos/fault_kind.h"
#include "tools/commands/command.h"
#include "tools/commands/command_json.h"
#include "tools/console/stop_signals.h"
#include "tools/flags/options.h"

namespace weft {
namespace {

class ChaosCommand final : public Command {
 public:
  std::string name() const override { return "chaos"; }
  std::string summary() const override {
    return "Trains a job of yours while its processes, disk and connections fail";
  }
  std::string usage() const override {
    return "--seed N [--schedules M] [--faults kill,stop,...] -- train ARGUMENTS...";
  }
  std::vector<std::string> examples() const override {
    return {"graph_runner chaos --seed 7 -- train --config job.yaml --local 3 --strict",
            "graph_runner chaos --seed 1 --schedules 20 --faults kill,coordinator -- train "
            "--config job.yaml",
            "graph_runner chaos --seed 7 --expect 2.31 -- train --config job.yaml --local 2"};
  }
  bool reads_models() const override { return false; }

  void AddOptions(CLI::App& app) override {
    app.add_option("ARGUMENTS", words_, "train and its flags, behind --")
        ->type_name("train ARGUMENTS...")
        ->required();
    app.add_option("--seed", seed_, "what befalls the job follows from it")
        ->type_name("N")
        ->required();
    app.add_option("--schedules", schedules_, "so many runs, each with the next seed (default 1)")
        ->type_name("M")
        ->check(AtLeastOne);
    app.add_option(
           "--faults", faults_,
           "some of kill, stop, leave, quota, disk, cut, reset, flip, coordinator, interrupt "
           "(default: all)")
        ->type_name("LIST");
    app.add_option("--expect", expect_,
                   "what the undisturbed run comes to, which is then not made: SHA-256 of the "
                   "model, or loss of the last step")
        ->type_name("SHA256|LOSS");
    app.add_option("--tolerance", tolerance_,
                   "how exact results must be without --strict (default 1e-5)")
        ->type_name("X")
        ->check(CLI::PositiveNumber);
    app.add_option("--timeout", timeout_, "seconds without a step that are a hang (default 60)")
        ->type_name("SECONDS")
        ->check(AtLeastOne);
    AddOutputFormat(app, format_);
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    ChaosOptions options;
    options.words = words_;
    options.seed = seed_;
    options.schedules = schedules_;
    auto kinds = ParseFaultKinds(faults_);
    if (!kinds.ok()) {
      return UsageError(absl::StrCat("--faults: ", std::string(kinds.status().message())));
    }
    options.kinds = *std::move(kinds);
    options.expect = expect_;
    options.tolerance = tolerance_;
    options.timeout_seconds = timeout_;
    const StopSignals signals;
    options.is_stopped = [&signals] { return signals.signal() != 0; };
    options.say = [&console](const std::string& text) { *console.err << text << std::flush; };
    const bool prints_json = format_ == "json";
    options.report = [&](const ChaosOutcome& outcome, const std::string& again) {
      if (!prints_json) *console.out << ChaosRunText(outcome, again) << std::flush;
    };
    auto report = RunChaos(options);
    if (absl::IsCancelled(report.status()) && signals.signal() != 0) {
      *console.err << "stopped by " << signals.name() << "; no process and no file is left\n";
      return ExitCode::kStopped;
    }
    if (!report.ok()) return report.status();
    if (prints_json) {
      Json runs = Json::array();
      for (const ChaosOutcome& outcome : report->outcomes) {
        runs.push_back(ChaosRunJson(outcome, report->Again(outcome)));
      }
      const Json json = {{"undisturbed_sha256", report->expected_sha256},
                         {"held", report->held()},
                         {"runs", std::move(runs)}};
      *console.out << json.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
    } else if (schedules_ > 1) {
      *console.out << ChaosSummaryText(report->outcomes);
    }
    return report->held() == static_cast<int64_t>(report->outcomes.size()) ? ExitCode::kOk
                                                                           : ExitCode::kInternal;
  }

 private:
  std::vector<std::string> words_;
  int64_t seed_ = 0;
  int64_t schedules_ = 1;
  std::string faults_ = "kill,stop,leave,quota,disk,cut,reset,flip,coordinator,interrupt";
  std::string expect_;
  double tolerance_ = 1e-5;
  int64_t timeout_ = 60;
  std::string format_ = "text";
};

}  // namespace

std::unique_ptr<Command> NewChaosCommand() { return std::make_unique<ChaosCommand>(); }

}  // namespace weft
