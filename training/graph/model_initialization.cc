#include "training/graph/model_initialization.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "executor/program/forward_runner.h"
#include "onnx_import/training_info.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status SetInitial(Graph& graph, const std::string& name, Tensor tensor) {
  const ValueId id = *graph.FindValue(name);
  const ValueType& type = graph.value(id).type;
  if (type.dtype != tensor.dtype() || !(type.shape.ToConcrete() == tensor.shape())) {
    return absl::InvalidArgumentError(
        absl::StrCat("initialization_binding of '", name, "': '", name, "' is ", type.ToString(),
                     ", its initial value is ", std::string(DTypeName(tensor.dtype())),
                     tensor.shape().ToString(), "; they must be the same"));
  }
  for (Variable& variable : graph.mutable_variables()) {
    if (variable.value != id) continue;
    variable.initial = std::move(tensor);
    return absl::OkStatus();
  }
  graph.value(id).constant = std::move(tensor);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> InitializeModel(ImportedModel& model) {
  WEFT_ASSIGN_OR_RETURN(std::vector<InitializationGraph> graphs, ImportInitializations(model.file));
  int set = 0;
  for (InitializationGraph& initialization : graphs) {
    std::vector<std::string> outputs;
    for (const ValueId id : initialization.graph.outputs()) {
      outputs.push_back(initialization.graph.value(id).name);
    }
    ForwardRunner runner(std::move(initialization.graph), {});
    const auto values = runner.Run({});
    if (!values.ok()) return Annotate(values.status(), "the model's own initialization");
    for (size_t i = 0; i < outputs.size(); ++i) {
      const std::string& name = initialization.initializers[i];
      if (!model.graph.FindValue(name).has_value()) continue;
      WEFT_RETURN_IF_ERROR(SetInitial(model.graph, name, values->at(outputs[i]).tensor()));
      ++set;
    }
  }
  return set;
}

}  // namespace weft
