#include "ops/kernels/cuda/dnn/testing/fake_cudnn.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cuda/dnn/testing/fake_normalization.h"
#include "tensor/dtype.h"

namespace weft::cuda {

FakeDnn* fake = nullptr;
FakeDescriptor* asked_graph = nullptr;

FakeDescriptor& Of(cudnnBackendDescriptor_t descriptor) {
  return *static_cast<FakeDescriptor*>(descriptor);
}

namespace {

cudnnStatus_t FakeCreate(cudnnHandle_t* handle) {
  if (fake->create_status != CUDNN_STATUS_SUCCESS) return fake->create_status;
  *handle = reinterpret_cast<cudnnHandle_t>(fake);
  ++fake->alive;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t FakeDestroy(cudnnHandle_t) {
  --fake->alive;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t FakeSetStream(cudnnHandle_t, cudaStream_t stream) {
  fake->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
size_t FakeVersion() { return fake->version; }
const char* FakeErrorString(cudnnStatus_t) { return "a status"; }
void FakeLastError(char* text, size_t size) { std::strncpy(text, "why", size); }

cudnnStatus_t FakeCreateDescriptor(cudnnBackendDescriptorType_t type,
                                   cudnnBackendDescriptor_t* descriptor) {
  *descriptor = new FakeDescriptor(type);
  ++fake->alive;
  if (type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR) ++fake->packs;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t FakeDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete &Of(descriptor);
  --fake->alive;
  return CUDNN_STATUS_SUCCESS;
}

size_t BytesOf(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
      return sizeof(bool);
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    default:
      return 4;  // enumerations and float
  }
}

cudnnStatus_t FakeSet(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                      cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  FakeDescriptor& of = Of(descriptor);
  if (of.is_final || count < 1) return CUDNN_STATUS_BAD_PARAM;
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const auto* parts = static_cast<const cudnnBackendDescriptor_t*>(values);
    for (int64_t i = 0; i < count; ++i) {
      const bool is_proposal = Of(parts[i]).type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
      if (!Of(parts[i]).is_final && !is_proposal) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    }
  }
  const auto* bytes = static_cast<const char*>(values);
  of.values[name].assign(bytes, bytes + static_cast<size_t>(count) * BytesOf(type));
  of.types[name] = type;
  return CUDNN_STATUS_SUCCESS;
}

// Attributes that the documentation demands, with their types.
std::map<int, cudnnBackendAttributeType_t> Demanded(cudnnBackendDescriptorType_t type) {
  switch (type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      return {{CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64},
              {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE},
              {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64},
              {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64},
              {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64}};
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
      return {{CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE},
              {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE},
              {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64},
              {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64},
              {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64},
              {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64},
              {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64}};
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR},
              {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
              {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR}};
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
      return {{CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE},
              {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE}};
    case CUDNN_BACKEND_MATMUL_DESCRIPTOR:
      return {{CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE}};
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return {{CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
              {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
              {CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
              {CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR}};
    case CUDNN_BACKEND_REDUCTION_DESCRIPTOR:
      return {{CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE},
              {CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE}};
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return {{CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
              {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
              {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR}};
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      return {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
              {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR}};
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      return {{CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE},
              {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR}};
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      return {{CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE},
              {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR}};
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      return {{CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE},
              {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR}};
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      return {{CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64},
              {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR},
              {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR}};
    default:
      return DemandedOfNormalization(type);
  }
}

cudnnStatus_t FakeFinalize(cudnnBackendDescriptor_t descriptor) {
  FakeDescriptor& of = Of(descriptor);
  for (const auto& [attribute, type] : Demanded(of.type)) {
    const auto found = of.types.find(attribute);
    if (found == of.types.end() || found->second != type) return CUDNN_STATUS_BAD_PARAM;
  }
  if (of.type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR &&
      fake->graph_status != CUDNN_STATUS_SUCCESS) {
    return fake->graph_status;
  }
  if (of.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    of.engine = of.Part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).engine;
    if (!fake->engines[of.engine].makes_plans) return CUDNN_STATUS_NOT_SUPPORTED;
  }
  of.is_final = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t FakeGet(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                      cudnnBackendAttributeType_t, int64_t capacity, int64_t* count, void* values) {
  const FakeDescriptor& of = Of(descriptor);
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: {
      if (!of.is_final) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
      const auto mode = of.One<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE);
      asked_graph = static_cast<FakeDescriptor*>(
          of.One<cudnnBackendDescriptor_t>(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH));
      const std::vector<int>& proposals = fake->proposals[mode];
      *count = static_cast<int64_t>(proposals.size());
      auto* const configs = static_cast<cudnnBackendDescriptor_t*>(values);
      for (int64_t i = 0; i < std::min(capacity, *count); ++i) {
        Of(configs[i]).engine = proposals[i];
      }
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      *count = 1;
      Of(*static_cast<cudnnBackendDescriptor_t*>(values)).engine = of.engine;
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: {
      const auto& notes = fake->engines[of.engine].notes;
      *count = static_cast<int64_t>(notes.size());
      std::copy(notes.begin(), notes.end(), static_cast<cudnnBackendNumericalNote_t*>(values));
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      *count = 1;
      *static_cast<int64_t*>(values) = fake->engines[of.engine].workspace;
      return CUDNN_STATUS_SUCCESS;
    default:
      return CUDNN_STATUS_BAD_PARAM;
  }
}

// ---- What descriptors mean, in float32 on the host. Two image axes.

struct HostTensor {
  std::vector<int64_t> dims, strides;
  float* data = nullptr;
  float& At(int64_t a, int64_t b, int64_t c, int64_t d) const {
    return data[a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3]];
  }
};

HostTensor HostTensorOf(const FakeDescriptor& tensor, const std::map<int64_t, void*>& addresses,
                        std::vector<float>& sums) {
  HostTensor host;
  host.dims = tensor.All<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  host.strides = tensor.All<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  if (!tensor.All<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL).empty()) {
    sums.resize(static_cast<size_t>(host.dims[0] * host.strides[0]));
    host.data = sums.data();
    return host;
  }
  const auto found = addresses.find(tensor.One<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID));
  EXPECT_NE(found, addresses.end()) << "a tensor without an address";
  if (found != addresses.end()) host.data = static_cast<float*>(found->second);
  return host;
}

struct OperationAttributes {
  int window, large, weights, small, alpha, beta;
};
OperationAttributes AttributesOf(cudnnBackendDescriptorType_t type) {
  if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
    return {702, 704, 703, 705, 700, 701};
  if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR) {
    return {708, 710, 709, 711, 706, 707};
  }
  return {714, 716, 715, 717, 712, 713};
}

void Convolve(const FakeDescriptor& operation, const std::map<int64_t, void*>& addresses,
              std::vector<float>& sums) {
  const OperationAttributes names = AttributesOf(operation.type);
  const FakeDescriptor& window = operation.Part(names.window);
  EXPECT_EQ(window.One<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE),
            CUDNN_CROSS_CORRELATION);
  const auto pads = window.All<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  const auto steps = window.All<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  const auto dilations = window.All<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS);
  const HostTensor large = HostTensorOf(operation.Part(names.large), addresses, sums);
  const HostTensor weights = HostTensorOf(operation.Part(names.weights), addresses, sums);
  const HostTensor small = HostTensorOf(operation.Part(names.small), addresses, sums);
  const bool forward = names.large == 704, data = names.large == 710;
  const HostTensor& result = forward ? small : data ? large : weights;
  const float alpha = operation.One<float>(names.alpha);
  const float beta = operation.One<float>(names.beta);
  for (int64_t i = 0; i < result.dims[0] * result.strides[0]; ++i) {
    result.data[i] = beta == 0 ? 0 : result.data[i] * beta;
  }
  const int64_t groups = large.dims[1] / weights.dims[1];
  const int64_t of_group = small.dims[1] / groups;
  for (int64_t n = 0; n < small.dims[0]; ++n)
    for (int64_t k = 0; k < small.dims[1]; ++k)
      for (int64_t i = 0; i < small.dims[2]; ++i)
        for (int64_t j = 0; j < small.dims[3]; ++j)
          for (int64_t c = 0; c < weights.dims[1]; ++c)
            for (int64_t r = 0; r < weights.dims[2]; ++r)
              for (int64_t s = 0; s < weights.dims[3]; ++s) {
                const int64_t y = i * steps[0] - pads[0] + r * dilations[0];
                const int64_t x = j * steps[1] - pads[1] + s * dilations[1];
                if (y < 0 || y >= large.dims[2] || x < 0 || x >= large.dims[3]) continue;
                float& of_large = large.At(n, k / of_group * weights.dims[1] + c, y, x);
                float& of_weights = weights.At(k, c, r, s);
                float& of_small = small.At(n, k, i, j);
                if (forward) of_small += alpha * of_large * of_weights;
                if (data) of_large += alpha * of_small * of_weights;
                if (!forward && !data) of_weights += alpha * of_small * of_large;
              }
}

void AddBias(const FakeDescriptor& operation, const std::map<int64_t, void*>& addresses,
             std::vector<float>& sums) {
  EXPECT_EQ(operation.Part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
                .One<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE),
            CUDNN_POINTWISE_ADD);
  const HostTensor x =
      HostTensorOf(operation.Part(CUDNN_ATTR_OPERATION_POINTWISE_XDESC), addresses, sums);
  const HostTensor b =
      HostTensorOf(operation.Part(CUDNN_ATTR_OPERATION_POINTWISE_BDESC), addresses, sums);
  const HostTensor y =
      HostTensorOf(operation.Part(CUDNN_ATTR_OPERATION_POINTWISE_YDESC), addresses, sums);
  EXPECT_EQ(b.dims, (std::vector<int64_t>{1, y.dims[1], 1, 1}));
  for (int64_t n = 0; n < y.dims[0]; ++n)
    for (int64_t c = 0; c < y.dims[1]; ++c)
      for (int64_t i = 0; i < y.dims[2]; ++i)
        for (int64_t j = 0; j < y.dims[3]; ++j) {
          y.At(n, c, i, j) = x.At(n, c, i, j) + b.At(0, c, 0, 0);
        }
}

