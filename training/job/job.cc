#include "training/job/job.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "executor/program/planned_memory.h"
#include "graph/passes/pass.h"
#include "ops/custom/loaded_libraries.h"
#include "ops/fusion/fusion_rules.h"
#include "ops/node_runner.h"
#include "placement/completion/plan_completion.h"
#include "placement/graph_views/absent_names.h"
#include "placement/graph_views/graph_digest.h"
#include "placement/partition/partitioner.h"
#include "placement/search/given_plan.h"
#include "placement/simulation/plan_prediction.h"
#include "platform/byte_quantity.h"
#include "platform/cpu_info.h"
#include "platform/log.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "tensor/device.h"
#include "tensor/device_id.h"
#include "training/data/batch_reader.h"
#include "training/graph/optimizer.h"
#include "training/job/batch_cuts.h"
#include "training/job/card_paths.h"
#include "training/job/compiled_memory.h"
#include "training/job/cpu_fallback.h"
#include "training/job/fused_nodes.h"
#include "training/job/job_search.h"
#include "training/job/rank_device.h"
#include "training/job/replication.h"

namespace weft {
namespace {

// Dimensions of one sample of `input`: the graph's where it knows them, else the data's.
absl::StatusOr<std::vector<Dim>> SampleDims(const ValueDef& input, const DataSet& data_set,
                                            int64_t length) {
  const DataColumn& data = *data_set.Find(input.name);
  const Shape sample = data_set.SampleShape(input.name, length);
  std::vector<Dim> from_data;
  for (int64_t dim : sample.dims()) from_data.push_back(dim);
  const SymbolicShape& shape = input.type.shape;
  if (!shape.has_rank()) return from_data;
  if (shape.rank() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("input '", input.name, "' is a scalar; it has no axis for samples"));
  }
  std::vector<Dim> dims(shape.dims().begin() + 1, shape.dims().end());
  const bool same_rank = dims.size() == from_data.size();
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i].is_known()) continue;
    if (!same_rank) {
      return absl::InvalidArgumentError(
          absl::StrCat("input '", input.name, "' is ", input.type.ToString(), " and the data ",
                       data.shape().ToString(), ": dimension ", i + 1, " is unknown"));
    }
    dims[i] = from_data[i];
  }
  return dims;
}

// What exporters compute from constants may decide shapes.
absl::Status FoldBound(Graph& graph, const GraphObserver& observe) {
  PassPipeline passes;
  passes.Add(NewInferShapesPass())
      .Add(NewFoldConstantsPass(CpuNodeEvaluator()))
      .Add(NewInferShapesPass())
      .DumpAfterEach(observe);
  return passes.Run(graph).status();
}

// Axis 0 becomes symbolic, the others get sizes.
absl::Status BindInput(ValueDef& input, const InputSizes& sizes,
                       std::vector<std::string>* assumed) {
  const SymbolicShape& shape = input.type.shape;
  if (!shape.has_rank() || shape.rank() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("input '", input.name, "' is ", input.type.ToString(),
                     ": without data, an input needs a shape with an axis for samples"));
  }
  std::vector<Dim> dims = shape.dims();
  if (!dims[0].is_symbol()) dims[0] = Dim::Symbol("batch");
  for (size_t i = 1; i < dims.size(); ++i) {
    if (dims[i].is_known()) continue;
    const std::string name =
        dims[i].is_symbol() ? dims[i].symbol() : absl::StrCat(input.name, "[", i, "]");
    const auto given = sizes.by_name.find(name);
    const bool is_given = given != sizes.by_name.end();
    dims[i] = is_given ? given->second : sizes.other;
    if (is_given || assumed == nullptr) continue;
    std::string text = absl::StrCat(name, " = ", sizes.other);
    const bool is_new = std::find(assumed->begin(), assumed->end(), text) == assumed->end();
    if (is_new) assumed->push_back(std::move(text));
  }
  input.type.shape = SymbolicShape(std::move(dims));
  return absl::OkStatus();
}

absl::Status CheckInputs(const Graph& graph, const DataSet& data) {
  for (ValueId id : graph.inputs()) {
    if (graph.input_role(id) != InputRole::kData) continue;
    const ValueDef& input = graph.value(id);
    FeedInput feed{input.name, InputRole::kData, input.type.dtype, {}};
    if (data.Find(input.name) != nullptr) {
      for (int i = 1; i < input.type.shape.rank(); ++i) {
        feed.sample_shape.AddDim(input.type.shape.dim(i).size());
      }
    }
    WEFT_RETURN_IF_ERROR(CheckInputFits(data, feed));
  }
  return absl::OkStatus();
}

