// JobFlags: the flags that train, eval and plan share: model, data, loss, optimizer, placement.
#ifndef WEFT_TOOLS_FLAGS_JOB_FLAGS_H_
#define WEFT_TOOLS_FLAGS_JOB_FLAGS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "onnx_import/edit/tie_report.h"
#include "onnx_import/importer.h"
#include "onnx_import/parameters/trainable.h"
#include "tools/flags/cluster_share.h"
#include "tools/flags/data_flags.h"
#include "tools/flags/optimizer_flags.h"
#include "tools/flags/repair_flags.h"
#include "training/data/data_set.h"
#include "training/graph/training_graph.h"
#include "training/job/job.h"
#include "training/quantization/quantization.h"

namespace weft {

// What JobFlags::LoadModel made of a file's model. A value.
struct ModelChanges {
  TieReport ties;
  std::vector<ParameterDecision> decisions;  // on every parameter: who trains, and why
  std::vector<LoraAdapter> adapters;
  std::optional<uint64_t> adapters_in;  // PeftAdapters::checksum of --adapters-in
  Quantization quantization;
};

// Binds flags to itself (so it must outlive the parser's use of it) and turns them into specs. All
// errors carry their exit code.
class JobFlags {
 public:
  void AddModel(CLI::App& app);
  // `required`: --data is, and --labels unless the model computes its loss (TakeLoss).
  void AddData(CLI::App& app, bool required) { data_.AddFiles(app, required); }
  void RequireData(CLI::App& app, bool required) { data_.Require(app, required); }
  // --batch auto, for commands that can measure one. After AddData.
  void AllowAutoBatch(CLI::App& app) { data_.AllowAutoBatch(app); }
  const std::optional<AutoBatch>& auto_batch() const { return data_.auto_batch(); }
  void AddLoss(CLI::App& app) { optimizer_.AddLoss(app); }
  void AddOptimizer(CLI::App& app) {
    trains_ = true;
    optimizer_.AddOptimizer(app);
    repair_.Add(app, "optimizer");
    data_.AddTraining(app);
  }
  void AddAlternation(CLI::App& app) { optimizer_.AddAlternation(app); }
  void AddPlacement(CLI::App& app);
  // --partitions, which goes without the flags that make a plan. After the command's other flags.
  void AddPartitions(CLI::App& app);
  // Without a word, several workers are used as --parallel auto would; else by data parallelism.
  void DefaultToPlanSearch() { searches_unless_told_ = true; }
  void DefaultToReplicas() { searches_unless_told_ = false; }
  // Whether the option is one of AddPlacement, AddPartitions or AddPrediction.
  static bool IsOfPlacement(const CLI::Option& option);
  // What steps are predicted from: --calibration, and --history too where runs are compared.
  void AddCalibration(CLI::App& app);
  void AddPrediction(CLI::App& app);

  // The job is one of several that run side by side: Job() gives it the workers of a share
  // (ShareOf), and of a profile what it says of these. Workers that we start get the memory that
  // they have beside all others, too.
  // REQUIRES: the cluster has as many shares.
  void TakeShare(const WorkerShare& share) { share_ = share; }

  const std::string& model() const { return model_; }
  bool initializes() const { return optimizer_.initialize(); }
  bool has_data() const { return data_.has_data(); }
  int64_t batch() const { return data_.batch(); }
  // Whether workers are processes of their own: started by us (--local) or by others (--cluster).
  bool starts_processes() const { return local_workers_ > 0; }
  bool connects() const { return !cluster_file_.empty(); }
  bool insecure_network() const { return insecure_network_; }
  // Of workers that are started: kSocketTransport or "auto"; empty: auto.
  const std::string& transport() const { return transport_; }
  // The folder of this end's keys (distributed/keys); empty: none.
  const std::string& keys() const { return keys_; }
  // Empty: that of the keys, or the default one (distributed/job_token.h).
  const std::string& token_file() const { return token_file_; }
  // Whether the plan may be searched for: nothing given, or --parallel auto or all.
  bool searches() const;
  // Whether the flags say nothing of it at all.
  bool names_no_plan() const { return searches() && parallel_.empty() && partitions_.empty(); }
  // Whether a plan was given, whole or in part.
  bool has_plan() const { return !searches(); }
  // Whether --parallel auto or all asks for that, and whether --partitions was given.
  bool searches_by_name() const { return searches() && !parallel_.empty(); }
  bool runs_partitions() const { return !partitions_.empty(); }
  // The file of --history, or the one beside that of --calibration; "" = none.
  std::string history() const;

