#include "onnx_import/training_info.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "onnx_import/codec/model_validator.h"
#include "onnx_import/codec/quote.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/graph_converter.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

using Names = std::set<std::string>;
using Bindings = google::protobuf::RepeatedPtrField<onnx::StringStringEntryProto>;

constexpr size_t kListedNames = 8;

Names InitializersOf(const onnx::GraphProto& graph) {
  Names names;
  for (const onnx::TensorProto& tensor : graph.initializer()) names.insert(tensor.name());
  return names;
}

std::vector<std::string> OutputsOf(const onnx::GraphProto& graph) {
  std::vector<std::string> names;
  for (const onnx::ValueInfoProto& output : graph.output()) names.push_back(output.name());
  return names;
}

Names DefinitionsOf(const onnx::GraphProto& graph) {
  Names names = InitializersOf(graph);
  for (const onnx::ValueInfoProto& input : graph.input()) names.insert(input.name());
  for (const onnx::SparseTensorProto& tensor : graph.sparse_initializer()) {
    names.insert(tensor.values().name());
  }
  for (const onnx::NodeProto& node : graph.node()) {
    names.insert(node.output().begin(), node.output().end());
  }
  names.erase("");
  return names;
}

absl::Status Invalid(const std::string& text) { return absl::InvalidArgumentError(text); }

std::string Listed(const std::vector<std::string>& names) {
  std::vector<std::string> quoted;
  for (size_t i = 0; i < names.size() && i < kListedNames; ++i) quoted.push_back(Quoted(names[i]));
  if (names.size() > kListedNames) quoted.push_back("...");
  return quoted.empty() ? "there are none" : absl::StrJoin(quoted, ", ");
}