// What to do where shapes in a model say for how many samples it was exported; "" where that is not
// it. Annotates an error of a step of `batch` samples.
std::string FixedBatchHint(const Graph& model, const Plan& plan, int64_t batch) {
  for (const ValueId id : model.inputs()) {
    const SymbolicShape& shape = model.value(id).type.shape;
    const bool is_fixed = model.input_role(id) == InputRole::kData && shape.has_rank() &&
                          shape.rank() > 0 && shape.dim(0).is_known();
    if (!is_fixed) continue;
    const int64_t samples = shape.dim(0).size();
    if (samples < 1 || batch % samples != 0 || batch == samples * plan.micro_batches) return "";
    return absl::StrCat("; the model was exported for a batch of ", samples,
                        ", and shapes in it say so: add --micro-batches ", batch / samples,
                        ", so that each micro-batch has as many");
  }
  return "";
}

// What every rank runs in a step of this shape. `model` is for the error's text.
absl::StatusOr<std::vector<Partition>> PartitionShape(const Graph& graph, const Graph& model,
                                                      const Plan& plan, const BatchShape& shape,
                                                      bool training) {
  absl::StatusOr<std::vector<Partition>> partitions =
      PartitionStep(graph, plan, {training, shape.batch}, CpuNodeEvaluator());
  if (partitions.ok()) return partitions;
  const std::string hint = FixedBatchHint(model, plan, shape.batch);
  const absl::Status hinted(partitions.status().code(),
                            absl::StrCat(std::string(partitions.status().message()), hint));
  return Annotate(hinted,
                  absl::StrCat("partitioning for a batch of ", shape.batch,
                               shape.length > 0 ? absl::StrCat(" of length ", shape.length) : ""));
}

// The graph of a step whose padded inputs have this length.
using GraphOfLength = std::function<absl::StatusOr<Graph>(int64_t length)>;

// A program for each shape of a step. What is computed from shapes is folded, so that each length
// has a graph of its own; `graph` is that of the first, borrowed.
absl::Status AddPrograms(PreparedJob& job, const Graph& model, const Graph* graph,
                         const GraphOfLength& graph_of, const std::string& kind, bool training) {
  const std::vector<BatchShape> shapes = job.data->shapes();
  std::optional<Graph> other;
  int64_t length = shapes.front().length;
  for (const BatchShape& shape : shapes) {
    if (shape.length != length) {
      WEFT_ASSIGN_OR_RETURN(other, graph_of(shape.length));
      graph = &*other;
      length = shape.length;
      WEFT_RETURN_IF_ERROR(CheckInputs(*graph, *job.data));
    }
    WEFT_ASSIGN_OR_RETURN(std::vector<Partition> partitions,
                          PartitionShape(*graph, model, job.plan, shape, training));
    if (job.workers_settle_fallback) {
      for (Partition& partition : partitions) partition.host_ops = AnyOperator();
    }
    job.programs.push_back({ProgramName(kind, shape), shape, std::move(partitions)});
  }
  return absl::OkStatus();
}

// Borrows the arguments.
GraphOfLength TrainingGraphs(const Graph& model, const TrainingSpec& training,
                             const DataSet& data_set) {
  return [&model, &data_set, training](int64_t length) -> absl::StatusOr<Graph> {
    Graph bound = model.Clone();
    WEFT_RETURN_IF_ERROR(BindInputs(bound, data_set, length));
    WEFT_ASSIGN_OR_RETURN(Graph graph, BuildTrainingGraph(bound, training));
    WEFT_RETURN_IF_ERROR(BindInputs(graph, data_set, length));
    return graph;
  };
}

absl::StatusOr<Plan> Complete(const Graph& graph, const JobSpec& spec, const DataSet& data) {
  Plan plan = spec.plan;
  if (spec.drop_absent_names) DropAbsentNames(graph, plan);
  if (plan.strict) {
    plan.reduction = Reduction::kOrderedTree;
    plan.threads_per_worker = 1;
  }
  if (!LeavesTensorAxisOpen(plan)) {
    return CompletePlan(graph, spec.cluster, std::move(plan), data.batch_of(0));
  }
  WEFT_ASSIGN_OR_RETURN(const CostModel costs, CostsOf(spec, GraphDigest(graph)));
  return CompleteGivenPlan(graph, spec.cluster, costs, std::move(plan), data.batch_of(0),
                           CpuNodeEvaluator());
}

