#include <algorithm>
#include <cstdint>
#include <ostream>
#include <utility>

#include "placement/cost/prediction_error.h"
#include "placement/simulation/partition_model.h"
#include "placement/simulation/script_file.h"
#include "placement/simulation/simulator.h"
#include "platform/file_system.h"
#include "platform/status_macros.h"
#include "tools/commands/command.h"
#include "tools/flags/options.h"
#include "tools/flags/train_flags.h"
#include "tools/jobs/cluster_devices.h"
#include "tools/jobs/planned_step.h"
#include "tools/reports/plan_report.h"
#include "tools/reports/simulation_report.h"

namespace weft {
namespace {

constexpr int64_t kLongestScript = int64_t{16} << 20;

class SimulateCommand final : public Command {
 public:
  std::string name() const override { return "simulate"; }
  std::string summary() const override {
    return "Simulates training steps of a plan in virtual time, on machines that need not exist";
  }
  std::string usage() const override {
    return "MODEL.onnx [--cluster FILE|--local N] [--parallel dp=2,pp=2]";
  }
  std::vector<std::string> examples() const override {
    return {"graph_runner simulate model.onnx --cluster cluster.yaml --parallel dp=4,tp=2,pp=4",
            "graph_runner simulate model.onnx --local 4 --plan plan.yaml --timeline trace.json",
            "graph_runner simulate model.onnx --local 2 --steps 20 --script slow.yaml"};
  }

  void AddOptions(CLI::App& app) override {
    flags_.AddForPlanning(app, TrainFlags::Looks::kAtSteps, {"--partitions"});
    app.get_option("--steps")
        ->description("number of steps to simulate (default 3)")
        ->group(kMainOptions);
    app_ = &app;
    app.add_option("--script", script_path_,
                   "a script of ranks and links that become slower or stop")
        ->type_name("FILE.yaml");
    app.add_option("--timeline", timeline_path_,
                   "write the timeline of each rank, for chrome://tracing or Perfetto")
        ->type_name("FILE.json");
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    *console.err << flags_.NoteWithoutEffect(*app_);
    WEFT_ASSIGN_OR_RETURN(const PlannedStep step, PlanStep(flags_));
    const std::string note = NoteOnClusterDevices(step.spec.cluster);
    if (!note.empty()) *console.err << Printable(note) << "\n";
    const PartitionModelOptions detail{.per_node = !timeline_path_.empty(), .host = step.host};
    WEFT_ASSIGN_OR_RETURN(
        const StepModel model,
        ModelOfPartitions(step.partitions, step.plan.workers, step.costs, detail));
    WEFT_ASSIGN_OR_RETURN(const SimulationOptions options, Options(step, model));
    WEFT_ASSIGN_OR_RETURN(const Simulation simulation, SimulateStep(model, options));
    if (!timeline_path_.empty()) {
      WEFT_RETURN_IF_ERROR(
          WithExitCode(RealFileSystem().WriteFileAtomically(
                           timeline_path_, TimelineJson(model, simulation.timeline)),
                       ExitCode::kDisk));
      *console.err << simulation.timeline.size() << " spans written to "
                   << Printable(timeline_path_) << "\n";
    }
    const SimulatedPlan simulated{step.plan, step.spec.cluster, model, simulation};
    if (flags_.prints_json()) {
      nlohmann::ordered_json json = SimulationJson(simulated);
      AddPredictionError(step.plan.prediction.calibrated, json);
      *console.out << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    } else {
      *console.out << Printable(SimulationText(simulated));
      if (!step.plan.prediction.calibrated) *console.out << UncalibratedText() << "\n";
    }
    return ExitCode::kOk;
  }

 private:
  absl::StatusOr<SimulationOptions> Options(const PlannedStep& step, const StepModel& model) const {
    SimulationOptions options;
    options.steps = static_cast<int>(std::min<int64_t>(flags_.given_steps(), 1 << 30));
    if (options.steps == 0) options.steps = 3;
    options.stall_timeout_seconds = step.spec.stall_timeout_seconds;
    if (!timeline_path_.empty()) options.timeline = TimelineDetail::kInstructions;
    if (script_path_.empty()) return options;
    WEFT_ASSIGN_OR_RETURN(const std::string text,
                          RealFileSystem().ReadFileUpTo(script_path_, kLongestScript));
    auto script = ParseScriptFile(text, script_path_, step.spec.cluster, model);
    if (!script.ok()) return WithExitCode(script.status(), ExitCode::kUsage);
    options.script = std::move(script->changes);
    options.stall_timeout_seconds =
        script->stall_timeout_seconds.value_or(options.stall_timeout_seconds);
    return options;
  }

  TrainFlags flags_;
  const CLI::App* app_ = nullptr;  // the parser's, which outlives Run
  std::string script_path_;
  std::string timeline_path_;
};

}  // namespace

std::unique_ptr<Command> NewSimulateCommand() { return std::make_unique<SimulateCommand>(); }

}  // namespace weft
