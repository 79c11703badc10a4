#include <optional>
#include <ostream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ops/fusion/fusion_rules.h"
#include "ops/node_runner.h"
#include "placement/completion/plan_completion.h"
#include "placement/cost/prediction_error.h"
#include "placement/files/plan_file.h"
#include "placement/graph_views/absent_names.h"
#include "placement/graph_views/graph_digest.h"
#include "placement/partition/partitioner.h"
#include "placement/search/given_plan.h"
#include "placement/search/plan_search.h"
#include "placement/search/what_if.h"
#include "placement/simulation/plan_prediction.h"
#include "platform/file_system.h"
#include "platform/status_macros.h"
#include "tools/commands/command.h"
#include "tools/flags/loop_flags.h"
#include "tools/flags/options.h"
#include "tools/flags/train_flags.h"
#include "tools/jobs/cluster_devices.h"
#include "tools/jobs/phase_dump.h"
#include "tools/jobs/planned_step.h"
#include "tools/reports/card_ways.h"
#include "tools/reports/model_plan.h"
#include "tools/reports/plan_estimates.h"
#include "tools/reports/plan_explanation.h"
#include "tools/reports/plan_picture.h"
#include "tools/reports/plan_report.h"
#include "tools/reports/training_report.h"
#include "training/job/batch_cuts.h"
#include "training/job/card_paths.h"
#include "training/job/compiled_memory.h"
#include "training/job/cpu_fallback.h"
#include "training/job/fused_nodes.h"
#include "training/job/job_search.h"
#include "training/job/periodic_evaluation.h"

namespace weft {
namespace {

class PlanCommand final : public Command {
 public:
  std::string name() const override { return "plan"; }
  std::string summary() const override {
    return "Prints which worker would run what in a training step, and what it would send";
  }
  std::string usage() const override {
    return "MODEL.onnx [--local N|--cluster FILE] [--parallel dp=2,pp=2] [-o PLAN.yaml]";
  }
  std::vector<std::string> examples() const override {
    return {
        "graph_runner plan model.onnx --local 2 --optimizer adam --batch 128",
        "graph_runner plan model.onnx --local 4 --parallel pp=4 -o p.yaml --dump-after all --dump "
        "D",
        "graph_runner plan model.onnx --cluster c.yaml --explain --what-if nodes=16,link=25Gbit"};
  }

  void AddOptions(CLI::App& app) override {
    flags_.AddForPlanning(app, TrainFlags::Looks::kAtAllProgramsToo,
                          {"--out", "--until", "--output", "--partitions"});
    app.add_option("--dump", dump_.folder,
                   "folder for the files of --dump-after (default: the partitions)")
        ->type_name("DIR");
    app.add_option("--dump-after", dump_.after,
                   absl::StrCat("phase or pass to dump: graphs as ONNX files, partitions as a "
                                "folder that train --partitions runs, programs as text; may be "
                                "repeated. Phases: ",
                                absl::StrJoin(PhaseDump::PhaseNames(), ", "),
                                ". Passes: ", absl::StrJoin(PhaseDump::PassNames(), ", ")))
        ->type_name("NAME|all")
        ->delimiter(',')
        ->group("results");
    app.add_option("--until", dump_.until,
                   "stop after this phase, without a report; see --dump-after")
        ->type_name("PHASE")
        ->group("results");
    app_ = &app;
    app.add_option("-o,--out", plan_path_, "write the plan to this file")->type_name("PLAN.yaml");
    app.add_option("--annotate-plan", annotated_path_,
                   "write the model with the plan as ONNX's multi-device annotations, which train "
                   "then follows")
        ->type_name("MODEL.onnx")
        ->group("results");
    app.add_flag("--explain", explain_,
                 "explain the best plan: the parts of its time, and why others are worse");
    app.add_option("--what-if", what_if_,
                   "plan for a changed cluster: nodes, workers (per node), link, latency, memory, "
                   "model (of devices)")
        ->type_name("nodes=16,link=25Gbit")
        ->group("placement");
    app.add_option("--picture", picture_path_,
                   "draw the plan: the graph by stages, and the timeline of each worker")
        ->type_name("FILE.html|FILE.dot")
        ->group("results");
    AddOutputFormat(app, format_)->group("results");
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    LeaveOutThoseOfTrain(console);
    if (!annotated_path_.empty() && flags_.job().repair().unfolds()) {
      return UsageError(
          "--annotate-plan writes the model, and --repair measures it in train and check alone: "
          "write the repaired model with check MODEL --repair unfold-bn --repaired-out "
          "REPAIRED.onnx");
    }
    if (!annotated_path_.empty()) flags_.KeepPayloads();
    WEFT_ASSIGN_OR_RETURN(PhaseDump dump, PhaseDump::Create(RealFileSystem(), dump_));
    absl::StatusOr<ExitCode> code = MakePlan(dump, console);
    if (dump.has_ended() && absl::IsCancelled(code.status())) {
      code = ExitCode::kOk;
      *console.out << Printable(dump.end()) << "\n";
    }
    const std::string summary = dump.Summary();
    if (code.ok() && !summary.empty()) *console.err << Printable(summary) << "\n";
    return code;
  }

