#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "platform/file_system.h"
#include "platform/status_macros.h"
#include "tools/commands/command.h"
#include "tools/flags/train_flags.h"
#include "tools/jobs/cluster_devices.h"
#include "tools/jobs/planned_step.h"
#include "tools/reports/model_plan.h"
#include "tools/reports/training_report.h"
#include "training/verification/plan_verification.h"

namespace weft {
namespace {

class VerifyCommand final : public Command {
 public:
  std::string name() const override { return "verify"; }
  std::string summary() const override {
    return "Compares one step of a plan, run on threads here, with one process, value by value";
  }
  std::string usage() const override {
    return "MODEL.onnx --data NAME=FILE --labels FILE --local N --parallel dp=2,pp=2";
  }
  std::vector<std::string> examples() const override {
    return {"graph_runner verify m.onnx --data x=x.npy --labels y.npy --local 4 --parallel pp=4",
            "graph_runner verify m.onnx --data x=x.npy --labels y.npy --cluster c.yaml "
            "--plan p.yaml",
            "graph_runner verify m.onnx --data x=x.npy --labels y.npy --local 2 --batch 13"};
  }

  void AddOptions(CLI::App& app) override {
    flags_.AddForPlanning(app, TrainFlags::Looks::kAtSteps, {});
    flags_.DefaultToReplicas();
    flags_.RequireData(app);
    app_ = &app;
    app.add_option("--tolerance", options_.tolerance,
                   "largest difference, relative to a value's largest magnitude (default 1e-4)")
        ->type_name("X")
        ->check(CLI::PositiveNumber)
        ->group("results");
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    *console.err << flags_.NoteWithoutEffect(*app_);
    WEFT_ASSIGN_OR_RETURN(PlannedInput input, PlannedInputOf(flags_));
    TrainingSpec& training = input.training;
    WEFT_ASSIGN_OR_RETURN(const ImportedModel model, flags_.job().LoadModel());
    WEFT_RETURN_IF_ERROR(flags_.job().TakeLoss(model.graph, training.loss));
    if (training.loss.by_name) *console.err << Printable(LossByNameText(training.loss)) << "\n";
    WEFT_ASSIGN_OR_RETURN(const auto data, AtLongest(input.data));
    WEFT_ASSIGN_OR_RETURN(JobSpec spec, flags_.job().Job());
    WEFT_RETURN_IF_ERROR(CheckClusterDevices(spec.cluster));
    WEFT_RETURN_IF_ERROR(UseModelPlan(model, flags_.job(), console, spec));
    auto planned = PrepareTraining(model.graph, training, spec, data);
    if (!planned.ok()) return WithExitCode(planned.status(), ExitCode::kPlan);
    auto single = PrepareSingle(model.graph, training, planned->plan, data);
    if (!single.ok()) return WithExitCode(single.status(), ExitCode::kPlan);
    *console.err << "plan   " << planned->plan.mesh.ToString() << ", "
                 << planned->plan.micro_batches << " micro-batches\n"
                 << std::flush;
    WEFT_ASSIGN_OR_RETURN(
        const VerifyReport report,
        VerifyPlan(RealFileSystem(), *std::move(planned), *std::move(single), options_));
    flags_.prints_json() ? PrintJson(report, console) : PrintText(report, console);
    return report.first.has_value() ? ExitCode::kInternal : ExitCode::kOk;
  }

 private:
  // What is padded to several lengths, to the longest: one step of one program is verified.
  static absl::StatusOr<std::shared_ptr<const DataSet>> AtLongest(
      const std::shared_ptr<const DataSet>& data) {
    if (data->shapes().front().length == 0) return data;
    DataSpec spec = data->spec();
    for (DataSpec::File& file : spec.files) {
      if (!file.padding.empty()) file.padding.lengths = {file.padding.longest()};
    }
    return DataSet::Open(RealFileSystem(), spec);
  }

  void PrintText(const VerifyReport& report, Console& console) const {
    if (!report.first.has_value()) {
      *console.out << absl::StrFormat(
          "equal: %d values compared, the worst at %.2g of the tolerance of %g; %d left out\n",
          report.compared, report.worst, options_.tolerance, report.left_out);
      return;
    }
    const ValueDifference& first = *report.first;
    *console.out << absl::StrFormat("different: %d of %d values\n", report.different,
                                    report.compared)
                 << "first     " << Printable(first.op) << " '" << Printable(first.node) << "'\n"
                 << "value     '" << Printable(first.value) << "' " << first.shape << "\n"
                 << "worker    " << first.rank
                 << (first.micro_batch < 0 ? std::string(", once per step")
                                           : absl::StrCat(", micro-batch ", first.micro_batch))
                 << "\n"
                 << absl::StrFormat("largest   %.6g, allowed %.6g\n", first.largest, first.allowed);
  }

  void PrintJson(const VerifyReport& report, Console& console) const {
    nlohmann::ordered_json json = {{"equal", !report.first.has_value()},
                                   {"compared", report.compared},
                                   {"left_out", report.left_out},
                                   {"different", report.different},
                                   {"tolerance", options_.tolerance}};
    if (report.first.has_value()) {
      const ValueDifference& first = *report.first;
      json["first"] = {{"node", first.node},       {"op", first.op},
                       {"value", first.value},     {"rank", first.rank},
                       {"shape", first.shape},     {"micro_batch", first.micro_batch},
                       {"largest", first.largest}, {"allowed", first.allowed}};
    }
    *console.out << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  }

  TrainFlags flags_;
  const CLI::App* app_ = nullptr;  // the parser's, which outlives Run
  PlanVerificationOptions options_;
};

}  // namespace

std::unique_ptr<Command> NewVerifyCommand() { return std::make_unique<VerifyCommand>(); }

}  // namespace weft
