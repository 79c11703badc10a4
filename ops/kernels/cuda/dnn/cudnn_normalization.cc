#include "ops/kernels/cuda/dnn/cudnn_normalization.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "platform/mutex.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

// Numbers of the tensors.
enum NormalizationTensorId : int64_t {
  kInputId = 1,
  kScalesId,
  kBiasesId,
  kMeanId,
  kInverseId,
  kEpsilonId,
  kSlopeId,   // dy
  kOutputId,  // y, or dx
  kScaleSlopesId,
  kBiasSlopesId
};

cudnnBackendNormMode_t ModeOf(NormalizationKind kind) {
  switch (kind) {
    case NormalizationKind::kBatch:
      return CUDNN_BATCH_NORM;
    case NormalizationKind::kRms:
      return CUDNN_RMS_NORM;
    default:
      return CUDNN_LAYER_NORM;
  }
}

// Makes the graph of the one operation.
class NormalizationGraph {
 public:
  static absl::StatusOr<DnnGraph> Make(const DnnFunctions& f, cudnnHandle_t library,
                                       const NormalizationSpec& spec) {
    NormalizationGraph made(f, spec);
    WEFT_ASSIGN_OR_RETURN(const size_t operation,
                          spec.is_gradient ? made.Backward() : made.Forward());
    WEFT_RETURN_IF_ERROR(made.graph_.Finish(library, {operation}));
    return std::move(made.graph_);
  }

 private:
  NormalizationGraph(const DnnFunctions& f, const NormalizationSpec& spec)
      : graph_(f), spec_(spec) {}

  absl::StatusOr<size_t> Forward() {
    WEFT_ASSIGN_OR_RETURN(
        DnnDescriptor operation,
        DnnDescriptor::Create(graph_.functions(), CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR,
                              "a normalization"));
    const cudnnBackendNormMode_t mode = ModeOf(spec_.kind);
    WEFT_RETURN_IF_ERROR(
        operation.Set(CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode));
    const cudnnBackendNormFwdPhase_t phase = CUDNN_NORM_FWD_TRAINING;
    WEFT_RETURN_IF_ERROR(
        operation.Set(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, 1, &phase));
    WEFT_RETURN_IF_ERROR(Whole(operation, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, kInputId));
    WEFT_RETURN_IF_ERROR(Parameter(operation, CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, kScalesId));
    WEFT_RETURN_IF_ERROR(
        Statistic(operation, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, kInverseId));
    if (spec_.has_mean()) {
      WEFT_RETURN_IF_ERROR(
          Parameter(operation, CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, kBiasesId));
      WEFT_RETURN_IF_ERROR(Statistic(operation, CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, kMeanId));
    }
    WEFT_ASSIGN_OR_RETURN(const size_t epsilon,
                          graph_.Tensor(DnnTensor::Dense({1, 1, 1, 1}), kEpsilonId,
                                        CUDNN_DATA_FLOAT, DnnGraph::TensorKind::kNumber));
    WEFT_RETURN_IF_ERROR(
        operation.SetDescriptor(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, graph_.part(epsilon)));
    WEFT_RETURN_IF_ERROR(Whole(operation, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, kOutputId));
    return graph_.Keep(std::move(operation));
  }

  absl::StatusOr<size_t> Backward() {
    WEFT_ASSIGN_OR_RETURN(
        DnnDescriptor operation,
        DnnDescriptor::Create(graph_.functions(), CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR,
                              "the gradient of a normalization"));
    const cudnnBackendNormMode_t mode = ModeOf(spec_.kind);
    WEFT_RETURN_IF_ERROR(
        operation.Set(CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode));
    WEFT_RETURN_IF_ERROR(Whole(operation, CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, kInputId));
    WEFT_RETURN_IF_ERROR(Whole(operation, CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, kSlopeId));
    WEFT_RETURN_IF_ERROR(Parameter(operation, CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, kScalesId));
    WEFT_RETURN_IF_ERROR(
        Statistic(operation, CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, kInverseId));
    WEFT_RETURN_IF_ERROR(
        Parameter(operation, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, kScaleSlopesId));
    if (spec_.has_mean()) {
      WEFT_RETURN_IF_ERROR(Statistic(operation, CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, kMeanId));
      WEFT_RETURN_IF_ERROR(
          Parameter(operation, CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, kBiasSlopesId));
    }
    WEFT_RETURN_IF_ERROR(Whole(operation, CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, kOutputId));
    return graph_.Keep(std::move(operation));
  }