 private:
  // Of flags and job files of `train`: --out and --until mean something else there.
  void LeaveOutThoseOfTrain(Console& console) {
    *console.err << flags_.NoteWithoutEffect(*app_);
    if (absl::EndsWith(plan_path_, ".onnx")) {
      *console.err << "note: nothing is written to " << Printable(plan_path_)
                   << ": it names a model, as --out of train does; --out of plan writes a plan, as "
                      "plan.yaml\n";
      plan_path_.clear();
    }
    if (ParseStopRule(dump_.until).ok()) {
      *console.err << "note: without effect here: --until " << Printable(dump_.until)
                   << ", which ends a run of train\n";
      dump_.until.clear();
    }
  }

  absl::StatusOr<ExitCode> MakePlan(PhaseDump& dump, Console& console) const {
    WEFT_ASSIGN_OR_RETURN(PlannedInput input, PlannedInputOf(flags_));
    WEFT_ASSIGN_OR_RETURN(const ImportedModel model, flags_.job().LoadModel());
    WEFT_RETURN_IF_ERROR(flags_.job().TakeLoss(model.graph, input.training.loss));
    if (input.training.loss.by_name) {
      *console.err << Printable(LossByNameText(input.training.loss)) << "\n";
    }
    const int64_t batch = input.batch(flags_);
    WEFT_ASSIGN_OR_RETURN(JobSpec spec, Spec());
    const std::string note = NoteOnClusterDevices(spec.cluster);
    if (!note.empty()) *console.err << Printable(note) << "\n";
    if (!explain_) WEFT_RETURN_IF_ERROR(UseModelPlan(model, flags_.job(), console, spec));
    WEFT_ASSIGN_OR_RETURN(Graph graph, TrainingGraphOf(input, model, &dump));
    if (!input.training.model_training_info) {
      WEFT_RETURN_IF_ERROR(WithExitCode(LimitBatchCuts(graph, batch, spec), ExitCode::kPlan));
    }
    std::vector<std::string> notes;
    WEFT_RETURN_IF_ERROR(WithExitCode(
        SettleCpuFallback(graph, batch, KernelRegistry::Global(), spec, notes), ExitCode::kPlan));
    for (const std::string& line : notes) *console.err << "note: " << Printable(line) << "\n";
    std::optional<SearchResult> found;
    auto plan = ChoosePlan(graph, spec, input, found, console);
    if (!plan.ok()) return WithExitCode(plan.status(), ExitCode::kPlan);
    const absl::Status finished = dump.FinishPlan(*plan);
    if (dump.has_ended()) {
      WEFT_RETURN_IF_ERROR(Write(*plan, console));
      WEFT_RETURN_IF_ERROR(Annotate(model, *plan, spec.cluster, console));
    }
    WEFT_RETURN_IF_ERROR(finished);
    if (found.has_value() && !IsSmall(graph, *plan) && !dump.Needs(StepPhase::kPartition)) {
      WEFT_RETURN_IF_ERROR(Write(*plan, console));
      WEFT_RETURN_IF_ERROR(Annotate(model, *plan, spec.cluster, console));
      WEFT_ASSIGN_OR_RETURN(const CostModel costs, CostsOf(spec, plan->model_digest));
      return Explain(*found, spec, costs.profile(), console);
    }
    auto partitions = PartitionStep(graph, *plan, {/*training=*/true, batch}, CpuNodeEvaluator());
    if (!partitions.ok()) return WithExitCode(partitions.status(), ExitCode::kPlan);
    const RanksOfPlan ranks = Compiled(*std::move(partitions), spec, *plan);
    WEFT_ASSIGN_OR_RETURN(const CostModel costs, CostsOf(spec, plan->model_digest));
    WEFT_ASSIGN_OR_RETURN(const PlannedCards cards,
                          PlanCards(spec.cluster, *plan, ranks.partitions));
    WEFT_RETURN_IF_ERROR(
        PredictPlan(ranks.partitions, costs, *plan, MemoryIn(ranks.planned), HostPathsOf(cards)));
    RanksOfPlan kept;  // what it would be without recomputation
    if (!plan->recompute.empty()) {
      Plan without = *plan;
      without.recompute.clear();
      WEFT_ASSIGN_OR_RETURN(auto own,
                            PartitionStep(graph, without, {true, batch}, CpuNodeEvaluator()));
      kept = Compiled(std::move(own), spec, without);
    }
    WEFT_RETURN_IF_ERROR(Write(*plan, console));
    WEFT_RETURN_IF_ERROR(Annotate(model, *plan, spec.cluster, console));
    WEFT_RETURN_IF_ERROR(
        WithExitCode(Draw(graph, *plan, spec, ranks.partitions, console), ExitCode::kDisk));
    WEFT_RETURN_IF_ERROR(DumpPrograms(input, model, spec, graph, *plan, dump));
    return Report(*plan, spec, costs, found, ranks, kept, cards, console);
  }