// Searched for or completed; notes what people should know.
absl::Status ChoosePlan(const JobSpec& given, const TrainingSpec& training, PreparedJob& job) {
  JobSpec spec = given;
  const int64_t batch = job.data->batch_of(0);
  // A model's training info runs whole batches anyway (TakePlan).
  if (!training.model_training_info) {
    WEFT_RETURN_IF_ERROR(LimitBatchCuts(job.graph, batch, spec));
  }
  if (!spec.search.batch_reason.empty() && spec.cluster.workers.size() > 1) {
    job.notes.push_back(spec.search.batch_reason);
  }
  WEFT_RETURN_IF_ERROR(
      SettleCpuFallback(job.graph, batch, KernelRegistry::Global(), spec, job.notes));
  job.workers_settle_fallback = WorkersSettleFallback(spec, KernelRegistry::Global());
  if (spec.search.wanted && !training.model_training_info) {
    WEFT_ASSIGN_OR_RETURN(const CostModel costs, CostsOf(spec, GraphDigest(job.graph)));
    absl::StatusOr<SearchResult> found = SearchJobPlan(job.graph, spec, costs, batch);
    if (absl::IsResourceExhausted(found.status())) {
      // CheckPlanFits will refuse it, and say what would fit.
      auto estimated = SearchJobPlanByEstimates(job.graph, spec, costs, batch);
      if (estimated.ok()) found = std::move(estimated);
    }
    if (found.ok()) {
      job.plan = found->plan;
      const std::string note = NoteOnFewerWorkers(job.graph, spec, costs, batch, *found);
      if (!note.empty()) job.notes.push_back(note);
      return absl::OkStatus();
    }
    const bool is_final = spec.search.demanded || absl::IsResourceExhausted(found.status());
    if (is_final) return found.status();
    job.notes.push_back(
        absl::StrCat("no plan was searched for: ", std::string(found.status().message())));
    KeepReplicaLimit(spec);
  }
  WEFT_ASSIGN_OR_RETURN(job.plan, Complete(job.graph, spec, *job.data));
  return absl::OkStatus();
}

// As given: evaluations are not searched for. But where nodes mix samples, and nobody gave a mesh,
// one worker keeps the batch whole.
absl::Status CompleteEvaluation(const JobSpec& given, PreparedJob& job) {
  JobSpec spec = given;
  PlanSearch& search = spec.search;
  const bool is_open = spec.plan.mesh.size() == 1 && spec.plan.workers.empty();
  if (is_open && !search.wanted) {
    // What was given stays, and what was not is found, as by a search.
    search.wanted = true;
    search.keep_micro_batches = spec.plan.micro_batches > 1;
  }
  WEFT_RETURN_IF_ERROR(LimitBatchCuts(job.graph, job.data->batch_of(0), spec, /*evaluation=*/true));
  KeepReplicaLimit(spec);
  if (!search.batch_reason.empty() && spec.cluster.workers.size() > 1) {
    job.notes.push_back(search.batch_reason);
  }
  WEFT_RETURN_IF_ERROR(SettleCpuFallback(job.graph, job.data->batch_of(0), KernelRegistry::Global(),
                                         spec, job.notes));
  job.workers_settle_fallback = WorkersSettleFallback(spec, KernelRegistry::Global());
  WEFT_ASSIGN_OR_RETURN(job.plan, Complete(job.graph, spec, *job.data));
  return absl::OkStatus();
}

const WorkerSpec* WorkerOf(const JobSpec& spec, const Plan& plan, int rank) {
  if (static_cast<size_t>(rank) >= plan.workers.size()) return nullptr;
  const auto worker = static_cast<size_t>(plan.workers[static_cast<size_t>(rank)]);
  return worker < spec.cluster.workers.size() ? &spec.cluster.workers[worker] : nullptr;
}

