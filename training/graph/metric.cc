#include "training/graph/metric.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/status_macros.h"
#include "platform/text/nearest_name.h"
#include "training/graph/loss.h"
#include "training/graph/loss_parts.h"

namespace weft {
namespace {

constexpr char kTop[] = "top";
// The parts of r2.
constexpr char kError[] = "r2/error";
constexpr char kLabel[] = "r2/label";
constexpr char kSquare[] = "r2/square";

// The parts of auc.
constexpr char kAuc[] = "auc";
constexpr char kAucParts[] = "auc/";
constexpr char kAucScores[] = "auc/scores";
constexpr char kAucLabels[] = "auc/labels";

using Means = std::vector<MetricMean>;

// K of "topK"; 0 when it is none.
int64_t TopCount(const std::string& metric) {
  int64_t count = 0;
  if (!absl::StartsWith(metric, kTop)) return 0;
  return absl::SimpleAtoi(metric.substr(sizeof(kTop) - 1), &count) && count > 0 ? count : 0;
}

ValueId AsFloat(GraphBuilder& b, ValueId x, DType dtype = DType::kFloat32) {
  return b.Op("Cast", {x}, {{"to", static_cast<int64_t>(dtype)}});
}

// How many labels count.
ValueId LabelCount(GraphBuilder& b, const LossSpec& loss, ValueId labels) {
  Attributes attributes = {{"dtype", static_cast<int64_t>(DType::kFloat32)}};
  if (loss.ignore_index.has_value()) attributes.Set("ignore_index", *loss.ignore_index);
  return b.WeftOp("LossWeight", {labels}, std::move(attributes));
}

// How many of `hits` (bool, of the labels' shape) count.
ValueId HitCount(GraphBuilder& b, const LossSpec& loss, ValueId hits, ValueId labels) {
  if (loss.ignore_index.has_value()) {
    hits = b.Op("And", {hits, b.Op("Not", {IsIgnored(b, loss, labels)})});
  }
  return SumOfAll(b, AsFloat(b, hits));
}

absl::StatusOr<MeanParts> ClassAccuracy(GraphBuilder& b, const LossSpec& loss) {
  WEFT_ASSIGN_OR_RETURN(const ClassScores made, ScoresAndLabels(b, loss));
  ValueId hits;
  if (loss.ignore_index.has_value()) {
    const ValueId best =
        b.Op("ArgMax", {made.scores}, {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}});
    hits = HitCount(b, loss, b.Op("Equal", {best, made.labels}), made.labels);
  } else {
    hits = b.WeftOp("CountCorrect", {made.scores, made.labels});
  }
  return MeanParts{hits, LabelCount(b, loss, made.labels)};
}

absl::StatusOr<MeanParts> TopAccuracy(GraphBuilder& b, const LossSpec& loss, int64_t count) {
  WEFT_ASSIGN_OR_RETURN(const ClassScores made, ScoresAndLabels(b, loss));
  const Dim& classes = b.type(made.scores).shape.dim(1);
  if (classes.is_known() && count > classes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("top", count, " of ", classes.size(), " classes holds every label"));
  }
  const std::vector<ValueId> top =
      b.Ops("", "TopK", {made.scores, b.Ints({count})}, {{"axis", int64_t{1}}}, {true, true});
  WEFT_RETURN_IF_ERROR(b.status());
  const ValueId label = b.Op("Unsqueeze", {made.labels, b.Ints({1})});
  const ValueId each = AsFloat(b, b.Op("Equal", {top[1], label}));
  const ValueId any =
      b.Op("Cast", {b.Op("ReduceMax", {each, b.Ints({1})}, {{"keepdims", int64_t{0}}})},
           {{"to", static_cast<int64_t>(DType::kBool)}});
  return MeanParts{HitCount(b, loss, any, made.labels), LabelCount(b, loss, made.labels)};
}

struct Regression {
  ValueId prediction;
  ValueId labels;
  ValueId count;
};

