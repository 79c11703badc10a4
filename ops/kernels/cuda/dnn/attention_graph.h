// Makes graphs of attention: the kinds of operations that they have. Private to this room.
#ifndef WEFT_OPS_KERNELS_CUDA_DNN_ATTENTION_GRAPH_H_
#define WEFT_OPS_KERNELS_CUDA_DNN_ATTENTION_GRAPH_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ops/kernels/cuda/dnn/cudnn_backend.h"
#include "ops/kernels/cuda/dnn/dnn.h"
#include "platform/status_macros.h"

namespace weft::cuda {

// The same memory with rows and columns exchanged.
inline DnnTensor Turned(DnnTensor tensor) {
  std::swap(tensor.dims[2], tensor.dims[3]);
  std::swap(tensor.strides[2], tensor.strides[3]);
  return tensor;
}

// Before cuDNN 9.10, engines expect the lowest number in place of minus infinity.
inline float NeverAttended(size_t version) {
  constexpr size_t kInfinityIsKnown = 91000;
  return version < kInfinityIsKnown ? std::numeric_limits<float>::lowest()
                                    : -std::numeric_limits<float>::infinity();
}

// Tensors are known by their places in the graph. The first error stays, and the rest then does
// nothing.
class AttentionGraphMaker {
 public:
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();

  // Virtual tensors are numbered from `first_virtual` on.
  AttentionGraphMaker(const DnnFunctions& f, const AttentionSpec& spec, int64_t first_virtual)
      : graph_(f),
        type_(DnnTypeOf(spec.dtype)),
        scores_({spec.query.dims[0], spec.query.dims[1], spec.query.dims[2], spec.key.dims[2]}),
        rows_({spec.query.dims[0], spec.query.dims[1], spec.query.dims[2], 1}),
        next_id_(first_virtual) {}

  // The graph of the operations, in the order in which they were made; or the first error.
  absl::StatusOr<DnnGraph> Finish(cudnnHandle_t library) {
    WEFT_RETURN_IF_ERROR(status_);
    WEFT_RETURN_IF_ERROR(graph_.Finish(library, operations_));
    return std::move(graph_);
  }

  cudnnDataType_t type() const { return type_; }
  // Sizes of scores [samples, heads, rows, keys], and of one number for each row.
  const std::vector<int64_t>& scores() const { return scores_; }
  const std::vector<int64_t>& rows() const { return rows_; }

  // Of a key behind its row, what the number `never` says.
  size_t Causal(size_t scores, int64_t never) {
    const size_t row = Index(scores, 2);
    const size_t column = Index(scores, 3);
    const size_t attends = Virtual(scores_, CUDNN_DATA_BOOLEAN);
    Pointwise(CUDNN_POINTWISE_CMP_GE, row, column, attends, kNone, CUDNN_DATA_BOOLEAN);
    return Pointwise(CUDNN_POINTWISE_BINARY_SELECT, scores, Number(never), Virtual(scores_),
                     attends);
  }

  size_t Operand(const DnnTensor& layout, int64_t id, cudnnDataType_t type) {
    return status_.ok() ? Place(graph_.Tensor(layout, id, type)) : 0;
  }
  size_t Virtual(const DnnTensor& layout, cudnnDataType_t type) {
    if (!status_.ok()) return 0;
    return Place(graph_.Tensor(layout, next_id_++, type, DnnGraph::TensorKind::kVirtual));
  }
  size_t Virtual(const std::vector<int64_t>& dims, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return Virtual(DnnTensor::Dense(dims), type);
  }
  size_t Number(int64_t id) {
    if (!status_.ok()) return 0;
    return Place(graph_.Tensor(DnnTensor::Dense({1, 1, 1, 1}), id, CUDNN_DATA_FLOAT,
                               DnnGraph::TensorKind::kNumber));
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
  // y, whose sizes are those of x or such that divide them.
  size_t Reduction(cudnnReduceTensorOp_t mode, size_t x, size_t y) {
    const size_t kind = Described(
        CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "a reduction",
        [&](DnnDescriptor& reduction) -> absl::Status {
          WEFT_RETURN_IF_ERROR(reduction.Set(CUDNN_ATTR_REDUCTION_OPERATOR,
                                             CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode));
          return reduction.SetDataType(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
        });
    Operation(
        CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "a reduction of elements",
        [&](DnnDescriptor& operation) -> absl::Status {
          WEFT_RETURN_IF_ERROR(
              operation.SetDescriptor(CUDNN_ATTR_OPERATION_REDUCTION_DESC, graph_.part(kind)));
          WEFT_RETURN_IF_ERROR(
              operation.SetDescriptor(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, graph_.part(x)));
          return operation.SetDescriptor(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, graph_.part(y));
        });
    return y;
  }

  // The elements of x in the order in which they lie, by other sizes.
  size_t Reshape(size_t x, size_t y) {
    Operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, "another shape",
              [&](DnnDescriptor& operation) -> absl::Status {
                WEFT_RETURN_IF_ERROR(
                    operation.SetDescriptor(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, graph_.part(x)));
                return operation.SetDescriptor(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, graph_.part(y));
              });
    return y;
  }

 private:
  size_t Place(const absl::StatusOr<size_t>& made) {
    if (!made.ok()) status_.Update(made.status());
    return made.ok() ? *made : 0;
  }
  size_t Kept(absl::StatusOr<DnnDescriptor> made, const absl::Status& filled) {
    status_.Update(made.status());
    status_.Update(filled);
    return status_.ok() ? Place(graph_.Keep(*std::move(made))) : 0;
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

  size_t Index(size_t like, int64_t axis) {
    return Pointwise(CUDNN_POINTWISE_GEN_INDEX, like, kNone, Virtual(scores_, CUDNN_DATA_INT32),
                     kNone, CUDNN_DATA_FLOAT, axis);
  }

  DnnGraph graph_;
  const cudnnDataType_t type_;
  const std::vector<int64_t> scores_;
  const std::vector<int64_t> rows_;
  absl::Status status_;
  int64_t next_id_;
  std::vector<size_t> operations_;
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_DNN_ATTENTION_GRAPH_H_