// By rank; 0 where nobody says.
std::vector<int64_t> MemoryLimitsByRank(const JobSpec& spec, const Plan& plan, int ranks) {
  std::vector<int64_t> limits;
  for (int rank = 0; rank < ranks; ++rank) {
    const WorkerSpec* const worker = WorkerOf(spec, plan, rank);
    const bool said = worker != nullptr && worker->memory_bytes > 0;
    // --memory-per-worker is the host's; `memory:` of a worker with a GPU is the GPU's.
    const bool is_gpu = worker != nullptr && worker->device == DeviceKind::kCuda;
    limits.push_back(said ? worker->memory_bytes : is_gpu ? 0 : spec.memory_per_worker);
  }
  return limits;
}

// By rank; "" where the plan has no such worker.
std::vector<std::string> DevicesByRank(const JobSpec& spec, const Plan& plan, int ranks) {
  std::vector<std::string> devices;
  for (int rank = 0; rank < ranks; ++rank) {
    const WorkerSpec* const worker = WorkerOf(spec, plan, rank);
    devices.push_back(worker == nullptr ? "" : ExpectedDevice(*worker));
  }
  return devices;
}

// A line for each that computes on a device of its own.
void LogDevices(const std::vector<WorkerInfo>& workers) {
  for (size_t rank = 0; rank < workers.size(); ++rank) {
    const WorkerDevice& device = workers[rank].device;
    if (device.text.empty()) continue;
    Log(LogLevel::kInfo, "worker:", rank, " computes on ", device.name, " (", device.text, ", ",
        ByteQuantity(device.memory_bytes), ", kernels of ", device.kernels, " operators)");
  }
}

absl::Status AddPrograms(Coordinator& coordinator, const PreparedJob& job) {
  for (const JobProgram& program : job.programs) {
    const std::string data = job.data_of(program).spec().ToJson();
    LoggedPhase phase(absl::StrCat("program '", program.name, "'"));
    WEFT_ASSIGN_OR_RETURN(const std::vector<MemoryRequirement> needed,
                          coordinator.AddProgram(program.name, program.partitions, data));
    int64_t max_total = 0;
    for (const MemoryRequirement& worker : needed) max_total = std::max(max_total, worker.total());
    phase.Note("with what came before at most ", ByteQuantity(max_total), " on a worker");
  }
  return absl::OkStatus();
}

// Where its workers decide what runs on hosts (WorkersSettleFallback).
absl::Status CheckHostNodes(Coordinator& coordinator, const PreparedJob& job) {
  if (!job.workers_settle_fallback) return absl::OkStatus();
  std::set<std::string> notes;
  for (const JobProgram& program : job.programs) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<HostNodes> answers,
                          coordinator.AskAll(HostNodesRequest{program.name}));
    std::vector<std::vector<std::string>> nodes;
    for (const HostNodes& answer : answers) nodes.push_back(answer.names);
    WEFT_ASSIGN_OR_RETURN(const std::string note, SettleHostNodes(program.partitions, nodes));
    if (!note.empty() && notes.insert(note).second) Log(LogLevel::kInfo, note);
  }
  return absl::OkStatus();
}

// Unimplemented unless both jobs have each variable in the same parts on the same ranks.
absl::Status CheckSharedVariables(const PreparedJob& training, const PreparedJob& evaluation) {
  const std::vector<Partition>& theirs = training.programs.front().partitions;
  for (size_t rank = 0; rank < theirs.size(); ++rank) {
    std::map<std::string, Shape> shapes;
    for (const VariableShard& shard : theirs[rank].variables) {
      shapes[shard.name] = shard.local_shape;
    }
    for (const VariableShard& shard : evaluation.programs.front().partitions[rank].variables) {
      const auto shape = shapes.find(shard.name);
      if (shape == shapes.end() || shape->second == shard.local_shape) continue;
      return absl::UnimplementedError(
          absl::StrCat("no evaluation within a job whose plan has ", shape->second.ToString(),
                       " of variable '", shard.name, "' on worker:", rank,
                       ", where a forward pass needs ", shard.local_shape.ToString(),
                       "; train under another plan, or evaluate the trained model"));
    }
  }
  return absl::OkStatus();
}

