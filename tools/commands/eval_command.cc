#include <ostream>
#include <utility>

#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "platform/clock.h"
#include "platform/status_macros.h"
#include "tools/commands/command.h"
#include "tools/flags/job_flags.h"
#include "tools/flags/options.h"
#include "tools/jobs/cluster_devices.h"
#include "tools/jobs/worker_group.h"
#include "tools/reports/progress_line.h"
#include "tools/reports/training_report.h"
#include "training/graph/metric.h"
#include "training/job/trainer.h"

namespace weft {
namespace {

class EvalCommand final : public Command {
 public:
  std::string name() const override { return "eval"; }
  std::string summary() const override { return "Evaluates a model on a data set"; }
  std::string usage() const override {
    return "MODEL.onnx --data NAME=FILE --labels FILE [--metric accuracy,loss]";
  }
  std::vector<std::string> examples() const override {
    return {
        "graph_runner eval trained.onnx --data x=test.npy --labels labels.npy",
        "graph_runner eval trained.onnx --data x=x.gz --labels y.gz --metric accuracy,top5,loss",
        "graph_runner eval prices.onnx --data x=x.npy --labels y.npy --loss mse --metric r2,mae"};
  }

  void AddOptions(CLI::App& app) override {
    flags_.AddModel(app);
    flags_.AddData(app, /*required=*/true);
    app.add_option("--metric", metrics_,
                   "accuracy, topK, auc, loss, perplexity, mae, mse or r2 (default accuracy)")
        ->type_name("NAME[,NAME]")
        ->delimiter(',');
    flags_.AddLoss(app);
    flags_.AddPlacement(app);
    AddOutputFormat(app, format_);
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    for (const std::string& metric : metrics_) {
      WEFT_RETURN_IF_ERROR(WithExitCode(CheckMetric(metric), ExitCode::kUsage));
    }
    WEFT_ASSIGN_OR_RETURN(LossSpec loss, flags_.Loss());
    WEFT_ASSIGN_OR_RETURN(const ImportedModel model, flags_.LoadModel());
    WEFT_RETURN_IF_ERROR(flags_.TakeLoss(model.graph, loss));
    if (loss.by_name) *console.err << Printable(LossByNameText(loss)) << "\n";
    if (metrics_.empty()) metrics_ = {loss.is_output() ? "loss" : "accuracy"};
    WEFT_ASSIGN_OR_RETURN(const auto data, flags_.OpenValidation());
    *console.err << Printable(DataNotes(*data));
    WEFT_ASSIGN_OR_RETURN(const JobSpec spec, flags_.Job());
    WEFT_RETURN_IF_ERROR(CheckClusterDevices(spec.cluster));
    WEFT_ASSIGN_OR_RETURN(const PreparedJob job, Prepare(model, loss, spec, data));
    for (const std::string& note : job.notes) {
      *console.err << "note   " << Printable(note) << "\n";
    }
    WEFT_ASSIGN_OR_RETURN(const auto workers, WorkerGroup::Start(flags_, spec, job, console));
    ProgressLine progress(console, RealClock(), {"eval", "samples", /*loss=*/false},
                          data->steps_per_epoch());
    const auto values = Evaluate(workers->coordinator(), job, [&](const TrainProgress& done) {
      progress.Step(done.step, 0, done.samples);
    });
    progress.Finish();
    if (!values.ok()) return workers->Explain(values.status());
    Report(*values, console);
    return ExitCode::kOk;
  }

 private:
  absl::StatusOr<PreparedJob> Prepare(const ImportedModel& model, const LossSpec& loss,
                                      const JobSpec& spec,
                                      const std::shared_ptr<const DataSet>& data) const {
    Graph bound = model.graph.Clone();
    WEFT_RETURN_IF_ERROR(WithExitCode(BindInputs(bound, *data), ExitCode::kData));
    auto graph = BuildEvaluationGraph(bound, loss, metrics_, data->batch_of(0));
    if (!graph.ok()) return WithExitCode(graph.status(), ExitCode::kModel);
    WEFT_RETURN_IF_ERROR(CheckDataFitsGraph(*std::move(graph), *data));
    auto job = PrepareEvaluation(model.graph, loss, metrics_, spec, data);
    if (!job.ok()) return WithExitCode(job.status(), ExitCode::kPlan);
    return job;
  }

  void Report(const std::map<std::string, double>& values, Console& console) const {
    if (format_ == "json") {
      *console.out << nlohmann::ordered_json(values).dump(2) << "\n";
      return;
    }
    for (const std::string& metric : metrics_) {
      const auto value = values.find(metric);
      if (value == values.end()) continue;
      *console.out << absl::StrFormat("%s %.9g\n", metric, value->second);
    }
  }

  JobFlags flags_;
  std::vector<std::string> metrics_;
  std::string format_ = "text";
};

}  // namespace

std::unique_ptr<Command> NewEvalCommand() { return std::make_unique<EvalCommand>(); }

}  // namespace weft