// `bound`: the keys of the same kind of binding so far.
absl::Status CheckBindings(const char* field, const Bindings& bindings, const Names& initializers,
                           const std::vector<std::string>& outputs, Names& bound) {
  const Names known(outputs.begin(), outputs.end());
  for (const onnx::StringStringEntryProto& binding : bindings) {
    const std::string label =
        absl::StrCat(field, " of ", Quoted(binding.key()), " to ", Quoted(binding.value()), ": ");
    if (!initializers.contains(binding.key())) {
      return Invalid(absl::StrCat(label,
                                  "no initializer of the graph or of the algorithm is called ",
                                  Quoted(binding.key())));
    }
    if (!known.contains(binding.value())) {
      return Invalid(absl::StrCat(label, "no output is called ", Quoted(binding.value()),
                                  ", the outputs are: ", Listed(outputs)));
    }
    if (!bound.insert(binding.key()).second) {
      return Invalid(absl::StrCat(label, Quoted(binding.key()),
                                  " is bound twice, expected one binding for each initializer"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckGraphs(const onnx::ModelProto& model, const onnx::TrainingInfoProto& info) {
  absl::Status status = ValidateTrainingGraph(info.initialization());
  if (!status.ok()) return Annotate(status, "initialization");
  if (info.initialization().input_size() > 0) {
    return Invalid(absl::StrCat("initialization: its graph has the input ",
                                Quoted(info.initialization().input(0).name()), ", expected none"));
  }
  status = ValidateTrainingGraph(info.algorithm());
  if (!status.ok()) return Annotate(status, "algorithm");
  const Names defined = DefinitionsOf(model.graph());
  for (const std::string& name : DefinitionsOf(info.algorithm())) {
    if (!defined.contains(name)) continue;
    return Invalid(absl::StrCat("algorithm: it defines ", Quoted(name),
                                ", which the inference graph defines already; the two are one "
                                "graph in a training step"));
  }
  return absl::OkStatus();
}

absl::Status CheckInfo(const onnx::ModelProto& model, const onnx::TrainingInfoProto& info,
                       Names& initialized, Names& updated) {
  WEFT_RETURN_IF_ERROR(CheckGraphs(model, info));
  Names initializers = InitializersOf(model.graph());
  initializers.merge(InitializersOf(info.algorithm()));
  WEFT_RETURN_IF_ERROR(CheckBindings("initialization_binding", info.initialization_binding(),
                                     initializers, OutputsOf(info.initialization()), initialized));
  std::vector<std::string> outputs = OutputsOf(info.algorithm());
  for (std::string& output : OutputsOf(model.graph())) outputs.push_back(std::move(output));
  return CheckBindings("update_binding", info.update_binding(), initializers, outputs, updated);
}

absl::Status CheckAll(const onnx::ModelProto& model) {
  Names initialized;
  Names updated;
  for (int i = 0; i < model.training_info_size(); ++i) {
    const absl::Status status = CheckInfo(model, model.training_info(i), initialized, updated);
    if (!status.ok()) return Annotate(status, absl::StrCat("training_info ", i));
  }
  return absl::OkStatus();
}

ConversionContext ContextOf(const ImportedModel& model, const ImportOptions& options) {
  const onnx::ModelProto& proto = *model.file.proto();
  return {proto,
          options,
          {model.file.proto(), model.file.external()},
          model.opsets,
          FunctionTable(proto),
          {}};
}

absl::StatusOr<const onnx::TrainingInfoProto*> OnlyAlgorithm(const onnx::ModelProto& proto) {
  const onnx::TrainingInfoProto* only = nullptr;
  for (const onnx::TrainingInfoProto& info : proto.training_info()) {
    if (info.update_binding_size() == 0) continue;
    if (only != nullptr) {
      return absl::UnimplementedError(
          "it has several training algorithms, which would run one after the other in each step; "
          "models with one can be trained by it");
    }
    only = &info;
  }
  if (only != nullptr) return only;
  return Invalid(
      "it has no training algorithm of its own (a training_info with an update_binding); train it "
      "with --optimizer sgd or another");
}

// Fills the graph of `model`.
absl::Status ConvertStep(const onnx::TrainingInfoProto& info, ImportedModel& model) {
  ConversionContext context = ContextOf(model, {});
  context.only_state = true;
  for (const auto& binding : info.update_binding()) context.state.insert(binding.key());
  WEFT_RETURN_IF_ERROR(context.functions.CheckCalls(context.model.graph()));
  WEFT_RETURN_IF_ERROR(context.functions.CheckCalls(info.algorithm()));
  GraphConverter converter(context, model.graph);
  WEFT_RETURN_IF_ERROR(converter.Convert(context.model.graph(), &info.algorithm()));
  model.parameters = std::move(converter.parameters());
  for (const auto& binding : info.update_binding()) {
    const std::optional<ValueId> updated = converter.Find(binding.value());
    if (model.graph.FindVariable(binding.key()) == nullptr || !updated.has_value()) {
      return Invalid(absl::StrCat("update_binding of ", Quoted(binding.key()), " to ",
                                  Quoted(binding.value()),
                                  ": it cannot be updated, expected a tensor of numbers"));
    }
    model.graph.SetVariableUpdate(binding.key(), *updated);
  }
  return absl::OkStatus();
}

}  // namespace

TrainingInfo TrainingInfoOf(const ModelFile& file) {
  TrainingInfo found;
  for (const onnx::TrainingInfoProto& info : file.proto()->training_info()) {
    found.has_algorithm |= info.update_binding_size() > 0;
    found.has_initialization |= info.initialization_binding_size() > 0;
  }
  return found;
}

absl::Status CheckTrainingInfo(const ModelFile& file) {
  const absl::Status status = CheckAll(*file.proto());
  return status.ok() ? status : Printable(Annotate(status, file.Label()));
}

absl::StatusOr<ImportedModel> ImportTrainingStep(const ModelFile& file) {
  WEFT_RETURN_IF_ERROR(CheckTrainingInfo(file));
  ImportedModel model = DescribeFile(file);
  const auto info = OnlyAlgorithm(*file.proto());
  const absl::Status status = info.ok() ? ConvertStep(**info, model) : info.status();
  if (!status.ok()) return Printable(Annotate(status, file.Label()));
  return model;
}

absl::StatusOr<std::vector<InitializationGraph>> ImportInitializations(const ModelFile& file) {
  WEFT_RETURN_IF_ERROR(CheckTrainingInfo(file));
  std::vector<InitializationGraph> graphs;
  const ImportedModel described = DescribeFile(file);
  ImportOptions options;
  options.parameters_as_variables = false;
  for (const onnx::TrainingInfoProto& info : file.proto()->training_info()) {
    if (info.initialization_binding_size() == 0) continue;
    InitializationGraph& made = graphs.emplace_back();
    ConversionContext context = ContextOf(described, options);
    absl::Status status = context.functions.CheckCalls(info.initialization());
    GraphConverter converter(context, made.graph);
    if (status.ok()) status = converter.Convert(info.initialization());
    if (!status.ok()) {
      return Printable(Annotate(Annotate(status, "initialization"), file.Label()));
    }
    std::vector<ValueId> outputs;
    for (const auto& binding : info.initialization_binding()) {
      made.initializers.push_back(binding.key());
      outputs.push_back(*converter.Find(binding.value()));
    }
    made.graph.SetOutputs(std::move(outputs));
  }
  return graphs;
}

}  // namespace weft
