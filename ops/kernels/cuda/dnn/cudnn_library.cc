#include "ops/kernels/cuda/dnn/cudnn_library.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ops/kernels/cuda/dnn/cudnn_attention.h"
#include "ops/kernels/cuda/dnn/cudnn_attention_gradient.h"
#include "ops/kernels/cuda/dnn/cudnn_backend.h"
#include "ops/kernels/cuda/dnn/cudnn_normalization.h"
#include "platform/mutex.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

// Numbers of the tensors of a graph.
enum TensorId : int64_t { kLargeId = 1, kWeightsId, kSmallId, kBiasId, kSumsId };

// Makes the operation graph of a convolution.
class ConvolutionGraph {
 public:
  static absl::StatusOr<DnnGraph> Make(const DnnFunctions& f, cudnnHandle_t library,
                                       const ConvolutionSpec& spec) {
    ConvolutionGraph made(f, spec);
    WEFT_RETURN_IF_ERROR(made.Build(library));
    return std::move(made.graph_);
  }

 private:
  ConvolutionGraph(const DnnFunctions& f, const ConvolutionSpec& spec) : graph_(f), spec_(spec) {}

  absl::Status Build(cudnnHandle_t library) {
    const cudnnDataType_t type = DnnTypeOf(spec_.dtype);
    WEFT_ASSIGN_OR_RETURN(const size_t large, graph_.Tensor(spec_.large, kLargeId, type));
    WEFT_ASSIGN_OR_RETURN(const size_t weights, graph_.Tensor(spec_.weights, kWeightsId, type));
    WEFT_ASSIGN_OR_RETURN(const size_t small, graph_.Tensor(spec_.small, kSmallId, type));
    size_t images[2] = {large, small};
    size_t result = 0;  // where the bias goes
    if (spec_.has_bias) {
      size_t& computed = images[spec_.result == ConvolutionResult::kLargeImage ? 0 : 1];
      result = computed;
      WEFT_ASSIGN_OR_RETURN(computed, graph_.Tensor(spec_.computed(), kSumsId, CUDNN_DATA_FLOAT,
                                                    DnnGraph::TensorKind::kVirtual));
    }
    WEFT_ASSIGN_OR_RETURN(const size_t window, Window());
    WEFT_ASSIGN_OR_RETURN(const size_t convolution,
                          Operation(window, images[0], weights, images[1]));
    std::vector<size_t> operations = {convolution};
    if (spec_.has_bias) {
      const size_t sums = images[spec_.result == ConvolutionResult::kLargeImage ? 0 : 1];
      WEFT_ASSIGN_OR_RETURN(const size_t addition, Addition(sums, result));
      operations.push_back(addition);
    }
    return graph_.Finish(library, operations);
  }

  absl::StatusOr<size_t> Window() {
    WEFT_ASSIGN_OR_RETURN(
        DnnDescriptor window,
        DnnDescriptor::Create(graph_.functions(), CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
                              "a convolution"));
    WEFT_RETURN_IF_ERROR(window.SetDataType(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT));
    // Taps are not flipped.
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    WEFT_RETURN_IF_ERROR(
        window.Set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
    WEFT_RETURN_IF_ERROR(window.SetInt(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS,
                                       static_cast<int64_t>(spec_.pads.size())));
    WEFT_RETURN_IF_ERROR(window.SetInts(CUDNN_ATTR_CONVOLUTION_DILATIONS, spec_.dilations));
    WEFT_RETURN_IF_ERROR(window.SetInts(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, spec_.strides));
    WEFT_RETURN_IF_ERROR(window.SetInts(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, spec_.pads));
    WEFT_RETURN_IF_ERROR(window.SetInts(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, spec_.pads));
    return graph_.Keep(std::move(window));
  }

  // What the operation of a result is called, and its attributes.
  struct OperationNames {
    cudnnBackendDescriptorType_t type;
    const char* name;
    cudnnBackendAttributeName_t window, large, weights, small, alpha, beta;
  };
  static OperationNames NamesOf(ConvolutionResult result) {
    switch (result) {
      case ConvolutionResult::kLargeImage:
        return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                "the gradient of an input",
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
      case ConvolutionResult::kWeights:
        return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                "the gradient of weights",
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
      default:
        return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                "a forward convolution",
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    }
  }

  absl::StatusOr<size_t> Operation(size_t window, size_t large, size_t weights, size_t small) {
    const OperationNames names = NamesOf(spec_.result);
    WEFT_ASSIGN_OR_RETURN(DnnDescriptor operation,
                          DnnDescriptor::Create(graph_.functions(), names.type, names.name));
    WEFT_RETURN_IF_ERROR(operation.SetDescriptor(names.window, graph_.part(window)));
    WEFT_RETURN_IF_ERROR(operation.SetDescriptor(names.large, graph_.part(large)));
    WEFT_RETURN_IF_ERROR(operation.SetDescriptor(names.weights, graph_.part(weights)));
    WEFT_RETURN_IF_ERROR(operation.SetDescriptor(names.small, graph_.part(small)));
    WEFT_RETURN_IF_ERROR(operation.SetFloat(names.alpha, 1));
    WEFT_RETURN_IF_ERROR(operation.SetFloat(names.beta, spec_.adds ? 1 : 0));
    return graph_.Keep(std::move(operation));
  }

  // result = sums + the bias of the channel.
  absl::StatusOr<size_t> Addition(size_t sums, size_t result) {
    std::vector<int64_t> dims(spec_.large.dims.size(), 1);
    dims[1] = spec_.computed().dims[1];
    WEFT_ASSIGN_OR_RETURN(const size_t bias, graph_.Tensor(DnnTensor::Dense(std::move(dims)),
                                                           kBiasId, DnnTypeOf(spec_.dtype)));
    WEFT_ASSIGN_OR_RETURN(DnnDescriptor add,
                          DnnDescriptor::Create(graph_.functions(),
                                                CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "an addition"));
    const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_ADD;
    WEFT_RETURN_IF_ERROR(add.Set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode));
    WEFT_RETURN_IF_ERROR(add.SetDataType(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT));
    WEFT_ASSIGN_OR_RETURN(const size_t kind, graph_.Keep(std::move(add)));
    WEFT_ASSIGN_OR_RETURN(
        DnnDescriptor operation,
        DnnDescriptor::Create(graph_.functions(), CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                              "a sum with a bias"));
    WEFT_RETURN_IF_ERROR(
        operation.SetDescriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, graph_.part(kind)));
    WEFT_RETURN_IF_ERROR(
        operation.SetDescriptor(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, graph_.part(sums)));
    WEFT_RETURN_IF_ERROR(
        operation.SetDescriptor(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, graph_.part(bias)));
    WEFT_RETURN_IF_ERROR(
        operation.SetDescriptor(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, graph_.part(result)));
    return graph_.Keep(std::move(operation));
  }

  DnnGraph graph_;
  const ConvolutionSpec spec_;
};