// The model reads the averages of the training job's parameters, and they lie as the job has them.
absl::Status UseAverages(const Graph& training, Graph& model, Plan& plan) {
  bool any = false;
  const auto rename = [](auto& by_name, const std::string& from, const std::string& to) {
    if (auto entry = by_name.extract(from); !entry.empty()) {
      entry.key() = to;
      by_name.insert(std::move(entry));
    }
  };
  for (Variable& variable : model.mutable_variables()) {
    const std::string average = MovingAverageOf(training, variable.name);
    if (average.empty()) continue;
    any = true;
    rename(plan.tensor_shardings, variable.name, average);
    rename(plan.zero_replicated, variable.name, average);
    model.RenameValue(variable.value, average);
    variable.name = average;
  }
  // They are split with the optimizer's state.
  if (plan.zero > 0) plan.zero = 3;
  if (any) return absl::OkStatus();
  return absl::FailedPreconditionError("the job keeps no averages of its parameters");
}

// Those that nobody gave a limit share their host's.
absl::Status CheckHosts(const std::vector<WorkerMemory>& memory, const JobSpec& spec,
                        const Plan& plan) {
  const auto limits = MemoryLimitsByRank(spec, plan, static_cast<int>(memory.size()));
  std::map<std::string, std::vector<WorkerMemory>> hosts;
  for (size_t rank = 0; rank < memory.size(); ++rank) {
    const WorkerSpec* const worker = WorkerOf(spec, plan, static_cast<int>(rank));
    const bool is_gpu = worker != nullptr && worker->device == DeviceKind::kCuda;
    if (worker != nullptr && (is_gpu || limits[rank] == 0)) {
      hosts[worker->host].push_back(memory[rank]);
    }
  }
  for (const auto& [host, workers] : hosts) {
    WEFT_RETURN_IF_ERROR(CheckFitTogether(host, workers));
  }
  return absl::OkStatus();
}

// Searched for, completed or stored with its programs.
absl::Status TakePlan(const JobSpec& spec, const TrainingSpec& training, PreparedJob& job) {
  LoggedPhase phase("plan");
  WEFT_RETURN_IF_ERROR(spec.stored == nullptr ? ChoosePlan(spec, training, job)
                                              : TakeStoredPrograms(spec, kTrainingSteps, job));
  phase.Note(job.plan.mesh.ToString(), ", ", job.plan.micro_batches, " micro-batches");
  const bool is_whole = job.plan.mesh.size() == 1 && job.plan.micro_batches == 1;
  if (!training.model_training_info || is_whole) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the model's own training algorithm takes whole batches on one worker, the plan is ",
      job.plan.mesh.ToString(), " with ", job.plan.micro_batches,
      " micro-batches; leave out --local, --parallel, --strict and --micro-batches, or take "
      "another optimizer"));
}

// Of steps that report nothing but their loss.
TrainingSpec Plain(const TrainingSpec& training) {
  TrainingSpec plain = training;
  plain.report_gradients = false;
  plain.measure_noise = false;
  return plain;
}

// Those of the first step, which report its gradients.
absl::Status AddReportingPrograms(const Graph& model, const TrainingSpec& training,
                                  const JobSpec& spec, PreparedJob& job) {
  if (spec.stored != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("gradients are reported by a program of their own, which the partitions in '",
                     spec.stored->folder, "' have not; leave out --save-gradients"));
  }
  TrainingSpec gradients = training;
  gradients.measure_noise = false;
  const GraphOfLength reporting = TrainingGraphs(model, gradients, *job.data);
  WEFT_ASSIGN_OR_RETURN(const Graph first, reporting(0));
  return AddPrograms(job, model, &first, reporting, "gradients", /*training=*/true);
}

// Why the noise of the gradient cannot be measured under this plan, or that it can.
absl::Status CheckNoisePlan(const JobSpec& spec, const TrainingSpec& training, const Plan& plan) {
  // Who measures alone has not given --noise-scale.
  if (spec.stored != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the noise of the gradient is measured by a program of its own, which the partitions in '",
        spec.stored->folder, "' have not", spec.measures_only ? "" : "; leave out --noise-scale"));
  }
  if (training.model_training_info) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the noise of the gradient is measured between micro-batches, and the model's own training "
        "algorithm takes whole batches; take another optimizer",
        spec.measures_only ? "" : ", or leave out --noise-scale"));
  }
  if (plan.micro_batches < 2) {
    return absl::InvalidArgumentError(
        "the noise of the gradient is measured between the micro-batches of a step, and this plan "
        "has 1; give --micro-batches 2 or more");
  }
  // Its norm needs whole gradients. Sums over three replicas and more round otherwise then, which
  // does not matter to weights that are thrown away.
  if (plan.zero >= 2 && plan.mesh.data > 2 && !plan.strict && !spec.measures_only) {
    return absl::InvalidArgumentError(absl::StrCat(
        "with zero=", plan.zero,
        " each replica has a part of the gradients, and to measure their "
        "noise they would be summed in another order over ",
        plan.mesh.data,
        " replicas, which changes the training; give --strict, or zero=1, or leave out "
        "--noise-scale"));
  }
  return absl::OkStatus();
}

