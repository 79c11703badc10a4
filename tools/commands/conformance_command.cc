#include <map>
#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "platform/file_system.h"
#include "platform/status_macros.h"
#include "tensor/device_id.h"
#include "tensor/lookup/device_lookup.h"
#include "tools/commands/command.h"
#include "tools/flags/options.h"
#include "tools/models/conformance_suite.h"

namespace weft {
namespace {

class ConformanceCommand final : public Command {
 public:
  std::string name() const override { return "conformance"; }
  std::string summary() const override { return "Runs ONNX test folders and compares the outputs"; }
  std::string usage() const override { return "DIR... [--cases FILE.csv [--filter-ops A,B]]"; }
  std::vector<std::string> examples() const override {
    return {"graph_runner conformance onnx/backend/test/data/node",
            "graph_runner conformance node/test_conv_with_strides_padding --rtol 1e-4",
            "graph_runner conformance --cases cases.csv --filter-ops Conv,Gemm --json result.json"};
  }

  void AddOptions(CLI::App& app) override {
    app.add_option("DIR", folders_,
                   "folders to search: each folder with a model.onnx and test_data_set_K is a case")
        ->type_name("DIR...");
    app.add_option(
           "--cases", table_,
           "read the cases from a table with the columns path (relative to the table) and op")
        ->type_name("FILE.csv");
    app.add_option("--filter-ops", ops_,
                   "use only the rows of the table with one of these operators")
        ->type_name("A,B")
        ->delimiter(',');
    app.add_option("--rtol", tolerance_.relative,
                   "relative tolerance of floating-point outputs (default 1e-3)")
        ->type_name("X");
    app.add_option("--atol", tolerance_.absolute, "absolute tolerance (default 1e-7)")
        ->type_name("Y");
    app.add_option("--device", device_,
                   "where the cases run: cpu, cuda or cuda:NUMBER (default cpu). Cases that need "
                   "what a GPU has no kernel for are skipped")
        ->type_name("DEVICE");
    app.add_option("--json", json_file_, "write each case with its result and message to this file")
        ->type_name("FILE");
    AddOutputFormat(app, format_);
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    const absl::StatusOr<DeviceId> id = ParseDevice(device_);
    if (!id.ok()) {
      return UsageError(absl::StrCat("--device: ", std::string(id.status().message())));
    }
    WEFT_ASSIGN_OR_RETURN(const std::vector<ConformanceCase> cases, Cases());
    const absl::StatusOr<Device*> device = FindDevice(id->kind, id->index);
    if (!device.ok()) return WithExitCode(device.status(), ExitCode::kPlan);
    std::map<Outcome, int> counts;
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const ConformanceCase& one : cases) {
      const ConformanceResult result =
          RunConformanceCase(RealFileSystem(), one, tolerance_, **device);
      ++counts[result.outcome];
      if (result.outcome != Outcome::kPassed) Report(one, result, console);
      rows.push_back({{"case", one.name},
                      {"op", one.op},
                      {"outcome", std::string(OutcomeName(result.outcome))},
                      {"message", result.message}});
    }
    nlohmann::ordered_json report = {{"passed", counts[Outcome::kPassed]},
                                     {"failed", counts[Outcome::kFailed]},
                                     {"skipped", counts[Outcome::kSkipped]},
                                     {"cases", std::move(rows)}};
    const std::string text = report.dump(2, ' ', false, Replace()) + "\n";
    if (!json_file_.empty()) {
      WEFT_RETURN_IF_ERROR(
          WithExitCode(RealFileSystem().WriteFileAtomically(json_file_, text), ExitCode::kDisk));
    }
    if (format_ == "json") {
      *console.out << text;
    } else {
      *console.out << counts[Outcome::kPassed] << " passed, " << counts[Outcome::kFailed]
                   << " failed, " << counts[Outcome::kSkipped] << " skipped\n";
    }
    return counts[Outcome::kFailed] == 0 ? ExitCode::kOk : ExitCode::kInternal;
  }

 private:
  static nlohmann::json::error_handler_t Replace() {
    return nlohmann::json::error_handler_t::replace;
  }

  absl::StatusOr<std::vector<ConformanceCase>> Cases() const {
    std::vector<ConformanceCase> cases;
    if (table_.empty() && folders_.empty()) {
      return UsageError("no cases: give a DIR or --cases FILE.csv");
    }
    if (table_.empty() && !ops_.empty()) {
      return UsageError("--filter-ops needs --cases FILE.csv");
    }
    if (!table_.empty()) {
      auto rows = ReadConformanceTable(RealFileSystem(), table_, ops_);
      if (!rows.ok()) return WithExitCode(rows.status(), ExitCode::kData);
      cases = *std::move(rows);
    }
    for (const std::string& folder : folders_) {
      auto found = FindConformanceCases(folder);
      if (!found.ok()) return WithExitCode(found.status(), ExitCode::kData);
      cases.insert(cases.end(), found->begin(), found->end());
    }
    return cases;
  }

  // Results of a text run go to standard output; with --output json that holds the JSON alone.
  void Report(const ConformanceCase& one, const ConformanceResult& result, Console& console) const {
    std::ostream& stream = format_ == "json" ? *console.err : *console.out;
    stream << (result.outcome == Outcome::kFailed ? "failed " : "skipped ") << Printable(one.name)
           << ": " << Printable(result.message) << "\n";
  }

  std::vector<std::string> folders_;
  std::string table_;
  std::vector<std::string> ops_;
  std::string device_ = "cpu";
  std::string json_file_;
  std::string format_ = "text";
  Tolerance tolerance_;
};

}  // namespace

std::unique_ptr<Command> NewConformanceCommand() { return std::make_unique<ConformanceCommand>(); }

}  // namespace weft
