#include <algorithm>
#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "onnx_import/training_info.h"
#include "ops/defs/optimizer/rate_schedule.h"
#include "placement/completion/plan_completion.h"
#include "placement/partition/partition_summary.h"
#include "platform/clock.h"
#include "platform/file_system.h"
#include "platform/status_macros.h"
#include "tools/commands/command.h"
#include "tools/console/quantity.h"
#include "tools/console/stop_signals.h"
#include "tools/flags/job_flags.h"
#include "tools/flags/loop_flags.h"
#include "tools/flags/options.h"
#include "tools/jobs/cluster_devices.h"
#include "tools/jobs/job_loop.h"
#include "tools/jobs/trained_model.h"
#include "tools/jobs/worker_group.h"
#include "tools/models/value_files.h"
#include "tools/reports/metrics_file.h"
#include "tools/reports/model_plan.h"
#include "tools/reports/plan_report.h"
#include "tools/reports/progress_line.h"
#include "tools/reports/training_report.h"
#include "training/adaptation/rebalancer.h"
#include "training/job/job_search.h"
#include "training/job/prediction_record.h"
#include "training/job/traffic_comparison.h"
#include "training/job/trainer.h"
#include "training/records/tensorboard_writer.h"

namespace weft {
namespace {

// In which nodes are timed, to compare them with the prediction: so few that nobody notices.
constexpr int64_t kTimedSteps = 10;

// The part of the steps' time that worker 0 waited for its data.
class InputStall {
 public:
  void Add(const TrainProgress& done) {
    input_seconds_ += done.input_seconds;
    seconds_ += done.seconds;
  }
  double part() const { return seconds_ > 0 ? input_seconds_ / seconds_ : 0; }
  std::string Text() const {
    return absl::StrFormat("input  stalled the steps for %.1f %% of their time\n", 100 * part());
  }

 private:
  double input_seconds_ = 0;
  double seconds_ = 0;
};

class TrainCommand final : public Command {
 public:
  std::string name() const override { return "train"; }
  std::string summary() const override { return "Trains a model and writes it back as ONNX"; }
  std::string usage() const override {
    return "MODEL.onnx --data NAME=FILE --labels FILE --steps N|--epochs N -o OUT.onnx";
  }
  std::vector<std::string> examples() const override {
    return {"graph_runner train m.onnx --data x=x.npy --labels y.npy --epochs 3 -o out.onnx",
            "graph_runner train m.onnx --data x=x.gz --labels y.gz --steps 99 --local 2 "
            "--strict --rebalance",
            "graph_runner train m.onnx --data x=x.npy --labels y.npy --epochs 9 "
            "--checkpoint saved --resume"};
  }