  // Each gives the operation an operand of this kind.
  absl::Status Whole(DnnDescriptor& operation, cudnnBackendAttributeName_t name, int64_t id) {
    return Operand(operation, name, spec_.x, id, DnnTypeOf(spec_.dtype));
  }
  absl::Status Parameter(DnnDescriptor& operation, cudnnBackendAttributeName_t name, int64_t id) {
    return Operand(operation, name, spec_.parameters(), id, DnnTypeOf(spec_.parameter_dtype));
  }
  absl::Status Statistic(DnnDescriptor& operation, cudnnBackendAttributeName_t name, int64_t id) {
    return Operand(operation, name, spec_.statistics(), id, CUDNN_DATA_FLOAT);
  }
  absl::Status Operand(DnnDescriptor& operation, cudnnBackendAttributeName_t name,
                       const DnnTensor& layout, int64_t id, cudnnDataType_t type) {
    WEFT_ASSIGN_OR_RETURN(const size_t tensor, graph_.Tensor(layout, id, type));
    return operation.SetDescriptor(name, graph_.part(tensor));
  }

  DnnGraph graph_;
  const NormalizationSpec spec_;
};

class CudnnNormalization final : public PreparedNormalization {
 public:
  CudnnNormalization(const NormalizationSpec& spec, DnnRunner runner)
      : epsilon_(static_cast<float>(spec.epsilon)),
        is_gradient_(spec.is_gradient),
        has_mean_(spec.has_mean()),
        runner_(std::move(runner)) {}

  size_t workspace_bytes() const override { return runner_.workspace_bytes(); }

  absl::Status Run(const NormalizationOperands& operands, void* workspace,
                   LaunchQueue queue) override {
    std::vector<int64_t> ids = {kInputId, kScalesId, kInverseId, kOutputId};
    std::vector<void*> addresses = {const_cast<void*>(operands.x),
                                    const_cast<void*>(operands.scale), operands.inverse,
                                    operands.result};
    const auto add = [&](int64_t id, void* address) {
      ids.push_back(id);
      addresses.push_back(address);
    };
    if (has_mean_) add(kMeanId, operands.mean);
    if (is_gradient_) {
      add(kSlopeId, const_cast<void*>(operands.dy));
      add(kScaleSlopesId, operands.dscale);
      if (has_mean_) add(kBiasSlopesId, operands.dbias);
    } else {
      add(kEpsilonId, &epsilon_);
      if (has_mean_) add(kBiasesId, const_cast<void*>(operands.bias));
    }
    return runner_.Run(ids, addresses, workspace, queue);
  }

 private:
  float epsilon_;  // the library reads it at each Run
  const bool is_gradient_;
  const bool has_mean_;
  DnnRunner runner_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PreparedNormalization>> MakeCudnnNormalization(
    DnnHandle& shared, const NormalizationSpec& spec, size_t workspace_limit) {
  MutexLock lock(shared.mutex);
  WEFT_ASSIGN_OR_RETURN(DnnGraph graph, NormalizationGraph::Make(shared.f, shared.library, spec));
  EngineLaws laws;
  laws.tensor_cores = spec.dtype != DType::kFloat32;
  WEFT_ASSIGN_OR_RETURN(DnnPlan plan,
                        FindPlan(shared, graph.graph(), laws, workspace_limit, spec.ToString()));
  return std::make_unique<CudnnNormalization>(
      spec, DnnRunner(shared, std::move(graph), std::move(plan), spec.ToString()));
}

}  // namespace weft::cuda