  TieFlags ties() const { return optimizer_.ties(); }
  absl::StatusOr<TrainingSpec> Training() const;
  absl::StatusOr<LossSpec> Loss() const { return optimizer_.Loss(); }
  // To be called with the loss of Loss or Training when the model is there. The loss becomes the
  // output whose name says so, if --loss was not given (OptimizerFlags::TakeLoss). Refuses jobs
  // without labels that need some.
  absl::Status TakeLoss(const Graph& model, LossSpec& loss) const;
  // Whether the loss was given, and needs labels that were not.
  bool misses_labels(const LossSpec& loss) const {
    return optimizer_.names_loss() && !loss.is_output() && data_.misses_labels();
  }
  // The updates that are made in turn (OptimizerFlags::Updates).
  bool alternates() const { return optimizer_.alternates(); }
  absl::StatusOr<std::vector<UpdateSpec>> Updates(const TrainingSpec& base) const {
    return optimizer_.Updates(base);
  }
  // Which parameters of the model train, as far as the flags say.
  absl::StatusOr<TrainableOptions> Trainable(const Graph& model) const {
    return optimizer_.Trainable(model);
  }
  // The model with its trainable variables marked; with the adapters of --lora and the rounding of
  // --qat, if any. With --optimizer model, a step of its own training, and no decisions on
  // parameters. Commands that have the flags of an optimizer get the file as --untie and --tie
  // settle it. `changes`: filled, where it is not null. `repair`: of --repair, with data
  // (tools/jobs/unfolding.h); null: without.
  absl::StatusOr<ImportedModel> LoadModel(ModelChanges* changes = nullptr,
                                          const FileRepair& repair = nullptr) const;
  const RepairFlags& repair() const { return repair_; }
  // The file alone, repaired and settled.
  absl::StatusOr<ImportedModel> ImportFile(TieReport* ties, const FileRepair& repair) const;
  // The file of LoadModel will be written as it is, and needs all its payloads.
  void KeepPayloads() { keeps_payloads_ = true; }
  // The training samples, in a new order each epoch if `shuffle`.
  absl::StatusOr<std::shared_ptr<const DataSet>> OpenData(bool shuffle, int64_t batch = 0) const {
    return data_.OpenTraining(shuffle, batch);
  }
  // What the workers open to get those.
  absl::StatusOr<DataSpec> TrainingData(bool shuffle) const { return data_.TrainingSpec(shuffle); }
  // The samples to evaluate on: what --validation-split holds out, else all.
  absl::StatusOr<std::shared_ptr<const DataSet>> OpenValidation() const {
    return data_.OpenValidation();
  }
  bool has_validation() const { return data_.has_validation(); }
  // Cluster, the plan as far as it was given or its partitions, the stall timeout, and what
  // predictions rest on.
  absl::StatusOr<JobSpec> Job() const;

 private:
  void AddBatchPolicy(CLI::App& app);
  absl::StatusOr<ImportedModel> ImportOwnStep() const;
  absl::Status Initialize(ImportedModel& model) const;
  absl::StatusOr<ClusterSpec> AllWorkers() const;
  // TrainingSpec::joins_attention: what cuDNN is asked for, or was for dumped partitions, and a
  // worker has a GPU. False where files cannot be read: Job says so.
  bool JoinsAttention() const;
  absl::StatusOr<Plan> GivenPlan(const ClusterSpec& cluster) const;
  absl::Status AddPins(Plan& plan) const;
  absl::Status ReadCosts(const ClusterSpec& all, JobSpec& spec) const;
  absl::Status ReadPartitions(JobSpec& spec) const;

  std::string model_;
  OptimizerFlags optimizer_;
  RepairFlags repair_;
  bool trains_ = false;
  bool keeps_payloads_ = false;
  DataFlags data_;
  int local_workers_ = 0;
  std::string cluster_file_;
  std::string devices_;
  WorkerShare share_;
  std::string plan_file_;
  std::string parallel_;
  bool searches_unless_told_ = false;
  std::string search_ = "dp";
  std::vector<std::string> pins_;
  std::string cudnn_ = "off";
  std::string fuse_ = "off";
  bool strict_ = false;
  bool tf32_ = false;
  std::string cpu_fallback_;
  int micro_batches_ = 0;
  std::string batch_norm_ = "global";
  bool allow_batch_cut_ = false;
  bool insecure_network_ = false;
  std::string transport_;
  std::string keys_;
  std::string token_file_;
  double stall_timeout_seconds_ = 60;
  std::string memory_per_worker_;
  std::string calibration_;
  std::string history_;
  std::string partitions_;
  const CLI::App* app_ = nullptr;             // the parser's, of AddPartitions
  const CLI::Option* has_history_ = nullptr;  // the parser's
};

// Whether the data can feed the inputs of a training or evaluation graph; exit code 5 when not.
absl::Status CheckDataFitsGraph(Graph graph, const DataSet& data);

}  // namespace weft

#endif  // WEFT_TOOLS_FLAGS_JOB_FLAGS_H_
