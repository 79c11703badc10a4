#include "executor/program/graph_programs.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "executor/interfaces/communicator.h"
#include "executor/lowering/executor_environment.h"
#include "executor/memory/arena.h"
#include "executor/program/compiled_step.h"
#include "executor/variables/variable_store.h"
#include "graph/expansion.h"
#include "graph/inference.h"
#include "graph/node_bodies.h"
#include "ops/node_runner.h"
#include "platform/log.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Bodies in bodies; each takes stack.
constexpr int kMaxDepth = 64;
// So many programs are made for values and shapes before one is made that leaves them open. Bodies
// get fewer: a loop may grow its operands in every round.
constexpr size_t kMaxProgramsByValue = 32;
constexpr size_t kMaxProgramsByShape = 64;
constexpr size_t kMaxProgramsOfBody = 8;
constexpr size_t kMaxPrograms = 128;
// Inputs with more elements (pads have two per axis) are data even where they decide a shape.
constexpr int64_t kMaxFixedElements = 2 * kMaxRank;

// How much of the inputs a program is made for: dtypes and ranks, sizes too, small values too.
enum class Precision { kTypes, kShapes, kValues };

// The inputs of one call.
class CallInputs final : public InputSource {
 public:
  void Set(const std::map<std::string, Value>& inputs) { inputs_ = &inputs; }
  absl::Status Fill(int64_t, const FeedInput& input, int64_t, int64_t, void* target) override {
    const Tensor& tensor = inputs_->at(input.name).tensor();
    if (tensor.bytes() > 0) std::memcpy(target, tensor.raw_data(), tensor.bytes());
    return absl::OkStatus();
  }
  std::span<const std::byte> BorrowBatch(int64_t, const FeedInput& input, int64_t,
                                         int64_t) override {
    const Tensor& tensor = inputs_->at(input.name).tensor();
    const auto* const data = static_cast<const std::byte*>(tensor.raw_data());
    if (reinterpret_cast<uintptr_t>(data) % kAlignment != 0) return {};
    return {data, tensor.bytes()};
  }
  absl::StatusOr<Value> TakeValue(const FeedInput& input) override {
    return inputs_->at(input.name);
  }

 private:
  const std::map<std::string, Value>* inputs_ = nullptr;
};

// What is known of a sequence's or optional's elements.
DType ElementType(const Value& value) {
  if (value.kind() == ValueKind::kTensor) return value.tensor().dtype();
  const std::vector<Value>& elements = value.elements();
  return elements.empty() ? DType::kInvalid : ElementType(elements.front());
}

ValueKind ElementKind(const Value& value) {
  const bool known = value.kind() != ValueKind::kTensor && !value.elements().empty();
  return known ? value.elements().front().kind() : ValueKind::kTensor;
}

bool IsString(const Value& value) {
  return value.kind() == ValueKind::kTensor && value.tensor().dtype() == DType::kString;
}

}  // namespace

class GraphPrograms::Impl {
 public:
  Impl(Graph graph, const Settings& settings)
      : graph_(std::move(graph)),
        settings_(settings),
        device_(*settings.device),
        variables_(device_),
        arena_(device_),
        communicator_(NewSoloCommunicator()) {
    for (const ValueId id : graph_.outputs()) output_names_.push_back(graph_.value(id).name);
    expanded_ = ExpandFunctions(graph_, RunsNode, &refusals_).status();
    if (settings_.is_body) return;
    for (std::string& name : ValueInputsOf(graph_)) value_inputs_.insert(std::move(name));
  }

  const Graph& graph() const { return graph_; }

  std::vector<NodeStatistics> statistics() const {
    if (!settings_.statistics) return {};
    std::vector<NodeStatistics> total = forgotten_;
    std::map<std::string, size_t> places;
    for (size_t i = 0; i < total.size(); ++i) places[total[i].node] = i;
    for (const auto& [key, compiled] : programs_) {
      for (NodeStatistics& node : compiled.program->statistics()) {
        if (node.calls == 0) continue;
        const auto [place, is_new] = places.emplace(node.node, total.size());
        if (is_new) {
          total.push_back(std::move(node));
          continue;
        }
        total[place->second].calls += node.calls;
        total[place->second].nanoseconds += node.nanoseconds;
      }
    }
    return total;
  }

