#include "tools/jobs/unfolding.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "executor/program/forward_runner.h"
#include "graph/graph_builder.h"
#include "onnx_import/importer.h"
#include "platform/cpu_info.h"
#include "platform/file_system.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "tools/console/console.h"
#include "tools/console/exit_code.h"
#include "training/data/batch_reader.h"
#include "training/graph/metric.h"
#include "training/graph/training_graph.h"
#include "training/graph/training_mode.h"
#include "training/job/job.h"

namespace weft {
namespace {

constexpr char kLabelsInput[] = "labels";

// Samples that shapes of a model may hold, 0 where its inputs take any number.
int64_t SamplesOfModel(const Graph& model) {
  for (const ValueId id : model.inputs()) {
    const SymbolicShape& shape = model.value(id).type.shape;
    const bool is_fixed = model.input_role(id) == InputRole::kData && shape.has_rank() &&
                          shape.rank() > 0 && shape.dim(0).is_known();
    if (is_fixed) return shape.dim(0).size();
  }
  return 0;
}

// Mean and variance of values that come in groups.
struct RunningMoments {
  double count = 0;
  ChannelStatistics statistics;

  void Join(double other_count, const std::vector<double>& mean,
            const std::vector<double>& variance) {
    if (count == 0) {
      count = other_count;
      statistics = {mean, variance};
      return;
    }
    const double all = count + other_count;
    for (size_t i = 0; i < mean.size(); ++i) {
      const double step = mean[i] - statistics.mean[i];
      double& own = statistics.variance[i];
      own = (own * count + variance[i] * other_count) / all +
            step * step * count * other_count / (all * all);
      statistics.mean[i] += step * other_count / all;
    }
    count = all;
  }
};

// A forward graph that also gives the moments of values and the parts of metrics.
class MeasuringGraph {
 public:
  static absl::StatusOr<MeasuringGraph> Create(const Graph& model,
                                               const std::vector<FoldedNorm>& norms,
                                               const DataSet& data, int64_t length,
                                               const LossSpec& loss,
                                               const std::vector<std::string>& metrics) {
    MeasuringGraph measuring;
    Graph& graph = measuring.graph_;
    graph = model.Clone();
    WEFT_RETURN_IF_ERROR(WithExitCode(BindInputs(graph, data, length), ExitCode::kData));
    WEFT_RETURN_IF_ERROR(LeaveTraining(graph));
    GraphBuilder builder(graph);
    builder.set_name_prefix("measured/");
    std::vector<ValueId> outputs;
    for (const FoldedNorm& norm : norms) {
      WEFT_RETURN_IF_ERROR(AddMoments(builder, norm, outputs));
    }
    if (data.Find(kLabelsInput) != nullptr) {
      for (const std::string& metric : metrics) {
        WEFT_ASSIGN_OR_RETURN(const std::vector<MetricMean> means,
                              AddMetric(builder, loss, metric, data.batch_of(0)));
        for (const MetricMean& mean : means) {
          if (mean.is_list) continue;
          measuring.means_.push_back(mean.name);
          outputs.push_back(mean.parts.sum);
          outputs.push_back(mean.parts.weight);
        }
      }
    }
    WEFT_RETURN_IF_ERROR(builder.status());
    // A value may be two of them; names tell outputs apart.
    for (ValueId& output : outputs) output = builder.Op("Identity", {output});
    WEFT_RETURN_IF_ERROR(builder.status());
    graph.SetOutputs(std::move(outputs));
    // Labels take their sample's shape from the data.
    WEFT_RETURN_IF_ERROR(WithExitCode(BindInputs(graph, data, length), ExitCode::kData));
    return measuring;
  }

  const Graph& graph() const { return graph_; }
  const std::vector<std::string>& means() const { return means_; }
  std::string OutputName(size_t i) const { return graph_.value(graph_.outputs()[i]).name; }

 private:
  static absl::Status AddMoments(GraphBuilder& builder, const FoldedNorm& norm,
                                 std::vector<ValueId>& outputs) {
    const auto value = builder.graph().FindValue(norm.output);
    if (!value.has_value()) {
      return absl::InternalError(absl::StrCat("no value '", norm.output, "'"));
    }
    std::vector<int64_t> axes = {0};
    for (int axis = 2; axis < norm.rank; ++axis) axes.push_back(axis);
    const ValueId over = builder.Ints(axes);
    const Attributes keep = {{"keepdims", int64_t{1}}};
    const ValueId mean = builder.Op("ReduceMean", {*value, over}, keep);
    const ValueId distance = builder.Op("Sub", {*value, mean});
    outputs.push_back(mean);
    outputs.push_back(
        builder.Op("ReduceMean", {builder.Op("Mul", {distance, distance}), over}, keep));
    outputs.push_back(builder.Op("Size", {*value}));
    return builder.status();
  }

