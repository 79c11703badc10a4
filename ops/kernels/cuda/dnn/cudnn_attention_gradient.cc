#include "ops/kernels/cuda/dnn/cudnn_attention_gradient.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cuda/dnn/attention_graph.h"
#include "platform/mutex.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

// Numbers of the tensors that have addresses; those between operations count on from the last.
enum AttentionGradientId : int64_t {
  kGivenQueryId = 1,
  kGivenKeyId,
  kGivenValueId,
  kGivenResultId,
  kGivenLogSumsId,
  kResultSlopeId,
  kQuerySlopeId,
  kKeySlopeId,
  kValueSlopeId,
  kRowSumsId,
  kOneId,
  kFactorId,
  kMaskedId,
  kFirstBetweenId
};

// Makes the graph from the operations that attention has.
class AttentionGradientGraph {
 public:
  static absl::StatusOr<DnnGraph> Make(const DnnFunctions& f, cudnnHandle_t library,
                                       const AttentionSpec& spec) {
    AttentionGradientGraph made(f, spec);
    made.Build();
    return made.g_.Finish(library);
  }

 private:
  static constexpr size_t kNone = AttentionGraphMaker::kNone;

  AttentionGradientGraph(const DnnFunctions& f, const AttentionSpec& spec)
      : g_(f, spec, kFirstBetweenId), spec_(spec) {}

  void Build() {
    const size_t query = g_.Operand(spec_.query, kGivenQueryId, g_.type());
    const size_t key = g_.Operand(Turned(spec_.key), kGivenKeyId, g_.type());
    const size_t value = g_.Operand(Turned(spec_.value), kGivenValueId, g_.type());
    const size_t result = g_.Operand(spec_.result, kGivenResultId, g_.type());
    const size_t slope = g_.Operand(spec_.result, kResultSlopeId, g_.type());
    const size_t log_sums =
        g_.Operand(DnnTensor::Dense(g_.rows()), kGivenLogSumsId, CUDNN_DATA_FLOAT);
    const size_t sums = RowSums(slope, result);

    // Probabilities, again.
    size_t scores = g_.Product(query, key, Between());
    scores = g_.Pointwise(CUDNN_POINTWISE_MUL, scores, g_.Number(kFactorId), Between());
    scores = g_.Pointwise(CUDNN_POINTWISE_SUB, scores, log_sums, Between());
    if (spec_.causal) scores = g_.Causal(scores, kMaskedId);
    const size_t powers = g_.Pointwise(CUDNN_POINTWISE_EXP, scores, kNone, Between());
    ByColumns(powers, slope, spec_.value, kValueSlopeId);

    size_t slopes = g_.Product(slope, value, Between());
    slopes = g_.Pointwise(CUDNN_POINTWISE_SUB, slopes, sums, Between());
    slopes = g_.Pointwise(CUDNN_POINTWISE_MUL, slopes, powers, Between());
    slopes = g_.Pointwise(CUDNN_POINTWISE_MUL, slopes, g_.Number(kFactorId), Between());
    ByColumns(slopes, query, spec_.key, kKeySlopeId);
    const size_t keys = g_.Reshape(key, g_.Virtual(spec_.key, g_.type()));
    g_.Product(slopes, keys, g_.Operand(spec_.query, kQuerySlopeId, g_.type()));
  }

  size_t Between() { return g_.Virtual(g_.scores()); }

  // Of each row, the sum of slope times result.
  size_t RowSums(size_t slope, size_t result) {
    const size_t products =
        g_.Pointwise(CUDNN_POINTWISE_MUL, slope, result, g_.Virtual(spec_.result.dims));
    const size_t sums = g_.Reduction(CUDNN_REDUCE_TENSOR_ADD, products, g_.Virtual(g_.rows()));
    return g_.Pointwise(CUDNN_POINTWISE_MUL, sums, g_.Number(kOneId),
                        g_.Operand(DnnTensor::Dense(g_.rows()), kRowSumsId, CUDNN_DATA_FLOAT));
  }