  absl::StatusOr<std::vector<Value>> Run(std::vector<Value> inputs) {
    WEFT_RETURN_IF_ERROR(expanded_);
    if (settings_.check != nullptr) WEFT_RETURN_IF_ERROR((*settings_.check)());
    const Precision precision = NextPrecision();
    std::map<std::string, Value> named;
    for (size_t i = 0; i < inputs.size(); ++i) {
      named[graph_.value(graph_.inputs()[i]).name] = std::move(inputs[i]);
    }
    Compiled* compiled = Find(named);
    if (compiled == nullptr) {
      WEFT_ASSIGN_OR_RETURN(Compiled fresh, Compile(named, precision));
      if (programs_.size() >= kMaxPrograms) {
        Log(LogLevel::kInfo, "dropped all ", programs_.size(),
            " programs of a graph: its inputs have come in too many types and shapes");
        forgotten_ = statistics();
        programs_.clear();
      }
      compiled = &(programs_[KeyOf(named, precision)] = std::move(fresh));
    }
    inputs_.Set(named);
    StepResult& result = compiled->result;
    WEFT_RETURN_IF_ERROR(compiled->program->RunInto({}, result));
    std::vector<Value> outputs;
    for (const std::string& name : output_names_) {
      const auto tensor = result.reports.find(name);
      outputs.push_back(tensor != result.reports.end() ? Value(tensor->second)
                                                       : result.values.at(name));
    }
    result.values.clear();
    return outputs;
  }

 private:
  struct Compiled {
    std::unique_ptr<Partition> partition;
    std::unique_ptr<BodyRunner> bodies;
    std::unique_ptr<StepProgram> program;
    StepResult result;  // whose memory serves again, once nobody else holds it
  };

  Precision NextPrecision() const {
    const size_t count = programs_.size();
    if (settings_.is_body) {
      return count < kMaxProgramsOfBody ? Precision::kShapes : Precision::kTypes;
    }
    if (count < kMaxProgramsByValue) return Precision::kValues;
    return count < kMaxProgramsByShape ? Precision::kShapes : Precision::kTypes;
  }

  // The program made for the most of the inputs.
  Compiled* Find(const std::map<std::string, Value>& inputs) {
    if (programs_.empty()) return nullptr;
    for (const Precision precision : {Precision::kValues, Precision::kShapes, Precision::kTypes}) {
      if (precision == Precision::kValues && settings_.is_body) continue;
      const auto found = programs_.find(KeyOf(inputs, precision));
      if (found != programs_.end()) return &found->second;
    }
    return nullptr;
  }

  bool IsFixed(const std::string& name, const Value& value) const {
    return value_inputs_.contains(name) && value.kind() == ValueKind::kTensor && !IsString(value) &&
           value.tensor().num_elements() <= kMaxFixedElements;
  }

  std::string KeyOf(const std::map<std::string, Value>& inputs, Precision precision) const {
    std::string key(1, static_cast<char>('0' + static_cast<int>(precision)));
    for (const auto& [name, value] : inputs) {
      key.push_back(static_cast<char>(value.kind()));
      key.push_back(static_cast<char>(ElementType(value)));
      if (value.kind() != ValueKind::kTensor) {
        key.push_back(static_cast<char>(ElementKind(value)));
        continue;
      }
      const Tensor& tensor = value.tensor();
      const auto dims = tensor.shape().dims();
      key.push_back(static_cast<char>(dims.size()));
      if (precision == Precision::kTypes) continue;
      key.append(reinterpret_cast<const char*>(dims.data()), dims.size() * sizeof(int64_t));
      if (precision == Precision::kValues && IsFixed(name, value)) {
        key.append(static_cast<const char*>(tensor.raw_data()), tensor.bytes());
      }
    }
    return key;
  }

  // The graph with what the values say of its inputs' types, functions expanded, bodies with the
  // constants that they capture.
  absl::StatusOr<Graph> SpecializeFor(const std::map<std::string, Value>& inputs,
                                      Precision precision) const {
    Specialization specialization;
    specialization.allow_unknown_shapes = true;
    Graph typed = graph_.Clone();
    for (const auto& [name, value] : inputs) {
      ValueDef& input = typed.value(*typed.FindValue(name));
      SetType(input.type, value);
      if (value.kind() != ValueKind::kTensor) continue;
      if (precision == Precision::kTypes) {
        const auto rank = static_cast<size_t>(value.tensor().shape().rank());
        input.type.shape = SymbolicShape(std::vector<Dim>(rank));
      } else {
        specialization.input_shapes[name] = value.tensor().shape();
        if (precision == Precision::kValues && IsFixed(name, value)) {
          specialization.input_values[name] = value.tensor();
        }
      }
    }
    WEFT_ASSIGN_OR_RETURN(Graph graph, Specialize(typed, specialization, CpuNodeEvaluator()));
    if (!refusals_.empty()) {  // sizes are known now
      std::vector<absl::Status> refusals;
      WEFT_RETURN_IF_ERROR(ExpandFunctions(graph, RunsNode, &refusals).status());
      Specialization again;
      again.allow_unknown_shapes = true;
      WEFT_ASSIGN_OR_RETURN(graph, Specialize(graph, again, CpuNodeEvaluator()));
    }
    MoveConstantsIntoBodies(graph);
    return graph;
  }