  Graph graph_;
  std::vector<std::string> means_;
};

class BatchMeter {
 public:
  BatchMeter(const Graph& model, const std::vector<FoldedNorm>& norms,
             const std::shared_ptr<const DataSet>& data, const LossSpec& loss,
             const std::vector<std::string>& metrics)
      : model_(model),
        norms_(norms),
        data_(data),
        loss_(loss),
        metrics_(metrics),
        moments_(norms.size()),
        reader_(data, /*orders=*/1) {}

  absl::StatusOr<BatchMeasurement> Run() {
    BatchMeasurement measured;
    measured.batches = std::min(kUnfoldingBatches, data_->steps_per_epoch());
    const int64_t fixed = SamplesOfModel(model_);
    for (int64_t step = 0; step < measured.batches; ++step) {
      const int64_t samples = data_->batch_of(step);
      const int64_t piece = fixed > 0 ? fixed : samples;
      for (int64_t first = 0; first + piece <= samples; first += piece) {
        WEFT_RETURN_IF_ERROR(Measure(step, first, piece));
        measured.samples += piece;
      }
    }
    if (measured.samples == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the model was exported for ", fixed, " samples, and a batch has ", data_->batch_of(0)));
    }
    for (size_t i = 0; i < norms_.size(); ++i) {
      measured.channels[norms_[i].output] = moments_[i].statistics;
    }
    measured.metrics = totals_.Values();
    return measured;
  }

 private:
  struct Runner {
    std::unique_ptr<MeasuringGraph> graph;
    std::unique_ptr<ForwardRunner> runner;
  };

  absl::StatusOr<Runner*> RunnerFor(int64_t length) {
    Runner& runner = runners_[length];
    if (runner.runner != nullptr) return &runner;
    WEFT_ASSIGN_OR_RETURN(MeasuringGraph graph,
                          MeasuringGraph::Create(model_, norms_, *data_, length, loss_, metrics_));
    runner.graph = std::make_unique<MeasuringGraph>(std::move(graph));
    ForwardRunner::Options options;
    options.threads = AvailableCores(RealFileSystem());
    runner.runner = std::make_unique<ForwardRunner>(runner.graph->graph().Clone(), options);
    return &runner;
  }

  absl::StatusOr<std::map<std::string, Value>> Read(const Graph& graph, int64_t step, int64_t first,
                                                    int64_t count) {
    std::map<std::string, Value> inputs;
    for (const ValueId id : graph.inputs()) {
      const ValueDef& input = graph.value(id);
      FeedInput feed{input.name, InputRole::kData, input.type.dtype, {}};
      if (data_->Find(input.name) == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat("there is no --data ", input.name, "=FILE for this input of the model"));
      }
      std::vector<int64_t> dims = {count};
      for (int axis = 1; axis < input.type.shape.rank(); ++axis) {
        dims.push_back(input.type.shape.dim(axis).size());
        feed.sample_shape.AddDim(dims.back());
      }
      WEFT_RETURN_IF_ERROR(CheckInputFits(*data_, feed));
      WEFT_ASSIGN_OR_RETURN(Tensor rows, Tensor::Zeros(input.type.dtype, Shape(dims)));
      WEFT_RETURN_IF_ERROR(reader_.Fill(step, feed, first, count, rows.raw_data()));
      inputs.emplace(input.name, std::move(rows));
    }
    return inputs;
  }

  absl::Status Measure(int64_t step, int64_t first, int64_t count) {
    WEFT_ASSIGN_OR_RETURN(Runner* const runner, RunnerFor(data_->length_of(step)));
    const MeasuringGraph& graph = *runner->graph;
    auto inputs = Read(graph.graph(), step, first, count);
    if (!inputs.ok()) return WithExitCode(inputs.status(), ExitCode::kData);
    WEFT_ASSIGN_OR_RETURN(const auto outputs, runner->runner->Run(*inputs));
    const auto numbers = [&](size_t i) {
      return ToDoubles(outputs.at(graph.OutputName(i)).tensor());
    };
    size_t next = 0;
    for (RunningMoments& moments : moments_) {
      WEFT_ASSIGN_OR_RETURN(const std::vector<double> mean, numbers(next++));
      WEFT_ASSIGN_OR_RETURN(const std::vector<double> variance, numbers(next++));
      WEFT_ASSIGN_OR_RETURN(const std::vector<double> size, numbers(next++));
      moments.Join(size[0] / static_cast<double>(mean.size()), mean, variance);
    }
    std::map<std::string, Tensor> reports;
    for (const std::string& name : graph.means()) {
      WEFT_ASSIGN_OR_RETURN(const std::vector<double> sum, numbers(next++));
      WEFT_ASSIGN_OR_RETURN(const std::vector<double> weight, numbers(next++));
      reports[name] = Tensor::Scalar<double>(sum[0] / weight[0]);
      reports[absl::StrCat(name, kWeightSuffix)] = Tensor::Scalar<double>(weight[0]);
    }
    totals_.Add(reports);
    return absl::OkStatus();
  }

