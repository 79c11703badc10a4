#include "ops/kernels/cuda/dnn/cudnn_attention.h"

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "platform/mutex.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

using TensorKind = DnnGraph::TensorKind;

// Numbers of the tensors that have addresses; those between operations count on from the last.
enum AttentionTensorId : int64_t {
  kQueryId = 1,
  kKeyId,
  kValueId,
  kResultId,
  kScaleId,
  kNeverId,
  kStatisticsId,
  kFirstVirtualId
};

// Makes the graph. The first error stays, and the rest then does nothing.
class AttentionGraph {
 public:
  static absl::StatusOr<DnnGraph> Make(const DnnFunctions& f, cudnnHandle_t library,
                                       const AttentionSpec& spec) {
    AttentionGraph made(f, spec);
    made.Build();
    WEFT_RETURN_IF_ERROR(made.status_);
    WEFT_RETURN_IF_ERROR(made.graph_.Finish(library, made.operations_));
    return std::move(made.graph_);
  }

 private:
  AttentionGraph(const DnnFunctions& f, const AttentionSpec& spec)
      : graph_(f),
        spec_(spec),
        type_(DnnTypeOf(spec.dtype)),
        scores_({spec.query.dims[0], spec.query.dims[1], spec.query.dims[2], spec.key.dims[2]}),
        rows_({spec.query.dims[0], spec.query.dims[1], spec.query.dims[2], 1}) {}

  void Build() {
    const size_t query = Operand(spec_.query, kQueryId, type_);
    const size_t key = Operand(Turned(spec_.key), kKeyId, type_);
    const size_t value = Operand(spec_.value, kValueId, type_);
    const size_t result = Operand(spec_.result, kResultId, type_);
    size_t scores = Product(query, key, Virtual(scores_));
    scores = Pointwise(CUDNN_POINTWISE_MUL, scores, Number(kScaleId), Virtual(scores_));
    if (spec_.causal) scores = Causal(scores);
    const size_t largest = Reduction(CUDNN_REDUCE_TENSOR_MAX, scores);
    size_t powers = Pointwise(CUDNN_POINTWISE_SUB, scores, largest, Virtual(scores_));
    powers = Pointwise(CUDNN_POINTWISE_EXP, powers, kNone, Virtual(scores_));
    const size_t sum = Reduction(CUDNN_REDUCE_TENSOR_ADD, powers);
    // Engines know no graph without it. Nobody reads it.
    const size_t statistics = Operand(DnnTensor::Dense(rows_), kStatisticsId, CUDNN_DATA_FLOAT);
    const size_t log = Pointwise(CUDNN_POINTWISE_LOG, sum, kNone, Virtual(rows_));
    Pointwise(CUDNN_POINTWISE_ADD, largest, log, statistics);
    const size_t probabilities =
        Pointwise(CUDNN_POINTWISE_DIV, powers, sum, Virtual(scores_, type_));
    Product(probabilities, value, result);
  }

  static constexpr size_t kNone = std::numeric_limits<size_t>::max();

  // The same memory with rows and columns exchanged.
  static DnnTensor Turned(DnnTensor tensor) {
    std::swap(tensor.dims[2], tensor.dims[3]);
    std::swap(tensor.strides[2], tensor.strides[3]);
    return tensor;
  }

  // Of a key behind its row, minus infinity.
  size_t Causal(size_t scores) {
    const size_t row = Index(scores, 2);
    const size_t column = Index(scores, 3);
    const size_t attends = Virtual(scores_, CUDNN_DATA_BOOLEAN);
    Pointwise(CUDNN_POINTWISE_CMP_GE, row, column, attends, kNone, CUDNN_DATA_BOOLEAN);
    return Pointwise(CUDNN_POINTWISE_BINARY_SELECT, scores, Number(kNeverId), Virtual(scores_),
                     attends);
  }

  size_t Place(const absl::StatusOr<size_t>& made) {
    if (!made.ok()) status_.Update(made.status());
    return made.ok() ? *made : 0;
  }
  size_t Kept(absl::StatusOr<DnnDescriptor> made, const absl::Status& filled) {
    status_.Update(made.status());
    status_.Update(filled);
    return status_.ok() ? Place(graph_.Keep(*std::move(made))) : 0;
  }

  size_t Operand(const DnnTensor& layout, int64_t id, cudnnDataType_t type) {
    return status_.ok() ? Place(graph_.Tensor(layout, id, type)) : 0;
  }
  size_t Virtual(const std::vector<int64_t>& dims, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    if (!status_.ok()) return 0;
    return Place(graph_.Tensor(DnnTensor::Dense(dims), next_id_++, type, TensorKind::kVirtual));
  }
  size_t Number(int64_t id) {
    if (!status_.ok()) return 0;
    return Place(
        graph_.Tensor(DnnTensor::Dense({1, 1, 1, 1}), id, CUDNN_DATA_FLOAT, TensorKind::kNumber));
  }

  // An operation is described by a descriptor of what it does and one of its operands.
  template <typename Fill>
  size_t Described(cudnnBackendDescriptorType_t type, const char* name, const Fill& fill) {
    if (!status_.ok()) return 0;
    absl::StatusOr<DnnDescriptor> made = DnnDescriptor::Create(graph_.functions(), type, name);
    const absl::Status filled = made.ok() ? fill(*made) : absl::OkStatus();
    return Kept(std::move(made), filled);
  }
  template <typename Fill>
  void Operation(cudnnBackendDescriptorType_t type, const char* name, const Fill& fill) {
    operations_.push_back(Described(type, name, fill));
  }

