#include <ostream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "onnx_import/exporter.h"
#include "platform/file_system.h"
#include "platform/status_macros.h"
#include "tools/commands/command.h"
#include "tools/flags/options.h"
#include "tools/flags/train_flags.h"
#include "tools/jobs/training_trial.h"
#include "tools/jobs/unfolding.h"
#include "tools/reports/model_check.h"
#include "tools/reports/parameter_report.h"
#include "tools/reports/tie_text.h"
#include "tools/reports/training_report.h"

namespace weft {
namespace {

constexpr char kNotTriedRepair[] = "give --data and --labels";

class CheckCommand final : public Command {
 public:
  std::string name() const override { return "check"; }
  std::string summary() const override {
    return "Lists what of a model will not run or train, with the repair";
  }
  std::string usage() const override { return "MODEL.onnx [--trainable]"; }
  std::vector<std::string> examples() const override {
    return {
        "graph_runner check model.onnx",
        "graph_runner check model.onnx --trainable --loss mse --dim length=128",
        "graph_runner check model.onnx --trainable --data x=x.npy --labels y.npy --output json"};
  }

  void AddOptions(CLI::App& app) override {
    AddTrainingOptions(app);
    app.add_flag("--trainable", trainable_,
                 "also list the obstacles to training, and make the step that train with these "
                 "flags would run");
    app.add_option("--dim", dims_,
                   "size of a symbolic dimension of the inputs, where there is no --data")
        ->type_name("NAME=SIZE");
    app.add_option("--repaired-out", repaired_path_,
                   "write the model as --repair makes it, measured on --data, to this file")
        ->type_name("OUT.onnx");
    app.get_option("--output")->group(kMainOptions);
    app_ = &app;
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    *console.err << flags_.NoteWithoutEffect(*app_);
    TieReport ties;
    WEFT_RETURN_IF_ERROR(WriteRepaired(console));
    const bool as_train = trainable_ || flags_.job().repair().unfolds();
    auto model = as_train ? flags_.job().ImportFile(&ties, nullptr)
                          : ImportModelFile(RealFileSystem(), flags_.job().model());
    if (!model.ok()) return WithExitCode(model.status(), ExitCode::kModel);
    std::vector<ParameterDecision> decisions;
    // Nobody asks for the loss of a model that only runs.
    const auto parameters = trainable_ ? flags_.job().Trainable(model->graph) : TrainableOptions();
    if (!parameters.ok()) return parameters.status();
    auto findings = CheckModel(*model, trainable_, *parameters, &decisions);
    if (!findings.ok()) return WithExitCode(findings.status(), ExitCode::kModel);
    if (trainable_) WEFT_RETURN_IF_ERROR(AddLoss(model->graph, *findings));
    AddTies(TiesThatTrain(ties, model->graph), *findings);
    TrainingTrial trial;
    if (trainable_) {
      WEFT_ASSIGN_OR_RETURN(trial, Try());
      if (trial.not_tried.empty()) findings = JoinRefusal(*std::move(findings), trial.refusal);
    }
    int errors = 0;
    for (const CheckFinding& finding : *findings) errors += finding.severity == Severity::kError;
    if (flags_.prints_json()) {
      PrintJson(*findings, trial, console);
    } else {
      for (const CheckFinding& finding : *findings) Print(finding, console);
      if (trainable_) *console.out << Printable(ParameterSummary(decisions)) << "\n";
      *console.out << Printable(Summary(errors, trial)) << "\n";
    }
    return errors == 0 ? ExitCode::kOk : ExitCode::kModel;
  }

 private:
  // Those of train that say what a step is. Its --trainable PATTERN has the name of ours.
  void AddTrainingOptions(CLI::App& app) {
    flags_.AddForPlanning(app, TrainFlags::Looks::kAtOneWorker, {"--trainable"});
    for (CLI::Option* const option : app.get_options()) {
      const bool is_main = option->get_group() == kMainOptions && !option->get_positional();
      if (is_main) option->group("training, as train has them");
    }
  }

  // The model as --repair makes it, with the statistics of the data.
  absl::Status WriteRepaired(Console& console) const {
    if (repaired_path_.empty()) return absl::OkStatus();
    if (!flags_.job().repair().unfolds() || !flags_.job().has_data()) {
      return UsageError(
          "--repaired-out writes a model that --repair has repaired by its training data: give "
          "--repair unfold-bn and --data NAME=FILE");
    }
    UnfoldingReport report;
    WEFT_ASSIGN_OR_RETURN(ModelFile file, LoadFile(RepairOnData(flags_, report)));
    auto model = ImportModel(file);
    if (!model.ok()) return WithExitCode(model.status(), ExitCode::kModel);
    const auto saved = SaveTrained(RealFileSystem(), repaired_path_, *model, {});
    if (!saved.ok()) return WithExitCode(saved.status(), ExitCode::kDisk);
    *console.err << report.Text() << "model with it written to " << Printable(repaired_path_)
                 << "\n";
    return absl::OkStatus();
  }

