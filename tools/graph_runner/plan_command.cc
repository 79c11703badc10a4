#include <ostream>
#include <utility>

#include "ops/node_runner.h"
#include "placement/partitioner.h"
#include "placement/plan_file.h"
#include "placement/planner.h"
#include "placement/traffic_prediction.h"
#include "platform/file_system.h"
#include "platform/status_macros.h"
#include "tools/graph_runner/command.h"
#include "tools/graph_runner/job_flags.h"
#include "tools/graph_runner/options.h"
#include "tools/graph_runner/plan_report.h"

namespace weft {
namespace {

class PlanCommand final : public Command {
 public:
  std::string name() const override { return "plan"; }
  std::string summary() const override {
    return "Says what of a training step would run where, and what it would send";
  }
  std::string usage() const override {
    return "MODEL.onnx [--local N|--cluster FILE] [--parallel dp=2,pp=2] [-o PLAN.yaml]";
  }
  std::vector<std::string> examples() const override {
    return {"graph_runner plan model.onnx --local 2 --optimizer adam --batch 128",
            "graph_runner plan model.onnx --local 4 --parallel dp=2,pp=2 -o plan.yaml",
            "graph_runner plan model.onnx --cluster cluster.yaml --dump partitions"};
  }

  void AddOptions(CLI::App& app) override {
    flags_.AddModel(app);
    flags_.AddData(app, /*required=*/false);
    flags_.AddLoss(app);
    flags_.AddOptimizer(app);
    flags_.AddPlacement(app);
    app.add_option("--dump", dump_folder_, "write the graphs of each rank as ONNX files")
        ->type_name("DIR");
    app.add_option("-o,--out", plan_path_, "write the plan")->type_name("PLAN.yaml");
    AddOutputFormat(app, format_)->group("results");
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    WEFT_ASSIGN_OR_RETURN(const TrainingSpec training, flags_.Training());
    WEFT_ASSIGN_OR_RETURN(const ImportedModel model, flags_.LoadModel());
    WEFT_ASSIGN_OR_RETURN(const JobSpec spec, flags_.Job());
    WEFT_ASSIGN_OR_RETURN(Graph graph, TrainingGraph(model, training));
    auto plan = CompletePlan(graph, spec.cluster, spec.plan, flags_.batch());
    if (!plan.ok()) return WithExitCode(plan.status(), ExitCode::kPlan);
    const auto partitions =
        PartitionStep(graph, *plan, {/*training=*/true, flags_.batch()}, CpuNodeEvaluator());
    if (!partitions.ok()) return WithExitCode(partitions.status(), ExitCode::kPlan);
    WEFT_RETURN_IF_ERROR(PredictCommunication(*partitions, *plan));
    std::vector<Partition> kept;  // what it would be without recomputation
    if (!plan->recompute.empty()) {
      Plan without = *plan;
      without.recompute.clear();
      WEFT_ASSIGN_OR_RETURN(
          kept, PartitionStep(graph, without, {true, flags_.batch()}, CpuNodeEvaluator()));
    }
    WEFT_RETURN_IF_ERROR(WithExitCode(Write(*plan, *partitions, console), ExitCode::kDisk));
    if (format_ == "json") {
      WEFT_ASSIGN_OR_RETURN(auto json, PlanJson(*plan, spec.cluster, *partitions));
      if (!kept.empty()) {
        WEFT_ASSIGN_OR_RETURN(json["recomputation"], RecomputationJson(*partitions, kept));
      }
      *console.out << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    } else {
      WEFT_ASSIGN_OR_RETURN(const std::string text, PlanText(*plan, spec.cluster, *partitions));
      *console.out << Printable(text);
      if (!kept.empty()) {
        WEFT_ASSIGN_OR_RETURN(const std::string again, RecomputationText(*partitions, kept));
        *console.out << Printable(again);
      }
    }
    return ExitCode::kOk;
  }

 private:
  absl::StatusOr<Graph> TrainingGraph(const ImportedModel& model,
                                      const TrainingSpec& training) const {
    Graph bound = model.graph.Clone();
    std::shared_ptr<const DataSet> data;
    if (flags_.has_data()) {
      WEFT_ASSIGN_OR_RETURN(data, flags_.OpenData(/*shuffle=*/false));
      WEFT_RETURN_IF_ERROR(WithExitCode(BindInputs(bound, *data), ExitCode::kData));
    }
    auto graph = BuildTrainingGraph(bound, training);
    if (!graph.ok()) return WithExitCode(graph.status(), ExitCode::kModel);
    if (data != nullptr) {
      WEFT_RETURN_IF_ERROR(WithExitCode(BindInputs(*graph, *data), ExitCode::kData));
    }
    return graph;
  }

  absl::Status Write(const Plan& plan, const std::vector<Partition>& partitions,
                     Console& console) const {
    if (!plan_path_.empty()) {
      WEFT_RETURN_IF_ERROR(RealFileSystem().WriteFileAtomically(plan_path_, PlanToYaml(plan)));
      *console.err << "plan written to " << Printable(plan_path_) << "\n";
    }
    if (!dump_folder_.empty()) {
      WEFT_ASSIGN_OR_RETURN(const int files,
                            DumpPartitions(RealFileSystem(), dump_folder_, partitions));
      *console.err << files << " graphs written to " << Printable(dump_folder_) << "\n";
    }
    return absl::OkStatus();
  }

  JobFlags flags_;
  std::string dump_folder_;
  std::string plan_path_;
  std::string format_ = "text";
};

}  // namespace

std::unique_ptr<Command> NewPlanCommand() { return std::make_unique<PlanCommand>(); }

}  // namespace weft
