#include <ostream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "platform/file_system.h"
#include "platform/status_macros.h"
#include "tools/commands/command.h"
#include "tools/commands/command_json.h"
#include "tools/console/quantity.h"
#include "tools/flags/options.h"
#include "tools/flags/pattern_list.h"
#include "tools/flags/tie_flags.h"
#include "tools/reports/model_report.h"
#include "tools/reports/parameter_report.h"
#include "tools/reports/tie_text.h"
#include "training/graph/loss.h"

namespace weft {
namespace {

std::string OpsetsText(const std::map<std::string, int64_t>& opsets) {
  std::string text;
  for (const auto& [domain, version] : opsets) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", domain.empty() ? "ai.onnx" : domain, " ",
                    version);
  }
  return text;
}

std::string ProducerText(const ImportedModel& model) {
  if (model.producer_name.empty()) return "unknown";
  if (model.producer_version.empty()) return model.producer_name;
  return absl::StrCat(model.producer_name, " ", model.producer_version);
}

std::string DimensionsText(const std::map<std::string, int64_t>& dimensions) {
  std::string text;
  for (const auto& [name, size] : dimensions) {
    absl::StrAppend(&text, text.empty() ? " (with " : ", ", name, " = ", size);
  }
  return text.empty() ? "" : text + ")";
}

// As the file declares it: a Graph knows no maps.
std::string TypeText(const ImportedModel& model, const ValueDef& value) {
  const auto map = model.maps.find(value.name);
  return map != model.maps.end() ? map->second.ToString() : value.type.ToString();
}

Json ValuesJson(const ImportedModel& model, const std::vector<ValueId>& ids) {
  Json rows = Json::array();
  for (const ValueId id : ids) {
    const ValueDef& value = model.graph.value(id);
    rows.push_back({{"name", value.name}, {"type", TypeText(model, value)}});
  }
  return rows;
}

Json ProblemsJson(const std::vector<NodeProblem>& problems) {
  Json rows = Json::array();
  for (const NodeProblem& problem : problems) {
    rows.push_back({{"node", problem.node}, {"op", problem.op}, {"reason", problem.reason}});
  }
  return rows;
}

Json WarningsJson(const ImportedModel& model) {
  Json rows = Json::array();
  const std::string later = UnknownOpsetText(model);
  if (!later.empty()) rows.push_back(later);
  return rows;
}

Json ReportJson(const std::string& path, const ImportedModel& model, const ModelReport& report) {
  Json ops = Json::array();
  for (const OpRow& row : report.ops) {
    ops.push_back({{"op", row.op},
                   {"count", row.count},
                   {"flops", row.flops},
                   {"runs", AbilityName(row.runs)},
                   {"trains", AbilityName(row.trains)},
                   {"shards", AbilityName(row.shards)}});
  }
  Json json = {{"model", path},
               {"producer", model.producer_name},
               {"producer_version", model.producer_version},
               {"ir_version", model.ir_version},
               {"opsets", model.opsets},
               {"warnings", WarningsJson(model)},
               {"inputs", ValuesJson(model, model.graph.inputs())},
               {"outputs", ValuesJson(model, model.graph.outputs())},
               {"nodes", model.graph.num_nodes()},
               {"parameters", ParametersJson(report.parameters)},
               {"trainable_elements", report.trainable_elements},
               {"dimensions", report.dimensions},
               {"flops_per_sample", report.flops},
               {"flops_unknown", report.flops_unknown},
               {"ops", std::move(ops)},
               {"cannot_run", ProblemsJson(report.cannot_run)},
               {"cannot_train", ProblemsJson(report.cannot_train)}};
  return json;
}

void PrintValues(const std::string& title, const ImportedModel& model,
                 const std::vector<ValueId>& ids, std::ostream& out) {
  for (const ValueId id : ids) {
    const ValueDef& value = model.graph.value(id);
    out << title << " " << Printable(value.name) << ": " << Printable(TypeText(model, value))
        << "\n";
  }
}

void PrintParameters(const ModelReport& report, std::ostream& out) {
  int count = 0;
  for (const ParameterDecision& parameter : report.parameters) count += parameter.trainable;
  out << "trains: " << Quantity(static_cast<double>(report.trainable_elements)) << " numbers in "
      << count << " parameters\n";
  for (const ParameterDecision& parameter : report.parameters) {
    if (!parameter.trainable) continue;
    const auto shape = parameter.type.shape.ToConcrete();
    out << absl::StrFormat("  %-32s %-24s %10d\n", Printable(parameter.shown),
                           parameter.type.ToString(), shape ? shape->num_elements() : 0);
  }
  const int kept = static_cast<int>(report.parameters.size()) - count;
  if (kept == 0) return;
  out << "does not train: " << kept << "\n";
  for (const ParameterDecision& parameter : report.parameters) {
    if (parameter.trainable) continue;
    out << absl::StrFormat("  %-32s %-24s %s\n", Printable(parameter.shown),
                           parameter.type.ToString(), Printable(parameter.reason));
  }
}

void PrintOps(const ModelReport& report, std::ostream& out) {
  out << absl::StrFormat("%-32s %6s %10s  %-5s %-7s %s\n", "op", "count", "FLOPs", "runs", "trains",
                         "shards");
  for (const OpRow& row : report.ops) {
    out << absl::StrFormat("%-32s %6d %10s  %-5s %-7s %s\n", Printable(row.op), row.count,
                           Quantity(row.flops), std::string(AbilityName(row.runs)),
                           std::string(AbilityName(row.trains)),
                           std::string(AbilityName(row.shards)));
  }
}