  // Of kinds of operands: [.., m, k] times [.., k, n], where heads of the second may be shared.
  size_t Product(size_t a, size_t b, size_t c) {
    const size_t kind =
        Described(CUDNN_BACKEND_MATMUL_DESCRIPTOR, "a product", [](DnnDescriptor& product) {
          return product.SetDataType(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
        });
    Operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "a product of matrices",
              [&](DnnDescriptor& operation) -> absl::Status {
                WEFT_RETURN_IF_ERROR(
                    operation.SetDescriptor(CUDNN_ATTR_OPERATION_MATMUL_DESC, graph_.part(kind)));
                WEFT_RETURN_IF_ERROR(
                    operation.SetDescriptor(CUDNN_ATTR_OPERATION_MATMUL_ADESC, graph_.part(a)));
                WEFT_RETURN_IF_ERROR(
                    operation.SetDescriptor(CUDNN_ATTR_OPERATION_MATMUL_BDESC, graph_.part(b)));
                return operation.SetDescriptor(CUDNN_ATTR_OPERATION_MATMUL_CDESC, graph_.part(c));
              });
    return c;
  }

  // y = mode(x, b), or b where `choice` is false.
  size_t Pointwise(cudnnPointwiseMode_t mode, size_t x, size_t b, size_t y, size_t choice = kNone,
                   cudnnDataType_t precision = CUDNN_DATA_FLOAT, int64_t axis = -1) {
    const size_t kind =
        Described(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "a function",
                  [&](DnnDescriptor& function) -> absl::Status {
                    WEFT_RETURN_IF_ERROR(function.Set(CUDNN_ATTR_POINTWISE_MODE,
                                                      CUDNN_TYPE_POINTWISE_MODE, 1, &mode));
                    if (axis >= 0) {
                      WEFT_RETURN_IF_ERROR(function.SetInt(CUDNN_ATTR_POINTWISE_AXIS, axis));
                    }
                    return function.SetDataType(CUDNN_ATTR_POINTWISE_MATH_PREC, precision);
                  });
    Operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "a function of elements",
              [&](DnnDescriptor& operation) -> absl::Status {
                const std::pair<cudnnBackendAttributeName_t, size_t> parts[] = {
                    {CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind},
                    {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x},
                    {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b},
                    {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, choice},
                    {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}};
                for (const auto& [name, place] : parts) {
                  if (place == kNone) continue;
                  WEFT_RETURN_IF_ERROR(operation.SetDescriptor(name, graph_.part(place)));
                }
                return absl::OkStatus();
              });
    return y;
  }
  size_t Index(size_t like, int64_t axis) {
    return Pointwise(CUDNN_POINTWISE_GEN_INDEX, like, kNone, Virtual(scores_, CUDNN_DATA_INT32),
                     kNone, CUDNN_DATA_FLOAT, axis);
  }

  // Over the keys.
  size_t Reduction(cudnnReduceTensorOp_t mode, size_t x) {
    const size_t y = Virtual(rows_);
    const size_t kind = Described(
        CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "a reduction",
        [&](DnnDescriptor& reduction) -> absl::Status {
          WEFT_RETURN_IF_ERROR(reduction.Set(CUDNN_ATTR_REDUCTION_OPERATOR,
                                             CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode));
          return reduction.SetDataType(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
        });
    Operation(
        CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "a reduction of rows",
        [&](DnnDescriptor& operation) -> absl::Status {
          WEFT_RETURN_IF_ERROR(
              operation.SetDescriptor(CUDNN_ATTR_OPERATION_REDUCTION_DESC, graph_.part(kind)));
          WEFT_RETURN_IF_ERROR(
              operation.SetDescriptor(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, graph_.part(x)));
          return operation.SetDescriptor(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, graph_.part(y));
        });
    return y;
  }

  DnnGraph graph_;
  const AttentionSpec spec_;
  const cudnnDataType_t type_;
  const std::vector<int64_t> scores_;
  const std::vector<int64_t> rows_;
  absl::Status status_;
  int64_t next_id_ = kFirstVirtualId;
  std::vector<size_t> operations_;
};

// Before 9.10, engines expect the lowest number in place of minus infinity.
float NeverOf(size_t version) {
  constexpr size_t kInfinityIsKnown = 91000;
  return version < kInfinityIsKnown ? std::numeric_limits<float>::lowest()
                                    : -std::numeric_limits<float>::infinity();
}

class CudnnAttention final : public PreparedAttention {
 public:
  CudnnAttention(const AttentionSpec& spec, float never, DnnRunner runner)
      : scale_(static_cast<float>(spec.scale)),
        never_(never),
        is_causal_(spec.causal),
        statistics_bytes_(StatisticsBytes(spec)),
        runner_(std::move(runner)) {}

  // The statistics, and what the plan wants behind them.
  size_t workspace_bytes() const override { return statistics_bytes_ + runner_.workspace_bytes(); }

  absl::Status Run(const AttentionOperands& operands, void* workspace, LaunchQueue queue) override {
    std::vector<int64_t> ids = {kQueryId, kKeyId, kValueId, kResultId, kScaleId, kStatisticsId};
    std::vector<void*> addresses = {const_cast<void*>(operands.query),
                                    const_cast<void*>(operands.key),
                                    const_cast<void*>(operands.value),
                                    operands.result,
                                    &scale_,
                                    workspace};
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
  WEFT_ASSIGN_OR_RETURN(DnnGraph graph, AttentionGraph::Make(shared.f, shared.library, spec));
  WEFT_ASSIGN_OR_RETURN(DnnPlan plan, FindPlan(shared, graph.graph(), EngineLaws{}, workspace_limit,
                                               spec.ToString()));
  return std::make_unique<CudnnAttention>(
      spec, NeverOf(shared.f.version()),
      DnnRunner(shared, std::move(graph), std::move(plan), spec.ToString()));
}

}  // namespace weft::cuda
