#include "tools/flags/job_flags.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "onnx_import/training_info.h"
#include "placement/cost/cluster_profile.h"
#include "placement/cost/profile_file.h"
#include "placement/files/plan_file.h"
#include "placement/search/search_strategy.h"
#include "platform/cpu_info.h"
#include "platform/file_system.h"
#include "platform/process_memory.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "platform/text/units.h"
#include "tools/console/exit_code.h"
#include "tools/flags/local_devices.h"
#include "tools/flags/loop_flags.h"
#include "tools/flags/options.h"
#include "training/graph/model_initialization.h"
#include "training/job/partition_folder.h"
#include "training/job/rank_device.h"

namespace weft {
namespace {

constexpr char kPlacementOptions[] = "placement";
// Of --parallel: the fastest plan that fits, of any workers and of all.
constexpr char kAuto[] = "auto";
constexpr char kAll[] = "all";
// Values of --cpu-fallback.
constexpr char kAllow[] = "allow";
constexpr char kRefuse[] = "refuse";
// Of --batch-norm.
constexpr char kGlobalStatistics[] = "global";
constexpr char kMicroStatistics[] = "micro";
// Of strict jobs that do not say how many. Part of what the bits depend on: never changed.
constexpr int kStrictMicroBatches = 4;

// A file of YAML takes a hundred times its size while it is read.
constexpr int64_t kLongestYaml = int64_t{16} << 20;
constexpr int64_t kLongestHistory = int64_t{64} << 20;

// What every worker can have that does not say its threads: what is left to each where its host's
// workers share `cores` (of this machine: the others are taken to be like it).
int ThreadsOf(const ClusterSpec& cluster, int cores) {
  std::map<std::string, int> workers_on;
  for (const WorkerSpec& worker : cluster.workers) ++workers_on[worker.host];
  int min_threads = cores;
  for (const WorkerSpec& worker : cluster.workers) {
    if (worker.threads > 0) continue;
    min_threads = std::min(min_threads, ThreadBudget(cores, workers_on[worker.host]));
  }
  return min_threads;
}

// "" for a strategy that there is.
std::string CheckStrategy(const std::string& text) {
  const auto strategy = NewSearchStrategy(text);
  return strategy.ok() ? "" : std::string(strategy.status().message());
}

}  // namespace

bool JobFlags::searches() const {
  return plan_file_.empty() && pins_.empty() &&
         (parallel_.empty() || parallel_ == kAuto || parallel_ == kAll);
}

bool JobFlags::IsOfPlacement(const CLI::Option& option) {
  return option.get_group() == kPlacementOptions || option.check_lname("local") ||
         option.check_lname("cluster");
}

void JobFlags::AddModel(CLI::App& app) {
  app.add_option("MODEL", model_, "the model")->type_name("MODEL.onnx")->required();
}

void JobFlags::AddPlacement(CLI::App& app) {
  CLI::Option* const local =
      app.add_option("--local", local_workers_, "start N worker processes on this machine")
          ->type_name("N")
          ->check(AtLeastOne);
  app.add_option("--cluster", cluster_file_, "use the workers of a cluster file")
      ->type_name("FILE.yaml")
      ->excludes(local);
  app.add_option("--device", devices_,
                 "devices of the workers on this machine, one for all or one for each: cpu, cuda, "
                 "cuda:NUMBER (default cpu)")
      ->type_name("DEVICE[,DEVICE]")
      ->excludes("--cluster")
      ->group(kPlacementOptions);
  // Workers of a cluster file were given it when they were started.
  AddTransport(app, transport_)->excludes("--cluster")->group(kPlacementOptions);
  app.add_option("--cudnn", cudnn_,
                 "whether convolutions, attention and normalizations of CUDA devices go through "
                 "cuDNN 9, where it can compute them (attention with --precision bf16 or fp16). A "
                 "device without it then ends the job. It is "
                 "new: gpu_check compares it with our own kernels (default off)")
      ->type_name("on|off")
      ->check(CLI::IsMember({"on", "off"}).description(""))
      ->group(kPlacementOptions);
  app.add_option(
         "--fuse", fuse_,
         "auto: CUDA devices compute chains of elementwise nodes by one kernel each, which "
         "NVRTC compiles, and products with their bias and Gelu by one call of cuBLASLt. Not with "
         "--strict. It is new: gpu_check compares it (default off)")
      ->type_name("auto|off")
      ->check(CLI::IsMember({"auto", "off"}).description(""))
      ->group(kPlacementOptions);
  CLI::Option* const parallel =
      app.add_option(
             "--parallel", parallel_,
             "the plan in short: replicas dp, shards tp, stages pp. With zero=1, 2 or 3, dp splits "
             "optimizer state, gradients, parameters. With recompute=N, each stage is cut into N "
             "segments whose activations are computed again instead of kept (all: each stage is "
             "one segment; or patterns of nodes, joined by +). With shares=2:1, replicas get "
             "unequal numbers of micro-batches. The value auto searches for the fastest plan that "
             "fits, all for the fastest that uses all workers. Default: auto in train, plan and "
             "simulate, else dp over all workers (eval: on one where nodes mix samples)")
          ->type_name("auto|all|dp=2,tp=1,pp=2,zero=1")
          ->group(kPlacementOptions);
  app.add_option("--plan", plan_file_, "a plan file; Weft completes keys that it leaves out")
      ->type_name("FILE.yaml")
      ->excludes(parallel)
      ->group(kPlacementOptions);
  app.add_option(
         "--search", search_,
         "strategy of the search: dp (dynamic programming), anneal, or exhaustive for small "
         "models (default dp)")
      ->type_name("STRATEGY")
      ->check(CLI::Validator(CheckStrategy, ""))
      ->group(kPlacementOptions);
  app.add_option("--pin", pins_,
                 "run these nodes ('*', '?') on the pipeline stage of a worker, as in "
                 "'conv3/*=worker:1'")
      ->type_name("PATTERN=WORKER")
      ->group(kPlacementOptions);
  app.add_flag("--strict", strict_, "give the same bits on any number of workers; slower")
      ->group(kPlacementOptions);
  app.add_flag("--tf32", tf32_,
               "on GPUs, round the operands of float32 products to TF32 (10 bits of mantissa); no "
               "effect on CPUs and with --strict")
      ->group(kPlacementOptions);
  app.add_option("--cpu-fallback", cpu_fallback_,
                 "operators without a kernel on a GPU: allow runs them on its worker's CPU, with "
                 "copies, refuse ends the job (default: allow up to 1 % of the FLOPs)")
      ->type_name("allow|refuse")
      ->check(CLI::IsMember({kAllow, kRefuse}).description(""))
      ->group(kPlacementOptions);
  app.add_option("--micro-batches", micro_batches_,
                 "cut a global batch into V micro-batches (default 4 with --strict)")
      ->type_name("V")
      ->check(AtLeastOne)
      ->group(kPlacementOptions);
  app.add_option("--memory-per-worker", memory_per_worker_,
                 "memory limit of a worker, if the cluster file has none; a job that needs more is "
                 "refused (default: the limit of the machine)")
      ->type_name("512MiB")
      ->group(kPlacementOptions);
  app.add_option("--keys", keys_,
                 "folder with the keys of the coordinator (graph_runner cluster keys); workers on "
                 "other machines need theirs")
      ->type_name("DIR")
      ->group(kPlacementOptions);
  app.add_flag("--insecure-network", insecure_network_,
               "in a laboratory, allow other machines without keys: nothing is encrypted")
      ->group(kPlacementOptions);
  app.add_option("--token-file", token_file_,
                 "file with the token of the cluster's workers (default DIR/token of --keys, or "
                 "~/.weft/token)")
      ->type_name("FILE")
      ->group(kPlacementOptions);
  app.add_option("--stall-timeout", stall_timeout_seconds_,
                 "longest wait for a peer, in seconds (default 60)")
      ->type_name("S")
      ->check(CLI::Validator(CLI::PositiveNumber).description(""))
      ->group(kPlacementOptions);
  AddBatchPolicy(app);
}

void JobFlags::AddBatchPolicy(CLI::App& app) {
  app.add_option("--batch-norm", batch_norm_,
                 "statistics of BatchNormalization in training: global, of the whole batch, summed "
                 "over replicas, or micro, of each micro-batch (default global)")
      ->type_name("global|micro")
      ->check(CLI::IsMember({kGlobalStatistics, kMicroStatistics}).description(""))
      ->group(kPlacementOptions);
  app.add_flag("--allow-batch-cut", allow_batch_cut_,
               "cut the batch although nodes mix its samples: each micro-batch is then mixed by "
               "itself, which changes results")
      ->group(kPlacementOptions);
}

void JobFlags::AddPartitions(CLI::App& app) {
  app_ = &app;
  CLI::Option* const partitions =
      app.add_option("--partitions", partitions_,
                     "run the partitions in this folder of plan --dump, edited or not, instead of "
                     "planning and partitioning")
          ->type_name("DIR")
          ->group(kPlacementOptions);
  for (const char* const other :
       {"--parallel", "--plan", "--search", "--pin", "--strict", "--micro-batches", "--rebalance",
        "--save-gradients", "--tf32", "--cudnn", "--fuse", "--cpu-fallback"}) {
    CLI::Option* const option = app.get_option_no_throw(other);
    if (option != nullptr) partitions->excludes(option);
  }
}

void JobFlags::AddCalibration(CLI::App& app) {
  app.add_option("--calibration", calibration_,
                 "predict steps from the measurements of graph_runner calibrate on this cluster")
      ->type_name("PROFILE.yaml")
      ->group(kPlacementOptions);
}

void JobFlags::AddPrediction(CLI::App& app) {
  AddCalibration(app);
  has_history_ =
      app.add_option(
             "--run-history", history_,
             "file of predicted and measured steps, which corrects predictions; each run adds a "
             "line (default PROFILE.history.jsonl with --calibration, else none; '' = none)")
          ->type_name("FILE.jsonl")
          ->group(kPlacementOptions);
}

std::string JobFlags::history() const {
  if (has_history_ == nullptr) return "";
  if (has_history_->count() > 0) return history_;
  if (calibration_.empty()) return "";
  return absl::StrCat(std::string(absl::StripSuffix(calibration_, ".yaml")), ".history.jsonl");
}

absl::Status JobFlags::ReadCosts(const ClusterSpec& all, JobSpec& spec) const {
  if (!calibration_.empty()) {
    WEFT_ASSIGN_OR_RETURN(const std::string text,
                          RealFileSystem().ReadFileUpTo(calibration_, kLongestYaml));
    WEFT_ASSIGN_OR_RETURN(ClusterProfile profile, ParseProfileFile(text, calibration_));
    WEFT_RETURN_IF_ERROR(
        Annotate(CheckProfileFits(profile, all), absl::StrCat("--calibration ", calibration_)));
    WEFT_RETURN_IF_ERROR(
        Annotate(CheckLocalCards(profile, all), absl::StrCat("--calibration ", calibration_)));
    if (spec.cluster.workers.size() < all.workers.size()) {
      profile = PartOfProfile(profile, WorkersOf(share_, static_cast<int>(all.workers.size())));
    }
    WEFT_ASSIGN_OR_RETURN(CostModel costs, CostModel::Create(std::move(profile)));
    spec.costs = std::make_shared<const CostModel>(std::move(costs));
  }
  if (history().empty() || !RealFileSystem().Exists(history())) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const std::string text,
                        RealFileSystem().ReadFileUpTo(history(), kLongestHistory));
  WEFT_ASSIGN_OR_RETURN(spec.history, ParseRunHistory(text, history()));
  return absl::OkStatus();
}