  void AddOptions(CLI::App& app) override {
    flags_.AddModel(app);
    flags_.AddData(app, /*required=*/true);
    labels_ = app.get_option("--labels")->required(false);  // Run asks for them
    flags_.AddLoss(app);
    flags_.AddOptimizer(app);
    CLI::Option* const steps =
        app.add_option("--steps", steps_, "train for N steps")->type_name("N")->check(AtLeastOne);
    app.add_option("--epochs", epochs_, "or for N passes over the data")
        ->type_name("N")
        ->check(AtLeastOne)
        ->excludes(steps);
    flags_.AddPlacement(app);
    flags_.DefaultToPlanSearch();
    flags_.AddPrediction(app);
    loop_flags_.Add(app);
    app.add_option("-o,--out", output_, "the trained model")->type_name("OUT.onnx");
    app.add_option("--ema-out", averages_output_,
                   "the model with the averages of the parameters that --ema keeps")
        ->type_name("OUT.onnx")
        ->group("results");
    app.add_option("--adapters-out", adapters_output_,
                   "the adapters of --lora alone, as safetensors")
        ->type_name("FILE.safetensors")
        ->group("results");
    app.add_option("--metrics", metrics_,
                   "write step, loss, learning rate, samples per second, input stall and bytes "
                   "sent of each step, as CSV or lines of JSON, and what evaluations measured")
        ->type_name("FILE.csv|FILE.jsonl")
        ->group("results");
    app.add_option("--tensorboard", tensorboard_, "write the curves as TensorBoard event files")
        ->type_name("DIR")
        ->group("results");
    app.add_flag("--no-shuffle", no_shuffle_, "take the samples in the order of the files")
        ->group("data");
    app.add_option("--save-gradients", gradients_folder_,
                   "write the gradients of the first step, NAME.npy")
        ->type_name("DIR")
        ->group("results");
    AddOutputFormat(app, format_)->group("results");
    app_ = &app;
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    if (steps_ == 0 && epochs_ == 0) {
      return WithExitCode(absl::InvalidArgumentError("how long? give --steps N or --epochs N"),
                          ExitCode::kUsage);
    }
    WEFT_ASSIGN_OR_RETURN(TrainingSpec training, flags_.Training());
    WEFT_RETURN_IF_ERROR(CheckFlags(training));
    training.report_gradients = !gradients_folder_.empty();
    std::vector<LoraAdapter> adapters;
    WEFT_ASSIGN_OR_RETURN(const ImportedModel model, flags_.LoadModel(&adapters));
    if (!adapters_output_.empty() && adapters.empty()) {
      return WithExitCode(absl::InvalidArgumentError("--adapters-out needs --lora rank=8"),
                          ExitCode::kUsage);
    }
    NoteTrainingInfo(model, training, console);
    WEFT_ASSIGN_OR_RETURN(const auto data, flags_.OpenData(!no_shuffle_));
    if (training.schedule.total == 0) training.schedule.total = Steps(*data);
    WEFT_ASSIGN_OR_RETURN(JobSpec spec, flags_.Job());
    WEFT_RETURN_IF_ERROR(CheckClusterDevices(spec.cluster));
    WEFT_RETURN_IF_ERROR(UseModelPlan(model, flags_, console, spec));
    JobLoop loop(loop_flags_, console);
    WEFT_RETURN_IF_ERROR(loop.OpenFolder());
    spec.checkpoints = loop_flags_.saves();
    loop.AdoptPlan(spec);
    WEFT_ASSIGN_OR_RETURN(PreparedJob job, Prepare(model, training, spec, data));
    std::map<std::string, std::string> given = LoopFlags::GivenFlags(*app_);
    if (training.schedule.needs_total()) {
      given["--schedule-steps"] = absl::StrCat(training.schedule.total);
    }
    WEFT_RETURN_IF_ERROR(loop.CheckSame(model, job, std::move(given)));
    WEFT_RETURN_IF_ERROR(loop.PrepareEvaluation(model, training.loss, job, spec));
    Echo({flags_.model(), model.graph, adapters, training, job, !no_shuffle_}, console);
    *console.err << Printable(DataNotes(*data)) << std::flush;
    WEFT_ASSIGN_OR_RETURN(const CostModel costs, CostsOf(spec, job.plan.model_digest));
    WEFT_RETURN_IF_ERROR(CheckPlanFits(job, spec, costs));
    auto started = WorkerGroup::Start(flags_, spec, job, console, loop.evaluation());
    if (!started.ok()) return AddAlternatives(started.status(), job, spec, costs);
    const std::unique_ptr<WorkerGroup> workers = *std::move(started);
    // Not before: a job that is refused leaves nothing behind, and what was there as it was.
    std::unique_ptr<MetricsFile> metrics;
    if (!metrics_.empty()) {
      auto created = MetricsFile::Create(RealFileSystem(), metrics_, loop.first_step(),
                                         loop.evaluated_metrics(training.loss),
                                         training.precision == Precision::kFloat16);
      if (!created.ok()) return WithExitCode(created.status(), ExitCode::kDisk);
      metrics = *std::move(created);
    }
    std::unique_ptr<TensorBoardWriter> board;
    if (!tensorboard_.empty()) {
      auto created = TensorBoardWriter::Create(RealFileSystem(), RealClock(), tensorboard_);
      if (!created.ok()) return WithExitCode(created.status(), ExitCode::kDisk);
      board = *std::move(created);
    }
    loop.MakeFolder();
    return TrainAndSave({model, adapters}, training, job, loop, *workers, metrics.get(),
                        board.get(), console);
  }