  const Graph& model_;
  const std::vector<FoldedNorm>& norms_;
  const std::shared_ptr<const DataSet> data_;
  const LossSpec& loss_;
  const std::vector<std::string>& metrics_;
  std::vector<RunningMoments> moments_;
  BatchReader reader_;
  std::map<int64_t, Runner> runners_;  // by the length of padded inputs
  MetricTotals totals_;
};

}  // namespace

absl::StatusOr<BatchMeasurement> MeasureBatches(const ModelFile& file,
                                                const std::vector<FoldedNorm>& norms,
                                                const std::shared_ptr<const DataSet>& data,
                                                const LossSpec& loss,
                                                const std::vector<std::string>& metrics) {
  ImportOptions options;
  options.parameters_as_variables = false;
  auto model = ImportModel(file, options);
  if (!model.ok()) return WithExitCode(model.status(), ExitCode::kModel);
  auto measured = BatchMeter(model->graph, norms, data, loss, metrics).Run();
  if (measured.ok() || ExitCodeOf(measured.status()) == ExitCode::kData) return measured;
  return WithExitCode(measured.status(), ExitCode::kModel);
}

std::string UnfoldingReport::Text() const {
  if (norms.empty()) return "";
  std::string text =
      absl::StrCat("repair BatchNormalization behind ", norms.size(),
                   norms.size() == 1 ? " convolution" : " convolutions",
                   ", with the statistics of ", before.samples, " samples in ", before.batches,
                   before.batches == 1 ? " batch" : " batches", "\n");
  for (const auto& [metric, value] : before.metrics) {
    const auto now = after.find(metric);
    if (now == after.end()) continue;
    absl::StrAppendFormat(&text, "       %s on them %.6g before, %.6g after\n", Printable(metric),
                          value, now->second);
  }
  return text;
}

absl::StatusOr<ModelFile> UnfoldOnData(ModelFile file, const std::vector<std::string>& patterns,
                                       const std::shared_ptr<const DataSet>& data,
                                       const LossSpec& loss,
                                       const std::vector<std::string>& metrics,
                                       UnfoldingReport& report) {
  auto norms = FindFoldedNorms(file, patterns);
  if (!norms.ok()) {
    return WithExitCode(Annotate(norms.status(), "--repair unfold-bn"), ExitCode::kModel);
  }
  report.norms = *std::move(norms);
  WEFT_ASSIGN_OR_RETURN(report.before, MeasureBatches(file, report.norms, data, loss, metrics));
  auto repaired = UnfoldNorms(std::move(file), report.norms, report.before.channels);
  if (!repaired.ok()) {
    return WithExitCode(Annotate(repaired.status(), "--repair unfold-bn"), ExitCode::kModel);
  }
  if (!report.before.metrics.empty()) {
    WEFT_ASSIGN_OR_RETURN(BatchMeasurement after,
                          MeasureBatches(*repaired, {}, data, loss, metrics));
    report.after = std::move(after.metrics);
  }
  return repaired;
}

FileRepair RepairOnData(const TrainFlags& flags, UnfoldingReport& report) {
  if (!flags.job().repair().unfolds()) return nullptr;
  return [&flags, &report](ModelFile file) -> absl::StatusOr<ModelFile> {
    WEFT_ASSIGN_OR_RETURN(const auto data, flags.job().OpenData(flags.shuffles()));
    WEFT_ASSIGN_OR_RETURN(LossSpec loss, flags.job().Loss());
    std::vector<std::string> metrics;
    // Updates in turn have losses of their own.
    if (!flags.job().alternates()) {
      auto model = ImportModel(file);
      if (!model.ok()) return WithExitCode(model.status(), ExitCode::kModel);
      WEFT_RETURN_IF_ERROR(flags.job().TakeLoss(model->graph, loss));
      metrics = flags.loop().Metrics(loss);
    }
    return UnfoldOnData(std::move(file), flags.job().repair().patterns(), data, loss, metrics,
                        report);
  };
}

}  // namespace weft