  static RanksOfPlan Compiled(std::vector<Partition> partitions, const JobSpec& spec,
                              const Plan& plan) {
    PlannedRanks planned = PlanRanks(partitions, spec.cluster, plan);
    return {std::move(partitions), std::move(planned)};
  }

  // For people or programs; `kept`: what the ranks would be without recomputation.
  absl::StatusOr<ExitCode> Report(const Plan& plan, const JobSpec& spec, const CostModel& costs,
                                  const std::optional<SearchResult>& found,
                                  const RanksOfPlan& ranks, const RanksOfPlan& kept,
                                  const PlannedCards& cards, Console& console) const {
    const bool recomputes = !kept.partitions.empty();
    const std::vector<DeviceNeed> needs =
        DeviceNeeds(plan, spec.cluster, costs.profile(), ranks.planned, cards);
    const std::vector<Estimate> estimates = PlanEstimates(plan, costs.profile(), needs, cards);
    WEFT_ASSIGN_OR_RETURN(const JobFusion fusion, FusionOf(ranks.partitions, spec.cluster, plan,
                                                           FindFusionRules(DeviceKind::kCuda)));
    if (format_ == "json") {
      WEFT_ASSIGN_OR_RETURN(auto json,
                            PlanJson(plan, spec.cluster, ranks.partitions, ranks.planned));
      AddPredictionError(plan.prediction.calibrated, json);
      if (!spec.cluster.spares.empty()) json["spares"] = SparesJson(spec.cluster);
      if (!needs.empty()) json["devices"] = DeviceNeedsJson(needs);
      if (!needs.empty()) json["between_gpus"] = CardWaysJson(cards);
      json["estimates"] = EstimatesJson(estimates);
      if (!fusion.text.empty()) json["fusion"] = FusionJson(fusion);
      if (recomputes) {
        WEFT_ASSIGN_OR_RETURN(json["recomputation"], RecomputationJson(ranks, kept));
      }
      if (explain_ && found.has_value()) {
        json["explanation"] = ExplanationJson(*found, spec.cluster);
      }
      *console.out << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    } else {
      if (explain_ && found.has_value()) {
        *console.out << Printable(ExplanationText(*found, spec.cluster)) << "\n";
      }
      WEFT_ASSIGN_OR_RETURN(const std::string text,
                            PlanText(plan, spec.cluster, ranks.partitions, ranks.planned));
      *console.out << Printable(text) << Printable(SparesText(spec.cluster))
                   << Printable(DeviceNeedsText(needs)) << Printable(CardWaysText(cards))
                   << Printable(EstimatesText(estimates));
      WEFT_ASSIGN_OR_RETURN(const HostWork work,
                            HostWorkOf(ranks.partitions, plan, costs.WithHostOps(plan.host_ops)));
      if (const std::string line = HostWorkText(work, plan); !line.empty()) {
        *console.out << Printable(line) << "\n";
      }
      if (!fusion.text.empty()) *console.out << Printable(fusion.text) << "\n";
      if (explain_) *console.out << Printable(FusedKernelsText(fusion.ranks));
      if (!plan.prediction.calibrated) *console.out << UncalibratedText() << "\n";
      if (recomputes) {
        WEFT_ASSIGN_OR_RETURN(const std::string again, RecomputationText(ranks, kept));
        *console.out << Printable(again);
      }
    }
    return ExitCode::kOk;
  }

