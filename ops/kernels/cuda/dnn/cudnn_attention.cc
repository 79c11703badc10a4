#include "ops/kernels/cuda/dnn/cudnn_attention.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "ops/kernels/cuda/dnn/attention_graph.h"
#include "platform/mutex.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

// Numbers of the tensors that have addresses; those between operations count on from the last.
enum AttentionTensorId : int64_t {
  kQueryId = 1,
  kKeyId,
  kValueId,
  kResultId,
  kScaleId,
  kNeverId,
  kLogSumsId,
  kFirstVirtualId
};

absl::StatusOr<DnnGraph> MakeAttentionGraph(const DnnFunctions& f, cudnnHandle_t library,
                                            const AttentionSpec& spec) {
  AttentionGraphMaker g(f, spec, kFirstVirtualId);
  const size_t query = g.Operand(spec.query, kQueryId, g.type());
  const size_t key = g.Operand(Turned(spec.key), kKeyId, g.type());
  const size_t value = g.Operand(spec.value, kValueId, g.type());
  const size_t result = g.Operand(spec.result, kResultId, g.type());
  size_t scores = g.Product(query, key, g.Virtual(g.scores()));
  scores = g.Pointwise(CUDNN_POINTWISE_MUL, scores, g.Number(kScaleId), g.Virtual(g.scores()));
  if (spec.causal) scores = g.Causal(scores, kNeverId);
  const size_t largest = g.Reduction(CUDNN_REDUCE_TENSOR_MAX, scores, g.Virtual(g.rows()));
  size_t powers = g.Pointwise(CUDNN_POINTWISE_SUB, scores, largest, g.Virtual(g.scores()));
  powers =
      g.Pointwise(CUDNN_POINTWISE_EXP, powers, AttentionGraphMaker::kNone, g.Virtual(g.scores()));
  const size_t sum = g.Reduction(CUDNN_REDUCE_TENSOR_ADD, powers, g.Virtual(g.rows()));
  // Engines know no graph without it.
  const size_t log_sums = g.Operand(DnnTensor::Dense(g.rows()), kLogSumsId, CUDNN_DATA_FLOAT);
  const size_t log =
      g.Pointwise(CUDNN_POINTWISE_LOG, sum, AttentionGraphMaker::kNone, g.Virtual(g.rows()));
  g.Pointwise(CUDNN_POINTWISE_ADD, largest, log, log_sums);
  const size_t probabilities =
      g.Pointwise(CUDNN_POINTWISE_DIV, powers, sum, g.Virtual(g.scores(), g.type()));
  g.Product(probabilities, value, result);
  return g.Finish(library);
}

class CudnnAttention final : public PreparedAttention {
 public:
  CudnnAttention(const AttentionSpec& spec, float never, DnnRunner runner)
      : scale_(static_cast<float>(spec.scale)),
        never_(never),
        is_causal_(spec.causal),
        statistics_bytes_(StatisticsBytes(spec)),
        runner_(std::move(runner)) {}

  // Place for the logarithms of sums, and what the plan wants behind it.
  size_t workspace_bytes() const override { return statistics_bytes_ + runner_.workspace_bytes(); }

  absl::Status Run(const AttentionOperands& operands, void* workspace, LaunchQueue queue) override {
    std::vector<int64_t> ids = {kQueryId, kKeyId, kValueId, kResultId, kScaleId, kLogSumsId};
    std::vector<void*> addresses = {const_cast<void*>(operands.query),
                                    const_cast<void*>(operands.key),
                                    const_cast<void*>(operands.value),
                                    operands.result,
                                    &scale_,
                                    operands.log_sums == nullptr ? workspace : operands.log_sums};
    if (is_causal_) {
      ids.push_back(kNeverId);
      addresses.push_back(&never_);
    }
    char* const behind = static_cast<char*>(workspace) + statistics_bytes_;
    return runner_.Run(ids, addresses, runner_.workspace_bytes() == 0 ? nullptr : behind, queue);
  }

 private:
  // The logarithm of the sum of powers of each row, float32.
  static size_t StatisticsBytes(const AttentionSpec& spec) {
    const int64_t rows = spec.query.dims[0] * spec.query.dims[1] * spec.query.dims[2];
    const size_t bytes = static_cast<size_t>(rows) * sizeof(float);
    return (bytes + kDnnWorkspaceAlignment - 1) / kDnnWorkspaceAlignment * kDnnWorkspaceAlignment;
  }

  float scale_;  // the library reads it at each Run
  float never_;
  const bool is_causal_;
  const size_t statistics_bytes_;
  DnnRunner runner_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PreparedAttention>> MakeCudnnAttention(DnnHandle& shared,
                                                                      const AttentionSpec& spec,
                                                                      size_t workspace_limit) {
  MutexLock lock(shared.mutex);
  WEFT_ASSIGN_OR_RETURN(DnnGraph graph, MakeAttentionGraph(shared.f, shared.library, spec));
  WEFT_ASSIGN_OR_RETURN(DnnPlan plan, FindPlan(shared, graph.graph(), EngineLaws{}, workspace_limit,
                                               spec.ToString()));
  return std::make_unique<CudnnAttention>(
      spec, NeverAttended(shared.f.version()),
      DnnRunner(shared, std::move(graph), std::move(plan), spec.ToString()));
}

}  // namespace weft::cuda
