#include "executor/forward_runner.h"

#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "executor/communicator.h"
#include "executor/step_program.h"
#include "executor/variable_store.h"
#include "graph/inference.h"
#include "graph/node_description.h"
#include "graph/op_schema.h"
#include "ops/node_runner.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// The inputs of one call.
class CallInputs final : public InputSource {
 public:
  void Set(const std::map<std::string, Value>& inputs) { inputs_ = &inputs; }
  absl::Status Fill(int64_t, const FeedInput& input, int64_t, int64_t, void* target) override {
    const Tensor& tensor = inputs_->at(input.name).tensor();
    if (tensor.bytes() > 0) std::memcpy(target, tensor.raw_data(), tensor.bytes());
    return absl::OkStatus();
  }

 private:
  const std::map<std::string, Value>* inputs_ = nullptr;
};

std::string TypeText(const Tensor& tensor) {
  return absl::StrCat(std::string(DTypeName(tensor.dtype())), tensor.shape().ToString());
}

// The key of a program: shapes of all inputs and the values of those that decide shapes.
std::string KeyOf(const std::map<std::string, Value>& inputs,
                  const std::set<std::string>& value_inputs) {
  std::string key;
  for (const auto& [name, value] : inputs) {
    const Tensor& tensor = value.tensor();
    absl::StrAppend(&key, name, ":", TypeText(tensor), ";");
    if (value_inputs.contains(name)) {
      key.append(static_cast<const char*>(tensor.raw_data()), tensor.bytes());
    }
  }
  return key;
}

// The input whose bytes are the node's output `output`, as the schema says.
std::optional<ValueId> AliasedInput(const Node& node, int output) {
  if (node.schema == nullptr) return std::nullopt;
  for (const auto& [from, to] : node.schema->aliases()) {
    if (to == output && node.inputs[from].valid()) return node.inputs[from];
  }
  return std::nullopt;
}

}  // namespace

class ForwardRunner::Impl {
 public:
  Impl(Graph graph, Options options)
      : graph_(std::move(graph)),
        options_(options),
        device_(options.device != nullptr ? *options.device : CpuDevice()),
        variables_(device_),
        arena_(device_),
        communicator_(NewSoloCommunicator()) {
    for (std::string& name : ValueInputsOf(graph_)) value_inputs_.insert(std::move(name));
    for (ValueId id : graph_.inputs()) {
      tensors_only_ = tensors_only_ && graph_.value(id).type.kind == ValueKind::kTensor;
    }
  }

  absl::StatusOr<std::map<std::string, Value>> Run(const std::map<std::string, Value>& inputs) {
    WEFT_RETURN_IF_ERROR(CheckInputs(inputs));
    if (!tensors_only_) return HandThrough(inputs);
    const std::string key = KeyOf(inputs, value_inputs_);
    auto compiled = programs_.find(key);
    if (compiled == programs_.end()) {
      WEFT_ASSIGN_OR_RETURN(Compiled fresh, Compile(inputs));
      compiled = programs_.emplace(key, std::move(fresh)).first;
    }
    inputs_.Set(inputs);
    WEFT_ASSIGN_OR_RETURN(StepResult result, compiled->second.program->Run({}));
    std::map<std::string, Value> outputs;
    for (auto& [name, tensor] : result.reports) outputs[name] = std::move(tensor);
    return outputs;
  }

 private:
  struct Compiled {
    std::unique_ptr<Partition> partition;
    std::unique_ptr<StepProgram> program;
  };