// Those of steps that measure the noise of their gradient.
absl::Status AddNoisePrograms(const Graph& model, const TrainingSpec& training, PreparedJob& job) {
  TrainingSpec measuring = training;
  measuring.report_gradients = false;
  const GraphOfLength graph_of = TrainingGraphs(model, measuring, *job.data);
  WEFT_ASSIGN_OR_RETURN(const Graph first, graph_of(0));
  return AddPrograms(job, model, &first, graph_of, kNoiseSteps, /*training=*/true);
}

}  // namespace

absl::Status BindInputs(Graph& graph, const DataSet& data, int64_t length,
                        const GraphObserver& observe) {
  for (ValueId id : graph.inputs()) {
    if (graph.input_role(id) != InputRole::kData) continue;
    ValueDef& input = graph.value(id);
    if (data.Find(input.name) == nullptr) continue;
    WEFT_ASSIGN_OR_RETURN(std::vector<Dim> dims, SampleDims(input, data, length));
    const SymbolicShape& old = input.type.shape;
    Dim samples = Dim::Symbol("batch");
    if (old.has_rank() && old.rank() > 0 && old.dim(0).is_symbol()) samples = old.dim(0);
    dims.insert(dims.begin(), samples);
    input.type.shape = SymbolicShape(std::move(dims));
  }
  return FoldBound(graph, observe);
}

absl::Status BindInputs(Graph& graph, const InputSizes& sizes, std::vector<std::string>* assumed,
                        const GraphObserver& observe) {
  for (const ValueId id : graph.inputs()) {
    if (graph.input_role(id) != InputRole::kData) continue;
    WEFT_RETURN_IF_ERROR(BindInput(graph.value(id), sizes, assumed));
  }
  return FoldBound(graph, observe);
}

