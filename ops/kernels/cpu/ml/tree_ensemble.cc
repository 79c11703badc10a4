// TreeEnsemble, TreeEnsembleRegressor and ai.weft::TreeEnsembleClassify.
#include <algorithm>
#include <limits>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/kernel.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/workspace.h"
#include "ops/kernels/cpu/ml/ml_scores.h"
#include "ops/kernels/cpu/ml/tree_model.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// A guess at what a walk down one tree costs.
constexpr double kNanosecondsPerTree = 40;

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

struct Ensemble {
  TreeModel model;
  TreeAggregate aggregate = TreeAggregate::kSum;
  PostTransform transform = PostTransform::kNone;
  std::vector<double> base;
  int64_t targets = 0;
};

absl::Status CheckModel(const PrepareContext& context, const Ensemble& ensemble, const Rows& rows) {
  if (ensemble.model.features() > rows.features) {
    return context.InvalidArgument(absl::StrCat("the trees ask for feature ",
                                                ensemble.model.features() - 1, ", but X has ",
                                                rows.features, " features"));
  }
  if (ensemble.model.targets() > ensemble.targets) {
    return context.InvalidArgument(absl::StrCat(
        "a leaf votes for target ", ensemble.model.targets() - 1, " of ", ensemble.targets));
  }
  const size_t base = ensemble.base.size();
  if (base == 0 || base == 1 || static_cast<int64_t>(base) == ensemble.targets) {
    return absl::OkStatus();
  }
  return context.InvalidArgument(
      absl::StrCat("base_values has ", base, " elements for ", ensemble.targets, " targets"));
}

// The scores of one row before the transform. `votes`: scratch, as many as targets.
void Score(const Ensemble& ensemble, const double* row, double* scores, double* votes) {
  std::fill(scores, scores + ensemble.targets, 0.0);
  std::fill(votes, votes + ensemble.targets, 0.0);
  ensemble.model.Walk(row, [&](int64_t target, double weight) {
    double& score = scores[target];
    const bool first = votes[target]++ == 0;
    if (ensemble.aggregate == TreeAggregate::kMin) {
      score = first ? weight : std::min(score, weight);
    } else if (ensemble.aggregate == TreeAggregate::kMax) {
      score = first ? weight : std::max(score, weight);
    } else {
      score += weight;
    }
  });
  for (int64_t t = 0; t < ensemble.targets; ++t) {
    if (ensemble.aggregate == TreeAggregate::kAverage && ensemble.model.trees() > 0) {
      scores[t] /= static_cast<double>(ensemble.model.trees());
    }
    if (!ensemble.base.empty()) scores[t] += ensemble.base[ensemble.base.size() == 1 ? 0 : t];
  }
}