class CudnnConvolution final : public PreparedConvolution {
 public:
  CudnnConvolution(const ConvolutionSpec& spec, DnnRunner runner)
      : has_bias_(spec.has_bias), runner_(std::move(runner)) {}

  size_t workspace_bytes() const override { return runner_.workspace_bytes(); }

  absl::Status Run(const ConvolutionOperands& operands, void* workspace,
                   LaunchQueue queue) override {
    std::vector<int64_t> ids = {kLargeId, kWeightsId, kSmallId};
    std::vector<void*> addresses = {operands.large, operands.weights, operands.small};
    if (has_bias_) {
      ids.push_back(kBiasId);
      addresses.push_back(const_cast<void*>(operands.bias));
    }
    return runner_.Run(ids, addresses, workspace, queue);
  }

 private:
  const bool has_bias_;
  DnnRunner runner_;
};

class CudnnLibrary final : public Dnn {
 public:
  CudnnLibrary(const DnnFunctions& f, cudnnHandle_t handle, CudnnOptions options)
      : shared_(f, handle), options_(std::move(options)) {}

  absl::StatusOr<std::unique_ptr<PreparedConvolution>> Prepare(
      const ConvolutionSpec& spec) override {
    WEFT_RETURN_IF_ERROR(CheckConvolution(spec));
    WEFT_RETURN_IF_ERROR(options_.make_current());
    MutexLock lock(shared_.mutex);
    WEFT_ASSIGN_OR_RETURN(DnnGraph graph, ConvolutionGraph::Make(shared_.f, shared_.library, spec));
    EngineLaws laws;
    laws.tensor_cores = spec.dtype != DType::kFloat32 || spec.tf32;
    laws.down_converts = spec.tf32;
    WEFT_ASSIGN_OR_RETURN(DnnPlan plan, FindPlan(shared_, graph.graph(), laws,
                                                 options_.workspace_limit, spec.ToString()));
    return std::make_unique<CudnnConvolution>(
        spec, DnnRunner(shared_, std::move(graph), std::move(plan), spec.ToString()));
  }

  absl::StatusOr<std::unique_ptr<PreparedAttention>> PrepareAttention(
      const AttentionSpec& spec) override {
    WEFT_RETURN_IF_ERROR(CheckAttention(spec));
    WEFT_RETURN_IF_ERROR(options_.make_current());
    return MakeCudnnAttention(shared_, spec, options_.workspace_limit);
  }

  absl::StatusOr<std::unique_ptr<PreparedAttentionGradient>> PrepareAttentionGradient(
      const AttentionSpec& spec) override {
    WEFT_RETURN_IF_ERROR(CheckAttention(spec));
    WEFT_RETURN_IF_ERROR(options_.make_current());
    return MakeCudnnAttentionGradient(shared_, spec, options_.workspace_limit);
  }

  absl::StatusOr<std::unique_ptr<PreparedNormalization>> PrepareNormalization(
      const NormalizationSpec& spec) override {
    WEFT_RETURN_IF_ERROR(CheckNormalization(spec));
    WEFT_RETURN_IF_ERROR(options_.make_current());
    return MakeCudnnNormalization(shared_, spec, options_.workspace_limit);
  }

 private:
  DnnHandle shared_;
  const CudnnOptions options_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dnn>> OpenCudnn(const SymbolSource& symbols, CudnnOptions options) {
  WEFT_ASSIGN_OR_RETURN(const DnnFunctions f, FindDnnFunctions(symbols));
  WEFT_RETURN_IF_ERROR(options.make_current());
  cudnnHandle_t handle = nullptr;
  WEFT_RETURN_IF_ERROR(CheckDnn(f, f.create(&handle), "start"));
  return std::make_unique<CudnnLibrary>(f, handle, std::move(options));
}

}  // namespace weft::cuda
