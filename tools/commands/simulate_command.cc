#include <ostream>
#include <utility>

#include "placement/cost/prediction_error.h"
#include "placement/simulation/partition_model.h"
#include "placement/simulation/script_file.h"
#include "placement/simulation/simulator.h"
#include "platform/file_system.h"
#include "platform/status_macros.h"
#include "tools/commands/command.h"
#include "tools/flags/job_flags.h"
#include "tools/flags/options.h"
#include "tools/jobs/cluster_devices.h"
#include "tools/jobs/planned_step.h"
#include "tools/reports/plan_report.h"
#include "tools/reports/simulation_report.h"

namespace weft {
namespace {

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
    flags_.AddModel(app);
    app.add_option("--steps", steps_, "number of steps to simulate (default 3)")
        ->type_name("N")
        ->check(AtLeastOne);
    app.add_option("--script", script_path_,
                   "a script of ranks and links that become slower or stop")
        ->type_name("FILE.yaml");
    app.add_option("--timeline", timeline_path_,
                   "write the timeline of each rank, for chrome://tracing or Perfetto")
        ->type_name("FILE.json");
    flags_.AddData(app, /*required=*/false);
    flags_.AddLoss(app);
    flags_.AddOptimizer(app);
    flags_.AddPlacement(app);
    flags_.DefaultToPlanSearch();
    flags_.AddCalibration(app);
    AddOutputFormat(app, format_)->group("results");
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    WEFT_ASSIGN_OR_RETURN(const PlannedStep step, PlanStep(flags_));
    const std::string note = NoteOnClusterDevices(step.spec.cluster);
    if (!note.empty()) *console.err << Printable(note) << "\n";
    const PartitionModelOptions detail{.per_node = !timeline_path_.empty()};
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
    if (format_ == "json") {
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
    options.steps = steps_;
    options.stall_timeout_seconds = step.spec.stall_timeout_seconds;
    if (!timeline_path_.empty()) options.timeline = TimelineDetail::kInstructions;
    if (script_path_.empty()) return options;
    WEFT_ASSIGN_OR_RETURN(const std::string text, RealFileSystem().ReadFile(script_path_));
    auto script = ParseScriptFile(text, script_path_, step.spec.cluster, model);
    if (!script.ok()) return WithExitCode(script.status(), ExitCode::kUsage);
    options.script = std::move(script->changes);
    options.stall_timeout_seconds =
        script->stall_timeout_seconds.value_or(options.stall_timeout_seconds);
    return options;
  }

  JobFlags flags_;
  int steps_ = 3;
  std::string script_path_;
  std::string timeline_path_;
  std::string format_ = "text";
};

}  // namespace

std::unique_ptr<Command> NewSimulateCommand() { return std::make_unique<SimulateCommand>(); }

}  // namespace weft