absl::StatusOr<TrainingSpec> JobFlags::Training() const {
  WEFT_ASSIGN_OR_RETURN(TrainingSpec training, optimizer_.Training());
  if (repair_.unfolds()) training.train_mode.push_back(RepairFlags::TrainModePattern());
  training.joins_attention = JoinsAttention();
  return training;
}

bool JobFlags::JoinsAttention() const {
  bool uses_cudnn = cudnn_ == "on";
  if (!partitions_.empty()) {
    const auto flags = ReadPartitionFlags(RealFileSystem(), partitions_);
    uses_cudnn = flags.ok() && TextOfFlag(*flags, "--cudnn") == "on";
  }
  const auto all = AllWorkers();
  return uses_cudnn && all.ok() &&
         std::any_of(all->workers.begin(), all->workers.end(),
                     [](const WorkerSpec& worker) { return worker.device == DeviceKind::kCuda; });
}

absl::StatusOr<ImportedModel> JobFlags::ImportFile(TieReport* ties,
                                                   const FileRepair& repair) const {
  return optimizer_.ties().Import(model_, ties, keeps_payloads_,
                                  repair == nullptr ? repair_.WithoutData() : repair);
}

absl::StatusOr<ImportedModel> JobFlags::LoadModel(ModelChanges* changes,
                                                  const FileRepair& repair) const {
  ModelChanges unused;
  ModelChanges& made = changes != nullptr ? *changes : unused;
  WEFT_ASSIGN_OR_RETURN(const std::optional<AdapterOptions> options, optimizer_.Adapters());
  auto model = optimizer_.model_training_info() ? ImportOwnStep()
               : trains_                        ? ImportFile(&made.ties, repair)
                                                : ImportModelFile(RealFileSystem(), model_);
  if (!model.ok()) return WithExitCode(model.status(), ExitCode::kModel);
  WEFT_RETURN_IF_ERROR(WithExitCode(Initialize(*model), ExitCode::kModel));
  if (optimizer_.model_training_info()) return model;
  WEFT_ASSIGN_OR_RETURN(const TrainableOptions trainable, optimizer_.Trainable(model->graph));
  auto marked = MarkTrainable(*model, trainable);
  if (!marked.ok()) return WithExitCode(marked.status(), ExitCode::kUsage);
  made.decisions = *std::move(marked);
  WEFT_ASSIGN_OR_RETURN(const std::optional<QuantizationSpec> qat, optimizer_.Qat());
  if (qat.has_value()) {
    auto quantized = AddQuantization(*model, *qat);
    if (!quantized.ok()) return WithExitCode(quantized.status(), ExitCode::kUsage);
    made.quantization = *std::move(quantized);
  }
  if (!options.has_value()) return model;
  auto added = AdaptModel(model->graph, *options, data_.seed());
  if (!added.ok()) return WithExitCode(added.status(), ExitCode::kUsage);
  made.adapters = *std::move(added);
  if (options->start.has_value()) made.adapters_in = options->start->checksum;
  return model;
}

