// Linear models and support vector machines of ai.onnx.ml, in double.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/kernel.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/ml/ml_scores.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

using Numbers = std::vector<double>;

Numbers FloatsOf(const Attributes& attributes, const std::string& name) {
  const std::vector<float> floats = attributes.Floats(name);
  return Numbers(floats.begin(), floats.end());
}

int64_t SizeOf(const Numbers& numbers) { return static_cast<int64_t>(numbers.size()); }

// Rows of any real dtype, [rows, features] or one row [features].
struct Rows {
  explicit Rows(const PrepareContext& context)
      : dtype(context.InputDType(0)),
        features(context.InputShape(0).rank() == 0
                     ? 1
                     : context.InputShape(0).dim(context.InputShape(0).rank() - 1)),
        count(context.InputShape(0).rank() <= 1 ? 1 : context.InputShape(0).dim(0)) {}
  DType dtype;
  int64_t features;
  int64_t count;
};

absl::Status CheckSize(const PrepareContext& context, const char* name, const Numbers& numbers,
                       int64_t wanted) {
  if (SizeOf(numbers) == wanted) return absl::OkStatus();
  return context.InvalidArgument(
      absl::StrCat("attribute ", name, " has ", numbers.size(), " elements, expected ", wanted));
}

// finish(run, row number, features, scratch of `scratch` doubles) for every row. Each thread has
// scratch memory of its own.
template <typename Finish>
std::unique_ptr<Kernel> MakeRowKernel(const PrepareContext& context, int64_t scratch, double cost,
                                      Finish finish) {
  const Rows rows(context);
  const int64_t each = rows.features + scratch;
  const int slots = UsefulThreads(context.threads(), rows.count, cost);
  return MakeKernel(
      [=](const KernelContext& run) {
        ParallelFor(slots, slots, 2 * kNanosecondsPerThread, 1, [&](int64_t begin, int64_t end) {
          for (int64_t slot = begin; slot < end; ++slot) {
            double* row = static_cast<double*>(run.workspace) + slot * each;
            for (int64_t r = slot; r < rows.count; r += slots) {
              LoadRow(rows.dtype, run.inputs[0], r * rows.features, rows.features, row);
              finish(run, r, row, row + rows.features);
            }
          }
        });
        return absl::OkStatus();
      },
      slots * each * sizeof(double));
}

double Dot(const double* a, const double* b, int64_t size) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += a[i] * b[i];
  return sum;
}

// ---- Linear models

// `outputs` rows of coefficients, and one intercept for each, or none.
struct LinearModel {
  Numbers coefficients;
  Numbers intercepts;
  int64_t outputs;
  int64_t features;

  void Score(const double* row, double* scores) const {
    for (int64_t o = 0; o < outputs; ++o) {
      scores[o] = Dot(row, coefficients.data() + o * features, features);
      if (!intercepts.empty()) scores[o] += intercepts[intercepts.size() == 1 ? 0 : o];
    }
  }
};