  // Partitions and programs, where they are asked for.
  absl::Status DumpPrograms(const PlannedInput& input, const ImportedModel& model,
                            const JobSpec& spec, const Graph& graph, const Plan& plan,
                            PhaseDump& dump) const {
    if (!dump.Needs(StepPhase::kPartition)) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(StoredPrograms programs,
                          AllPrograms(flags_, input, model, spec, graph, plan));
    programs.flags = LoopFlags::GivenFlags(*app_);
    WEFT_RETURN_IF_ERROR(dump.FinishPartition(programs));
    return dump.Lower(programs, spec.cluster);
  }

  // Larger plans are explained without what each rank does.
  static constexpr int64_t kMaxWork = 40000;

  static bool IsSmall(const Graph& graph, const Plan& plan) {
    return int64_t{graph.num_nodes()} * plan.mesh.size() <= kMaxWork;
  }

  absl::StatusOr<JobSpec> Spec() const {
    WEFT_ASSIGN_OR_RETURN(JobSpec spec, PlannedJob(flags_));
    if (explain_ && !flags_.job().searches()) {
      return UsageError(
          "--explain says why a plan was found: leave out --plan and --pin, and give no --parallel "
          "but auto or all");
    }
    if (explain_) spec.search.wanted = true;
    if (what_if_.empty()) return spec;
    if (spec.costs != nullptr) {
      return UsageError(
          "--what-if asks of another cluster than the one that was calibrated: leave out "
          "--calibration");
    }
    spec.history.clear();
    auto cluster = ClusterWhatIf(spec.cluster, what_if_);
    if (!cluster.ok()) return WithExitCode(cluster.status(), ExitCode::kUsage);
    spec.cluster = *std::move(cluster);
    spec.search.wanted = flags_.job().searches();
    spec.search.host_memory = 0;  // of another machine
    return spec;
  }