// finish(run, ensemble, row number, scores) for every row. Each thread has scratch memory: a row,
// scores with room for a second class, votes.
template <typename Finish>
std::unique_ptr<Kernel> MakeEnsembleKernel(const PrepareContext& context, Ensemble ensemble,
                                           Finish finish) {
  const Rows rows(context);
  const int64_t scratch = rows.features + 2 * ensemble.targets + 1;
  const auto shared = std::make_shared<const Ensemble>(std::move(ensemble));
  const double cost = kNanosecondsPerTree * static_cast<double>(shared->model.trees() + 1);
  const int slots = UsefulThreads(context.threads(), rows.count, cost);
  return MakeKernel(
      [=](const KernelContext& run) {
        ParallelFor(slots, slots, 2 * kNanosecondsPerThread, 1, [&](int64_t begin, int64_t end) {
          for (int64_t slot = begin; slot < end; ++slot) {
            double* row = static_cast<double*>(run.workspace) + slot * scratch;
            double* scores = row + rows.features;
            for (int64_t r = slot; r < rows.count; r += slots) {
              LoadRow(rows.dtype, run.inputs[0], r * rows.features, rows.features, row);
              Score(*shared, row, scores, scores + shared->targets + 1);
              finish(run, *shared, r, scores);
            }
          }
        });
        return absl::OkStatus();
      },
      slots * scratch * sizeof(double));
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareRegression(const PrepareContext& context,
                                                          Ensemble ensemble) {
  const Shape& y = context.OutputShape(0);
  ensemble.targets = y.dim(y.rank() - 1);
  WEFT_RETURN_IF_ERROR(CheckModel(context, ensemble, Rows(context)));
  return MakeEnsembleKernel(
      context, std::move(ensemble),
      [dtype = context.OutputDType(0)](const KernelContext& run, const Ensemble& own, int64_t row,
                                       double* scores) {
        ApplyPostTransform(own.transform, scores, own.targets);
        StoreRow(dtype, scores, own.targets, run.outputs[0], row * own.targets);
      });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareTreeEnsemble(const PrepareContext& context) {
  const Attributes& attributes = context.attributes();
  Ensemble ensemble;
  WEFT_ASSIGN_OR_RETURN(ensemble.model, TreeModel::FromEnsemble(attributes));
  const int64_t aggregate = attributes.Int("aggregate_function", 1);
  const int64_t transform = attributes.Int("post_transform", 0);
  if (aggregate < 0 || aggregate > 3 || transform < 0 || transform > 4) {
    return context.InvalidArgument(absl::StrCat("attributes aggregate_function ", aggregate,
                                                " and post_transform ", transform,
                                                ", expected 0 to 3 and 0 to 4"));
  }
  ensemble.aggregate = static_cast<TreeAggregate>(aggregate);
  ensemble.transform = static_cast<PostTransform>(transform);
  return PrepareRegression(context, std::move(ensemble));
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareTreeEnsembleRegressor(
    const PrepareContext& context) {
  const Attributes& attributes = context.attributes();
  Ensemble ensemble;
  WEFT_ASSIGN_OR_RETURN(ensemble.model, TreeModel::FromNodes(attributes, "target"));
  WEFT_ASSIGN_OR_RETURN(ensemble.transform,
                        ParsePostTransform(attributes.String("post_transform", "NONE")));
  WEFT_ASSIGN_OR_RETURN(ensemble.base, NumbersOf(attributes, "base_values"));
  const std::string aggregate = attributes.String("aggregate_function", "SUM");
  const std::string names[] = {"AVERAGE", "SUM", "MIN", "MAX"};
  const auto* found = std::find(std::begin(names), std::end(names), aggregate);
  if (found == std::end(names)) {
    return context.InvalidArgument(absl::StrCat("attribute aggregate_function is '", aggregate,
                                                "', expected AVERAGE, SUM, MIN or MAX"));
  }
  ensemble.aggregate = static_cast<TreeAggregate>(found - std::begin(names));
  return PrepareRegression(context, std::move(ensemble));
}

// Two classes of which all leaves vote for one: its score alone decides, and the other's is made of
// it. Returns which class wins.
int64_t FinishBinary(const Ensemble& ensemble, double positive, double* scores) {
  const bool signed_scores = ensemble.model.has_negative_weight();
  const bool none =
      ensemble.transform == PostTransform::kNone || ensemble.transform == PostTransform::kProbit;
  scores[1] = positive;
  scores[0] = none && !signed_scores ? 1 - positive : -positive;
  ApplyPostTransform(ensemble.transform, scores, 2);
  return positive > (signed_scores ? 0 : 0.5) ? 1 : 0;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareTreeEnsembleClassify(const PrepareContext& context) {
  const Attributes& attributes = context.attributes();
  Ensemble ensemble;
  WEFT_ASSIGN_OR_RETURN(ensemble.model, TreeModel::FromNodes(attributes, "class"));
  WEFT_ASSIGN_OR_RETURN(ensemble.transform,
                        ParsePostTransform(attributes.String("post_transform", "NONE")));
  WEFT_ASSIGN_OR_RETURN(ensemble.base, NumbersOf(attributes, "base_values"));
  ensemble.targets = attributes.Int("classes", 1);
  WEFT_RETURN_IF_ERROR(CheckModel(context, ensemble, Rows(context)));
  const int64_t only = ensemble.targets == 1 ? 0 : ensemble.model.only_target();
  const bool binary = ensemble.targets <= 2 && only >= 0;
  const int64_t columns = context.HasOutput(1) ? context.OutputShape(1).dim(1) : 0;
  return MakeEnsembleKernel(
      context, std::move(ensemble),
      [=, wants_class = context.HasOutput(0), wants_scores = context.HasOutput(1)](
          const KernelContext& run, const Ensemble& own, int64_t row, double* scores) {
        int64_t winner = 0;
        if (binary) {
          winner = FinishBinary(own, scores[only], scores);
        } else {
          winner = LargestScore(scores, own.targets);
          ApplyPostTransform(own.transform, scores, own.targets);
        }
        if (wants_class) Output<int64_t>(run, 0)[row] = winner;
        if (wants_scores) {
          StoreRow(DType::kFloat32, scores, columns, run.outputs[1], row * columns);
        }
      });
}

constexpr char kDomain[] = "ai.onnx.ml";
WEFT_REGISTER_KERNEL(kDomain, "TreeEnsemble", DeviceKind::kCpu, PrepareTreeEnsemble);
WEFT_REGISTER_KERNEL(kDomain, "TreeEnsembleRegressor", DeviceKind::kCpu,
                     PrepareTreeEnsembleRegressor);
WEFT_REGISTER_KERNEL(kWeftDomain, "TreeEnsembleClassify", DeviceKind::kCpu,
                     PrepareTreeEnsembleClassify);

}  // namespace
}  // namespace weft::cpu