  void SetType(ValueType& type, const Value& value) const {
    const bool same_kind = type.kind == value.kind();
    const DType dtype = ElementType(value);
    if (settings_.is_body && (value.kind() == ValueKind::kTensor || !same_kind)) {
      type.shape = SymbolicShape();
    }
    type.kind = value.kind();
    if (dtype != DType::kInvalid) {
      type.dtype = dtype;
      type.element = ElementKind(value);
    }
  }

  absl::StatusOr<Compiled> Compile(const std::map<std::string, Value>& inputs,
                                   Precision precision) {
    if (settings_.depth > kMaxDepth) {
      return absl::InvalidArgumentError(
          absl::StrCat("bodies lie in bodies more than ", kMaxDepth, " levels deep"));
    }
    auto partition = std::make_unique<Partition>();
    WEFT_ASSIGN_OR_RETURN(partition->end, SpecializeFor(inputs, precision));
    partition->rank = RankId(0);
    partition->training = false;
    partition->threads = settings_.threads;
    for (const ValueId id : partition->end.inputs()) {
      const ValueDef& input = partition->end.value(id);
      partition->inputs.push_back({input.name, InputRole::kData, input.type.dtype,
                                   input.type.shape.ToConcrete().value_or(Shape{})});
    }
    for (const std::string& name : output_names_) partition->reports.push_back(name);
    WEFT_RETURN_IF_ERROR(AddVariables(*partition));
    partition->actions = {{Action::Kind::kUpdate, 0}};
    auto bodies = NewBodyRunner(device_, settings_.threads, settings_.depth + 1,
                                settings_.runs_nodes_on_host, settings_.check);
    ExecutorEnvironment environment{&device_, &variables_,  communicator_.get(),
                                    &inputs_, &RealClock(), nullptr,
                                    &arena_,  bodies.get()};
    environment.runs_nodes_on_host = settings_.runs_nodes_on_host;
    environment.min_ahead_bytes = std::numeric_limits<int64_t>::max();  // calls come one by one
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<StepProgram> program,
                          CompileWithBodies(*partition, environment, nullptr));
    program->EnableStatistics(settings_.statistics);
    return Compiled{std::move(partition), std::move(bodies), std::move(program), StepResult()};
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

  Graph graph_;                         // functions expanded, as far as types allow
  std::vector<absl::Status> refusals_;  // why not all were
  absl::Status expanded_;
  std::vector<std::string> output_names_;
  const Settings settings_;
  Device& device_;
  VariableStore variables_;
  Arena arena_;  // of all programs
  std::unique_ptr<Communicator> communicator_;
  CallInputs inputs_;
  std::set<std::string> value_inputs_;
  std::map<std::string, Compiled> programs_;
  std::vector<NodeStatistics> forgotten_;  // of programs that are no more
};

GraphPrograms::GraphPrograms(Graph graph, const Settings& settings)
    : impl_(std::make_unique<Impl>(std::move(graph), settings)) {}
GraphPrograms::~GraphPrograms() = default;

absl::StatusOr<std::vector<Value>> GraphPrograms::Run(std::vector<Value> inputs) {
  return impl_->Run(std::move(inputs));
}

const Graph& GraphPrograms::graph() const { return impl_->graph(); }

std::vector<NodeStatistics> GraphPrograms::statistics() const { return impl_->statistics(); }

namespace {

class BodyPrograms final : public BodyRunner {
 public:
  explicit BodyPrograms(const GraphPrograms::Settings& settings) : settings_(settings) {}

  absl::StatusOr<std::vector<Value>> RunBody(const Graph& body,
                                             std::vector<Value> inputs) override {
    std::unique_ptr<GraphPrograms>& programs = programs_[&body];
    if (programs == nullptr) programs = std::make_unique<GraphPrograms>(body.Clone(), settings_);
    return programs->Run(std::move(inputs));
  }

 private:
  const GraphPrograms::Settings settings_;
  std::map<const Graph*, std::unique_ptr<GraphPrograms>> programs_;
};

}  // namespace

std::unique_ptr<BodyRunner> NewBodyRunner(Device& device, int threads, int depth,
                                          bool runs_nodes_on_host,
                                          const std::function<absl::Status()>* check) {
  GraphPrograms::Settings settings;
  settings.device = &device;
  settings.threads = threads;
  settings.is_body = true;
  settings.depth = depth;
  settings.runs_nodes_on_host = runs_nodes_on_host;
  settings.check = check;
  return std::make_unique<BodyPrograms>(settings);
}

}  // namespace weft