  absl::StatusOr<Plan> ChoosePlan(const Graph& graph, const JobSpec& spec,
                                  const PlannedInput& input, std::optional<SearchResult>& found,
                                  Console& console) const {
    const int64_t batch = input.batch(flags_);
    if (spec.search.wanted && !input.training.model_training_info) {
      WEFT_ASSIGN_OR_RETURN(const CostModel costs, CostsOf(spec, GraphDigest(graph)));
      auto result = SearchJobPlan(graph, spec, costs, batch);
      if (result.ok()) {
        const std::string note = NoteOnFewerWorkers(graph, spec, costs, batch, *result);
        if (!note.empty()) *console.err << "note: " << note << "\n";
        found = *std::move(result);
        return found->plan;
      }
      const bool is_final =
          explain_ || spec.search.demanded || absl::IsResourceExhausted(result.status());
      if (is_final) return result.status();
      *console.err << "note: no plan was searched for: "
                   << Printable(std::string(result.status().message())) << "\n";
    }
    JobSpec given = spec;
    KeepReplicaLimit(given);
    if (spec.drop_absent_names) DropAbsentNames(graph, given.plan);
    WEFT_ASSIGN_OR_RETURN(const CostModel costs, CostsOf(spec, GraphDigest(graph)));
    return CompleteGivenPlan(graph, spec.cluster, costs, std::move(given.plan), batch,
                             CpuNodeEvaluator());
  }

  // Of a plan that is too large to show rank by rank.
  ExitCode Explain(const SearchResult& found, const JobSpec& spec, const ClusterProfile& profile,
                   Console& console) const {
    const std::vector<Estimate> estimates = PlanEstimates(found.plan, profile, {}, {});
    const bool calibrated = found.plan.prediction.calibrated;
    if (format_ == "json") {
      nlohmann::ordered_json json = nlohmann::ordered_json::object();
      AddPredictionError(calibrated, json);
      json["explanation"] = ExplanationJson(found, spec.cluster);
      json["estimates"] = EstimatesJson(estimates);
      *console.out << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    } else {
      *console.out << Printable(ExplanationText(found, spec.cluster))
                   << Printable(EstimatesText(estimates));
      if (!calibrated) *console.out << UncalibratedText() << "\n";
    }
    return ExitCode::kOk;
  }

  absl::Status Draw(const Graph& graph, const Plan& plan, const JobSpec& spec,
                    const std::vector<Partition>& partitions, Console& console) const {
    if (picture_path_.empty()) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const CostModel costs, CostsOf(spec, plan.model_digest));
    WEFT_ASSIGN_OR_RETURN(const HostPaths host, PlannedHostPaths(spec.cluster, plan, partitions));
    WEFT_ASSIGN_OR_RETURN(const std::string picture,
                          absl::EndsWith(picture_path_, ".dot")
                              ? PlanDot(graph, plan)
                              : PlanHtml(graph, plan, partitions, costs, host));
    WEFT_RETURN_IF_ERROR(RealFileSystem().WriteFileAtomically(picture_path_, picture));
    *console.err << "picture written to " << Printable(picture_path_) << "\n";
    return absl::OkStatus();
  }

  absl::Status Write(const Plan& plan, Console& console) const {
    if (plan_path_.empty()) return absl::OkStatus();
    WEFT_RETURN_IF_ERROR(WithExitCode(
        RealFileSystem().WriteFileAtomically(plan_path_, PlanToYaml(plan)), ExitCode::kDisk));
    *console.err << "plan written to " << Printable(plan_path_) << "\n";
    return absl::OkStatus();
  }

  absl::Status Annotate(const ImportedModel& model, const Plan& plan, const ClusterSpec& cluster,
                        Console& console) const {
    if (annotated_path_.empty()) return absl::OkStatus();
    const absl::Status written =
        WriteAnnotatedModel(RealFileSystem(), annotated_path_, model, plan, cluster);
    if (!written.ok()) {
      const bool is_plan = absl::IsInvalidArgument(written);
      return WithExitCode(written, is_plan ? ExitCode::kPlan : ExitCode::kDisk);
    }
    *console.err << "model with the plan written to " << Printable(annotated_path_) << "\n";
    return absl::OkStatus();
  }

  TrainFlags flags_;
  CLI::App* app_ = nullptr;  // the parser's, which outlives Run
  std::string annotated_path_;
  DumpRequest dump_;
  std::string plan_path_;
  bool explain_ = false;
  std::string what_if_;
  std::string picture_path_;
  std::string format_ = "text";
};

}  // namespace

std::unique_ptr<Command> NewPlanCommand() { return std::make_unique<PlanCommand>(); }

}  // namespace weft
