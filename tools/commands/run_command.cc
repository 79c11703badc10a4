#include <algorithm>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "executor/program/forward_runner.h"
#include "nlohmann/json.hpp"
#include "onnx_import/importer.h"
#include "platform/clock.h"
#include "platform/cpu_info.h"
#include "platform/file_system.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "platform/text/nearest_name.h"
#include "tensor/cpu_device.h"
#include "tools/commands/command.h"
#include "tools/flags/named_files.h"
#include "tools/flags/options.h"
#include "tools/flags/run_limits.h"
#include "tools/models/random_inputs.h"
#include "tools/models/value_files.h"
#include "tools/reports/map_json.h"
#include "tools/reports/run_profile.h"
#include "training/graph/gradient_nodes.h"

namespace weft {
namespace {

constexpr size_t kShownArgmaxes = 20;
constexpr size_t kShownMaps = 5;

// For [N,classes]: the class with the largest value, per row; empty for other values.
std::vector<int64_t> Argmaxes(const Value& value) {
  std::vector<int64_t> classes;
  if (value.kind() != ValueKind::kTensor) return classes;
  const Tensor& tensor = value.tensor();
  if (tensor.shape().rank() != 2 || tensor.shape().dim(1) < 2) return classes;
  if (!IsFloatingPoint(tensor.dtype())) return classes;
  const auto values = ToDoubles(tensor);
  if (!values.ok()) return classes;
  const int64_t width = tensor.shape().dim(1);
  for (auto row = values->begin(); row != values->end(); row += width) {
    classes.push_back(std::max_element(row, row + width) - row);
  }
  return classes;
}

struct WrittenOutput {
  std::string name;
  std::string path;
  Value value;
  std::optional<MapType> map;
};

// "float32", "sequence", "optional".
std::string TypeName(const Value& value) {
  if (value.kind() == ValueKind::kSequence) return "sequence";
  if (value.kind() == ValueKind::kOptional) return "optional";
  return std::string(DTypeName(value.tensor().dtype()));
}

class RunCommand final : public Command {
 public:
  std::string name() const override { return "run"; }
  std::string summary() const override {
    return "Runs a model once on given or random inputs and writes its outputs to files";
  }
  std::string usage() const override {
    return "MODEL.onnx --input NAME=FILE ... | --random --output-dir DIR";
  }
  std::vector<std::string> examples() const override {
    return {"graph_runner run model.onnx --input x=images.npy --output-dir out",
            "graph_runner run lenet.onnx --input x=t10k-images-idx3-ubyte.gz --samples 5 "
            "--output-dir out",
            "graph_runner run model.onnx --random --dim N=4 --profile --output-dir out"};
  }