absl::Status JobFlags::TakeLoss(const Graph& model, LossSpec& loss) const {
  WEFT_RETURN_IF_ERROR(optimizer_.TakeLoss(model, loss));
  // Updates in turn say themselves what their losses need.
  const bool needs_none = loss.is_output() || optimizer_.model_training_info() || alternates();
  if (needs_none || !data_.misses_labels()) return absl::OkStatus();
  return UsageError("--labels is required");
}

absl::StatusOr<ImportedModel> JobFlags::ImportOwnStep() const {
  WEFT_ASSIGN_OR_RETURN(const ModelFile file, ModelFile::Load(RealFileSystem(), model_));
  return ImportTrainingStep(file);
}

absl::Status JobFlags::Initialize(ImportedModel& model) const {
  if (!optimizer_.initialize()) return absl::OkStatus();
  const absl::StatusOr<int> set = InitializeModel(model);
  if (!set.ok()) return set.status();
  if (*set > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--initialize: model '", model_,
                   "' has no initialization of its own (a training_info with an "
                   "initialization_binding)"));
}

absl::StatusOr<ClusterSpec> JobFlags::AllWorkers() const {
  if (cluster_file_.empty()) {
    const int workers = local_workers_ > 0 ? local_workers_ : 1;
    ClusterSpec cluster =
        ClusterSpec::Local(workers, ThreadBudget(AvailableCores(RealFileSystem()), workers));
    WEFT_RETURN_IF_ERROR(SetLocalDevices(devices_, cluster));
    return cluster;
  }
  WEFT_ASSIGN_OR_RETURN(const std::string text,
                        RealFileSystem().ReadFileUpTo(cluster_file_, kLongestYaml));
  return ParseClusterFile(text, cluster_file_);
}

