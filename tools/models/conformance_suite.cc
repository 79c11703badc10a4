#include "tools/models/conformance_suite.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "executor/program/forward_runner.h"
#include "onnx_import/importer.h"
#include "onnx_import/tensor_proto.h"
#include "platform/status_macros.h"
#include "tools/flags/named_files.h"
#include "training/graph/gradient_nodes.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr char kModelFile[] = "model.onnx";

// Why a data set failed, as an error; OK when it passed.
absl::Status Failure(const std::string& message) { return absl::UnknownError(message); }

absl::StatusOr<std::vector<std::string>> DataSets(FileSystem& files, const std::string& folder) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.ListDirectory(folder));
  std::vector<std::string> sets;
  for (const std::string& name : names) {
    if (absl::StartsWith(name, "test_data_set_")) sets.push_back(absl::StrCat(folder, "/", name));
  }
  return sets;
}

bool SameType(const Value& a, const Value& b) {
  return a.kind() == ValueKind::kTensor && b.kind() == ValueKind::kTensor &&
         a.tensor().dtype() == b.tensor().dtype() && a.tensor().shape() == b.tensor().shape();
}

absl::Status CheckOutputs(FileSystem& files, const Graph& graph, const std::string& folder,
                          const std::map<std::string, Value>& actual, const Tolerance& tolerance,
                          bool types_only) {
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const ValueDef& output = graph.value(graph.outputs()[i]);
    const std::string path = absl::StrCat(folder, "/output_", i, ".pb");
    if (!files.Exists(path)) continue;
    WEFT_ASSIGN_OR_RETURN(const NamedValue expected, ReadValueFile(files, path, output.type));
    const auto found = actual.find(output.name);
    if (found == actual.end())
      return Failure(absl::StrCat("output '", output.name, "' is missing"));
    const std::string difference = DescribeDifference(found->second, expected.value, tolerance);
    const bool is_free = types_only && SameType(found->second, expected.value);
    if (!difference.empty() && !is_free) {
      return Failure(absl::StrCat("output '", output.name, "' ", difference));
    }
  }
  return absl::OkStatus();
}

// A model that is ready to run.
struct RunnableModel {
  Graph graph;
  std::unique_ptr<ForwardRunner> runner;
};

absl::StatusOr<RunnableModel> Load(FileSystem& files, const std::string& path,
                                   std::map<std::string, SymbolicShape> input_shapes,
                                   Device& device) {
  ImportOptions options;
  options.parameters_as_variables = false;
  options.input_shapes = std::move(input_shapes);
  WEFT_ASSIGN_OR_RETURN(ImportedModel model, ImportModelFile(files, path, options));
  WEFT_RETURN_IF_ERROR(ReplaceGradientNodes(model.graph));
  RunnableModel loaded;
  loaded.graph = model.graph.Clone();
  ForwardRunner::Options run_options;
  run_options.device = &device;
  loaded.runner = std::make_unique<ForwardRunner>(std::move(model.graph), run_options);
  return loaded;
}

absl::Status RunDataSets(FileSystem& files, const ConformanceCase& conformance_case,
                         const std::vector<std::string>& sets, const Tolerance& tolerance,
                         Device& device) {
  WEFT_ASSIGN_OR_RETURN(RunnableModel model, Load(files, conformance_case.model, {}, device));
  for (const std::string& set : sets) {
    WEFT_ASSIGN_OR_RETURN(const auto inputs, ReadCaseInputs(files, model.graph, set));
    std::map<std::string, SymbolicShape> shapes = ShapesOtherThanDeclared(model.graph, inputs);
    if (!shapes.empty()) {
      WEFT_ASSIGN_OR_RETURN(model, Load(files, conformance_case.model, std::move(shapes), device));
    }
    WEFT_ASSIGN_OR_RETURN(const auto outputs, model.runner->Run(inputs));
    WEFT_RETURN_IF_ERROR(
        CheckOutputs(files, model.graph, set, outputs, tolerance, conformance_case.types_only));
  }
  return absl::OkStatus();
}

// The columns of a table by name; the fields hold no quotes or commas of their own.
absl::StatusOr<size_t> ColumnOf(const std::vector<std::string>& header, const std::string& name,
                                const std::string& path) {
  const auto found = std::find(header.begin(), header.end(), name);
  if (found != header.end()) return static_cast<size_t>(found - header.begin());
  return absl::InvalidArgumentError(
      absl::StrCat("table '", path, "': line 1 has no column '", name, "'"));
}

}  // namespace