absl::StatusOr<LinearModel> ReadLinear(const PrepareContext& context, int64_t outputs) {
  LinearModel model;
  model.coefficients = FloatsOf(context.attributes(), "coefficients");
  model.intercepts = FloatsOf(context.attributes(), "intercepts");
  model.features = Rows(context).features;
  model.outputs = outputs;
  if (outputs > SizeOf(model.coefficients) && model.features > 0) {
    return context.InvalidArgument(absl::StrCat("attribute coefficients has ",
                                                model.coefficients.size(), " elements for ",
                                                outputs, " outputs"));
  }
  WEFT_RETURN_IF_ERROR(
      CheckSize(context, "coefficients", model.coefficients, outputs * model.features));
  if (model.intercepts.size() > 1) {
    WEFT_RETURN_IF_ERROR(CheckSize(context, "intercepts", model.intercepts, outputs));
  }
  return model;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareLinearRegressor(const PrepareContext& context) {
  const int64_t targets = context.attributes().Int("targets", 1);
  WEFT_ASSIGN_OR_RETURN(const LinearModel model, ReadLinear(context, targets));
  WEFT_ASSIGN_OR_RETURN(const PostTransform transform,
                        ParsePostTransform(context.attributes().String("post_transform", "NONE")));
  const double cost = static_cast<double>(model.coefficients.size());
  return MakeRowKernel(context, targets, cost,
                       [=](const KernelContext& run, int64_t r, const double* row, double* scores) {
                         model.Score(row, scores);
                         ApplyPostTransform(transform, scores, targets);
                         StoreRow(DType::kFloat32, scores, targets, run.outputs[0], r * targets);
                       });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareLinearClassify(const PrepareContext& context) {
  const int64_t classes = context.attributes().Int("classes", 1);
  const int64_t features = std::max<int64_t>(Rows(context).features, 1);
  const int64_t given = SizeOf(FloatsOf(context.attributes(), "coefficients")) / features;
  // Two classes may share one row: the second's score, the first's being its opposite.
  const bool binary = classes <= 2 && given == 1;
  WEFT_ASSIGN_OR_RETURN(const LinearModel model, ReadLinear(context, binary ? 1 : classes));
  WEFT_ASSIGN_OR_RETURN(const PostTransform transform,
                        ParsePostTransform(context.attributes().String("post_transform", "NONE")));
  const int64_t columns = context.OutputShape(1).rank() == 2 ? context.OutputShape(1).dim(1)
                                                             : std::max<int64_t>(classes, 2);
  const double cost = static_cast<double>(model.coefficients.size());
  return MakeRowKernel(context, columns, cost,
                       [=, wants_class = context.HasOutput(0), wants_scores = context.HasOutput(1)](
                           const KernelContext& run, int64_t r, const double* row, double* scores) {
                         model.Score(row, scores);
                         if (binary) {
                           scores[1] = scores[0];
                           scores[0] = -scores[1];
                         }
                         ApplyPostTransform(transform, scores, columns);
                         if (wants_class)
                           Output<int64_t>(run, 0)[r] = LargestScore(scores, columns);
                         if (wants_scores) {
                           StoreRow(DType::kFloat32, scores, columns, run.outputs[1], r * columns);
                         }
                       });
}

// ---- Support vector machines

enum class SvmKernel : uint8_t { kLinear, kPoly, kRbf, kSigmoid };

struct SvmModel {
  SvmKernel kernel = SvmKernel::kLinear;
  double gamma = 0, coef0 = 0, degree = 0;
  Numbers vectors;  // [count, features]
  Numbers coefficients;
  Numbers rho;
  int64_t count = 0;
  int64_t features = 0;

  double Similarity(const double* a, const double* b) const {
    if (kernel == SvmKernel::kRbf) {
      double sum = 0;
      for (int64_t i = 0; i < features; ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
      return std::exp(-gamma * sum);
    }
    const double dot = Dot(a, b, features);
    if (kernel == SvmKernel::kPoly) return std::pow(gamma * dot + coef0, degree);
    return kernel == SvmKernel::kSigmoid ? std::tanh(gamma * dot + coef0) : dot;
  }
};

absl::StatusOr<SvmModel> ReadSvm(const PrepareContext& context, int64_t count) {
  const Attributes& attributes = context.attributes();
  SvmModel model;
  const std::string name = attributes.String("kernel_type", "LINEAR");
  const std::string names[] = {"LINEAR", "POLY", "RBF", "SIGMOID"};
  const auto* found = std::find(std::begin(names), std::end(names), name);
  if (found == std::end(names)) {
    return context.InvalidArgument(absl::StrCat("attribute kernel_type is '", name,
                                                "', expected LINEAR, POLY, RBF or SIGMOID"));
  }
  // Without support vectors, the coefficients are those of a linear model.
  model.kernel =
      count == 0 ? SvmKernel::kLinear : static_cast<SvmKernel>(found - std::begin(names));
  const Numbers parameters = FloatsOf(attributes, "kernel_params");
  if (!parameters.empty()) {
    WEFT_RETURN_IF_ERROR(CheckSize(context, "kernel_params", parameters, 3));
    model.gamma = parameters[0];
    model.coef0 = parameters[1];
    model.degree = parameters[2];
  }
  model.vectors = FloatsOf(attributes, "support_vectors");
  model.coefficients = FloatsOf(attributes, "coefficients");
  model.rho = FloatsOf(attributes, "rho");
  model.count = count;
  model.features = Rows(context).features;
  if (count > 0) {
    if (count > SizeOf(model.vectors)) {
      return context.InvalidArgument(absl::StrCat("attribute support_vectors has ",
                                                  model.vectors.size(), " elements for ", count,
                                                  " vectors"));
    }
    WEFT_RETURN_IF_ERROR(
        CheckSize(context, "support_vectors", model.vectors, count * model.features));
  }
  if (model.rho.empty()) return context.InvalidArgument("attribute rho is empty");
  return model;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareSvmRegressor(const PrepareContext& context) {
  const int64_t count = context.attributes().Int("n_supports", 0);
  WEFT_ASSIGN_OR_RETURN(const SvmModel model, ReadSvm(context, std::max<int64_t>(count, 0)));
  WEFT_RETURN_IF_ERROR(CheckSize(context, "coefficients", model.coefficients,
                                 model.count > 0 ? model.count : model.features));
  WEFT_ASSIGN_OR_RETURN(const PostTransform transform,
                        ParsePostTransform(context.attributes().String("post_transform", "NONE")));
  const bool one_class = context.attributes().Int("one_class", 0) != 0;
  const double cost = static_cast<double>((model.count + 1) * model.features);
  return MakeRowKernel(
      context, 1, cost, [=](const KernelContext& run, int64_t r, const double* row, double* score) {
        *score = model.rho[0];
        if (model.count == 0) *score += Dot(row, model.coefficients.data(), model.features);
        for (int64_t v = 0; v < model.count; ++v) {
          *score += model.coefficients[v] *
                    model.Similarity(row, model.vectors.data() + v * model.features);
        }
        if (one_class) *score = *score > 0 ? 1 : -1;
        ApplyPostTransform(transform, score, 1);
        StoreRow(DType::kFloat32, score, 1, run.outputs[0], r);
      });
}

// One machine per pair of classes, each with a vote, which decides; probabilities are those of the
// pairs, coupled.
struct SvmClassifier {
  SvmModel model;
  int64_t classes = 1;
  std::vector<int64_t> first;  // of each class: its first vector; one more at the end
  Numbers prob_a, prob_b;
  PostTransform transform = PostTransform::kNone;

  int64_t pairs() const { return classes * (classes - 1) / 2; }
  bool linear() const { return model.count == 0; }
  bool has_probabilities() const { return !prob_a.empty() && !linear(); }
  // similarities, votes, pairs, and two square matrices and two vectors for the coupling.
  int64_t scratch() const {
    return model.count + 2 * classes + pairs() + 2 + 2 * classes * classes + 2 * classes;
  }
};

// The scores of all pairs; votes for the classes.
void ScorePairs(const SvmClassifier& c, const double* row, double* similarities, double* votes,
                double* scores) {
  for (int64_t v = 0; v < c.model.count; ++v) {
    similarities[v] = c.model.Similarity(row, c.model.vectors.data() + v * c.model.features);
  }
  std::fill(votes, votes + c.classes, 0.0);
  int64_t pair = 0;
  for (int64_t i = 0; i < c.classes; ++i) {
    for (int64_t j = i + 1; j < c.classes; ++j, ++pair) {
      double score = c.model.rho[pair];
      const double* of_i = c.model.coefficients.data() + (j - 1) * c.model.count;
      const double* of_j = c.model.coefficients.data() + i * c.model.count;
      for (int64_t v = c.first[i]; v < c.first[i + 1]; ++v) score += of_i[v] * similarities[v];
      for (int64_t v = c.first[j]; v < c.first[j + 1]; ++v) score += of_j[v] * similarities[v];
      scores[pair] = score;
      votes[score > 0 ? i : j] += 1;
    }
  }
}

// Wu, Lin and Weng (2004), second method: class probabilities from those of pairs, as libsvm has
// it. `r`: [k, k]; scratch: q [k, k], qp [k]; result in p [k].
void CouplePairs(int64_t k, const double* r, double* q, double* qp, double* p) {
  for (int64_t t = 0; t < k; ++t) {
    p[t] = 1.0 / static_cast<double>(k);
    q[t * k + t] = 0;
    for (int64_t j = 0; j < k; ++j) {
      if (j == t) continue;
      q[t * k + t] += r[j * k + t] * r[j * k + t];
      q[t * k + j] = -r[j * k + t] * r[t * k + j];
    }
  }
  for (int64_t iteration = 0; iteration < std::max<int64_t>(100, k); ++iteration) {
    double pqp = 0;
    double worst = 0;
    for (int64_t t = 0; t < k; ++t) {
      qp[t] = Dot(q + t * k, p, k);
      pqp += p[t] * qp[t];
    }
    for (int64_t t = 0; t < k; ++t) worst = std::max(worst, std::abs(qp[t] - pqp));
    if (worst < 0.005 / static_cast<double>(k)) return;
    for (int64_t t = 0; t < k; ++t) {
      const double diff = (pqp - qp[t]) / q[t * k + t];
      p[t] += diff;
      pqp = (pqp + diff * (diff * q[t * k + t] + 2 * qp[t])) / ((1 + diff) * (1 + diff));
      for (int64_t j = 0; j < k; ++j) {
        qp[j] = (qp[j] + diff * q[t * k + j]) / (1 + diff);
        p[j] /= 1 + diff;
      }
    }
  }
}

void ProbabilitiesOf(const SvmClassifier& c, const double* pair_scores, double* scratch,
                     double* probabilities) {
  const int64_t k = c.classes;
  double* r = scratch;
  std::fill(r, r + k * k, 0.0);
  int64_t pair = 0;
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t j = i + 1; j < k; ++j, ++pair) {
      double p = pair_scores[pair] * c.prob_a[pair] + c.prob_b[pair];
      ApplyPostTransform(PostTransform::kLogistic, &p, 1);
      p = std::clamp(1 - p, 1e-7, 1 - 1e-7);
      r[i * k + j] = p;
      r[j * k + i] = 1 - p;
    }
  }
  CouplePairs(k, r, r + k * k, r + 2 * k * k, probabilities);
}

// The number of the class, and `columns` final scores in place of the raw ones.
int64_t FinishSvm(const SvmClassifier& c, const double* row, double* scratch, double* scores) {
  double* votes = scratch;
  double* similarities = votes + 2 * c.classes;
  double* coupling = similarities + c.model.count;
  int64_t count = c.classes;
  int64_t winner = 0;
  if (c.linear()) {
    for (int64_t k = 0; k < c.classes; ++k) {
      scores[k] = c.model.rho[0] +
                  Dot(row, c.model.coefficients.data() + k * c.model.features, c.model.features);
    }
    winner = LargestScore(scores, c.classes);
  } else {
    double* pairs = c.has_probabilities() ? coupling : scores;
    ScorePairs(c, row, similarities, votes, pairs);
    winner = LargestScore(votes, c.classes);
    count = c.pairs();
    if (c.has_probabilities()) {
      count = c.classes;
      ProbabilitiesOf(c, pairs, coupling + c.pairs(), scores);
    }
  }
  if (count == 1) {
    // One score: of the class of the first vectors, or of the only class.
    if (c.classes == 1) winner = scores[0] > 0 ? 1 : 0;
    scores[1] = scores[0];
    scores[0] = -scores[0];
    count = 2;
  }
  ApplyPostTransform(c.transform, scores, count);
  return winner;
}

absl::StatusOr<SvmClassifier> ReadClassifier(const PrepareContext& context) {
  const Attributes& attributes = context.attributes();
  SvmClassifier c;
  c.classes = attributes.Int("classes", 1);
  c.first.push_back(0);
  for (const int64_t vectors : attributes.Ints("vectors_per_class")) {
    if (vectors < 0 || vectors > kMaxDim) {
      return context.InvalidArgument("vectors_per_class has a size out of bounds");
    }
    c.first.push_back(c.first.back() + vectors);
  }
  WEFT_ASSIGN_OR_RETURN(c.model, ReadSvm(context, c.first.back()));
  WEFT_ASSIGN_OR_RETURN(c.transform,
                        ParsePostTransform(attributes.String("post_transform", "NONE")));
  c.prob_a = FloatsOf(attributes, "prob_a");
  c.prob_b = FloatsOf(attributes, "prob_b");
  const Numbers& coefficients = c.model.coefficients;
  if (c.linear()) {
    WEFT_RETURN_IF_ERROR(
        CheckSize(context, "coefficients", coefficients, c.classes * c.model.features));
    return c;
  }
  if (static_cast<int64_t>(c.first.size()) != c.classes + 1) {
    return context.InvalidArgument(absl::StrCat("vectors_per_class has ", c.first.size() - 1,
                                                " elements for ", c.classes, " classes"));
  }
  WEFT_RETURN_IF_ERROR(
      CheckSize(context, "coefficients", coefficients, (c.classes - 1) * c.model.count));
  WEFT_RETURN_IF_ERROR(CheckSize(context, "rho", c.model.rho, c.pairs()));
  if (c.has_probabilities()) {
    WEFT_RETURN_IF_ERROR(CheckSize(context, "prob_a", c.prob_a, c.pairs()));
    WEFT_RETURN_IF_ERROR(CheckSize(context, "prob_b", c.prob_b, c.pairs()));
  }
  return c;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareSvmClassify(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(SvmClassifier classifier, ReadClassifier(context));
  const auto c = std::make_shared<const SvmClassifier>(std::move(classifier));
  const bool wants_scores = context.HasOutput(1);
  const int64_t columns = wants_scores ? context.OutputShape(1).dim(1) : 0;
  const int64_t scores = std::max(c->classes, c->pairs()) + 2;
  const double cost = static_cast<double>((c->model.count + 1) * c->model.features);
  return MakeRowKernel(context, scores + c->scratch(), cost,
                       [=, wants_class = context.HasOutput(0)](const KernelContext& run, int64_t r,
                                                               const double* row, double* own) {
                         const int64_t winner = FinishSvm(*c, row, own + scores, own);
                         if (wants_class) Output<int64_t>(run, 0)[r] = winner;
                         if (wants_scores) {
                           StoreRow(DType::kFloat32, own, columns, run.outputs[1], r * columns);
                         }
                       });
}

constexpr char kDomain[] = "ai.onnx.ml";
WEFT_REGISTER_KERNEL(kDomain, "LinearRegressor", DeviceKind::kCpu, PrepareLinearRegressor);
WEFT_REGISTER_KERNEL(kWeftDomain, "LinearClassify", DeviceKind::kCpu, PrepareLinearClassify);
WEFT_REGISTER_KERNEL(kDomain, "SVMRegressor", DeviceKind::kCpu, PrepareSvmRegressor);
WEFT_REGISTER_KERNEL(kWeftDomain, "SvmClassify", DeviceKind::kCpu, PrepareSvmClassify);

}  // namespace
}  // namespace weft::cpu
