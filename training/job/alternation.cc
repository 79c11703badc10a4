#include "training/job/alternation.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "graph/liveness.h"
#include "onnx_import/parameters/variable_names.h"
#include "ops/defs/optimizer/optimizer.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "platform/text/nearest_name.h"
#include "training/graph/loss.h"
#include "training/graph/loss_parts.h"
#include "training/job/job.h"
#include "training/job/stored_programs.h"

namespace weft {
namespace {

constexpr char kOutputOfModel[] = "output:";
// Of steps in a row and of samples: sums over updates are far from the largest number.
constexpr int64_t kMaxCount = 1'000'000'000;

absl::Status InUpdate(const std::string& name, const absl::Status& status) {
  return Annotate(status, absl::StrCat("update '", name, "'"));
}

// ---- From text.

bool IsUpdateName(absl::string_view name) {
  const auto fits = [](unsigned char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-'; };
  return !name.empty() && std::all_of(name.begin(), name.end(), fits);
}

using UpdateKeys = std::map<std::string, std::string>;

absl::StatusOr<UpdateKeys> ParseKeys(absl::string_view text) {
  UpdateKeys keys;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    part = absl::StripAsciiWhitespace(part);
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    const std::string key(absl::StripAsciiWhitespace(pair.first));
    const std::string value(absl::StripAsciiWhitespace(pair.second));
    if (key.empty() || value.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", part, "': expected key=value, as in train=critic.*"));
    }
    if (!keys.emplace(key, value).second) {
      return absl::InvalidArgumentError(absl::StrCat(key, " is given twice"));
    }
  }
  return keys;
}

// Takes keys one by one; what is left in the end is unknown.
class KeyReader {
 public:
  explicit KeyReader(UpdateKeys keys) : keys_(std::move(keys)) {}

  std::optional<std::string> Take(const std::string& key) {
    known_.push_back(key);
    const auto found = keys_.find(key);
    if (found == keys_.end()) return std::nullopt;
    std::string value = std::move(found->second);
    keys_.erase(found);
    return value;
  }
  // Leaves `number` where the key is not given.
  absl::Status TakeNumber(const std::string& key, double& number) {
    const std::optional<std::string> text = Take(key);
    if (!text.has_value() || absl::SimpleAtod(*text, &number)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(key, "=", *text, ": expected a number"));
  }
  absl::Status TakeCount(const std::string& key, int64_t minimum, int64_t maximum,
                         int64_t& number) {
    const std::optional<std::string> text = Take(key);
    if (!text.has_value()) return absl::OkStatus();
    if (absl::SimpleAtoi(*text, &number) && number >= minimum && number <= maximum) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat(key, "=", *text, ": expected a whole number from ", minimum, " to ", maximum));
  }
  absl::Status Finish() const {
    if (keys_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("there is no key '", keys_.begin()->first, "'",
                                                   DidYouMean(keys_.begin()->first, known_),
                                                   "; there are ", absl::StrJoin(known_, ", ")));
  }