  absl::StatusOr<ModelFile> LoadFile(const FileRepair& repair) const {
    auto file = ModelFile::Load(RealFileSystem(), flags_.job().model());
    if (!file.ok()) return WithExitCode(file.status(), ExitCode::kModel);
    return repair(*std::move(file));
  }

  absl::StatusOr<TrainingTrial> Try() const {
    TrialSizes sizes;
    sizes.batch_given = app_->get_option("--batch")->count() > 0;
    for (const std::string& text : dims_) {
      const size_t equals = text.rfind('=');
      int64_t size = 0;
      const bool fits = equals != std::string::npos && equals > 0 &&
                        absl::SimpleAtoi(text.substr(equals + 1), &size) && size > 0;
      if (!fits) {
        return UsageError(absl::StrCat("--dim ", text,
                                       ": expected NAME=SIZE with a size of 1 or "
                                       "more, for example length=128"));
      }
      sizes.by_name[text.substr(0, equals)] = size;
    }
    return TryTraining(flags_, sizes);
  }

  std::string Summary(int errors, const TrainingTrial& trial) const {
    const std::string with =
        trial.assumed.empty()
            ? ""
            : absl::StrCat(" (assumed: ", absl::StrJoin(trial.assumed, ", "), ")");
    if (errors > 0) {
      return absl::StrCat("it will not ", trainable_ ? "train" : "run", ": errors ", errors, with);
    }
    if (!trainable_) return "it runs";
    if (trial.not_tried.empty()) return absl::StrCat("it runs and trains", with);
    return absl::StrCat("it runs; ", NotTriedText(trial), "; ", kNotTriedRepair);
  }

  static std::string NotTriedText(const TrainingTrial& trial) {
    return absl::StrCat("whether it trains was not tried: ", trial.not_tried);
  }

  // What the loss is, where its name decides.
  absl::Status AddLoss(const Graph& model, std::vector<CheckFinding>& findings) const {
    WEFT_ASSIGN_OR_RETURN(LossSpec loss, flags_.job().Loss());
    WEFT_RETURN_IF_ERROR(flags_.job().TakeLoss(model, loss));
    const std::string text = LossByNameText(loss);
    if (text.empty()) return absl::OkStatus();
    findings.push_back(
        {Severity::kNote, {}, 0, text, "nothing, if that is what you mean; --loss gives another"});
    return absl::OkStatus();
  }

  static void AddTies(const TieReport& ties, std::vector<CheckFinding>& findings) {
    const std::string summary = TieSummary(ties);
    if (!summary.empty()) {
      findings.push_back({Severity::kNote,
                          {},
                          0,
                          summary,
                          "nothing, if that is what you mean; graph_runner inspect lists them, "
                          "--untie and --tie change it"});
    }
    for (const std::string& copy : CopyTexts(ties)) {
      findings.push_back({Severity::kNote, {}, 0, copy, "train --tie auto trains them as one"});
    }
  }

  // The findings; behind them, where training was not tried, a warning that has the reason as
  // "not_tried".
  static void PrintJson(const std::vector<CheckFinding>& findings, const TrainingTrial& trial,
                        Console& console) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const CheckFinding& finding : findings) {
      rows.push_back({{"severity", std::string(SeverityName(finding.severity))},
                      {"nodes", finding.nodes},
                      {"count", finding.count},
                      {"what", finding.what},
                      {"repair", finding.repair}});
    }
    if (!trial.not_tried.empty()) {
      rows.push_back({{"severity", std::string(SeverityName(Severity::kWarning))},
                      {"nodes", nlohmann::ordered_json::array()},
                      {"count", 0},
                      {"what", NotTriedText(trial)},
                      {"repair", kNotTriedRepair},
                      {"not_tried", trial.not_tried}});
    }
    *console.out << rows.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  }

  static void Print(const CheckFinding& finding, Console& console) {
    *console.out << SeverityName(finding.severity) << ": " << Printable(finding.what) << "\n";
    const int more = finding.count - static_cast<int>(finding.nodes.size());
    if (!finding.nodes.empty()) {
      *console.out << "  at      " << Printable(absl::StrJoin(finding.nodes, ", "))
                   << (more > 0 ? absl::StrCat(" and ", more, " more") : "") << "\n";
    }
    *console.out << "  repair  " << Printable(finding.repair) << "\n";
  }

  TrainFlags flags_;
  bool trainable_ = false;
  std::vector<std::string> dims_;
  std::string repaired_path_;
  const CLI::App* app_ = nullptr;  // the parser's, which outlives Run
};

}  // namespace

std::unique_ptr<Command> NewCheckCommand() { return std::make_unique<CheckCommand>(); }

}  // namespace weft
