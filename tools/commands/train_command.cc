#include <memory>
#include <ostream>

#include "platform/clock.h"
#include "platform/file_system.h"
#include "platform/status_macros.h"
#include "tools/commands/command.h"
#include "tools/console/stop_signals.h"
#include "tools/flags/train_flags.h"
#include "tools/jobs/job_loop.h"
#include "tools/jobs/training_curves.h"
#include "tools/jobs/training_job.h"
#include "tools/jobs/training_results.h"
#include "tools/jobs/training_run.h"
#include "tools/reports/training_report.h"
#include "tools/sweep/sweep.h"
#include "tools/sweep/sweep_flags.h"

namespace weft {
namespace {

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
    flags_.Add(app);
    sweep_.Add(app);
    app_ = &app;
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    WEFT_RETURN_IF_ERROR(sweep_.Check(*app_));
    if (sweep_.wanted() && !flags_.loop().listen().empty()) {
      return UsageError("--listen takes workers into one job; a sweep has several");
    }
    if (sweep_.wanted()) return RunSweep(*app_, flags_, sweep_, console);
    JobLoop loop(flags_.loop(), console);
    WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<TrainingJob> job,
                          PrepareTrainingJob(flags_, LoopFlags::GivenFlags(*app_), loop, console));
    DescribeTrainingJob(*job, flags_, console);
    WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<WorkerGroup> workers,
                          StartTrainingJob(*job, flags_, loop, console, /*asks_spares=*/true));
    // Not before: a job that is refused leaves nothing behind, and what was there as it was.
    WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<TrainingCurves> curves, OpenCurves(*job, loop));
    WEFT_RETURN_IF_ERROR(loop.MakeFolder());
    WEFT_RETURN_IF_ERROR(workers->Explain(SaveProgramTexts(
        RealFileSystem(), flags_.results().programs, job->job, workers->coordinator())));
    WEFT_RETURN_IF_ERROR(
        CheckOutputs(RealFileSystem(), flags_.results(), flags_.loop().best_output()));
    TrainingRun run(*job, loop, *curves, console, RealClock());
    RunListener listener;
    if (job->goes_on) {
      WEFT_RETURN_IF_ERROR(workers->AddFurther(job->spec.cluster, flags_.loop().listen(), console));
    }
    if (JobWorkers* const all = workers->workers(); all != nullptr) {
      listener.lost = [all](const auto& lost) { all->Lose(lost); };
      listener.left = [all](const auto& left) { all->Release(left); };
      listener.source = all;
    }
    listener.explain = [&workers](const absl::Status& loss) { return workers->Explain(loss); };
    run.set_listener(std::move(listener));
    const StopSignals signals;
    loop.set_saves_now([&signals] { return signals.TakeSaveRequest(); });
    const absl::Status trained =
        run.Run(workers->coordinator(), [&signals] { return signals.signal() != 0; });
    if (run.has_result()) {
      // Of two that went on with the job, the later one writes.
      WEFT_RETURN_IF_ERROR(loop.CheckOwner());
      WEFT_RETURN_IF_ERROR(workers->CheckNotDeposed());
      WEFT_RETURN_IF_ERROR(
          SaveResults(RealFileSystem(), flags_.results(), job->trained(), run.result(), console));
    }
    if (!trained.ok()) return workers->Explain(trained);
    *console.err << MemoryPeaksText(run.Outcome()) << run.StallText();
    WEFT_RETURN_IF_ERROR(Record(run, *workers, console));
    ReportResults(run, loop, flags_.results(), flags_.prints_json(), console);
    if (!run.result().stopped) return ExitCode::kOk;
    *console.err << "stopped by "
                 << (signals.signal() != 0 ? signals.name() : "a worker that leaves")
                 << " after step " << run.result().steps << " of " << job->steps << "\n";
    return ExitCode::kStopped;
  }

 private:
  absl::StatusOr<std::unique_ptr<TrainingCurves>> OpenCurves(const TrainingJob& job,
                                                             const JobLoop& loop) const {
    return TrainingCurves::Create(RealFileSystem(), RealClock(), flags_.results(), job.job,
                                  loop.first_step(),
                                  {.evaluated = loop.evaluated_metrics(job.training.loss),
                                   .has_loss_scale = job.training.precision == Precision::kFloat16,
                                   .has_noise = job.training.measure_noise});
  }

  // Says how wrong the prediction was, and adds it to the history.
  absl::Status Record(const TrainingRun& run, WorkerGroup& workers, Console& console) const {
    if (run.members_changed()) {
      *console.err << "step   not compared with its prediction: its workers have changed\n";
      return absl::OkStatus();
    }
    if (run.has_moved()) {
      *console.err << "step   not compared with its prediction: micro-batches have moved\n";
      return absl::OkStatus();
    }
    if (run.alternates()) return absl::OkStatus();  // predictions are of one kind of step
    const auto entry = run.Compare(workers.coordinator(), flags_.job().model());
    if (!entry.ok()) return workers.Explain(entry.status());
    *console.err << ComparisonText(*entry);
    return AppendToHistory(RealFileSystem(), flags_.job().history(), *entry);
  }

  TrainFlags flags_;
  SweepFlags sweep_;
  CLI::App* app_ = nullptr;  // the parser's, which outlives Run
};

}  // namespace

std::unique_ptr<Command> NewTrainCommand() { return std::make_unique<TrainCommand>(); }

}  // namespace weft