 private:
  UpdateKeys keys_;
  std::vector<std::string> known_;
};

absl::Status ReadLoss(KeyReader& keys, LossSpec& loss) {
  const std::optional<std::string> kind = keys.Take("loss");
  if (!kind.has_value()) {
    return absl::InvalidArgumentError("what is its loss? give loss=output:NAME or another loss");
  }
  WEFT_ASSIGN_OR_RETURN(const LossSpec parsed, ParseLoss(*kind));
  loss.kind = parsed.kind;
  loss.output = keys.Take("loss-output").value_or(loss.output);
  return absl::OkStatus();
}

absl::Status ReadOptimizer(KeyReader& keys, OptimizerSpec& optimizer) {
  if (const std::optional<std::string> kind = keys.Take("optimizer")) {
    optimizer.kind = *kind;
    optimizer.options.clear();
    WEFT_RETURN_IF_ERROR(ValidateOptimizer(optimizer));
    optimizer.learning_rate = UsualLearningRate(*kind);
  }
  WEFT_RETURN_IF_ERROR(keys.TakeNumber("lr", optimizer.learning_rate));
  WEFT_RETURN_IF_ERROR(keys.TakeNumber("weight-decay", optimizer.weight_decay));
  const OptimizerKind* const kind = FindOptimizer(optimizer.kind);
  if (kind == nullptr) return ValidateOptimizer(optimizer);
  for (const OptimizerOption& option : kind->options) {
    double number = kind->ValueOf(option.name, optimizer.options);
    WEFT_RETURN_IF_ERROR(keys.TakeNumber(option.name, number));
    // Also the usual number, which takes the place of another one of the base.
    optimizer.options.erase(option.name);
    if (number != option.usual) optimizer.options[option.name] = number;
  }
  if (optimizer.learning_rate > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("lr=", optimizer.learning_rate, ": expected a number above 0"));
}

absl::Status ReadUpdate(absl::string_view text, UpdateSpec& update) {
  WEFT_ASSIGN_OR_RETURN(UpdateKeys parsed, ParseKeys(text));
  KeyReader keys(std::move(parsed));
  WEFT_RETURN_IF_ERROR(ReadLoss(keys, update.training.loss));
  const std::optional<std::string> train = keys.Take("train");
  if (!train.has_value()) {
    return absl::InvalidArgumentError("what does it train? give train=PATTERN, as train=critic.*");
  }
  update.train = absl::StrSplit(*train, '+', absl::SkipEmpty());
  WEFT_RETURN_IF_ERROR(keys.TakeCount("steps", 1, kMaxCount, update.steps));
  WEFT_RETURN_IF_ERROR(keys.TakeCount("batch", 1, kMaxCount, update.batch));
  int64_t seed = -1;
  WEFT_RETURN_IF_ERROR(keys.TakeCount("seed", 0, std::numeric_limits<int64_t>::max(), seed));
  if (seed >= 0) update.seed = static_cast<uint64_t>(seed);
  WEFT_RETURN_IF_ERROR(keys.TakeNumber("clip-norm", update.training.clip_norm));
  WEFT_RETURN_IF_ERROR(ReadOptimizer(keys, update.training.optimizer));
  WEFT_RETURN_IF_ERROR(keys.Finish());
  TrainingSpec checked = update.training;
  if (checked.schedule.total == 0) checked.schedule.total = int64_t{1} << 60;
  return ValidateTraining(checked);
}

// ---- Which parameters.

std::vector<std::string> AllNames(const std::vector<const Variable*>& variables) {
  std::vector<std::string> names;
  for (const Variable* const variable : variables) {
    for (std::string& name : NamesOf(*variable)) names.push_back(std::move(name));
  }
  return names;
}

absl::StatusOr<std::vector<const Variable*>> ParametersOf(
    const UpdateSpec& update, const std::vector<const Variable*>& trainable) {
  std::set<const Variable*> found;
  for (const std::string& pattern : update.train) {
    WEFT_ASSIGN_OR_RETURN(const auto called, VariablesCalled(pattern, trainable));
    found.insert(called.begin(), called.end());
    if (!called.empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "train=", pattern, " is the name of no parameter that trains",
        DidYouMean(pattern, AllNames(trainable)), "; `graph_runner inspect` lists them"));
  }
  std::vector<const Variable*> ordered;
  for (const Variable* const variable : trainable) {
    if (found.contains(variable)) ordered.push_back(variable);
  }
  return ordered;
}

// Numbers by pattern stay with updates that have such a parameter. One that fits none stays with
// all: the error is then that of CheckParameterGroups.
void ShareNumbers(const std::vector<std::vector<const Variable*>>& parameters,
                  std::map<std::string, double> ParameterGroups::*member,
                  std::vector<UpdateSpec>& updates) {
  const std::map<std::string, double> all = updates.front().training.groups.*member;
  for (const auto& [pattern, number] : all) {
    std::vector<bool> fits;
    for (const auto& own : parameters) {
      const auto called = VariablesCalled(pattern, own);
      fits.push_back(!called.ok() || !called->empty());
    }
    if (std::find(fits.begin(), fits.end(), true) == fits.end()) continue;
    for (size_t i = 0; i < updates.size(); ++i) {
      if (!fits[i]) (updates[i].training.groups.*member).erase(pattern);
    }
  }
}

// ---- Graphs and data.

absl::StatusOr<ValueId> ValueOfLoss(const Graph& model, const LossSpec& loss) {
  if (!loss.is_output()) return FindPrediction(model, loss);
  const std::string name = loss.kind.substr(sizeof(kOutputOfModel) - 1);
  const std::optional<ValueId> value = model.FindValue(name);
  if (value.has_value()) return *value;
  return absl::InvalidArgumentError(absl::StrCat("the model has no value '", name, "'"));
}