  // The operand `id`, which lies as `layout`: x, with rows and columns exchanged, times `rows`;
  // summed over the heads that share one of `layout`.
  void ByColumns(size_t x, size_t rows, const DnnTensor& layout, int64_t id) {
    const size_t turned =
        g_.Reshape(x, g_.Virtual(Turned(DnnTensor::Dense(g_.scores())), g_.type()));
    const size_t to = g_.Operand(layout, id, g_.type());
    if (layout.dims[1] == spec_.query.dims[1]) {
      g_.Product(turned, rows, to);
      return;
    }
    std::vector<int64_t> every_head = layout.dims;
    every_head[1] = spec_.query.dims[1];
    const size_t of_heads = g_.Product(turned, rows, g_.Virtual(every_head, g_.type()));
    g_.Reduction(CUDNN_REDUCE_TENSOR_ADD, of_heads, to);
  }

  AttentionGraphMaker g_;
  const AttentionSpec spec_;
};

class CudnnAttentionGradient final : public PreparedAttentionGradient {
 public:
  CudnnAttentionGradient(const AttentionSpec& spec, float never, DnnRunner runner)
      : factor_(static_cast<float>(spec.scale)),
        never_(never),
        is_causal_(spec.causal),
        sums_bytes_(SumsBytes(spec)),
        runner_(std::move(runner)) {}

  // Place for the sums of rows, and what the plan wants behind it.
  size_t workspace_bytes() const override { return sums_bytes_ + runner_.workspace_bytes(); }

  absl::Status Run(const AttentionGradientOperands& operands, void* workspace,
                   LaunchQueue queue) override {
    std::vector<int64_t> ids = {kGivenQueryId,   kGivenKeyId,    kGivenValueId, kGivenResultId,
                                kGivenLogSumsId, kResultSlopeId, kQuerySlopeId, kKeySlopeId,
                                kValueSlopeId,   kRowSumsId,     kOneId,        kFactorId};
    std::vector<void*> addresses = {const_cast<void*>(operands.query),
                                    const_cast<void*>(operands.key),
                                    const_cast<void*>(operands.value),
                                    const_cast<void*>(operands.result),
                                    const_cast<float*>(operands.log_sums),
                                    const_cast<void*>(operands.dresult),
                                    operands.dquery,
                                    operands.dkey,
                                    operands.dvalue,
                                    workspace,
                                    &one_,
                                    &factor_};
    if (is_causal_) {
      ids.push_back(kMaskedId);
      addresses.push_back(&never_);
    }
    char* const behind = static_cast<char*>(workspace) + sums_bytes_;
    return runner_.Run(ids, addresses, runner_.workspace_bytes() == 0 ? nullptr : behind, queue);
  }

 private:
  static size_t SumsBytes(const AttentionSpec& spec) {
    const int64_t rows = spec.query.dims[0] * spec.query.dims[1] * spec.query.dims[2];
    const size_t bytes = static_cast<size_t>(rows) * sizeof(float);
    return (bytes + kDnnWorkspaceAlignment - 1) / kDnnWorkspaceAlignment * kDnnWorkspaceAlignment;
  }

  float one_ = 1;  // the library reads these at each Run
  float factor_;
  float never_;
  const bool is_causal_;
  const size_t sums_bytes_;
  DnnRunner runner_;
};

// Of keys that fill no tile, gradients are wrong before this version.
bool HasRightGradients(size_t version, const AttentionSpec& spec) {
  constexpr size_t kRightForAll = 91600;
  constexpr int64_t kTile = 128;
  return version >= kRightForAll || spec.key.dims[2] % kTile == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PreparedAttentionGradient>> MakeCudnnAttentionGradient(
    DnnHandle& shared, const AttentionSpec& spec, size_t workspace_limit) {
  const std::string what = absl::StrCat("the gradient of ", spec.ToString());
  const size_t version = shared.f.version();
  if (!HasRightGradients(version, spec)) {
    return absl::UnimplementedError(
        absl::StrCat("cuDNN ", version, " is not asked for ", what,
                     ": before 9.16 it is right for multiples of 128 keys alone"));
  }
  MutexLock lock(shared.mutex);
  WEFT_ASSIGN_OR_RETURN(DnnGraph graph,
                        AttentionGradientGraph::Make(shared.f, shared.library, spec));
  WEFT_ASSIGN_OR_RETURN(DnnPlan plan,
                        FindPlan(shared, graph.graph(), EngineLaws{}, workspace_limit, what));
  return std::make_unique<CudnnAttentionGradient>(
      spec, NeverAttended(version), DnnRunner(shared, std::move(graph), std::move(plan), what));
}

}  // namespace weft::cuda