void PrintProblems(const std::string& title, const std::vector<NodeProblem>& problems,
                   std::ostream& out) {
  out << title << (problems.empty() ? ": nothing\n" : ":\n");
  for (const NodeProblem& problem : problems) {
    out << "  " << Printable(problem.node) << " (" << Printable(problem.op)
        << "): " << Printable(problem.reason) << "\n";
  }
}

class InspectCommand final : public Command {
 public:
  std::string name() const override { return "inspect"; }
  std::string summary() const override {
    return "Prints what a model is, what of it trains, and what cannot run or train";
  }
  std::string usage() const override { return "MODEL.onnx [--output text|json]"; }
  std::vector<std::string> examples() const override {
    return {"graph_runner inspect gpt.onnx --dim sequence=64 --freeze 'embed.*'",
            "graph_runner inspect model.onnx --parameters",
            "graph_runner inspect model.onnx --output json"};
  }

  void AddOptions(CLI::App& app) override {
    app.add_option("MODEL", model_, "the model")->type_name("MODEL.onnx")->required();
    app.add_option("--dim", dimensions_, "size of a symbolic dimension, for the FLOPs (default 1)")
        ->type_name("NAME=SIZE");
    app.add_option("--freeze", options_.trainable.freeze,
                   "do not train these parameters ('*', '?'; @FILE: one pattern a line)")
        ->type_name("PATTERN|@FILE");
    app.add_option("--trainable", options_.trainable.trainable,
                   "train these parameters although the rules exclude them")
        ->type_name("PATTERN|@FILE");
    app.add_flag("--parameters", parameters_,
                 "print each parameter, whether it trains, and the reason, and nothing else");
    ties_flags_.Add(app, "ties");
    AddOutputFormat(app, format_);
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    WEFT_RETURN_IF_ERROR(WithExitCode(ParseDimensions(), ExitCode::kUsage));
    WEFT_RETURN_IF_ERROR(WithExitCode(ReadPatterns(), ExitCode::kUsage));
    auto model = ties_flags_.Import(model_, &ties_);
    if (!model.ok()) return WithExitCode(model.status(), ExitCode::kModel);
    const absl::StatusOr<std::string> loss = LossOutputByName(model->graph);
    if (loss.ok()) options_.trainable.loss = *loss;
    const auto report = DescribeModel(*model, options_);
    if (!report.ok()) return WithExitCode(report.status(), ExitCode::kUsage);
    if (format_ != "json" && parameters_) {
      *console.out << ParameterTable(report->parameters)
                   << Printable(ParameterSummary(report->parameters)) << "\n";
    } else if (format_ == "json") {
      Json json = ReportJson(model_, *model, *report);
      json["ties"] = TiesJson(ties_, model->graph);
      if (loss.ok()) json["loss_by_name"] = *loss;
      if (!loss.ok()) json["warnings"].push_back(std::string(loss.status().message()));
      *console.out << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    } else {
      Print(*model, *report, loss, *console.out);
    }
    return ExitCode::kOk;
  }

 private:
  absl::Status ReadPatterns() {
    TrainableOptions& trainable = options_.trainable;
    WEFT_ASSIGN_OR_RETURN(trainable.freeze,
                          ReadPatternList(RealFileSystem(), "--freeze", trainable.freeze));
    WEFT_ASSIGN_OR_RETURN(trainable.trainable,
                          ReadPatternList(RealFileSystem(), "--trainable", trainable.trainable));
    return absl::OkStatus();
  }

  absl::Status ParseDimensions() {
    for (const std::string& text : dimensions_) {
      const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
      int64_t size = 0;
      if (parts.size() != 2 || parts[0].empty() || !absl::SimpleAtoi(parts[1], &size) || size < 1) {
        return absl::InvalidArgumentError(
            absl::StrCat("--dim ", text, ": expected NAME=SIZE with a size of at least 1"));
      }
      options_.dimensions[parts[0]] = size;
    }
    return absl::OkStatus();
  }

  void Print(const ImportedModel& model, const ModelReport& report,
             const absl::StatusOr<std::string>& loss, std::ostream& out) const {
    out << "model " << Printable(model_) << "\n";
    out << "producer " << Printable(ProducerText(model)) << ", IR " << model.ir_version
        << ", opset " << Printable(OpsetsText(model.opsets)) << ", " << model.graph.num_nodes()
        << " nodes\n";
    const std::string later = UnknownOpsetText(model);
    if (!later.empty()) out << "warning: " << later << "\n";
    PrintValues("input", model, model.graph.inputs(), out);
    PrintValues("output", model, model.graph.outputs(), out);
    if (!loss.ok()) out << "warning: " << Printable(std::string(loss.status().message())) << "\n";
    if (loss.ok() && !loss->empty()) {
      out << "loss, unless --loss gives another: output " << Printable(*loss) << ", by its name\n";
    }
    PrintParameters(report, out);
    out << TieList(ties_, model.graph);
    if (report.flops_unknown.empty()) {
      out << "FLOPs per sample, forward: " << Quantity(report.flops)
          << DimensionsText(report.dimensions) << "\n";
    } else {
      out << "FLOPs per sample are not known: " << Printable(report.flops_unknown) << "\n";
    }
    PrintOps(report, out);
    PrintProblems("cannot be run", report.cannot_run, out);
    PrintProblems("cannot be trained", report.cannot_train, out);
  }

  std::string model_;
  std::vector<std::string> dimensions_;
  ModelReportOptions options_;
  bool parameters_ = false;
  TieFlags ties_flags_;
  TieReport ties_;
  std::string format_ = "text";
};

}  // namespace

std::unique_ptr<Command> NewInspectCommand() { return std::make_unique<InspectCommand>(); }

}  // namespace weft
