#include <algorithm>
#include <map>
#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "executor/forward_runner.h"
#include "nlohmann/json.hpp"
#include "onnx_import/importer.h"
#include "placement/nearest_name.h"
#include "platform/cpu_info.h"
#include "platform/file_system.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "tools/graph_runner/command.h"
#include "tools/graph_runner/named_files.h"
#include "tools/graph_runner/options.h"
#include "tools/graph_runner/value_files.h"
#include "training/gradient_nodes.h"

namespace weft {
namespace {

constexpr size_t kShownArgmaxes = 20;

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
    return "Runs a model once on given inputs and writes its outputs to files";
  }
  std::string usage() const override { return "MODEL.onnx --input NAME=FILE ... --output-dir DIR"; }
  std::vector<std::string> examples() const override {
    return {"graph_runner run model.onnx --input x=images.npy --output-dir out",
            "graph_runner run model.onnx --input x=input_0.pb --output-dir out --threads 1",
            "graph_runner run lenet.onnx --input x=t10k-images-idx3-ubyte.gz --samples 5 "
            "--output-dir out"};
  }

  void AddOptions(CLI::App& app) override {
    app.add_option("MODEL", model_, "the model")->type_name("MODEL.onnx")->required();
    app.add_option("--input", inputs_,
                   "a graph input and its file: .npy, .pb (ONNX's), or idx, plain or .gz")
        ->type_name("NAME=FILE");
    app.add_option(
           "--output-dir", output_folder_,
           "gets NAME.npy for each output, or NAME.pb where .npy cannot hold it; made when missing")
        ->type_name("DIR")
        ->required();
    app.add_option("--samples", samples_, "run the first N samples (axis 0) of .npy and idx files")
        ->type_name("N")
        ->check(AtLeastOne);
    app.add_flag("--no-scale", no_scale_,
                 "keep bytes 0 to 255 for a float input, instead of byte / 255");
    app.add_option("--threads", threads_, "threads of the computation (all cores)")
        ->type_name("N")
        ->check(AtLeastOne);
    AddOutputFormat(app, format_);
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    const auto named = ParseNamedFiles(inputs_, "--input");
    if (!named.ok()) return WithExitCode(named.status(), ExitCode::kUsage);
    ImportOptions options;
    options.parameters_as_variables = false;
    auto model = ImportModelFile(RealFileSystem(), model_, options);
    if (!model.ok()) return WithExitCode(model.status(), ExitCode::kModel);
    const absl::Status replaced = ReplaceGradientNodes(model->graph);
    if (!replaced.ok()) return WithExitCode(replaced, ExitCode::kModel);
    auto inputs = ReadInputs(model->graph, *named);
    if (!inputs.ok()) return WithExitCode(inputs.status(), ExitCode::kData);
    const absl::Status fitted = FitShapes(*inputs, options, *model, console);
    if (!fitted.ok()) return WithExitCode(fitted, ExitCode::kModel);

    std::vector<std::string> order;
    for (ValueId id : model->graph.outputs()) order.push_back(model->graph.value(id).name);
    ForwardRunner::Options runner_options;
    runner_options.threads = threads_ > 0 ? threads_ : AvailableCores(RealFileSystem());
    ForwardRunner runner(std::move(model->graph), runner_options);
    const auto outputs = runner.Run(*inputs);
    if (!outputs.ok()) return WithExitCode(outputs.status(), ExitCode::kModel);
    auto written = WriteOutputs(order, *outputs);
    if (!written.ok()) return WithExitCode(written.status(), ExitCode::kDisk);
    Report(*written, console);
    return ExitCode::kOk;
  }

 private:
  absl::StatusOr<std::map<std::string, Value>> ReadInputs(
      const Graph& graph, const std::vector<NamedFile>& named) const {
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
      return absl::InvalidArgumentError(
          absl::StrCat("input '", input.name, "' (", input.type.ToString(),
                       ") has no value: add --input ", input.name, "=FILE"));
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
      const std::vector<std::string>& order, const std::map<std::string, Value>& outputs) const {
    WEFT_RETURN_IF_ERROR(RealFileSystem().CreateDirectories(output_folder_));
    std::vector<WrittenOutput> written;
    for (const std::string& name : order) {
      const Value& value = outputs.at(name);
      WEFT_ASSIGN_OR_RETURN(std::string path,
                            WriteValueFile(RealFileSystem(), output_folder_, name, value));
      written.push_back({name, std::move(path), value});
    }
    return written;
  }

  void Report(const std::vector<WrittenOutput>& written, Console& console) const {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const WrittenOutput& output : written) {
      const std::vector<int64_t> classes = Argmaxes(output.value);
      if (format_ == "json") {
        nlohmann::ordered_json row = {
            {"name", output.name}, {"file", output.path}, {"type", TypeName(output.value)}};
        if (output.value.kind() == ValueKind::kTensor) {
          const auto dims = output.value.tensor().shape().dims();
          row["shape"] = std::vector<int64_t>(dims.begin(), dims.end());
          row["argmax"] = classes;
        }
        rows.push_back(std::move(row));
        continue;
      }
      *console.out << Printable(output.name) << ": " << output.value.ToString() << "\n";
      if (classes.empty()) continue;
      *console.out << "  largest in row:";
      for (size_t i = 0; i < std::min(classes.size(), kShownArgmaxes); ++i) {
        *console.out << " " << classes[i];
      }
      *console.out << (classes.size() > kShownArgmaxes ? " ...\n" : "\n");
    }
    if (format_ == "json") {
      *console.out << rows.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    } else {
      *console.err << "outputs are in " << Printable(output_folder_) << "\n";
    }
  }

  std::string model_;
  std::vector<std::string> inputs_;
  std::string output_folder_;
  int64_t samples_ = 0;
  bool no_scale_ = false;
  int threads_ = 0;
  std::string format_ = "text";
};

}  // namespace

std::unique_ptr<Command> NewRunCommand() { return std::make_unique<RunCommand>(); }

}  // namespace weft