  void AddOptions(CLI::App& app) override {
    app.add_option("MODEL", model_, "the model")->type_name("MODEL.onnx")->required();
    app.add_option("--input", inputs_,
                   "file of a graph input: .npy, .npz[:ARRAY], .pb (ONNX's) or idx, plain or .gz; "
                   ".json for a map. An .npz without NAME feeds every input that has an array")
        ->type_name("NAME=FILE");
    app.add_flag("--random", random_, "use random values for inputs without a file");
    app.add_option(
           "--output-dir", output_folder_,
           "write each output to NAME.npy in this folder, to NAME.pb if .npy cannot hold it, to "
           "NAME.json for a map")
        ->type_name("DIR")
        ->required();
    app.add_option("--output-name", output_names_,
                   "write this value instead of the model's outputs; may be repeated")
        ->type_name("NAME");
    app.add_option("--samples", samples_, "run the first N samples (axis 0) of .npy and idx files")
        ->type_name("N")
        ->check(AtLeastOne);
    app.add_flag("--no-scale", no_scale_,
                 "feed bytes to a float input as 0 to 255, not as byte / 255");
    app.add_option("--threads", threads_, "threads of the computation (default: all cores)")
        ->type_name("N")
        ->check(AtLeastOne);
    app.add_flag("--profile", profile_, "also print the time of each operator and node");
    AddOutputFormat(app, format_);
    app.add_option("--dim", dims_, "size of a symbolic dimension of random inputs (default 1)")
        ->type_name("NAME=SIZE")
        ->group("random inputs and profile");
    app.add_option("--seed", seed_, "seed of random inputs (default 0)")
        ->type_name("S")
        ->group("random inputs and profile");
    app.add_option(
           "--repeat", repeats_,
           "run N times. With --profile there are at least 2 runs, and the first is not counted")
        ->type_name("N")
        ->check(AtLeastOne)
        ->group("random inputs and profile");
    limits_.AddTo(app);
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    std::vector<std::string> pairs;
    std::vector<std::string> archives;
    for (const std::string& text : inputs_) {
      (IsArchiveOfInputs(text) ? archives : pairs).push_back(text);
    }
    auto named = ParseNamedFiles(pairs, "--input");
    if (!named.ok()) return WithExitCode(named.status(), ExitCode::kUsage);
    WEFT_ASSIGN_OR_RETURN(const int64_t memory, limits_.MemoryBytes(RealFileSystem()));
    std::optional<CpuMemoryLimit> limit;
    if (memory > 0) limit.emplace(static_cast<size_t>(memory));
    ImportOptions options;
    options.parameters_as_variables = false;
    auto model = ImportModelFile(RealFileSystem(), model_, options);
    if (!model.ok()) return WithExitCode(model.status(), ExitCode::kModel);
    const absl::Status replaced = ReplaceGradientNodes(model->graph);
    if (!replaced.ok()) return WithExitCode(InModel(replaced), ExitCode::kModel);
    const absl::Status added = AddArchives(archives, model->graph, *named, console);
    if (!added.ok()) return WithExitCode(added, ExitCode::kData);
    auto inputs = ReadInputs(*model, *named);
    if (!inputs.ok()) return WithExitCode(inputs.status(), ExitCode::kData);
    const absl::Status fitted = FitShapes(*inputs, options, *model, console);
    if (!fitted.ok()) return WithExitCode(fitted, ExitCode::kModel);
    const absl::Status chosen = ChooseOutputs(model->graph);
    if (!chosen.ok()) return WithExitCode(chosen, ExitCode::kUsage);

    std::vector<std::string> order;
    for (ValueId id : model->graph.outputs()) order.push_back(model->graph.value(id).name);
    RunProfile profile;
    const auto outputs = RunModel(std::move(model->graph), *inputs, profile, console);
    if (!outputs.ok()) return RunError(outputs.status());
    auto written = WriteOutputs(order, *outputs, model->maps);
    if (!written.ok()) return WithExitCode(written.status(), ExitCode::kDisk);
    Report(*written, profile, console);
    return ExitCode::kOk;
  }

 private:
  // The same error, which says of what model it is.
  absl::Status InModel(const absl::Status& status) const {
    return Annotate(status, absl::StrCat("model '", model_, "'"));
  }

  // Whose fault it is that a run failed: a limit's, or the model's.
  absl::Status RunError(const absl::Status& status) const {
    if (absl::IsResourceExhausted(status)) {
      const absl::Status told =
          absl::ResourceExhaustedError(absl::StrCat(status.message(), " (--memory-limit)"));
      return WithExitCode(InModel(told), ExitCode::kMemory);
    }
    if (absl::IsDeadlineExceeded(status)) {
      return WithExitCode(InModel(status), ExitCode::kStalled);
    }
    return WithExitCode(InModel(status), ExitCode::kModel);
  }

  // Adds the inputs that archives have arrays of and that no pair names.
  static absl::Status AddArchives(const std::vector<std::string>& archives, const Graph& graph,
                                  std::vector<NamedFile>& named, Console& console) {
    std::set<std::string> given;
    for (const NamedFile& file : named) given.insert(file.name);
    for (const std::string& archive : archives) {
      std::vector<std::string> unused;
      WEFT_ASSIGN_OR_RETURN(const std::vector<NamedFile> found,
                            NamedFilesOf(RealFileSystem(), archive, graph, unused));
      for (const NamedFile& file : found) {
        if (given.insert(file.name).second) named.push_back(file);
      }
      if (unused.empty()) continue;
      *console.err << "note: data file '" << Printable(archive) << "': no input is called "
                   << Printable(absl::StrJoin(unused, ", ")) << "\n";
    }
    return absl::OkStatus();
  }

  // Makes the values of --output-name the graph's outputs.
  absl::Status ChooseOutputs(Graph& graph) const {
    if (output_names_.empty()) return absl::OkStatus();
    std::vector<std::string> known;
    for (const ValueId id : graph.outputs()) known.push_back(graph.value(id).name);
    std::vector<ValueId> outputs;
    for (const std::string& name : output_names_) {
      const std::optional<ValueId> value = graph.FindValue(name);
      if (!value) {
        return absl::InvalidArgumentError(
            absl::StrCat("--output-name ", name, ": model '", model_, "' has no such value; its ",
                         "outputs are: ", absl::StrJoin(known, ", "), DidYouMean(name, known)));
      }
      if (std::find(outputs.begin(), outputs.end(), *value) != outputs.end()) {
        return absl::InvalidArgumentError(absl::StrCat("--output-name names '", name, "' twice"));
      }
      outputs.push_back(*value);
    }
    graph.SetOutputs(std::move(outputs));
    return absl::OkStatus();
  }