std::string_view OutcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPassed:
      return "passed";
    case Outcome::kFailed:
      return "failed";
    case Outcome::kSkipped:
      return "skipped";
  }
  return "";
}

absl::StatusOr<std::vector<ConformanceCase>> FindConformanceCases(const std::string& folder) {
  std::error_code error;
  std::vector<ConformanceCase> cases;
  fs::recursive_directory_iterator entry(folder, error);
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("folder '", folder, "' cannot be read: ", error.message()));
  }
  const std::string self = fs::path(folder).lexically_normal().filename().string();
  for (; entry != fs::recursive_directory_iterator() && !error; entry.increment(error)) {
    if (entry->path().filename() != kModelFile) continue;
    const fs::path parent = entry->path().parent_path();
    const std::string name = parent.lexically_relative(folder).string();
    cases.push_back(
        {name == "." ? self : name, "", entry->path().string(), parent.string(), false});
  }
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("below folder '", folder, "' something cannot be read: ", error.message()));
  }
  std::sort(cases.begin(), cases.end(),
            [](const ConformanceCase& a, const ConformanceCase& b) { return a.name < b.name; });
  return cases;
}

absl::StatusOr<std::vector<ConformanceCase>> ReadConformanceTable(
    FileSystem& files, const std::string& path, const std::vector<std::string>& ops) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, files.ReadFile(path));
  const std::string folder = fs::path(path).parent_path().string();
  std::vector<ConformanceCase> cases;
  std::vector<std::string> header;
  size_t path_column = 0;
  size_t op_column = 0;
  int line = 0;
  for (const absl::string_view row : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    const std::vector<std::string> fields = absl::StrSplit(absl::StripAsciiWhitespace(row), ',');
    if (++line == 1) {
      header = fields;
      WEFT_ASSIGN_OR_RETURN(path_column, ColumnOf(header, "path", path));
      WEFT_ASSIGN_OR_RETURN(op_column, ColumnOf(header, "op", path));
      continue;
    }
    if (fields.size() != header.size()) {
      return absl::InvalidArgumentError(absl::StrCat("table '", path, "': line ", line, " has ",
                                                     fields.size(), " fields, expected ",
                                                     header.size()));
    }
    const std::string& op = fields[op_column];
    if (!ops.empty() && std::find(ops.begin(), ops.end(), op) == ops.end()) continue;
    const std::string test = (fs::path(folder) / fields[path_column]).string();
    cases.push_back({fields[path_column], op, absl::StrCat(test, "/", kModelFile), test, false});
  }
  return cases;
}

absl::StatusOr<std::map<std::string, Value>> ReadCaseInputs(FileSystem& files, const Graph& graph,
                                                            const std::string& folder) {
  std::map<std::string, Value> inputs;
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const ValueDef& input = graph.value(graph.inputs()[i]);
    const std::string path = absl::StrCat(folder, "/input_", i, ".pb");
    if (input.type.kind == ValueKind::kOptional && !files.Exists(path)) {
      inputs[input.name] = Value::Optional(nullptr);
      continue;
    }
    WEFT_ASSIGN_OR_RETURN(NamedValue read, ReadValueFile(files, path, input.type));
    inputs[input.name] = std::move(read.value);
  }
  return inputs;
}

ConformanceResult RunConformanceCase(FileSystem& files, const ConformanceCase& conformance_case,
                                     const Tolerance& tolerance, Device& device) {
  const auto sets = DataSets(files, conformance_case.folder);
  if (!sets.ok()) return {Outcome::kFailed, std::string(sets.status().message())};
  if (sets->empty()) return {Outcome::kSkipped, "no test_data_set_K beside the model"};
  const absl::Status status = RunDataSets(files, conformance_case, *sets, tolerance, device);
  if (status.ok()) return {Outcome::kPassed, ""};
  if (absl::IsUnimplemented(status) && device.info().kind != DeviceKind::kCpu) {
    return {Outcome::kSkipped, std::string(status.message())};
  }
  return {Outcome::kFailed, std::string(status.message())};
}

}  // namespace weft