 private:
  absl::Status CheckFlags(const TrainingSpec& training) const {
    if (labels_->count() == 0 && !training.model_training_info) {
      return WithExitCode(absl::InvalidArgumentError("--labels is required"), ExitCode::kUsage);
    }
    WEFT_RETURN_IF_ERROR(CheckModelTrainingInfo(training));
    if (training.precision == Precision::kFloat16 && loop_flags_.check_numerics()) {
      return WithExitCode(
          absl::InvalidArgumentError("--check-numerics ends the run at the first infinite number, "
                                     "and --precision fp16 survives them; give one of them"),
          ExitCode::kUsage);
    }
    if (!averages_output_.empty() && training.average_decay == 0) {
      return WithExitCode(absl::InvalidArgumentError("--ema-out needs --ema DECAY, as --ema 0.999"),
                          ExitCode::kUsage);
    }
    return loop_flags_.Check(training.average_decay > 0);
  }

  int64_t Steps(const DataSet& data) const {
    return steps_ > 0 ? steps_ : epochs_ * data.steps_per_epoch();
  }

  static absl::StatusOr<PreparedJob> Prepare(const ImportedModel& model,
                                             const TrainingSpec& training, const JobSpec& spec,
                                             const std::shared_ptr<const DataSet>& data) {
    Graph bound = model.graph.Clone();
    WEFT_RETURN_IF_ERROR(WithExitCode(BindInputs(bound, *data), ExitCode::kData));
    auto graph = BuildTrainingGraph(bound, training);
    if (!graph.ok()) return WithExitCode(graph.status(), ExitCode::kModel);
    WEFT_RETURN_IF_ERROR(CheckDataFitsGraph(*std::move(graph), *data));
    auto job = PrepareTraining(model.graph, training, spec, data);
    if (!job.ok()) return WithExitCode(job.status(), ExitCode::kPlan);
    return job;
  }

  absl::Status CheckModelTrainingInfo(const TrainingSpec& training) const {
    if (!training.model_training_info) return absl::OkStatus();
    if (!loop_flags_.evaluates() && gradients_folder_.empty()) return absl::OkStatus();
    return WithExitCode(
        absl::InvalidArgumentError(
            "--optimizer model goes without --eval-every and --save-gradients; evaluate the "
            "trained model with graph_runner eval"),
        ExitCode::kUsage);
  }

  void NoteTrainingInfo(const ImportedModel& model, const TrainingSpec& training,
                        Console& console) const {
    const TrainingInfo info = TrainingInfoOf(model.file);
    if (info.has_algorithm && !training.model_training_info) {
      *console.err << "note: the model has a training algorithm of its own: --optimizer model\n";
    }
    if (info.has_initialization && !flags_.initializes()) {
      *console.err << "note: the model says how to make its initial weights: --initialize\n";
    }
  }

  // The effective options, for people.
  void Echo(const TrainingSetup& setup, Console& console) const {
    *console.err << TrainingSetupText(setup);
    if (!loop_flags_.rebalances()) return;
    const std::string why = Rebalancer::WhyNothingMoves(setup.job.plan);
    if (!why.empty()) *console.err << "note   --rebalance can do nothing: " << why << "\n";
  }

