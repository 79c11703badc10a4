#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "platform/file_system.h"
#include "tools/commands/command.h"
#include "tools/flags/options.h"
#include "tools/reports/model_check.h"

namespace weft {
namespace {

class CheckCommand final : public Command {
 public:
  std::string name() const override { return "check"; }
  std::string summary() const override {
    return "Lists what of a model will not run or train, with the repair";
  }
  std::string usage() const override { return "MODEL.onnx [--trainable]"; }
  std::vector<std::string> examples() const override {
    return {"graph_runner check model.onnx", "graph_runner check model.onnx --trainable",
            "graph_runner check model.onnx --trainable --output json"};
  }

  void AddOptions(CLI::App& app) override {
    app.add_option("MODEL", model_, "the model")->type_name("MODEL.onnx")->required();
    app.add_flag("--trainable", trainable_, "also list the obstacles to training");
    AddOutputFormat(app, format_);
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    auto model = ImportModelFile(RealFileSystem(), model_);
    if (!model.ok()) return WithExitCode(model.status(), ExitCode::kModel);
    const auto findings = CheckModel(*model, trainable_);
    if (!findings.ok()) return WithExitCode(findings.status(), ExitCode::kModel);
    int errors = 0;
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const CheckFinding& finding : *findings) {
      errors += finding.severity == Severity::kError;
      const std::string severity(SeverityName(finding.severity));
      if (format_ == "json") {
        rows.push_back({{"severity", severity},
                        {"nodes", finding.nodes},
                        {"count", finding.count},
                        {"what", finding.what},
                        {"repair", finding.repair}});
      } else {
        Print(severity, finding, console);
      }
    }
    if (format_ == "json") {
      *console.out << rows.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    } else if (errors > 0) {
      *console.out << "it will not " << (trainable_ ? "train" : "run") << ": errors " << errors
                   << "\n";
    } else {
      *console.out << "it runs" << (trainable_ ? " and trains" : "") << "\n";
    }
    return errors == 0 ? ExitCode::kOk : ExitCode::kModel;
  }

 private:
  static void Print(const std::string& severity, const CheckFinding& finding, Console& console) {
    *console.out << severity << ": " << Printable(finding.what) << "\n";
    const int more = finding.count - static_cast<int>(finding.nodes.size());
    if (!finding.nodes.empty()) {
      *console.out << "  at      " << Printable(absl::StrJoin(finding.nodes, ", "))
                   << (more > 0 ? absl::StrCat(" and ", more, " more") : "") << "\n";
    }
    *console.out << "  repair  " << Printable(finding.repair) << "\n";
  }

  std::string model_;
  bool trainable_ = false;
  std::string format_ = "text";
};

}  // namespace

std::unique_ptr<Command> NewCheckCommand() { return std::make_unique<CheckCommand>(); }

}  // namespace weft