// ---- What graphs of attention mean. Operands are bfloat16, numbers float32.

class HostGraph {
 public:
  explicit HostGraph(const std::map<int64_t, void*>& addresses) : addresses_(addresses) {}

  void Run(const FakeDescriptor& operation) {
    if (operation.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
      Multiply(operation.Part(CUDNN_ATTR_OPERATION_MATMUL_ADESC),
               operation.Part(CUDNN_ATTR_OPERATION_MATMUL_BDESC),
               operation.Part(CUDNN_ATTR_OPERATION_MATMUL_CDESC));
    } else if (operation.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
      Reduce(operation);
    } else if (operation.type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR) {
      Reshape(operation.Part(CUDNN_ATTR_OPERATION_RESHAPE_XDESC),
              operation.Part(CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
    } else {
      Apply(operation);
    }
  }

 private:
  using Dims = std::vector<int64_t>;
  static Dims DimsOf(const FakeDescriptor& tensor) {
    return tensor.All<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  }
  static int64_t Count(const Dims& dims) { return dims[0] * dims[1] * dims[2] * dims[3]; }
  static Dims PlaceOf(int64_t i, const Dims& dims) {
    Dims place(4);
    for (int d = 3; d >= 0; --d) {
      place[d] = i % dims[d];
      i /= dims[d];
    }
    return place;
  }
  // Of an operand that spreads to `place`.
  float At(const FakeDescriptor& tensor, Dims place) {
    const Dims dims = DimsOf(tensor);
    const Dims strides = tensor.All<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
    int64_t at = 0;
    for (int d = 0; d < 4; ++d) at += (dims[d] == 1 ? 0 : place[d]) * strides[d];
    return AtOffset(tensor, at);
  }
  // Of the element that lies there.
  float AtOffset(const FakeDescriptor& tensor, int64_t at) {
    const auto id = tensor.One<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    if (!tensor.All<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL).empty()) return virtual_[id].at(at);
    void* const address = addresses_.at(id);
    if (tensor.One<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE) == CUDNN_DATA_FLOAT) {
      return static_cast<const float*>(address)[at];
    }
    return ToFloat(static_cast<const Bfloat16*>(address)[at]);
  }
  void Store(const FakeDescriptor& tensor, const Dims& place, float value) {
    const Dims strides = tensor.All<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
    int64_t at = 0;
    for (int d = 0; d < 4; ++d) at += place[d] * strides[d];
    const auto id = tensor.One<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    if (tensor.All<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL).empty()) {
      void* const address = addresses_.at(id);
      if (tensor.One<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE) == CUDNN_DATA_FLOAT) {
        static_cast<float*>(address)[at] = value;
      } else {
        static_cast<Bfloat16*>(address)[at] = ToBfloat16(value);
      }
      return;
    }
    virtual_[id].resize(static_cast<size_t>(Count(DimsOf(tensor))));
    virtual_[id][at] = value;
  }

  void Multiply(const FakeDescriptor& a, const FakeDescriptor& b, const FakeDescriptor& c) {
    const Dims left = DimsOf(a), right = DimsOf(b), dims = DimsOf(c);
    ASSERT_EQ(left[3], right[2]);
    ASSERT_EQ((Dims{left[0], left[1], left[2], right[3]}), dims);
    for (int64_t i = 0; i < Count(dims); ++i) {
      const Dims place = PlaceOf(i, dims);
      float sum = 0;
      for (int64_t k = 0; k < left[3]; ++k) {
        sum += At(a, {place[0], place[1], place[2], k}) *
               At(b, {place[0], place[1] / (left[1] / right[1]), k, place[3]});
      }
      Store(c, place, sum);
    }
  }

  void Reduce(const FakeDescriptor& operation) {
    const FakeDescriptor& x = operation.Part(CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
    const FakeDescriptor& y = operation.Part(CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
    const auto mode = operation.Part(CUDNN_ATTR_OPERATION_REDUCTION_DESC)
                          .One<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR);
    // Of each axis, so many neighbours become one.
    const Dims dims = DimsOf(y);
    Dims boxes = DimsOf(x);
    for (int d = 0; d < 4; ++d) {
      ASSERT_EQ(boxes[d] % dims[d], 0);
      boxes[d] /= dims[d];
    }
    for (int64_t i = 0; i < Count(dims); ++i) {
      const Dims place = PlaceOf(i, dims);
      float total = 0;
      for (int64_t k = 0; k < Count(boxes); ++k) {
        Dims from = PlaceOf(k, boxes);
        for (int d = 0; d < 4; ++d) from[d] += place[d] * boxes[d];
        const float next = At(x, from);
        const bool is_max = mode == CUDNN_REDUCE_TENSOR_MAX;
        total = k == 0 ? next : is_max ? std::max(total, next) : total + next;
      }
      Store(y, place, total);
    }
  }

  // The same elements where they lie.
  void Reshape(const FakeDescriptor& x, const FakeDescriptor& y) {
    const Dims dims = DimsOf(y), strides = y.All<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
    ASSERT_EQ(Count(DimsOf(x)), Count(dims));
    for (int64_t i = 0; i < Count(dims); ++i) {
      const Dims place = PlaceOf(i, dims);
      int64_t at = 0;
      for (int d = 0; d < 4; ++d) at += place[d] * strides[d];
      Store(y, place, AtOffset(x, at));
    }
  }

  void Apply(const FakeDescriptor& operation) {
    const FakeDescriptor& function = operation.Part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const auto mode = function.One<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
    const FakeDescriptor& x = operation.Part(CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    const FakeDescriptor& y = operation.Part(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    const bool has_b = !operation.All<char>(CUDNN_ATTR_OPERATION_POINTWISE_BDESC).empty();
    for (int64_t i = 0; i < Count(DimsOf(y)); ++i) {
      const Dims place = PlaceOf(i, DimsOf(y));
      const float left = At(x, place);
      const float right =
          has_b ? At(operation.Part(CUDNN_ATTR_OPERATION_POINTWISE_BDESC), place) : 0;
      float value = 0;
      if (mode == CUDNN_POINTWISE_ADD) value = left + right;
      if (mode == CUDNN_POINTWISE_LOG) value = std::log(left);
      if (mode == CUDNN_POINTWISE_MUL) value = left * right;
      if (mode == CUDNN_POINTWISE_SUB) value = left - right;
      if (mode == CUDNN_POINTWISE_DIV) value = left / right;
      if (mode == CUDNN_POINTWISE_EXP) value = std::exp(left);
      if (mode == CUDNN_POINTWISE_CMP_GE) value = left >= right ? 1 : 0;
      if (mode == CUDNN_POINTWISE_GEN_INDEX) {
        value = static_cast<float>(place[function.One<int64_t>(CUDNN_ATTR_POINTWISE_AXIS)]);
      }
      if (mode == CUDNN_POINTWISE_BINARY_SELECT) {
        fake->never = right;
        const bool chosen = At(operation.Part(CUDNN_ATTR_OPERATION_POINTWISE_TDESC), place) != 0;
        value = chosen ? left : right;
      }
      Store(y, place, value);
    }
  }

  const std::map<int64_t, void*>& addresses_;
  std::map<int64_t, std::vector<float>> virtual_;
};

cudnnStatus_t FakeExecute(cudnnHandle_t, cudnnBackendDescriptor_t plan,
                          cudnnBackendDescriptor_t pack) {
  if (!Of(plan).is_final || !Of(pack).is_final) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
  if (fake->execute_status != CUDNN_STATUS_SUCCESS) return fake->execute_status;
  fake->executed_engine = Of(plan).engine;
  fake->workspace = Of(pack).One<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  const auto ids = Of(pack).All<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = Of(pack).All<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  if (ids.size() != pointers.size()) return CUDNN_STATUS_BAD_PARAM;
  std::map<int64_t, void*> addresses;
  for (size_t i = 0; i < ids.size(); ++i) addresses[ids[i]] = pointers[i];
  std::vector<float> sums;
  HostGraph host(addresses);
  const auto operations = asked_graph->All<cudnnBackendDescriptor_t>(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  const bool attends =
      std::any_of(operations.begin(), operations.end(), [](cudnnBackendDescriptor_t operation) {
        return Of(operation).type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
      });
  for (cudnnBackendDescriptor_t operation : operations) {
    if (!DemandedOfNormalization(Of(operation).type).empty()) {
      NormalizeOnHost(Of(operation), addresses);
      continue;
    }
    if (attends) {
      host.Run(Of(operation));
      continue;
    }
    if (Of(operation).type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
      AddBias(Of(operation), addresses, sums);
    } else {
      Convolve(Of(operation), addresses, sums);
    }
  }
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

absl::StatusOr<void*> FakeSymbol(const char* name) {
  static const auto* const functions = new std::map<std::string, void*>{
      {"cudnnGetVersion", reinterpret_cast<void*>(FakeVersion)},
      {"cudnnCreate", reinterpret_cast<void*>(FakeCreate)},
      {"cudnnDestroy", reinterpret_cast<void*>(FakeDestroy)},
      {"cudnnSetStream", reinterpret_cast<void*>(FakeSetStream)},
      {"cudnnGetErrorString", reinterpret_cast<void*>(FakeErrorString)},
      {"cudnnGetLastErrorString", reinterpret_cast<void*>(FakeLastError)},
      {"cudnnBackendCreateDescriptor", reinterpret_cast<void*>(FakeCreateDescriptor)},
      {"cudnnBackendDestroyDescriptor", reinterpret_cast<void*>(FakeDestroyDescriptor)},
      {"cudnnBackendSetAttribute", reinterpret_cast<void*>(FakeSet)},
      {"cudnnBackendGetAttribute", reinterpret_cast<void*>(FakeGet)},
      {"cudnnBackendFinalize", reinterpret_cast<void*>(FakeFinalize)},
      {"cudnnBackendExecute", reinterpret_cast<void*>(FakeExecute)},
  };
  const auto found = functions->find(name);
  if (found != functions->end()) return found->second;
  return absl::FailedPreconditionError(absl::StrCat("no function ", name));
}

}  // namespace weft::cuda