absl::StatusOr<Plan> JobFlags::GivenPlan(const ClusterSpec& cluster) const {
  if (!plan_file_.empty()) {
    WEFT_ASSIGN_OR_RETURN(const std::string text,
                          RealFileSystem().ReadFileUpTo(plan_file_, kLongestYaml));
    return ParsePlanFile(text, plan_file_);
  }
  Plan plan;
  if (!parallel_.empty() && parallel_ != kAuto && parallel_ != kAll) {
    WEFT_ASSIGN_OR_RETURN(plan, ParseParallel(parallel_));
  }
  plan.threads_per_worker = ThreadsOf(cluster, AvailableCores(RealFileSystem()));
  return plan;
}

absl::Status JobFlags::AddPins(Plan& plan) const {
  for (const std::string& pin : pins_) {
    const size_t equals = pin.rfind('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == pin.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--pin ", pin, ": expected PATTERN=WORKER, for example 'conv3/*=worker:1'"));
    }
    const std::string pattern = pin.substr(0, equals);
    const std::string worker = pin.substr(equals + 1);
    const auto [entry, is_new] = plan.pins.try_emplace(pattern, worker);
    if (is_new || entry->second == worker) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--pin ", pin, ": '", pattern, "' is already pinned to ", entry->second));
  }
  return absl::OkStatus();
}

absl::Status JobFlags::ReadPartitions(JobSpec& spec) const {
  if (partitions_.empty()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(StoredPrograms stored, ReadPartitionFolder(RealFileSystem(), partitions_));
  spec.stored = std::make_shared<const StoredPrograms>(std::move(stored));
  spec.given_flags = LoopFlags::GivenFlags(*app_);
  spec.search.wanted = false;
  return absl::OkStatus();
}

absl::StatusOr<JobSpec> JobFlags::Job() const {
  JobSpec spec;
  const auto all = AllWorkers();
  if (!all.ok()) return WithExitCode(all.status(), ExitCode::kPlan);
  spec.cluster = ShareOf(*all, share_, AvailableCores(RealFileSystem()));
  auto plan = GivenPlan(spec.cluster);
  if (!plan.ok()) return WithExitCode(plan.status(), ExitCode::kPlan);
  spec.plan = *std::move(plan);
  WEFT_RETURN_IF_ERROR(WithExitCode(AddPins(spec.plan), ExitCode::kUsage));
  if (strict_) spec.plan.strict = true;
  if (tf32_) spec.plan.tf32 = true;
  if (cpu_fallback_ == kAllow) spec.cpu_fallback = CpuFallback::kAllow;
  if (cpu_fallback_ == kRefuse) spec.cpu_fallback = CpuFallback::kRefuse;
  spec.plan.uses_cudnn = cudnn_ == "on";
  spec.plan.fuses_nodes = fuse_ == "auto";
  if (micro_batches_ > 0) {
    spec.plan.micro_batches = micro_batches_;
  } else if (strict_ && plan_file_.empty() && spec.plan.micro_batches == 1) {
    spec.plan.micro_batches = kStrictMicroBatches;
    spec.search.default_micro_batches = true;
  }
  spec.stall_timeout_seconds = stall_timeout_seconds_;
  spec.search.may_leave_out = searches() && parallel_ != kAll;
  spec.search.demanded = searches() && !parallel_.empty();
  spec.search.wanted = spec.search.demanded ||
                       (searches() && searches_unless_told_ && spec.cluster.workers.size() > 1);
  spec.search.keep_micro_batches = micro_batches_ > 0;
  spec.search.strategy = search_;
  spec.batch_policy.statistics_of_micro_batches = batch_norm_ == kMicroStatistics;
  spec.batch_policy.allows_cuts = allow_batch_cut_;
  if (cluster_file_.empty()) spec.search.host_memory = ProcessMemoryLimit(RealFileSystem()).bytes;
  WEFT_RETURN_IF_ERROR(WithExitCode(ReadCosts(*all, spec), ExitCode::kPlan));
  WEFT_RETURN_IF_ERROR(
      WithExitCode(Annotate(ReadPartitions(spec), "--partitions"), ExitCode::kPlan));
  if (share_.count > 1 && cluster_file_.empty()) {
    // Other jobs run on this machine, too.
    spec.search.host_memory /= share_.count;
    spec.memory_per_worker = ProcessMemoryLimit(RealFileSystem()).bytes / local_workers_;
  }
  if (!memory_per_worker_.empty()) {
    const auto bytes = ParseBytes(memory_per_worker_);
    if (!bytes.ok() || *bytes == 0) {
      return WithExitCode(
          Annotate(bytes.ok() ? absl::InvalidArgumentError("no memory is too little for any job")
                              : bytes.status(),
                   "--memory-per-worker"),
          ExitCode::kUsage);
    }
    spec.memory_per_worker = *bytes;
  }
  return spec;
}

absl::Status CheckDataFitsGraph(Graph graph, const DataSet& data) {
  WEFT_RETURN_IF_ERROR(WithExitCode(BindInputs(graph, data), ExitCode::kData));
  for (const ValueId id : graph.inputs()) {
    if (graph.input_role(id) != InputRole::kData) continue;
    const ValueDef& input = graph.value(id);
    FeedInput feed{input.name, InputRole::kData, input.type.dtype, {}};
    const bool has_file = data.Find(input.name) != nullptr;
    for (int i = 1; has_file && i < input.type.shape.rank(); ++i) {
      feed.sample_shape.AddDim(input.type.shape.dim(i).is_known() ? input.type.shape.dim(i).size()
                                                                  : 1);
    }
    WEFT_RETURN_IF_ERROR(WithExitCode(CheckInputFits(data, feed), ExitCode::kData));
  }
  return absl::OkStatus();
}

}  // namespace weft