absl::Status CheckStepRuns(const Graph& training_graph, const Graph& model, int64_t batch) {
  const ClusterSpec cluster = ClusterSpec::Local(1, 1);
  WEFT_ASSIGN_OR_RETURN(const Plan plan, CompletePlan(training_graph, cluster, Plan(), batch));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Partition> partitions,
                        PartitionShape(training_graph, model, plan, {batch, 0}, /*training=*/true));
  for (const Partition& partition : partitions) {
    WEFT_ASSIGN_OR_RETURN(Device* const device, DeviceOfRank(cluster, plan, partition.rank));
    WEFT_RETURN_IF_ERROR(
        PlanProgram(partition, *device, std::numeric_limits<int64_t>::max()).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<PreparedJob> PrepareTraining(const Graph& model, const TrainingSpec& training,
                                            const JobSpec& spec,
                                            std::shared_ptr<const DataSet> data) {
  PreparedJob job;
  job.data = std::move(data);
  job.cluster = spec.cluster;
  job.learning_rate = training.optimizer.learning_rate;
  job.schedule = training.schedule;
  const TrainingSpec plain = Plain(training);
  const GraphOfLength graph_of = TrainingGraphs(model, plain, *job.data);
  LoggedPhase differentiate("differentiate");
  WEFT_ASSIGN_OR_RETURN(job.graph, graph_of(0));
  WEFT_RETURN_IF_ERROR(CheckInputs(job.graph, *job.data));
  differentiate.Note(job.graph.num_nodes(), " nodes");
  differentiate.End();
  WEFT_RETURN_IF_ERROR(TakePlan(spec, training, job));
  if (training.measure_noise) {
    WEFT_RETURN_IF_ERROR(CheckNoisePlan(spec, training, job.plan));
  }
  LoggedPhase partition("partition");
  if (spec.stored == nullptr) {
    WEFT_RETURN_IF_ERROR(
        AddPrograms(job, model, &job.graph, graph_of, kTrainingSteps, /*training=*/true));
  }
  partition.Note("kinds of steps: ", job.programs.size());
  partition.End();
  LoggedPhase predict("predict");
  WEFT_ASSIGN_OR_RETURN(const CostModel costs, CostsOf(spec, job.plan.model_digest));
  const std::vector<Partition>& partitions = job.programs.front().partitions;
  job.planned = PlanRanks(partitions, spec.cluster, job.plan);
  WEFT_ASSIGN_OR_RETURN(const HostPaths host, PlannedHostPaths(spec.cluster, job.plan, partitions));
  WEFT_RETURN_IF_ERROR(PredictPlan(partitions, costs, job.plan, MemoryIn(job.planned), host));
  job.step_factor = costs.StepFactor(job.plan);
  WEFT_ASSIGN_OR_RETURN(const HostWork host_work,
                        HostWorkOf(partitions, job.plan, costs.WithHostOps(job.plan.host_ops)));
  if (!host_work.nodes.empty()) job.notes.push_back(HostWorkText(host_work, job.plan));
  WEFT_ASSIGN_OR_RETURN(JobFusion fusion, FusionOf(partitions, spec.cluster, job.plan,
                                                   FindFusionRules(DeviceKind::kCuda)));
  if (!fusion.text.empty()) job.notes.push_back(std::move(fusion.text));
  predict.End();
  if (training.report_gradients) {
    WEFT_RETURN_IF_ERROR(AddReportingPrograms(model, training, spec, job));
  }
  if (training.measure_noise) WEFT_RETURN_IF_ERROR(AddNoisePrograms(model, training, job));
  return job;
}

absl::StatusOr<PreparedJob> PrepareEvaluation(const Graph& model, const LossSpec& loss,
                                              const std::vector<std::string>& metrics,
                                              const JobSpec& spec,
                                              std::shared_ptr<const DataSet> data) {
  PreparedJob job;
  job.data = std::move(data);
  job.cluster = spec.cluster;
  const auto graph_of = [&, &data_set = *job.data](int64_t length) -> absl::StatusOr<Graph> {
    Graph bound = model.Clone();
    WEFT_RETURN_IF_ERROR(BindInputs(bound, data_set, length));
    WEFT_ASSIGN_OR_RETURN(Graph graph,
                          BuildEvaluationGraph(bound, loss, metrics, data_set.batch_of(0)));
    WEFT_RETURN_IF_ERROR(BindInputs(graph, data_set, length));
    return graph;
  };
  WEFT_ASSIGN_OR_RETURN(job.graph, graph_of(0));
  WEFT_RETURN_IF_ERROR(CheckInputs(job.graph, *job.data));
  if (spec.stored != nullptr) {
    WEFT_RETURN_IF_ERROR(TakeStoredPrograms(spec, kEvaluationSteps, job));
    return job;
  }
  WEFT_RETURN_IF_ERROR(CompleteEvaluation(spec, job));
  WEFT_RETURN_IF_ERROR(
      AddPrograms(job, model, &job.graph, graph_of, kEvaluationSteps, /*training=*/false));
  return job;
}

absl::StatusOr<PreparedJob> PrepareEvaluationWithin(const PreparedJob& training, const Graph& model,
                                                    const LossSpec& loss,
                                                    const std::vector<std::string>& metrics,
                                                    const JobSpec& spec,
                                                    std::shared_ptr<const DataSet> data,
                                                    bool averages) {
  JobSpec within = spec;
  within.plan = training.plan;
  within.plan.model_digest = 0;  // another graph
  within.plan.recompute.clear();
  Graph measured = model.Clone();
  if (averages) WEFT_RETURN_IF_ERROR(UseAverages(training.graph, measured, within.plan));
  WEFT_ASSIGN_OR_RETURN(PreparedJob job,
                        PrepareEvaluation(measured, loss, metrics, within, std::move(data)));
  WEFT_RETURN_IF_ERROR(CheckSharedVariables(training, job));
  return job;
}

absl::StatusOr<std::vector<JobProgram>> PartitionTraining(const PreparedJob& job,
                                                          const Graph& model,
                                                          const TrainingSpec& training,
                                                          const Plan& plan,
                                                          const std::string& kind) {
  const TrainingSpec plain = Plain(training);
  PreparedJob other;
  other.data = job.data;
  other.plan = plan;
  other.workers_settle_fallback = job.workers_settle_fallback;
  WEFT_RETURN_IF_ERROR(AddPrograms(other, model, &job.graph,
                                   TrainingGraphs(model, plain, *job.data), kind,
                                   /*training=*/true));
  return std::move(other.programs);
}

std::vector<StepRange> StepRanges(const DataSet& data, const std::string& kind, int64_t first,
                                  int64_t last, const std::map<std::string, double>& scalars) {
  std::vector<StepRange> ranges;
  for (int64_t step = first; step < last; ++step) {
    std::string program = ProgramName(kind, data.shape_of(step));
    if (ranges.empty() || ranges.back().program != program) {
      ranges.push_back({std::move(program), step, 0, scalars});
    }
    ++ranges.back().count;
  }
  return ranges;
}

absl::Status StartJob(Coordinator& coordinator, const PreparedJob& job, const JobSpec& spec,
                      const std::string& version, std::vector<std::string> addresses,
                      const PreparedJob* evaluation, const JobStart& start) {
  std::random_device random;
  JobMembership membership;
  membership.job_id = (uint64_t{random()} << 32) | random();
  membership.addresses = std::move(addresses);
  membership.version = version;
  membership.model_digest = job.plan.model_digest;
  membership.plan_digest = job.plan.cluster_digest;
  membership.strict = job.plan.strict;
  membership.instruction_set = std::string(InstructionSetName(EffectiveInstructionSet()));
  membership.op_libraries = OpLibraryIdentities();
  membership.stall_timeout_seconds = spec.stall_timeout_seconds;
  membership.checkpoints = spec.checkpoints;
  membership.commits = spec.commits;
  membership.epoch = start.epoch;
  membership.job_digest = start.job_digest;
  membership.continues_job_id = start.continues_job_id;
  membership.recovers_job_id = start.recovers_job_id;
  membership.replication = ReplicationOf(job.programs, job.plan, spec.replicate_every);
  LoggedPhase join("join");
  WEFT_ASSIGN_OR_RETURN(
      const std::vector<WorkerInfo> workers,
      coordinator.Join(membership, MemoryLimitsByRank(spec, job.plan, coordinator.size()),
                       DevicesByRank(spec, job.plan, coordinator.size()), start.newcomers));
  LogDevices(workers);
  if (spec.costs != nullptr) {
    WEFT_RETURN_IF_ERROR(CheckJoinedCards(spec.costs->profile(), spec.cluster, job.plan, workers));
  }
  join.End();
  WEFT_RETURN_IF_ERROR(AddPrograms(coordinator, job, evaluation));
  WEFT_RETURN_IF_ERROR(CheckHosts(coordinator.memory(), spec, job.plan));
  if (start.continues_job_id != 0) return HandOverState(coordinator, start.handovers);
  return WriteInitialValues(coordinator, job, {});
}

absl::Status WriteInitialValues(Coordinator& coordinator, const PreparedJob& job,
                                const std::set<std::string>& others) {
  std::map<std::string, Tensor> initial;
  for (const Graph* const graph : job.graphs()) {
    for (const Variable& variable : graph->variables()) {
      const bool is_meant = variable.initial.valid() && !others.contains(variable.name);
      if (is_meant) initial[variable.name] = variable.initial;
    }
  }
  const LoggedPhase phase("variables");
  return coordinator.WriteVariables(initial);
}

absl::Status AddPrograms(Coordinator& coordinator, const PreparedJob& job,
                         const PreparedJob* evaluation) {
  for (const PreparedJob* const one : {&job, evaluation}) {
    if (one == nullptr) continue;
    WEFT_RETURN_IF_ERROR(AddPrograms(coordinator, *one));
    WEFT_RETURN_IF_ERROR(CheckHostNodes(coordinator, *one));
  }
  return absl::OkStatus();
}

InputSourceFactory NewDataSetFactory(FileSystem& files) {
  return [&files](const std::string& text) -> absl::StatusOr<std::unique_ptr<InputSource>> {
    WEFT_ASSIGN_OR_RETURN(DataSpec spec, DataSpec::FromJson(text));
    WEFT_ASSIGN_OR_RETURN(std::shared_ptr<const DataSet> data, DataSet::Open(files, spec));
    return NewDataSetSource(std::move(data));
  };
}

}  // namespace weft
