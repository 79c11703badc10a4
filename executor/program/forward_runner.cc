#include "executor/program/forward_runner.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "executor/program/graph_programs.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

std::string TypeText(const Tensor& tensor) {
  return absl::StrCat(std::string(DTypeName(tensor.dtype())), tensor.shape().ToString());
}

absl::Status CheckInput(const ValueDef& input, const Value& value) {
  if (value.kind() != input.type.kind) {
    return absl::InvalidArgumentError(absl::StrCat("input '", input.name, "' is ", value.ToString(),
                                                   ", the model expects another kind of value, ",
                                                   input.type.ToString()));
  }
  if (input.type.kind != ValueKind::kTensor || input.type.dtype == DType::kInvalid) {
    return absl::OkStatus();
  }
  if (value.tensor().dtype() == input.type.dtype) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("input '", input.name, "' is ",
                                                 TypeText(value.tensor()), ", the model expects ",
                                                 input.type.ToString()));
}

}  // namespace

class ForwardRunner::Impl {
 public:
  Impl(Graph graph, Options options)
      : interface_(InterfaceOf(graph)),
        check_(options.check),
        programs_(std::move(graph), SettingsOf(options, check_)) {}

  absl::StatusOr<std::map<std::string, Value>> Run(const std::map<std::string, Value>& inputs) {
    WEFT_RETURN_IF_ERROR(CheckInputs(inputs));
    std::vector<Value> given;
    for (const ValueDef& input : interface_.inputs) given.push_back(inputs.at(input.name));
    WEFT_ASSIGN_OR_RETURN(std::vector<Value> results, programs_.Run(std::move(given)));
    std::map<std::string, Value> outputs;
    for (size_t i = 0; i < results.size(); ++i) {
      outputs[interface_.outputs[i]] = std::move(results[i]);
    }
    return outputs;
  }

  std::vector<NodeStatistics> statistics() const { return programs_.statistics(); }

 private:
  struct Interface {
    std::vector<ValueDef> inputs;
    std::vector<std::string> outputs;
  };

  static Interface InterfaceOf(const Graph& graph) {
    Interface interface;
    for (const ValueId id : graph.inputs()) interface.inputs.push_back(graph.value(id));
    for (const ValueId id : graph.outputs()) interface.outputs.push_back(graph.value(id).name);
    return interface;
  }

  static GraphPrograms::Settings SettingsOf(const Options& options,
                                            const std::function<absl::Status()>& check) {
    GraphPrograms::Settings settings;
    settings.device = options.device;
    settings.threads = options.threads;
    settings.statistics = options.statistics;
    settings.runs_nodes_on_host = options.runs_nodes_on_host;
    if (check != nullptr) settings.check = &check;
    return settings;
  }

  absl::Status CheckInputs(const std::map<std::string, Value>& inputs) const {
    std::vector<std::string> names;
    size_t known = 0;
    for (const ValueDef& input : interface_.inputs) {
      names.push_back(input.name);
      const auto given = inputs.find(input.name);
      if (given == inputs.end()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "input '", input.name, "' (", input.type.ToString(), ") was not given a value"));
      }
      WEFT_RETURN_IF_ERROR(CheckInput(input, given->second));
      ++known;
    }
    if (known == inputs.size()) return absl::OkStatus();
    for (const auto& [name, value] : inputs) {
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "the model has no input '", name, "'; its inputs are: ", absl::StrJoin(names, ", ")));
    }
    return absl::OkStatus();
  }

  const Interface interface_;
  const std::function<absl::Status()> check_;
  GraphPrograms programs_;
};

ForwardRunner::ForwardRunner(Graph graph, Options options)
    : impl_(std::make_unique<Impl>(std::move(graph), options)) {}
ForwardRunner::~ForwardRunner() = default;

absl::StatusOr<std::map<std::string, Value>> ForwardRunner::Run(
    const std::map<std::string, Value>& inputs) {
  return impl_->Run(inputs);
}

std::vector<NodeStatistics> ForwardRunner::statistics() const { return impl_->statistics(); }

}  // namespace weft