// In float64, so that sums of squares keep their digits.
absl::StatusOr<Regression> RegressionOf(GraphBuilder& b, const LossSpec& loss,
                                        const std::string& metric) {
  if (IsClassification(loss) && !loss.soft_labels) {
    return absl::InvalidArgumentError(absl::StrCat(metric, " compares numbers, but the labels of ",
                                                   loss.kind,
                                                   " are classes; choose a loss such as mse"));
  }
  WEFT_ASSIGN_OR_RETURN(const ValueId prediction, FindPrediction(b.graph(), loss));
  const ValueId labels = LabelsLike(b, prediction);
  Regression made;
  made.prediction = AsFloat(b, prediction, DType::kFloat64);
  made.labels = AsFloat(b, labels, DType::kFloat64);
  made.count = b.WeftOp("ElementCount", {made.labels});
  WEFT_RETURN_IF_ERROR(b.status());
  return made;
}

ValueId Square(GraphBuilder& b, ValueId x) { return b.Op("Mul", {x, x}); }

absl::StatusOr<Means> Accuracy(GraphBuilder& b, const LossSpec& loss) {
  if (IsClassification(loss)) {
    WEFT_ASSIGN_OR_RETURN(const MeanParts parts, ClassAccuracy(b, loss));
    return Means{{"accuracy", parts}};
  }
  if (loss.kind != "bce_with_logits") {
    return absl::InvalidArgumentError(
        absl::StrCat("accuracy needs scores of classes; ", loss.kind, " has none"));
  }
  WEFT_ASSIGN_OR_RETURN(const ValueId prediction, FindPrediction(b.graph(), loss));
  const ValueId labels = LabelsLike(b, prediction);
  const DType dtype = b.type(prediction).dtype;
  const ValueId said = b.Op("Greater", {prediction, b.Scalar(dtype, 0)});
  const ValueId is = b.Op("Greater", {labels, b.Scalar(dtype, 0.5)});
  const ValueId hits = AsFloat(b, b.Op("Equal", {said, is}));
  return Means{{"accuracy", {SumOfAll(b, hits), b.WeftOp("ElementCount", {hits})}}};
}

absl::StatusOr<Means> Loss(GraphBuilder& b, const LossSpec& loss) {
  WEFT_ASSIGN_OR_RETURN(const MeanParts parts, AddLoss(b, loss));
  return Means{{"loss", parts}};
}

absl::StatusOr<Means> Perplexity(GraphBuilder& b, const LossSpec& loss) {
  if (!IsClassification(loss)) {
    return absl::InvalidArgumentError(
        absl::StrCat("perplexity needs a cross entropy; the loss is ", loss.kind));
  }
  LossSpec plain = loss;
  plain.label_smoothing = 0;
  plain.class_weights.clear();
  WEFT_ASSIGN_OR_RETURN(const MeanParts parts, AddCrossEntropy(b, plain));
  return Means{{"perplexity", parts}};
}

absl::StatusOr<Means> AbsoluteError(GraphBuilder& b, const LossSpec& loss) {
  WEFT_ASSIGN_OR_RETURN(const Regression x, RegressionOf(b, loss, "mae"));
  const ValueId distance = b.Op("Abs", {b.Op("Sub", {x.prediction, x.labels})});
  return Means{{"mae", {SumOfAll(b, distance), x.count}}};
}

absl::StatusOr<Means> SquaredError(GraphBuilder& b, const LossSpec& loss) {
  WEFT_ASSIGN_OR_RETURN(const Regression x, RegressionOf(b, loss, "mse"));
  return Means{{"mse", {b.WeftOp("SquaredErrorSum", {x.prediction, x.labels}), x.count}}};
}

absl::StatusOr<Means> Determination(GraphBuilder& b, const LossSpec& loss) {
  WEFT_ASSIGN_OR_RETURN(const Regression x, RegressionOf(b, loss, "r2"));
  return Means{{kError, {b.WeftOp("SquaredErrorSum", {x.prediction, x.labels}), x.count}},
               {kLabel, {SumOfAll(b, x.labels), x.count}},
               {kSquare, {SumOfAll(b, Square(b, x.labels)), x.count}}};
}