  absl::StatusOr<ExitCode> TrainAndSave(const TrainedModel& model, const TrainingSpec& training,
                                        PreparedJob& job, JobLoop& loop, WorkerGroup& workers,
                                        MetricsFile* metrics, TensorBoardWriter* board,
                                        Console& console) const {
    TrainOptions options;
    options.learning_rate = training.optimizer.learning_rate;
    options.steps = Steps(*job.data);
    options.report_gradients = training.report_gradients;
    options.timed_steps = kTimedSteps;
    const StopSignals signals;
    options.stop = [&signals] { return signals.signal() != 0; };
    ProgressLine progress(console, RealClock(), {"train", "samples", true}, options.steps);
    InputStall stall;
    loop.set_listener([=](const Measurement& measured) {
      if (metrics != nullptr) metrics->AddEvaluation(measured.metrics);
      if (board == nullptr) return;
      for (const auto& [name, value] : measured.metrics) {
        board->AddScalar(absl::StrCat("eval/", name), measured.step - 1, value);
      }
    });
    const absl::Status begun = loop.Begin(workers.coordinator(), model, job, training.loss,
                                          [&progress] { progress.Finish(); });
    if (!begun.ok()) return workers.Explain(begun);
    loop.AddTo(options);
    Rebalancer rebalancer(
        job, workers.coordinator(),
        [&](const Plan& plan, const std::string& kind) {
          return PartitionTraining(job, model.imported.graph, training, plan, kind);
        },
        loop.Rebalancing());
    if (workers.coordinator().size() > 1) options.watch = &rebalancer;
    std::map<std::string, int64_t> sent = SentBytes(job);
    StepTimes times(job.programs.front().shape);
    double step_seconds = 0;  // of all steps
    const auto result = Train(workers.coordinator(), job, options, [&](const TrainProgress& done) {
      stall.Add(done);
      times.Add(done);
      if (board != nullptr) board->AddScalar("train/loss", done.step, done.loss);
      progress.Step(done.step, done.loss, done.samples);
      step_seconds += done.seconds;
      if (metrics == nullptr) return;
      // A program that has come since.
      if (!sent.contains(done.program)) sent = SentBytes(job);
      const double rate = done.seconds > 0 ? static_cast<double>(done.samples) / done.seconds : 0;
      metrics->Add(
          {done.step, done.loss, done.learning_rate * RateFactor(training.schedule, done.step),
           rate, done.input_seconds, sent.at(done.program), done.loss_scale, done.skipped_steps});
    });
    progress.Finish();
    rebalancer.Finish();
    absl::Status closed = metrics == nullptr ? absl::OkStatus() : metrics->Close();
    if (board != nullptr) closed.Update(board->Close());
    if (!result.ok()) return workers.Explain(result.status());
    const auto traffic = Traffic(workers, job);
    if (!traffic.ok()) return workers.Explain(traffic.status());
    WEFT_RETURN_IF_ERROR(WithExitCode(closed, ExitCode::kDisk));
    WEFT_RETURN_IF_ERROR(WithExitCode(Save(model, *result, console), ExitCode::kDisk));
    const TrainingOutcome outcome = {
        .result = *result,
        .first_step = options.first_step,
        .needed = workers.coordinator().memory(),
        .traffic = *traffic,
        .input_stall = stall.part(),
        .seconds = progress.seconds(),
        .samples_per_second = progress.rate(),
        .shares = rebalancer.moves() > 0 ? rebalancer.plan().shares : std::vector<int>(),
        .model = output_,
        .averages = averages_output_,
        .metrics = metrics_};
    *console.err << MemoryPeaksText(outcome);
    *console.err << stall.Text();
    if (rebalancer.moves() == 0) {
      WEFT_RETURN_IF_ERROR(
          WithExitCode(Record(job, times, *result, *traffic, workers, console), ExitCode::kDisk));
    } else {
      *console.err << "step   not compared with its prediction: micro-batches have moved\n";
    }
    const int64_t steps = result->steps - options.first_step;
    Report(outcome, loop, step_seconds / static_cast<double>(std::max<int64_t>(steps, 1)), console);
    if (!result->stopped) return ExitCode::kOk;
    *console.err << "stopped by " << signals.name() << " after step " << result->steps << " of "
                 << options.steps << "\n";
    return ExitCode::kStopped;
  }

