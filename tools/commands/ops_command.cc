#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "onnx_import/importer.h"
#include "ops/op_support.h"
#include "tools/commands/command.h"
#include "tools/flags/options.h"

namespace weft {
namespace {

struct Row {
  std::string op;
  std::string domain;
  std::string cpu;
  std::string cuda;
  std::string gradient;
  std::string shards;
  std::string dtypes;  // of the first input
};

std::string DTypes(const OpSchema& schema) {
  if (schema.inputs().empty() || schema.inputs().front().dtypes.empty()) return "any";
  std::vector<std::string> names;
  for (const DType dtype : schema.inputs().front().dtypes) {
    names.emplace_back(DTypeName(dtype));
  }
  return absl::StrJoin(names, " ");
}

std::vector<Row> Rows(bool internal) {
  std::vector<Row> rows;
  for (const OpSchema* schema : OpRegistry::Global().All()) {
    if (schema->op_class() != OpClass::kCompute) continue;
    if (!internal && schema->domain() == kWeftDomain) continue;
    rows.push_back({schema->name(), schema->domain().empty() ? "ai.onnx" : schema->domain(),
                    std::string(RunSupportName(RunSupportOf(*schema, DeviceKind::kCpu))),
                    std::string(RunSupportName(RunSupportOf(*schema, DeviceKind::kCuda))),
                    TrainSupportText(*schema), Shards(*schema) ? "yes" : "no", DTypes(*schema)});
  }
  return rows;
}

// Which versions of the standard the importer takes.
std::string Versions() {
  const KnownVersions opsets = KnownOpsets();
  const KnownVersions files = KnownIrVersions();
  return absl::StrCat(
      "Versions: operator sets ", opsets.oldest, " to ", opsets.newest,
      " of ai.onnx, all of ai.onnx.ml (1 to 5), 1 of ai.onnx.preview.training and of "
      "com.microsoft;\nfiles of IR version ",
      files.oldest, " to ", files.newest, ". That is up to ONNX 1.23. A model of a later set of ",
      "ai.onnx is taken, too: each operator in its form of ", opsets.newest,
      ".\n`check` and `inspect` then give a warning. A node that does not fit that form is an "
      "error, which names the operator set.\n\n");
}

class OpsCommand final : public Command {
 public:
  std::string name() const override { return "ops"; }
  std::string summary() const override {
    return "Lists the operators of this build: kernels, gradients and sharding";
  }
  std::string usage() const override { return "[--output text|json|markdown]"; }
  std::vector<std::string> examples() const override {
    return {"graph_runner ops", "graph_runner ops --output json",
            "graph_runner ops --op_library swiglu.so"};
  }

  void AddOptions(CLI::App& app) override {
    app.add_option("--output", format_, "text, json for programs, or markdown")
        ->type_name("text|json|markdown")
        ->check(CLI::IsMember({"text", "json", "markdown"}));
    app.add_flag("--internal", internal_,
                 "also list operators that only Weft itself inserts (ai.weft)");
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    const std::vector<Row> rows = Rows(internal_);
    if (format_ == "json") {
      PrintJson(rows, console);
    } else if (format_ == "markdown") {
      PrintMarkdown(rows, console);
    } else {
      PrintText(rows, console);
    }
    return ExitCode::kOk;
  }

 private:
  static void PrintJson(const std::vector<Row>& rows, Console& console) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const Row& row : rows) {
      json.push_back({{"op", row.op},
                      {"domain", row.domain},
                      {"cpu", row.cpu},
                      {"cuda", row.cuda},
                      {"gradient", row.gradient},
                      {"shards", row.shards},
                      {"dtypes", row.dtypes}});
    }
    *console.out << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  }

  static void PrintText(const std::vector<Row>& rows, Console& console) {
    const auto line = [&](const Row& row) {
      *console.out << absl::StrFormat("%-44s %-9s %-9s %-6s %s\n",
                                      Printable(absl::StrCat(row.domain, "::", row.op)), row.cpu,
                                      row.cuda, row.shards, row.gradient);
    };
    *console.out << absl::StrFormat("%-44s %-9s %-9s %-6s %s\n", "operator", "cpu", "cuda",
                                    "shards", "gradient");
    for (const Row& row : rows) line(row);
    *console.out << rows.size() << " operators\n";
  }

  static void PrintMarkdown(const std::vector<Row>& rows, Console& console) {
    *console.out
        << "# Operators\n\n"
           "Made by `graph_runner ops --output markdown`; a test compares the two.\n\n"
           "Runs as: **kernel**, one of its own; **alias**, nothing to compute; **values**, on the "
           "host with outputs\nmade at run time (strings, sequences, subgraphs, shapes that depend "
           "on data); **expanded**, as simpler\noperators. Gradient: by a **rule** of its own, "
           "**expanded**, **none** by nature, or **missing**, each with the\nreason. Shards: "
           "whether it "
           "can be split over devices; the others run whole on each.\n\n"
        << Versions()
        << "| domain | operator | CPU | CUDA | gradient | shards | types of the first input |\n"
           "|---|---|---|---|---|---|---|\n";
    for (const Row& row : rows) {
      *console.out << "| " << row.domain << " | " << row.op << " | " << row.cpu << " | " << row.cuda
                   << " | " << row.gradient << " | " << row.shards << " | " << row.dtypes << " |\n";
    }
    *console.out << "\n" << rows.size() << " operators.\n";
  }

  std::string format_ = "text";
  bool internal_ = false;
};

}  // namespace

std::unique_ptr<Command> NewOpsCommand() { return std::make_unique<OpsCommand>(); }

}  // namespace weft