// Scores and labels of two classes, float64 [N] each; a label that is ignored is -1.
struct BinaryScores {
  ValueId scores;
  ValueId labels;
};

absl::StatusOr<BinaryScores> BinaryClassScores(GraphBuilder& b, const LossSpec& loss) {
  WEFT_ASSIGN_OR_RETURN(const ClassScores made, ScoresAndLabels(b, loss));
  const SymbolicShape& shape = b.type(made.scores).shape;
  if (shape.rank() != 2 || (shape.dim(1).is_known() && shape.dim(1).size() != 2)) {
    return absl::InvalidArgumentError(
        absl::StrCat("auc is of two classes, one sample a row; the scores are ", shape.ToString()));
  }
  const ValueId numbers = AsFloat(b, made.scores, DType::kFloat64);
  const auto score = [&](int64_t of) {
    return b.Op("Gather", {numbers, b.Constant(Tensor::Scalar<int64_t>(of))},
                {{"axis", int64_t{1}}});
  };
  BinaryScores parts;
  parts.scores = b.Op("Sub", {score(1), score(0)});
  parts.labels = AsFloat(b, made.labels, DType::kFloat64);
  if (loss.ignore_index.has_value()) {
    parts.labels = b.Op(
        "Where", {IsIgnored(b, loss, made.labels), b.Scalar(DType::kFloat64, -1), parts.labels});
  }
  return parts;
}

absl::StatusOr<BinaryScores> BinaryNumbers(GraphBuilder& b, const LossSpec& loss) {
  WEFT_ASSIGN_OR_RETURN(const ValueId prediction, FindPrediction(b.graph(), loss));
  const ValueId labels = LabelsLike(b, prediction);
  const SymbolicShape& shape = b.type(prediction).shape;
  for (int axis = 1; axis < shape.rank(); ++axis) {
    if (!shape.dim(axis).is_known() || shape.dim(axis).size() == 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("auc needs one score per sample; the model's output is ", shape.ToString()));
  }
  const ValueId column = b.Ints({-1});
  const DType dtype = b.type(prediction).dtype;
  BinaryScores parts;
  parts.scores = b.Op("Reshape", {AsFloat(b, prediction, DType::kFloat64), column});
  parts.labels =
      b.Op("Reshape",
           {AsFloat(b, b.Op("Greater", {labels, b.Scalar(dtype, 0.5)}), DType::kFloat64), column});
  return parts;
}

absl::StatusOr<Means> Auc(GraphBuilder& b, const LossSpec& loss, int64_t batch) {
  if (batch <= 0) return absl::InternalError("auc needs the size of the batches");
  const auto parts = IsClassification(loss) ? BinaryClassScores(b, loss) : BinaryNumbers(b, loss);
  WEFT_RETURN_IF_ERROR(parts.status());
  const auto placed = [&](ValueId x) {
    return MeanParts{b.WeftOp("PlaceSamples", {x}, {{"samples", batch}}),
                     b.WeftOp("ElementCount", {x})};
  };
  return Means{{kAucScores, placed(parts->scores), true},
               {kAucLabels, placed(parts->labels), true}};
}

using AddFn = absl::StatusOr<Means> (*)(GraphBuilder&, const LossSpec&);
const std::map<std::string, AddFn>& Metrics() {
  static const auto* const kMetrics = new std::map<std::string, AddFn>{
      {"accuracy", Accuracy},     {"loss", Loss},
      {"mae", AbsoluteError},     {"mse", SquaredError},
      {"perplexity", Perplexity}, {"r2", Determination},
  };
  return *kMetrics;
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& [name, add] : Metrics()) names.push_back(name);
  names.insert(
      std::find_if(names.begin(), names.end(), [](const auto& name) { return name > kAuc; }), kAuc);
  return names;
}

double ScalarOf(const std::map<std::string, Tensor>& reports, const std::string& name) {
  const auto report = reports.find(name);
  if (report == reports.end()) return 0;
  const absl::StatusOr<std::vector<double>> numbers = ToDoubles(report->second);
  return numbers.ok() && !numbers->empty() ? numbers->front() : 0;
}

}  // namespace