  // Runs as often as asked for; the outputs are those of the last run.
  absl::StatusOr<std::map<std::string, Value>> RunModel(const Graph& graph,
                                                        const std::map<std::string, Value>& inputs,
                                                        RunProfile& profile,
                                                        Console& console) const {
    ForwardRunner::Options options;
    options.threads = threads_ > 0 ? threads_ : AvailableCores(RealFileSystem());
    options.statistics = profile_;
    options.check = limits_.Check(RealClock(), [&console](const std::string& note) {
      *console.err << "note: " << note << "\n" << std::flush;
    });
    profile.threads = options.threads;
    ForwardRunner runner(graph.Clone(), options);
    const int64_t runs = profile_ ? std::max<int64_t>(repeats_, 2) : repeats_;
    std::vector<NodeStatistics> before;
    absl::StatusOr<std::map<std::string, Value>> outputs;
    for (int64_t run = 0; run < runs; ++run) {
      const int64_t begin = RealClock().MonotonicNanos();
      outputs = runner.Run(inputs);
      if (!outputs.ok()) return outputs;
      if (run == 0) {
        before = runner.statistics();
        continue;
      }
      profile.runs += 1;
      profile.nanoseconds += RealClock().MonotonicNanos() - begin;
    }
    profile.nodes = Difference(runner.statistics(), before);
    return outputs;
  }

  absl::StatusOr<std::map<std::string, Value>> ReadInputs(
      const ImportedModel& model, const std::vector<NamedFile>& named) const {
    const Graph& graph = model.graph;
    absl::StatusOr<DimensionSizes> sizes = ParseDimensionSizes(dims_, graph);
    if (sizes.ok() && !dims_.empty() && !random_) {
      sizes = absl::InvalidArgumentError("--dim sizes random inputs: add --random");
    }
    if (!sizes.ok()) return WithExitCode(sizes.status(), ExitCode::kUsage);
    std::vector<std::string> known;
    for (ValueId id : graph.inputs()) known.push_back(graph.value(id).name);
    std::map<std::string, Value> inputs;
    for (const NamedFile& file : named) {
      const auto found = std::find(known.begin(), known.end(), file.name);
      if (found == known.end()) {
        std::string list;
        for (const std::string& name : known)
          absl::StrAppend(&list, list.empty() ? "" : ", ", name);
        return absl::InvalidArgumentError(absl::StrCat("model '", model_, "' has no input '",
                                                       file.name, "'; its inputs are: ", list,
                                                       DidYouMean(file.name, known)));
      }
      const ValueDef& input = graph.value(graph.inputs()[found - known.begin()]);
      if (const auto map = model.maps.find(file.name); map != model.maps.end()) {
        WEFT_ASSIGN_OR_RETURN(inputs[file.name],
                              ReadMapFile(RealFileSystem(), file.path, file.name, map->second));
        continue;
      }
      WEFT_ASSIGN_OR_RETURN(inputs[file.name],
                            ReadInput(RealFileSystem(), file, input, {samples_, !no_scale_}));
    }
    for (ValueId id : graph.inputs()) {
      const ValueDef& input = graph.value(id);
      if (inputs.contains(input.name)) continue;
      if (input.type.kind == ValueKind::kOptional) {  // left out
        inputs[input.name] = Value::Optional(nullptr);
        continue;
      }
      if (const auto map = model.maps.find(input.name); map != model.maps.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat("input '", input.name, "' (", map->second.ToString(),
                         ") has no value: add --input ", input.name, "=FILE.json"));
      }
      if (random_) {
        WEFT_ASSIGN_OR_RETURN(inputs[input.name], RandomInput(input, *sizes, seed_));
        continue;
      }
      return absl::InvalidArgumentError(
          absl::StrCat("input '", input.name, "' (", input.type.ToString(),
                       ") has no value: add --input ", input.name, "=FILE, or --random"));
    }
    return inputs;
  }