  absl::Status CheckInputs(const std::map<std::string, Value>& inputs) const {
    std::vector<std::string> names;
    for (ValueId id : graph_.inputs()) {
      const ValueDef& input = graph_.value(id);
      names.push_back(input.name);
      const auto given = inputs.find(input.name);
      if (given == inputs.end()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "input '", input.name, "' (", input.type.ToString(), ") was not given a value"));
      }
      if (given->second.kind() != input.type.kind) {
        return absl::InvalidArgumentError(
            absl::StrCat("input '", input.name, "' is ", given->second.ToString(),
                         ", the model expects another kind of value"));
      }
      if (input.type.kind != ValueKind::kTensor) continue;
      if (given->second.tensor().dtype() != input.type.dtype) {
        return absl::InvalidArgumentError(
            absl::StrCat("input '", input.name, "' is ", TypeText(given->second.tensor()),
                         ", the model expects ", input.type.ToString()));
      }
    }
    for (const auto& [name, value] : inputs) {
      const std::optional<ValueId> id = graph_.FindValue(name);
      if (!id || graph_.value(*id).source != ValueSource::kInput) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the model has no input '", name, "'; its inputs are: ", absl::StrJoin(names, ", ")));
      }
    }
    return absl::OkStatus();
  }

  // Sequences and optionals have no kernels: outputs that are inputs under another name are handed
  // through, and nothing is computed.
  absl::StatusOr<std::map<std::string, Value>> HandThrough(
      const std::map<std::string, Value>& inputs) const {
    std::map<std::string, Value> outputs;
    for (ValueId id : graph_.outputs()) {
      const ValueDef* value = &graph_.value(id);
      while (value->source == ValueSource::kNode) {
        const Node& node = graph_.node(value->producer);
        const std::optional<ValueId> same = AliasedInput(node, value->output_index);
        if (!same) {
          return absl::UnimplementedError(absl::StrCat(
              DescribeNode(node), " would compute with a sequence or an optional; only ",
              "tensors can be computed with"));
        }
        value = &graph_.value(*same);
      }
      if (value->source != ValueSource::kInput) {
        return absl::UnimplementedError(
            absl::StrCat("output '", graph_.value(id).name, "' is a weight, in a model with ",
                         "sequences or optionals; only their inputs can be handed through"));
      }
      outputs[graph_.value(id).name] = inputs.at(value->name);
    }
    return outputs;
  }

  absl::StatusOr<Compiled> Compile(const std::map<std::string, Value>& inputs) {
    Specialization specialization;
    for (const auto& [name, value] : inputs) {
      specialization.input_shapes[name] = value.tensor().shape();
      if (value_inputs_.contains(name)) specialization.input_values[name] = value.tensor();
    }
    auto partition = std::make_unique<Partition>();
    WEFT_ASSIGN_OR_RETURN(partition->end, Specialize(graph_, specialization, CpuNodeEvaluator()));
    partition->rank = RankId(0);
    partition->training = false;
    partition->threads = options_.threads;
    for (ValueId id : partition->end.inputs()) {
      const ValueDef& input = partition->end.value(id);
      partition->inputs.push_back(
          {input.name, InputRole::kData, input.type.dtype, inputs.at(input.name).tensor().shape()});
    }
    for (ValueId id : partition->end.outputs()) {
      partition->reports.push_back(partition->end.value(id).name);
    }
    WEFT_RETURN_IF_ERROR(AddVariables(*partition));
    partition->actions = {{Action::Kind::kUpdate, 0}};
    const ExecutorEnvironment environment{
        &device_, &variables_, communicator_.get(), &inputs_, &RealClock(), nullptr, &arena_};
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<StepProgram> program,
                          CompileStep(*partition, environment));
    return Compiled{std::move(partition), std::move(program)};
  }

  absl::Status AddVariables(Partition& partition) {
    for (const Variable& variable : partition.end.variables()) {
      const ValueType& type = partition.end.value(variable.value).type;
      VariableShard shard;
      shard.name = variable.name;
      shard.dtype = type.dtype;
      shard.global_shape = shard.local_shape = *type.shape.ToConcrete();
      const bool known = variables_.Find(shard.name) != nullptr;
      WEFT_RETURN_IF_ERROR(variables_.Add({shard}));
      if (!known && variable.initial.valid()) {
        WEFT_RETURN_IF_ERROR(variables_.Write(shard.name, variable.initial));
      }
      partition.variables.push_back(std::move(shard));
    }
    return absl::OkStatus();
  }

  Graph graph_;
  const Options options_;
  Device& device_;
  VariableStore variables_;
  Arena arena_;  // of all programs
  std::unique_ptr<Communicator> communicator_;
  CallInputs inputs_;
  std::set<std::string> value_inputs_;
  bool tensors_only_ = true;  // all inputs are
  std::map<std::string, Compiled> programs_;
};

ForwardRunner::ForwardRunner(Graph graph, Options options)
    : impl_(std::make_unique<Impl>(std::move(graph), options)) {}
ForwardRunner::~ForwardRunner() = default;

absl::StatusOr<std::map<std::string, Value>> ForwardRunner::Run(
    const std::map<std::string, Value>& inputs) {
  return impl_->Run(inputs);
}

}  // namespace weft