std::string MetricKinds() { return absl::StrCat(absl::StrJoin(Names(), ", "), " and topK (top5)"); }

absl::Status CheckMetric(const std::string& metric) {
  if (Metrics().contains(metric) || metric == kAuc || TopCount(metric) > 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "no metric '", metric, "'", DidYouMean(metric, Names()), "; there are ", MetricKinds()));
}

absl::StatusOr<std::vector<MetricMean>> AddMetric(GraphBuilder& builder, const LossSpec& loss,
                                                  const std::string& metric, int64_t batch) {
  WEFT_RETURN_IF_ERROR(CheckMetric(metric));
  absl::StatusOr<Means> means;
  if (const int64_t count = TopCount(metric); count > 0) {
    if (!IsClassification(loss)) {
      return absl::InvalidArgumentError(
          absl::StrCat(metric, " needs scores of classes; ", loss.kind, " has none"));
    }
    WEFT_ASSIGN_OR_RETURN(const MeanParts parts, TopAccuracy(builder, loss, count));
    means = Means{{metric, parts}};
  } else {
    means = metric == kAuc ? Auc(builder, loss, batch) : Metrics().at(metric)(builder, loss);
  }
  WEFT_RETURN_IF_ERROR(means.status());
  WEFT_RETURN_IF_ERROR(builder.status());
  return means;
}

double AreaUnderCurve(const std::vector<double>& scores, const std::vector<double>& labels) {
  std::vector<std::pair<double, double>> samples;  // score, label
  for (size_t i = 0; i < scores.size(); ++i) {
    if (labels[i] != 0 && labels[i] != 1) continue;
    if (std::isnan(scores[i])) return std::numeric_limits<double>::quiet_NaN();
    samples.emplace_back(scores[i], labels[i]);
  }
  std::sort(samples.begin(), samples.end());
  double negatives = 0, positives = 0;  // with lower scores
  double pairs = 0;                     // in the right order, ties half
  for (size_t first = 0; first < samples.size();) {
    size_t end = first;
    double ones = 0;
    for (; end < samples.size() && samples[end].first == samples[first].first; ++end) {
      ones += samples[end].second;
    }
    const double zeros = static_cast<double>(end - first) - ones;
    pairs += ones * (negatives + zeros / 2);
    negatives += zeros;
    positives += ones;
    first = end;
  }
  return pairs / (negatives * positives);
}

void MetricTotals::Add(const std::map<std::string, Tensor>& reports) {
  for (const auto& [name, tensor] : reports) {
    if (absl::EndsWith(name, kWeightSuffix)) continue;
    const double weight = ScalarOf(reports, absl::StrCat(name, kWeightSuffix));
    if (absl::StartsWith(name, kAucParts)) {
      const auto numbers = ToDoubles(tensor);
      if (!numbers.ok()) continue;
      const auto count = std::min(static_cast<size_t>(weight), numbers->size());
      std::vector<double>& list = lists_[name];
      list.insert(list.end(), numbers->begin(), numbers->begin() + static_cast<int64_t>(count));
      continue;
    }
    Sum& sum = sums_[name];
    // A step in which nothing counts has no mean.
    sum.value += weight == 0 ? 0 : ScalarOf(reports, name) * weight;
    sum.weight += weight;
  }
}

std::map<std::string, double> MetricTotals::Values() const {
  std::map<std::string, double> values;
  for (const auto& [name, sum] : sums_) {
    if (absl::StartsWith(name, "r2/")) continue;
    values[name] = name == "perplexity" ? std::exp(sum.mean()) : sum.mean();
  }
  if (const auto square = sums_.find(kSquare); square != sums_.end()) {
    const double label = sums_.at(kLabel).mean();
    values["r2"] = 1 - sums_.at(kError).mean() / (square->second.mean() - label * label);
  }
  if (const auto scores = lists_.find(kAucScores); scores != lists_.end()) {
    values[kAuc] = AreaUnderCurve(scores->second, lists_.at(kAucLabels));
  }
  return values;
}

}  // namespace weft