  // Imports the model again where an input's file has another shape than the model declares.
  absl::Status FitShapes(const std::map<std::string, Value>& inputs, ImportOptions options,
                         ImportedModel& model, Console& console) const {
    options.input_shapes = ShapesOtherThanDeclared(model.graph, inputs);
    if (options.input_shapes.empty()) return absl::OkStatus();
    std::string text;
    for (const auto& [name, shape] : options.input_shapes) {
      const ValueId input = *model.graph.FindValue(name);
      absl::StrAppend(&text, text.empty() ? "" : ", ", "input '", name, "' is ", shape.ToString(),
                      ", declared as ", model.graph.value(input).type.shape.ToString());
    }
    auto imported = ImportModelFile(RealFileSystem(), model_, options);
    if (!imported.ok()) return Annotate(imported.status(), text);
    model = *std::move(imported);
    WEFT_RETURN_IF_ERROR(ReplaceGradientNodes(model.graph));
    *console.err << "note: " << Printable(text) << "; the shapes are inferred anew\n";
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<WrittenOutput>> WriteOutputs(
      const std::vector<std::string>& order, const std::map<std::string, Value>& outputs,
      const std::map<std::string, MapType>& maps) const {
    WEFT_RETURN_IF_ERROR(RealFileSystem().CreateDirectories(output_folder_));
    std::vector<WrittenOutput> written;
    for (const std::string& name : order) {
      const Value& value = outputs.at(name);
      if (const auto map = maps.find(name); map != maps.end()) {
        WEFT_ASSIGN_OR_RETURN(std::string path, WriteMapFile(RealFileSystem(), output_folder_, name,
                                                             value, map->second));
        written.push_back({name, std::move(path), value, map->second});
        continue;
      }
      WEFT_ASSIGN_OR_RETURN(std::string path,
                            WriteValueFile(RealFileSystem(), output_folder_, name, value));
      written.push_back({name, std::move(path), value, {}});
    }
    return written;
  }

  static nlohmann::ordered_json JsonOf(const WrittenOutput& output) {
    const std::string type = output.map ? output.map->ToString() : TypeName(output.value);
    nlohmann::ordered_json row = {{"name", output.name}, {"file", output.path}, {"type", type}};
    if (output.value.kind() == ValueKind::kTensor) {
      const auto dims = output.value.tensor().shape().dims();
      row["shape"] = std::vector<int64_t>(dims.begin(), dims.end());
      row["argmax"] = Argmaxes(output.value);
    }
    return row;
  }

  static void PrintMaps(const WrittenOutput& output, Console& console) {
    *console.out << Printable(output.name) << ": " << output.map->ToString() << "\n";
    const auto json = MapToJson(output.value, *output.map);  // as in the file
    const auto print = [&console](const nlohmann::ordered_json& map) {
      const std::string text = map.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
      *console.out << "  " << Printable(text) << "\n";
    };
    if (!json->is_array()) return print(*json);
    for (size_t i = 0; i < std::min(json->size(), kShownMaps); ++i) print((*json)[i]);
    if (json->size() > kShownMaps) *console.out << "  ... " << json->size() << " in all\n";
  }

  static void Print(const WrittenOutput& output, Console& console) {
    if (output.map) return PrintMaps(output, console);
    *console.out << Printable(output.name) << ": " << output.value.ToString() << "\n";
    const std::vector<int64_t> classes = Argmaxes(output.value);
    if (classes.empty()) return;
    *console.out << "  largest in row:";
    for (size_t i = 0; i < std::min(classes.size(), kShownArgmaxes); ++i) {
      *console.out << " " << classes[i];
    }
    *console.out << (classes.size() > kShownArgmaxes ? " ...\n" : "\n");
  }

  void Report(const std::vector<WrittenOutput>& written, const RunProfile& profile,
              Console& console) const {
    if (format_ == "json") {
      nlohmann::ordered_json document = nlohmann::ordered_json::array();
      for (const WrittenOutput& output : written) document.push_back(JsonOf(output));
      if (profile_) document = {{"outputs", document}, {"profile", ProfileJson(profile)}};
      *console.out << document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace)
                   << "\n";
      return;
    }
    for (const WrittenOutput& output : written) Print(output, console);
    if (profile_) *console.out << ProfileText(profile);
    *console.err << "outputs are in " << Printable(output_folder_) << "\n";
  }

  std::string model_;
  std::vector<std::string> inputs_;
  bool random_ = false;
  uint64_t seed_ = 0;
  std::vector<std::string> dims_;
  std::string output_folder_;
  std::vector<std::string> output_names_;
  int64_t samples_ = 0;
  bool no_scale_ = false;
  int threads_ = 0;
  bool profile_ = false;
  int64_t repeats_ = 1;
  RunLimitFlags limits_;
  std::string format_ = "text";
};

}  // namespace

std::unique_ptr<Command> NewRunCommand() { return std::make_unique<RunCommand>(); }

}  // namespace weft