// What of the model the loss depends on; all its variables are there.
absl::StatusOr<Graph> ModelOfUpdate(const Graph& model, const LossSpec& loss) {
  Graph graph = model.Clone();
  WEFT_ASSIGN_OR_RETURN(const ValueId value, ValueOfLoss(graph, loss));
  graph.SetOutputs({value});
  RemoveDeadCode(graph);
  const std::vector<std::vector<Graph::Use>> uses = graph.BuildUses();
  const std::vector<ValueId> inputs = graph.inputs();
  for (const ValueId input : inputs) {
    const bool is_data = graph.input_role(input) == InputRole::kData;
    if (is_data && input != value && uses[static_cast<size_t>(input.value)].empty()) {
      graph.RemoveInput(input);
    }
  }
  return graph;
}

DataSpec DataOfUpdate(const Graph& own, const UpdateSpec& update, const DataSpec& data) {
  std::set<std::string> inputs;
  for (const ValueId input : own.inputs()) inputs.insert(own.value(input).name);
  if (!update.training.loss.is_output()) inputs.insert(kLabelsInput);
  DataSpec spec = data;
  std::erase_if(spec.files,
                [&](const DataSpec::File& file) { return !inputs.contains(file.input); });
  if (update.batch > 0) spec.batch = update.batch;
  if (update.seed.has_value()) spec.seed = *update.seed;
  return spec;
}

absl::Status CheckAllUpdated(const Graph& graph, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const Variable* const variable = graph.FindVariable(name);
    if (variable != nullptr && variable->update.valid()) continue;
    return absl::InvalidArgumentError(absl::StrCat("its loss does not depend on the parameter '",
                                                   name, "'; leave it out of train="));
  }
  return absl::OkStatus();
}

absl::Status CheckReplicas(const Plan& plan, const Plan& first) {
  const bool is_known = plan.mesh.tensor == 1 && plan.mesh.pipeline == 1 && plan.zero == 0;
  if (is_known && plan.mesh == first.mesh && plan.workers == first.workers) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "updates in turn run on replicas of the whole model, the plan is ", plan.mesh.ToString(),
      plan.zero > 0 ? absl::StrCat(", zero=", plan.zero) : "",
      plan.mesh == first.mesh ? ""
                              : absl::StrCat(", that of the first update ", first.mesh.ToString()),
      "; give --parallel dp=N"));
}

absl::StatusOr<PreparedJob> PrepareUpdate(const Graph& model, const UpdateSpec& update,
                                          std::shared_ptr<const DataSet> data, const JobSpec& spec,
                                          int64_t steps) {
  TrainingSpec training = update.training;
  if (training.schedule.total == 0) training.schedule.total = std::max<int64_t>(steps, 1);
  WEFT_ASSIGN_OR_RETURN(const Graph own, ModelOfUpdate(model, training.loss));
  WEFT_ASSIGN_OR_RETURN(PreparedJob job, PrepareTraining(own, training, spec, std::move(data)));
  WEFT_RETURN_IF_ERROR(CheckAllUpdated(job.graph, training.updates));
  for (JobProgram& program : job.programs) {
    program.name = ProgramName(update.name, program.shape);
  }
  return job;
}

// The update of a job that was prepared with it alone.
PreparedUpdate Described(const UpdateSpec& update, const PreparedJob& job) {
  PreparedUpdate described;
  described.name = update.name;
  described.steps = update.steps;
  described.loss = update.training.loss.kind;
  described.optimizer = update.training.optimizer.kind;
  described.parameters = static_cast<int>(update.training.updates.size());
  described.learning_rate = job.learning_rate;
  described.schedule = job.schedule;
  described.data = job.data;
  return described;
}

void Append(PreparedJob added, const UpdateSpec& update, PreparedJob& job) {
  job.updates.push_back(Described(update, added));
  for (JobProgram& program : added.programs) {
    program.update = job.updates.size() - 1;
    job.programs.push_back(std::move(program));
  }
  for (std::string& note : added.notes) {
    const bool is_new = std::find(job.notes.begin(), job.notes.end(), note) == job.notes.end();
    if (is_new) job.notes.push_back(std::move(note));
  }
  job.more_graphs.push_back(std::move(added.graph));
}

}  // namespace

absl::StatusOr<UpdateSpec> ParseUpdate(const std::string& text, const TrainingSpec& base) {
  const size_t colon = text.find(':');
  UpdateSpec update;
  update.name = std::string(absl::StripAsciiWhitespace(text.substr(0, colon)));
  if (colon == std::string::npos || !IsUpdateName(update.name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text,
                     "': expected NAME: key=value, ..., as in 'critic: loss=output:loss_d, "
                     "train=critic.*, steps=5'"));
  }
  update.training = base;
  WEFT_RETURN_IF_ERROR(InUpdate(update.name, ReadUpdate(text.substr(colon + 1), update)));
  return update;
}