  // Says how wrong the prediction was, and adds it to the history.
  absl::Status Record(const PreparedJob& job, const StepTimes& times, const TrainResult& result,
                      const std::vector<RankTraffic>& traffic, WorkerGroup& workers,
                      Console& console) const {
    RunFigures run;
    run.model = flags_.model();
    run.ended = RealClock().Now();
    run.factor = job.step_factor;
    run.traffic = traffic;
    run.needed = workers.coordinator().memory();
    run.memory = result.memory;
    WEFT_ASSIGN_OR_RETURN(run.statistics, workers.coordinator().ReadStatistics());
    const RunHistoryEntry entry = RecordOf(job, times, run);
    *console.err << ComparisonText(entry);
    if (flags_.history().empty() || entry.steps == 0) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const auto file, RealFileSystem().OpenAppend(flags_.history()));
    WEFT_RETURN_IF_ERROR(file->Append(RunHistoryLine(entry)));
    return file->Close();
  }

  // What all workers send in a step, by program.
  static std::map<std::string, int64_t> SentBytes(const PreparedJob& job) {
    std::map<std::string, int64_t> sent;
    for (const JobProgram& program : job.programs) {
      int64_t bytes = 0;
      for (const Partition& partition : program.partitions) {
        const auto summary = Summarize(partition);
        if (summary.ok()) bytes += summary->sent_bytes;
      }
      sent[program.name] = bytes;
    }
    return sent;
  }

  // What each rank has sent; nothing where there is one alone.
  static absl::StatusOr<std::vector<RankTraffic>> Traffic(WorkerGroup& workers,
                                                          const PreparedJob& job) {
    if (workers.coordinator().size() == 1) return std::vector<RankTraffic>();
    WEFT_ASSIGN_OR_RETURN(std::vector<WorkerTraffic> measured, workers.coordinator().ReadTraffic());
    // Those of evaluations are left out.
    const auto trains = [&job](const ProgramTraffic& traffic) {
      return std::any_of(job.programs.begin(), job.programs.end(), [&](const JobProgram& program) {
        return program.name == traffic.program;
      });
    };
    for (WorkerTraffic& worker : measured) {
      std::erase_if(worker.programs, [&](const auto& traffic) { return !trains(traffic); });
    }
    return CompareTraffic(job, measured);
  }

  absl::Status Save(const TrainedModel& model, const TrainResult& result, Console& console) const {
    if (!gradients_folder_.empty()) {
      WEFT_RETURN_IF_ERROR(RealFileSystem().CreateDirectories(gradients_folder_));
      for (const auto& [name, gradient] : result.gradients) {
        WEFT_RETURN_IF_ERROR(
            WriteTensorFile(RealFileSystem(), gradients_folder_, name, gradient).status());
      }
    }
    for (const auto& [path, values] :
         {std::pair(output_, &result.parameters), std::pair(averages_output_, &result.averages)}) {
      if (path.empty()) continue;
      WEFT_ASSIGN_OR_RETURN(const std::string note, model.Save(RealFileSystem(), path, *values));
      if (!note.empty()) *console.err << "note: " << Printable(note) << "\n";
    }
    if (adapters_output_.empty()) return absl::OkStatus();
    return model.SaveAdapters(RealFileSystem(), adapters_output_, result.parameters);
  }

  void Report(const TrainingOutcome& outcome, const JobLoop& loop, double step_seconds,
              Console& console) const {
    if (format_ == "json") {
      nlohmann::ordered_json report = TrainingOutcomeJson(outcome);
      loop.AddToReport(step_seconds, report);
      *console.out << report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
      return;
    }
    *console.out << TrainingOutcomeText(outcome);
    loop.Report(step_seconds, console);
    *console.out << TrainingFilesText(outcome);
  }

  JobFlags flags_;
  LoopFlags loop_flags_;
  const CLI::Option* labels_ = nullptr;
  CLI::App* app_ = nullptr;  // the parser's, which outlives Run
  int64_t steps_ = 0;
  int64_t epochs_ = 0;
  bool no_shuffle_ = false;
  std::string output_;
  std::string averages_output_;
  std::string adapters_output_;
  std::string metrics_;
  std::string tensorboard_;
  std::string gradients_folder_;
  std::string format_ = "text";
};

}  // namespace

std::unique_ptr<Command> NewTrainCommand() { return std::make_unique<TrainCommand>(); }

}  // namespace weft