absl::StatusOr<std::vector<std::string>> AssignParameters(Graph& model,
                                                          std::vector<UpdateSpec>& updates) {
  if (updates.empty()) return absl::InvalidArgumentError("there is no update");
  std::vector<const Variable*> trainable;
  for (const Variable& variable : model.variables()) {
    if (variable.trainable && variable.slot_of.empty()) trainable.push_back(&variable);
  }
  std::map<std::string, std::string> owners;  // the update of each parameter
  std::set<std::string> names;
  std::vector<std::vector<const Variable*>> parameters;
  for (UpdateSpec& update : updates) {
    if (!names.insert(update.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("two updates are called '", update.name, "'"));
    }
    auto own = ParametersOf(update, trainable);
    if (!own.ok()) return InUpdate(update.name, own.status());
    for (const Variable* const variable : *own) {
      const auto [owner, is_new] = owners.emplace(variable->name, update.name);
      if (!is_new) {
        return absl::InvalidArgumentError(
            absl::StrCat("the updates '", owner->second, "' and '", update.name, "' both train '",
                         ShownName(*variable), "'; each parameter is trained by one of them"));
      }
      update.training.updates.push_back(variable->name);
    }
    parameters.push_back(*std::move(own));
  }
  ShareNumbers(parameters, &ParameterGroups::learning_rates, updates);
  ShareNumbers(parameters, &ParameterGroups::weight_decays, updates);
  std::vector<std::string> frozen;
  for (Variable& variable : model.mutable_variables()) {
    if (!variable.trainable || !variable.slot_of.empty() || owners.contains(variable.name))
      continue;
    variable.trainable = false;
    frozen.push_back(ShownName(variable));
  }
  return frozen;
}

absl::StatusOr<std::vector<std::shared_ptr<const DataSet>>> OpenUpdateData(
    FileSystem& files, const Graph& model, const std::vector<UpdateSpec>& updates,
    const DataSpec& data) {
  std::vector<std::shared_ptr<const DataSet>> opened;
  for (const UpdateSpec& update : updates) {
    const auto own = ModelOfUpdate(model, update.training.loss);
    if (!own.ok()) return InUpdate(update.name, own.status());
    auto set = DataSet::Open(files, DataOfUpdate(*own, update, data));
    if (!set.ok()) return InUpdate(update.name, set.status());
    opened.push_back(*std::move(set));
  }
  return opened;
}

absl::StatusOr<PreparedJob> PrepareAlternation(
    const Graph& model, const std::vector<UpdateSpec>& updates,
    const std::vector<std::shared_ptr<const DataSet>>& data, const JobSpec& spec, int64_t steps) {
  JobSpec own = spec;
  own.search.wanted = false;
  std::vector<int64_t> in_a_row;
  for (const UpdateSpec& update : updates) in_a_row.push_back(update.steps);
  const TurnOrder order(in_a_row);
  PreparedJob job;
  for (size_t i = 0; i < updates.size(); ++i) {
    const UpdateSpec& update = updates[i];
    if (update.training.precision == Precision::kFloat16 || update.training.report_gradients ||
        update.training.model_training_info || spec.stored != nullptr) {
      return absl::UnimplementedError(
          "updates in turn go without fp16, saved gradients, stored partitions and a training "
          "algorithm of the model's own");
    }
    auto prepared = PrepareUpdate(model, update, data[i], own, order.StepsOf(i, steps));
    if (!prepared.ok()) return InUpdate(update.name, prepared.status());
    if (i == 0) {
      job = *std::move(prepared);
      job.updates.push_back(Described(update, job));
      WEFT_RETURN_IF_ERROR(CheckReplicas(job.plan, job.plan));
      continue;
    }
    WEFT_RETURN_IF_ERROR(CheckReplicas(prepared->plan, job.plan));
    Append(*std::move(prepared), update, job);
  }
  return job;
}

TurnOrder TurnOrderOf(const std::vector<PreparedUpdate>& updates) {
  std::vector<int64_t> steps;
  for (const PreparedUpdate& update : updates) steps.push_back(update.steps);
  return TurnOrder(std::move(steps));
}

}  // namespace weft
